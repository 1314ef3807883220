"""The verdict of rules from a file about a call, and the reasons."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from amplifier_hooks.ports import ActionFacts, RuleVerdict
from approval_backends.errors import InvalidRules
from approval_backends.rules.policy import Rules

HEAD = "version: 1\nrules:\n"
ALLOW_GIT = "- {id: git, effect: allow, tool: Bash, command: [git status, git push *], hooks: [shell]}\n"
DENY_RM = "- {id: no-rm, effect: deny, tool: Bash, command: rm -rf, reason: Not for agents.}\n"
ASK_HIGH = "- {id: risky, effect: ask, tool: '*', risk: high, reason: 'Sure?'}\n"


def rules(*texts: str, head: str = HEAD) -> Rules:
    """Return rules of these lines."""
    return Rules((head + "".join(texts)).encode())


def call(tool: str = "Bash", **arguments: Any) -> ActionFacts:
    """Return a call by its tool and arguments."""
    return ActionFacts(tool=tool, arguments=arguments, event="tool:pre", session="s1", tenant="acme", cwd="/project")


def shell(command: Any) -> ActionFacts:
    """Return a call of the shell."""
    return call(command=command)


def effect(policy: Rules, facts: ActionFacts) -> str | None:
    """Return the effect of the rules in a word."""
    verdict = policy.judge(facts)
    return verdict.effect if verdict else None


# -- verdicts ----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("BCK-6", "BCK-9")
def test_strictest_wins() -> None:
    """Deny beats ask, ask beats allow, and if no rule matches there is no verdict."""
    policy = rules(ALLOW_GIT, ASK_HIGH, DENY_RM)
    assert policy.judge(shell("git push")) == RuleVerdict(effect="allow", rule="git", answers=("shell",))
    assert policy.judge(evolve(shell("git push"), risk="high")) == RuleVerdict(
        effect="ask", rule="risky", reason="Sure?"
    )
    assert policy.judge(evolve(shell("rm -rf /"), risk="high")) == RuleVerdict(
        effect="deny", rule="no-rm", reason="Not for agents."
    )
    assert policy.judge(shell("ls")) is None


@pytest.mark.rule("BCK-9")
def test_every_rule_that_matches_speaks() -> None:
    """Allows that match together answer the questions of all hooks they name, and the record gets all their names."""
    second = "- {id: any-git, effect: allow, tool: Bash, command: git *, hooks: [audit, shell], reason: Known.}\n"
    verdict = rules(ALLOW_GIT, second).judge(shell("git status"))
    assert verdict == RuleVerdict(effect="allow", rule="any-git, git", reason="Known.", answers=("audit", "shell"))


@pytest.mark.rule("BCK-9", "APR-13")
def test_the_risk_of_an_ask() -> None:
    """Of all asks that match the highest risk counts, with every reason for it; without a risk the verdict has none."""
    asks = [
        "- {id: a, effect: ask, tool: Bash, with_risk: high, risk_reason: others pull it}\n",
        "- {id: b, effect: ask, tool: '*', with_risk: medium, risk_reason: it writes}\n",
        "- {id: c, effect: ask, tool: '*', with_risk: high, risk_reason: no way back}\n",
        "- {id: d, effect: ask, tool: Bash, with_risk: high}\n",
        "- {id: e, effect: ask, tool: Read}\n",
    ]
    verdict = rules(*asks).judge(call())
    assert verdict is not None
    assert (verdict.rule, verdict.risk, verdict.risk_reason) == ("a, b, c, d", "high", "others pull it\nno way back")
    explained = str(rules(asks[0]).explain(call()))
    assert explained.splitlines()[:2] == ["ask, by a", "  with high risk: others pull it"]
    quiet = rules(asks[4]).judge(call("Read"))
    assert quiet == RuleVerdict(effect="ask", rule="e")
    assert rules(DENY_RM, *asks).judge(shell("rm -rf /")) == RuleVerdict(
        effect="deny", rule="no-rm", reason="Not for agents."
    )


@pytest.mark.rule("BCK-9")
@pytest.mark.parametrize("otherwise", ["ask", "deny"])
def test_otherwise(otherwise: str) -> None:
    """A file may say what happens if no rule matches; that is never to allow."""
    policy = rules(ALLOW_GIT, head=f"version: 1\notherwise: {otherwise}\nrules:\n")
    assert effect(policy, shell("git status")) == "allow"
    verdict = policy.judge(shell("ls"))
    assert verdict is not None
    assert (verdict.effect, verdict.rule) == (otherwise, "otherwise")
    with pytest.raises(InvalidRules, match=r"^rules:2: 'otherwise' is 'allow'; write 'ask' or 'deny'$"):
        rules(ALLOW_GIT, head="version: 1\notherwise: allow\nrules:\n")


@pytest.mark.rule("BCK-9")
def test_events_and_tools() -> None:
    """A rule is about tool:pre unless it names another event, and matches whole names of tools as hooks do."""
    policy = rules("- {id: a, effect: deny, tool: 'Bash|mcp__*'}\n- {id: b, effect: deny, tool: X, event: 'run:*'}\n")
    assert effect(policy, call("Bash")) == effect(policy, call("mcp__git__push")) == "deny"
    for tool in ("bash", "BashOutput", "Bash\n", "X", ""):
        assert policy.judge(call(tool)) is None
    assert policy.judge(evolve(call("Bash"), event="llm:pre")) is None
    assert effect(policy, evolve(call("X"), event="run:start")) == "deny"


@pytest.mark.rule("BCK-9")
def test_doubt_counts_against_the_call() -> None:
    """A pattern that takes too long counts as met for a deny, and as not met for an allow."""
    slow = "'re:(a+)+b|(a|aa)+c'"
    hostile = call("a" * 4_000 + "!")
    assert effect(rules(f"- {{id: a, effect: deny, tool: {slow}}}\n"), hostile) == "deny"
    assert effect(rules(f"- {{id: a, effect: ask, tool: {slow}}}\n"), hostile) == "ask"
    allow = f"- {{id: a, effect: allow, tool: {slow}, risk: medium, arguments: {{n: 1}}, hooks: '*'}}\n"
    assert effect(rules(allow), evolve(hostile, arguments={"n": 1})) is None


# -- arguments ---------------------------------------------------------------------------------------------------------


def sql(condition: str, effect: str = "allow", more: str = "") -> Rules:
    """Return rules with one condition on the argument `q`."""
    hooks = ", hooks: '*'" if effect == "allow" else ""
    return rules(f"- {{id: q, effect: {effect}, tool: Sql, arguments: {{q: {condition}}}{more}{hooks}}}\n")


@pytest.mark.rule("BCK-9")
@pytest.mark.parametrize(
    ("condition", "value", "allowed"),
    [
        ("main", "main", True),
        ("main", "Main", False),
        ("main", "main ", False),
        ("main", "xmain", False),
        ("1", 1, True),
        ("1", True, False),
        ("1", 1.0, False),
        ("1", "1", False),
        ("'1'", "1", True),
        ("null", None, True),
        ("no", "no", True),
        ("no", False, False),
        ("2026-01-01", "2026-01-01", True),
        ("007", "007", True),
        ("[a, 2]", 2, True),
        ("[a, 2]", "b", False),
        ("main", ["main"], False),
        ("{glob: 'rel-*'}", "rel-1/x", True),
        ("{glob: 'rel-*'}", "x rel-1", False),
        ("{glob: 'rel-*'}", 3, False),
        ("{glob: '*'}", {"a": "b"}, False),
        ("{regex: 'SELECT [a-z ]*'}", "SELECT a from t", True),
        ("{regex: 'SELECT [a-z ]*'}", "SELECT a; DROP TABLE t", False),
        ("{regex: 'SELECT [a-z ]*'}", "SELECT a\n", False),
        ("{regex: 'SELECT|x'}", "SELECTED", False),
        ("{regex: '(a+)+b|(a|aa)+c'}", "a" * 4_000 + "!", False),
    ],
)
def test_arguments_of_an_allow(condition: str, value: object, allowed: bool) -> None:
    """The condition on an argument compares the whole value, by type, and a pattern is about text only."""
    assert (sql(condition).judge(call("Sql", q=value)) is not None) is allowed


@pytest.mark.rule("BCK-9")
def test_other_arguments() -> None:
    """An allow that names arguments names all of them, unless it says otherwise; a missing one does not meet it."""
    extra = call("Sql", q="main", force=True)
    assert sql("main").judge(extra) is None
    assert effect(sql("main", more=", other_arguments: any"), extra) == "allow"
    assert effect(sql("main", "deny"), extra) == "deny"
    both = sql("main", more=", command: ls, path: ./x")
    assert effect(both, call("Sql", q="main", command="ls", path="x")) == "allow"
    assert both.judge(call("Sql", q="main", command="ls", path="x", force=True)) is None
    assert sql("null").judge(call("Sql")) is None
    assert sql("null", "deny").judge(call("Sql")) is None


@pytest.mark.rule("BCK-9")
@pytest.mark.parametrize(
    ("condition", "value"),
    [
        ("{glob: '*drop*'}", ["x", {"drop table": 1}]),
        ("{glob: '*drop*'}", "a\ndrop\nb"),
        ("{regex: '.*drop.*'}", "a\ndrop\nb"),
        ("{glob: '4*'}", 42),
        ("7", [{"n": 7}]),
        ("{regex: '(a+)+b|(a|aa)+c'}", "a" * 4_000 + "!"),
        ("x", ["y"] * 5_000),
    ],
)
def test_arguments_of_a_deny(condition: str, value: object) -> None:
    """A deny looks everywhere inside a value, across lines, and holds for a value that is too large to look through."""
    assert effect(sql(condition, "deny"), call("Sql", q=value)) == "deny"
    assert sql(condition, "deny").judge(call("Sql", q="harmless")) is None


# -- commands ----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("BCK-9")
@pytest.mark.parametrize(
    "command",
    [
        "git status",
        "git  status",
        "'git' status",
        "git push",
        "git push --force origin main",
        'git push -o "some thing"',
        "git push -o 'it''s'",
        ["git", "push", "a;b"],
    ],
)
def test_commands_that_are_allowed(command: object) -> None:
    """The words of a command meet its allow, in any quotes, with any others only if the rule says so."""
    assert effect(rules(ALLOW_GIT), shell(command)) == "allow"


COMPOUND = [
    "git push; rm -rf /",
    "git push && rm -rf /",
    "git push & rm -rf /",
    "git push | sh",
    "git push\nrm -rf /",
    "git push\r\nrm -rf /",
    "git push\u2028rm -rf /",
    "git push $(rm -rf /)",
    "git push `rm -rf /`",
    "git push <(rm -rf /)",
    "git push > /etc/passwd",
    "git push >/etc/passwd",
    "git push \\\n; rm -rf /",
    'git push "$(rm -rf /)"',
    "git push '$(rm -rf /)'",
    "git push 'a & del /q *'",
    "git push %PATH%",
    "git push $'\\x3b'",
    "git push *",
    "git push {a,b}",
    "git push ~root",
    "git push #; rm",
    "git push 'unbalanced",
    "git push !!",
    "git push^&del",
    "git push \x00; rm",
    "git push \x1b[2K",
    "git push \u202eevil",
    "GIT_SSH_COMMAND=evil git push",
    " git push",
    "git push ",
    "git\tpush",
    "git push " + "a" * 5_000,
    "\uff1b git push",
]


@pytest.mark.rule("BCK-9")
@pytest.mark.parametrize("command", COMPOUND)
def test_compound_commands(command: str) -> None:
    """No rule for a command allows anything with more in it than one simple command."""
    allow_all_git = "- {id: any, effect: allow, tool: Bash, command: [git push *, git *], hooks: '*'}\n"
    assert rules(ALLOW_GIT, allow_all_git).judge(shell(command)) is None


@pytest.mark.rule("BCK-9")
@pytest.mark.parametrize(
    "facts",
    [
        shell("git"),
        shell("git stash"),
        shell("git status --short"),
        shell("/tmp/git status"),
        shell("git pushx"),
        shell("Git push"),
        shell(""),
        shell(None),
        shell({"git": "status"}),
        shell([]),
        shell(["git", 1]),
        shell(["git status"]),
        call(script="git status"),
        call(command="git status", cmd="rm -rf /"),
        call(),
    ],
)
def test_other_commands(facts: ActionFacts) -> None:
    """A command that is not named, or stands in the wrong argument, is not allowed."""
    assert rules(ALLOW_GIT).judge(facts) is None


@pytest.mark.rule("BCK-9")
@pytest.mark.parametrize(
    "command",
    [
        "rm -rf /",
        "ls; rm -rf /",
        "ls\nrm  -rf /",
        "sudo /bin/rm -rf /",
        "echo $(rm -rf /)",
        "echo `rm -rf /`",
        "r''m -r\\f /",
        '"rm" "-rf" /',
        "rm${IFS}-rf${IFS}/",
        "rm$IFS-rf /",
        "RM -RF /",
        "true&&rm -rf /",
        "(rm -rf /)",
        "rm \\\n -rf /",
        ["bash", "-c", "rm -rf /"],
        ["rm", "-rf", "/"],
    ],
)
def test_commands_that_are_denied(command: object) -> None:
    """The words of a deny count wherever they stand in a command, and whatever follows them."""
    assert effect(rules(DENY_RM, ALLOW_GIT), shell(command)) == "deny"


@pytest.mark.rule("BCK-9")
def test_commands_in_other_arguments() -> None:
    """A deny looks for a command in every argument, or in the one that it names."""
    assert effect(rules(DENY_RM), call(script=["x", "rm -rf /"])) == "deny"
    assert effect(rules(DENY_RM), call(command="sh", stdin="rm -rf /")) == "deny"
    named = rules("- {id: no-rm, effect: deny, tool: Bash, command: rm -rf, command_argument: run}\n")
    assert effect(named, call(run="rm -rf /", command="ls")) == "deny"
    assert named.judge(call(command="rm -rf /")) is None
    assert effect(rules(DENY_RM), call(script=["x"] * 5_000)) == "deny"


# -- why ---------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("BCK-9")
def test_explain() -> None:
    """An explanation and its text name the rule that decides, the others that matched, and the reasons of the rest."""
    policy = rules(ALLOW_GIT, DENY_RM, ASK_HIGH, "- {id: any, effect: allow, tool: Bash, hooks: '*'}\n")
    explained = policy.explain(shell("rm -rf /"))
    assert explained.verdict == policy.judge(shell("rm -rf /"))
    assert [one.rule for one in explained.deciding] == ["no-rm"]
    assert [one.rule for one in explained.outdone] == ["any"]
    assert [one.rule for one in explained.others] == ["git", "risky"]
    assert str(explained).splitlines() == [
        "deny, by no-rm: Not for agents.",
        "  decides: no-rm (deny, line 4): 'rm -rf' stands in it",
        "  matches: any (allow, line 6): the tool is 'Bash'",
        "  no match: git (allow, line 3): the command is not 'git status' or 'git push *'",
        "  no match: risky (ask, line 5): the risk is medium, not high",
    ]


@pytest.mark.rule("BCK-9")
def test_explain_doubt() -> None:
    """An explanation says that a condition is undecided, and counts it in its place among the rules."""
    text = "- {id: p, effect: deny, tool: Read, path: ./x}\n"
    explained = rules(text).explain(evolve(call("Read", file_path="x"), cwd=""))
    assert [one.met for one in explained.deciding] == [None]
    assert str(explained.deciding[0]) == "p (deny, line 3): the folder that './x' begins at is not known"
    assert str(rules(ALLOW_GIT).explain(shell("git push; ls"))).splitlines() == [
        "no rule speaks: the hooks decide",
        "  no match: git (allow, line 3): the command is more than one simple command",
    ]
    assert str(rules(ALLOW_GIT).explain(shell("git push"))).startswith(
        "allow, by git: answers the questions of shell\n"
    )
