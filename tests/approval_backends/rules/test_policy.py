"""The verdict of rules from a file about a call, and the reasons."""

from __future__ import annotations

import json
import shlex
import threading
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.errors import HookAbortError
from amplifier_hooks.ports import ActionFacts, RuleVerdict
from amplifier_hooks.testing import CollectingAudit, ScriptedApprover
from approval_backends.errors import InvalidRules
from approval_backends.rules.policy import Rules

if TYPE_CHECKING:
    from pathlib import Path

HEAD = "version: 1\nrules:\n"
ALLOW_GIT = "- {id: git, action: allow, tool: Bash, command: [git status, git push *], hooks: [shell]}\n"
DENY_RM = "- {id: no-rm, action: deny, tool: Bash, command: rm -rf, reason: Not for agents.}\n"
ASK_HIGH = "- {id: risky, action: ask, tool: '*', risk: high, reason: 'Sure?'}\n"


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
    return verdict.action if verdict else None


# -- verdicts ----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("BCK-6", "BCK-9")
def test_strictest_wins() -> None:
    """Deny beats ask, ask beats allow, and if no rule matches there is no verdict."""
    policy = rules(ALLOW_GIT, ASK_HIGH, DENY_RM)
    assert policy.judge(shell("git push")) == RuleVerdict(action="allow", rule="git", answers=("shell",))
    assert policy.judge(replace(shell("git push"), risk="high")) == RuleVerdict(
        action="ask", rule="risky", reason="Sure?"
    )
    assert policy.judge(replace(shell("rm -rf /"), risk="high")) == RuleVerdict(
        action="deny", rule="no-rm", reason="Not for agents."
    )
    assert policy.judge(shell("ls")) is None


@pytest.mark.rule("BCK-9")
def test_every_rule_that_matches_speaks() -> None:
    """Allows that match together answer the questions of all hooks they name, and the record gets all their names."""
    second = "- {id: any-git, action: allow, tool: Bash, command: git *, hooks: [audit, shell], reason: Known.}\n"
    verdict = rules(ALLOW_GIT, second).judge(shell("git status"))
    assert verdict == RuleVerdict(action="allow", rule="any-git, git", reason="Known.", answers=("audit", "shell"))


@pytest.mark.rule("BCK-9", "APR-13")
def test_the_risk_of_an_ask() -> None:
    """Of all asks that match the highest risk counts, with every reason for it; without a risk the verdict has none."""
    asks = [
        "- {id: a, action: ask, tool: Bash, with_risk: high, risk_reason: others pull it}\n",
        "- {id: b, action: ask, tool: '*', with_risk: medium, risk_reason: it writes}\n",
        "- {id: c, action: ask, tool: '*', with_risk: high, risk_reason: no way back}\n",
        "- {id: d, action: ask, tool: Bash, with_risk: high}\n",
        "- {id: e, action: ask, tool: Read}\n",
    ]
    verdict = rules(*asks).judge(call())
    assert verdict is not None
    assert (verdict.rule, verdict.risk, verdict.risk_reason) == ("a, b, c, d", "high", "others pull it\nno way back")
    explained = str(rules(asks[0]).explain(call()))
    assert explained.splitlines()[:2] == ["ask, by a", "  with high risk: others pull it"]
    quiet = rules(asks[4]).judge(call("Read"))
    assert quiet == RuleVerdict(action="ask", rule="e")
    assert rules(DENY_RM, *asks).judge(shell("rm -rf /")) == RuleVerdict(
        action="deny", rule="no-rm", reason="Not for agents."
    )


@pytest.mark.rule("BCK-9")
@pytest.mark.parametrize("otherwise", ["ask", "deny"])
def test_otherwise(otherwise: str) -> None:
    """A file may say what happens if no rule matches; that is never to allow."""
    policy = rules(ALLOW_GIT, head=f"version: 1\notherwise: {otherwise}\nrules:\n")
    assert effect(policy, shell("git status")) == "allow"
    verdict = policy.judge(shell("ls"))
    assert verdict is not None
    assert (verdict.action, verdict.rule) == (otherwise, "otherwise")
    with pytest.raises(InvalidRules, match=r"^rules:2: 'otherwise' is 'allow'; write 'ask' or 'deny'$"):
        rules(ALLOW_GIT, head="version: 1\notherwise: allow\nrules:\n")


@pytest.mark.rule("BCK-9")
def test_events_and_tools() -> None:
    """A rule is about tool:pre unless it names another event, and matches whole names of tools as hooks do."""
    policy = rules(
        "- {id: a, action: deny, tool: 'Bash|mcp__*'}\n- {id: b, action: deny, tool: X, event: 'memory:*'}\n"
    )
    assert effect(policy, call("Bash")) == effect(policy, call("mcp__git__push")) == "deny"
    for tool in ("bash", "BashOutput", "Bash\n", "X", ""):
        assert policy.judge(call(tool)) is None
    assert policy.judge(replace(call("Bash"), event="llm:pre")) is None
    assert effect(policy, replace(call("X"), event="memory:pre")) == "deny"


@pytest.mark.rule("BCK-9")
def test_doubt_counts_against_the_call() -> None:
    """A pattern that takes too long counts as met for a deny, and as not met for an allow."""
    slow = "'re:(a+)+b|(a|aa)+c'"
    hostile = call("a" * 4_000 + "!")
    assert effect(rules(f"- {{id: a, action: deny, tool: {slow}}}\n"), hostile) == "deny"
    assert effect(rules(f"- {{id: a, action: ask, tool: {slow}}}\n"), hostile) == "ask"
    allow = f"- {{id: a, action: allow, tool: {slow}, risk: medium, arguments: {{n: 1}}, hooks: '*'}}\n"
    assert effect(rules(allow), replace(hostile, arguments={"n": 1})) is None


# -- arguments ---------------------------------------------------------------------------------------------------------


def sql(condition: str, action: str = "allow", more: str = "") -> Rules:
    """Return rules with one condition on the argument `q`."""
    hooks = ", hooks: '*'" if action == "allow" else ""
    return rules(f"- {{id: q, action: {action}, tool: Sql, arguments: {{q: {condition}}}{more}{hooks}}}\n")


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
@pytest.mark.parametrize("given", ["tool: Bash", "tool: Bash, command: git status", "tool: '*', risk: medium"])
def test_an_allow_names_its_arguments(given: str) -> None:
    """An allow accepts the arguments of its conditions, and those that it lists, with any value."""

    def allowed(more: str, **arguments: Any) -> bool:
        named = {"command": "git status"} if "command" in given else {}
        rule = rules(f"- {{id: a, action: allow, {given}, hooks: '*'{more}}}\n")
        return rule.judge(call(**named, **arguments)) is not None

    evil = {"cwd": "/tmp/evil", "env": {"GIT_CONFIG_COUNT": "1"}, "dangerouslyDisableSandbox": True}
    for more in ("", ", other_arguments: none", ", other_arguments: [description, timeout]"):
        assert allowed(more)
        for name, value in evil.items():
            assert not allowed(more, **{name: value})
    assert allowed(", other_arguments: [description, timeout]", description={"a": ["/etc"]}, timeout=3)
    assert not allowed(", other_arguments: description", description="x", cwd="/")
    assert allowed(", other_arguments: any", **evil)


@pytest.mark.rule("BCK-9")
@pytest.mark.parametrize("handle", [object(), b"x", {1}, [b"rm"], {"a": object()}], ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("given", ["arguments: {q: x}", "arguments: {q: {glob: x}}", "command: ls", "path: ./x"])
def test_values_that_are_no_json(handle: object, given: str) -> None:
    """A value that is no JSON meets every condition of a deny or ask, and no allow."""
    for effect in ("deny", "ask"):
        assert rules(f"- {{id: a, action: {effect}, tool: '*', {given}}}\n").judge(call(q=handle)) is not None
    for more in ("other_arguments: any", "other_arguments: [q]", f"other_arguments: any, {given}"):
        policy = rules(f"- {{id: a, action: allow, tool: Bash, {more}, hooks: '*'}}\n")
        assert policy.judge(call(q=handle, command="ls", path="x")) is None


@pytest.mark.rule("BCK-9")
def test_otherwise_is_about_tools() -> None:
    """At an event that is no tool call the hooks decide, unless a rule matches."""
    policy = rules(DENY_RM, head="version: 1\notherwise: deny\nrules:\n")
    assert effect(policy, shell("ls")) == "deny"
    assert policy.judge(replace(shell("ls"), event="memory:pre")) is None


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
        "git push -u origin main",
        "git push && git status",
        "cd src && git status 2>&1 | git push; true",
        "git status\n\ngit push >/dev/null 2>&1 &",
        " git push ",
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
    "git push > notes.txt",
    "git push < .env",
    "A=1; git push",
    "A=1 git push",
    "unset GIT_DIR; git push",
    "export A=1; git push",
    "cd /tmp && git push",
    "cd .. && git status",
    "cd - && git status",
    "git() { rm -rf /; }; git push",
    "git push && ./build.sh",
    "sh -c 'git push'",
    "find . -exec git push +",
    "git\tpush",
    "git status &>/dev/null rm -rf src",
    "git status &>/dev/null",
    "git log <<E'F'\nEF\nrm -rf src\nE'F'\n",
    "git push " + "a" * 5_000,
    "\uff1b git push",
]


@pytest.mark.rule("BCK-9")
@pytest.mark.parametrize("command", COMPOUND)
def test_compound_commands(command: str) -> None:
    """No rule for commands allows a text with another command in it, or one that shells read in different ways."""
    allow_all_git = "- {id: any, action: allow, tool: Bash, command: [git push *, git *], hooks: '*'}\n"
    assert rules(ALLOW_GIT, allow_all_git).judge(shell(command)) is None


@pytest.mark.rule("BCK-9")
@pytest.mark.parametrize(
    ("command", "allowed"),
    [
        ("env -i git status || timeout 5 git status", True),
        ("timeout 5 git status -s", True),
        ("timeout 5 env git status", True),
        ("env A=1 ls", True),
        ("env touch x", False),
        ("env BASH_ENV=x git status", False),
        ("timeout 5 evil", False),
    ],
)
def test_a_program_that_starts_others_needs_an_allow_for_both(command: str, allowed: bool) -> None:
    """An allow for a program that starts others covers those that only read; any other one needs its own pattern."""
    both = "- {id: a, action: allow, tool: Bash, command: [env *, timeout *, git status], hooks: '*'}\n"
    assert (rules(both).judge(shell(command)) is not None) is allowed


@pytest.mark.rule("BCK-9")
@pytest.mark.parametrize(
    ("command", "action"),
    [
        ("git -C . push", "deny"),
        ("git --no-pager -c a=b push -q", "deny"),
        ("X=1 git -C . push", "deny"),
        ("git.exe push", "deny"),
        ("git -C . $X", "deny"),
        ("git " + "-a " * 1_000 + "push", "deny"),
        ("git log --all push", None),
        ("git commit -m push", None),
    ],
    ids=lambda value: str(value)[:30],
)
def test_options_between_a_program_and_its_subcommand_hide_nothing(command: str, action: str | None) -> None:
    """A deny for a subcommand is met whatever options stand in front of the subcommand."""
    verdict = rules("- {id: no-push, action: deny, tool: Bash, command: git push}\n").judge(shell(command))
    assert (verdict and verdict.action) == action


@pytest.mark.rule("BCK-9")
@pytest.mark.parametrize(
    ("pattern", "command", "action"),
    [
        ("rm -rf", "rm -fr x", "deny"),
        ("rm -rf", "cd /tmp && /bin/rm -r -f x", "deny"),
        ("rm -rf", "sudo rm x -rfv", "deny"),
        ("rm -rf", "rm -f x", None),
        ("rm -rf", "rm -r x", None),
        ("rm -rf", "rm -- -fr", None),
        ("rm -rf", "rmdir -fr x", None),
        ("git push --force", "git push origin main --force", "deny"),
        ("git push --force", "git -C . push origin --force", "deny"),
        ("git push --force", "git push origin", None),
        ("git push --force", "git fetch --force", None),
        ("git push -f", "git push -uf origin", "deny"),
        ("rm -rf", "X=1 rm -r -f x", "deny"),
        ("rm -rf", "coproc rm -r -f x", "deny"),
        ("rm -rf", "ssh host rm -f -r x", "deny"),
        ("rm -rf", "rm -R -f x", "deny"),
        ("rm -rf", "rm -fR x", "deny"),
        ("git push --force", "A=b git push origin main --force", "deny"),
        ("git push --force", "git stash push --force", None),
        ("rm -rf", "rm x $X", "deny"),
        ("rm -rf", "rm x -- $X", None),
        ("git push --force", "git push origin $X", "deny"),
        ("git push --force", "git push origin HEAD:$X", None),
        ("git commit --no-verify", 'git commit -m "$X"', None),
        ("git commit --no-verify", 'git commit $X -m "$Y"', "deny"),
        ("rm -rf", "rm " * 5 + "x", "deny"),
        ("git commit -m", "git commit -am x", "deny"),
        ("git commit -am wip", "git commit -a -m done", None),
        ("tar -x", "tar -cf x", None),
    ],
)
def test_options_count_in_any_order_and_bundle(pattern: str, command: str, action: str | None) -> None:
    """A deny for options is met by any order, bundle and place of them, and by nothing that lacks one."""
    verdict = rules(f"- {{id: no, action: deny, tool: Bash, command: {pattern}}}\n").judge(shell(command))
    assert (verdict and verdict.action) == action


LAUNCHING = [
    "sort --compress-program=evil x",
    "sort --comp evil x",
    "git -c core.fsmonitor=evil status",
    "git -ccore.fsmonitor=evil status",
    "git -C /tmp/evil status",
    "git push --force",
    "git push --mirr",
    "git push origin --del main",
    "git --work-tree=/ clean -fd",
    "git archive --remote=. --exec=evil HEAD",
    "git log --output=evil",
    "sort -o evil x",
    "git config alias.x evil",
    "git clone -u evil host:x",
    "git rebase -x evil",
    "git grep -Oevil x",
    "git fetch --upload-pack=evil",
    "find . -exec evil +",
    "find . -okdir evil",
    "tar -xf x --to-command=evil",
    "tar --checkpoint=1 --checkpoint-action=exec=evil",
    "tar xIf evil x",
    "tar -xvIevil",
    "rsync -avze evil a b",
    "rsync --rsh evil a b",
    "ssh -o ProxyCommand=evil host",
    "scp -oProxyCommand=evil a b",
    "env evil",
    "env FOO=1",
    "xargs evil",
    "vim -c evil",
    "vim '+evil'",
    "man -P evil ls",
    "less +evil x",
    "make SHELL=evil",
    "go test -exec evil",
    "go test --exec=evil",
    "python3.12 -c evil",
    "sqlite3 -cmd '.shell evil' x",
    "diff3 --diff-program=evil x",
    "/usr/bin/env evil",
    "GIT.EXE -c core.pager=evil log",
    ["find", ".", "-exec", "sh", "-c", "a;b"],
]


@pytest.mark.rule("BCK-9")
@pytest.mark.parametrize("command", LAUNCHING, ids=str)
def test_programs_that_run_others(command: Any) -> None:
    """A command ending in ` *` covers no words that add a kind of impact; a whole command may have any."""
    words = command if isinstance(command, list) else command.split()
    first = words[0]
    begin = " ".join(words[: 1 + (words[1] in {"push", "log"})])
    broad = rules(f"- {{id: a, action: allow, tool: Bash, command: [{begin} *], hooks: '*'}}\n")
    exact = rules(f"- {{id: a, action: allow, tool: Bash, command: {json.dumps(shlex.join(words))}, hooks: '*'}}\n")
    assert broad.judge(shell(command)) is None
    if "'" not in command:
        assert effect(exact, shell(command)) == "allow"
    deny = rules(f"- {{id: a, action: deny, tool: Bash, command: {first.lower()}}}\n")
    assert effect(deny, shell(command)) == "deny"


@pytest.mark.rule("BCK-9")
@pytest.mark.parametrize(
    "command",
    [
        "sort -rn --check x",
        "git commit --message config-file",
        "git push -u origin main",
        "git log --oneline --exclude=x",
        "find . -name x -type f -newer y",
        "tar -xzvf x",
        "tar xzvf x",
        "rsync -av --exclude=x a b",
        "less -R x",
        "python3 -m pytest -q",
        "make test",
        "unknown-program -c x",
        "awk 1 x",
        "find . -exec grep x '{}' +",
        "xargs -n 1 ls -l x",
    ],
)
def test_harmless_options(command: str) -> None:
    """Other options of these programs, and other programs, are covered by ` *`."""
    policy = rules(f"- {{id: a, action: allow, tool: Bash, command: [{command.partition(' ')[0]} *], hooks: '*'}}\n")
    assert effect(policy, shell(command)) == "allow"


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
        shell("  "),
        shell("cd src"),
        shell("true; exit"),
        shell("< notes"),
        replace(shell("git status"), cwd=""),
    ],
)
def test_other_commands(facts: ActionFacts) -> None:
    """A command that is not named, stands in the wrong argument, or runs in an unknown folder is not allowed."""
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
        "x=rm; $x -rf /",
        "rm $'-rf' /",
        "{rm,-rf,/}",
        "rm $OPTIONS /",
        "$ANYTHING",
        "r? -rf",
        "if x; then (",
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
    named = rules("- {id: no-rm, action: deny, tool: Bash, command: rm -rf, command_argument: run}\n")
    assert effect(named, call(run="rm -rf /", command="ls")) == "deny"
    assert named.judge(call(command="rm -rf /")) is None
    assert effect(rules(DENY_RM), call(script=["x"] * 5_000)) == "deny"


# -- why ---------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("BCK-9")
def test_explain() -> None:
    """An explanation and its text name the rule that decides, the others that matched, and the reasons of the rest."""
    policy = rules(
        ALLOW_GIT, DENY_RM, ASK_HIGH, "- {id: any, action: allow, tool: Bash, other_arguments: any, hooks: '*'}\n"
    )
    explained = policy.explain(shell("rm -rf /"))
    assert explained.verdict == policy.judge(shell("rm -rf /"))
    assert [one.rule for one in explained.deciding] == ["no-rm"]
    assert [one.rule for one in explained.outdone] == ["any"]
    assert [one.rule for one in explained.others] == ["git", "risky"]
    assert str(explained).splitlines() == [
        "deny, by no-rm: Not for agents.",
        "  decides: no-rm (deny, line 4): 'rm -rf' stands in it",
        "  matches: any (allow, line 6): the tool is 'Bash'",
        "  no match: git (allow, line 3): the command 'rm -rf /' is not 'git status' or 'git push *'",
        "  no match: risky (ask, line 5): the risk is medium, not high",
    ]


@pytest.mark.rule("BCK-9")
def test_explain_doubt() -> None:
    """An explanation says that a condition is undecided, and counts it in its place among the rules."""
    text = "- {id: p, action: deny, tool: Read, path: ./x}\n"
    explained = rules(text).explain(replace(call("Read", file_path="x"), cwd=""))
    assert [one.met for one in explained.deciding] == [None]
    assert str(explained.deciding[0]) == "p (deny, line 3): the folder that './x' begins at is not known"
    assert str(rules(ALLOW_GIT).explain(shell("git push; ls"))).splitlines() == [
        "no rule speaks: the hooks decide",
        "  no match: git (allow, line 3): the command 'ls' is not 'git status' or 'git push *'",
    ]
    given = rules("- {id: g, action: allow, tool: Bash, command: git *, hooks: '*'}\n").explain(
        shell("git -c core.pager=b log")
    )
    assert given.others[0].why == "the command 'git -c core.pager=b log' adds runs_unread, so ' *' does not cover it"
    looping = rules(text).explain(call("Read", filePath="a\0"))
    assert looping.deciding[0].why == "the target of the path 'a\\x00' is unknown"
    assert str(rules(ALLOW_GIT).explain(shell("git push"))).startswith(
        "allow, by git: answers the questions of shell\n"
    )


# -- rules in front of a session ---------------------------------------------------------------------------------------


ALLOW = "version: 1\nrules:\n- {id: reads, action: allow, tool: Bash, command: git status, hooks: [shell]}\n"
DENY = ALLOW + "- {id: frozen, action: deny, tool: Bash, command: git, reason: no git today}\n"


OTHERWISE = b"version: 1\notherwise: ask\nrules:\n- {id: here, action: allow, tool: Bash, command: pwd, hooks: '*'}\n"


@pytest.mark.rule("BCK-9", "APR-5")
@pytest.mark.fault("F-APR-23")
async def test_always_where_no_rule_allows() -> None:
    """With `otherwise: ask`, an "always" on one command lets no other command run, however alike the questions are."""
    approver, ran = ScriptedApprover("Allow always", "Deny", "Deny"), list[object]()
    async with SessionCoordinator(
        HookRegistry(), session_id="s1", approvals=approver, rules=Rules(OTHERWISE), cwd="/w"
    ) as session:
        for command in ("ls | head", "ls | head", "rm -rf ~", "ls | head; rm -rf ~"):
            await session.call_tool("Bash", {"command": command}, ran.append)
    assert ran == [{"command": "ls | head"}] * 2
    assert [request.prompt for request in approver.requests] == ["No rule allows this."] * 3


EVENTS = b"""
version: 1
otherwise: deny
rules:
  - {id: no-memory, action: deny, tool: '*', event: 'memory:pre', reason: nothing is remembered}
  - {id: no-agents, action: deny, tool: '*', event: 'agent:*', arguments: {inputs: {glob: '*prod*'}}}
  - {id: no-keys, action: ask, tool: '*', event: 'llm:pre|prompt:submit', path: '**/.env'}
"""


@pytest.mark.rule("BCK-6", "BCK-9")
async def test_rules_about_other_events() -> None:
    """Rules decide about every event that can be stopped, by its payload; `otherwise` is about tool calls."""
    approver, done, audit = ScriptedApprover("Deny"), list[object](), CollectingAudit()
    async with SessionCoordinator(
        HookRegistry(), session_id="s1", approvals=approver, audit=audit, rules=Rules(EVENTS), cwd="/w"
    ) as session:
        with pytest.raises(HookAbortError, match="nothing is remembered"):
            await session.operation("memory", {"content": "x", "key": "k"}, done.append)
        with pytest.raises(HookAbortError, match="a rule forbids it"):
            await session.invoke_agent("sub", {"target": "prod-1"}, lambda inputs, _prompt: done.append(inputs))
        assert done == []
        await session.invoke_agent("sub", {"target": "test"}, lambda inputs, _prompt: done.append(inputs))
        assert done == [{"target": "test"}]
        assert not (await session.emit("prompt:submit", {"prompt": "hello"})).denied
        assert (await session.emit("prompt:submit", {"prompt": ".env"})).denied
        assert (await session.emit("llm:pre", {"messages": [object()]})).denied
        assert (await session.call_tool("Read", {}, done.append)).by == "rule:otherwise"
    assert [request.event for request in approver.requests] == ["prompt:submit"]
    decided = [(facts.get("event"), facts.get("rule")) for facts in audit.facts("approval.decided")]
    assert decided[:2] == [("memory:pre", "no-memory"), ("agent:pre", "no-agents")]


@pytest.mark.rule("BCK-6", "BCK-9")
@pytest.mark.parametrize(
    ("cwd", "path"), [("/w", "./" * 2_100 + ".env"), ("", ".env"), ("/w", "x\0.env")], ids=[1, 2, 3]
)
async def test_unresolved_paths_in_a_session(cwd: str, path: str) -> None:
    """A call with a path that cannot be resolved is denied by a rule about any path."""
    rules = Rules(b"version: 1\nrules:\n- {id: secrets, action: deny, tool: '*', path: '**/.env'}\n")
    async with SessionCoordinator(HookRegistry(), rules=rules, cwd=cwd) as session:
        assert (await session.call_tool("Read", {"filePath": path}, str)).by == "rule:secrets"


@pytest.mark.rule("COO-4", "BCK-9")
@pytest.mark.parametrize(
    ("cwd", "path", "ok"),
    [("/w/src", "a.py", True), ("/", "src/a.py", False), ("/tmp", "/w/src/a.py", True), ("/w/config", "live", False)],
    ids=["below", "elsewhere", "absolute", "denied"],
)
async def test_patterns_begin_at_the_sessions_folder(cwd: str, path: str, ok: bool) -> None:
    """A call's folder resolves its paths; the relative patterns of rules begin at the session's folder nevertheless."""
    rules = Rules(
        b"version: 1\notherwise: deny\nrules:\n"
        b"- {id: mine, action: allow, tool: '*', path: 'src/**', hooks: '*'}\n"
        b"- {id: config, action: deny, tool: '*', path: 'config/**'}\n"
    )
    async with SessionCoordinator(HookRegistry(), rules=rules, cwd="/w") as session:
        assert (await session.call_tool("Edit", {"file_path": path}, str, cwd=cwd)).ok is ok


@pytest.mark.rule("BCK-6", "BCK-9", "APR-5")
@pytest.mark.fault("F-APR-16")
async def test_a_deny_rule_added_later(tmp_path: Path) -> None:
    """An "allow always" answers until a file that is read again forbids it; both decisions are on record."""
    path = tmp_path / "rules.yaml"
    path.write_text(ALLOW)
    rules, audit, approver = Rules.load(path), CollectingAudit(), ScriptedApprover("Allow always")
    registry = HookRegistry()
    registry.gate(
        "tool:pre",
        lambda event, data: HookResult.ask("Run it?", options=["Allow once", "Allow always", "Deny"]),
        name="shell",
    )
    session = SessionCoordinator(registry, session_id="s1", approvals=approver, audit=audit, rules=rules, cwd=tmp_path)
    ran: list[object] = []
    async with session:
        assert (await session.call_tool("Bash", {"command": "git status"}, ran.append)).ok
        assert approver.requests == []  # the rule answered
        for _ in range(2):
            assert (await session.call_tool("Bash", {"command": "git push"}, ran.append)).ok
        assert len(approver.requests) == 1  # a person answered once, and the grant after that
        path.write_text(DENY)
        assert rules.reload()
        for command in ("git push", "git status"):
            outcome = await session.call_tool("Bash", {"command": command}, ran.append)
            assert outcome.reason == "Operation denied by rule:frozen: no git today"
    assert len(ran) == 3
    assert len(approver.requests) == 1
    decided = [(facts["by"], facts["status"]) for facts in audit.facts("approval.decided")]
    assert decided[0] == ("rule:reads", "approved")
    assert decided[-2:] == [("rule:frozen", "denied")] * 2


@pytest.mark.rule("BCK-9", "COO-4")
def test_folder_of_the_call() -> None:
    """A relative pattern begins at the session's root, and a path of the call in the call's own folder."""
    policy = Rules(b"version: 1\nrules:\n- {id: live, action: deny, tool: '*', path: './config/live.yaml'}\n")
    inside = replace(call("Write", file_path="live.yaml"), cwd="/p/config", root="/p")
    assert effect(policy, inside) == "deny"
    assert effect(policy, replace(inside, cwd="/p")) is None


@pytest.mark.rule("BCK-9")
async def test_large_arguments_are_judged_off_the_loop() -> None:
    """Rules look at large arguments in a thread; a policy in code is asked on the loop unless it allows that."""
    asked: list[tuple[bool, bool]] = []

    class Policy:
        """A policy that notes its thread."""

        def __init__(self, *, any_thread: bool) -> None:
            self.any_thread = any_thread

        def judge(self, facts: ActionFacts) -> RuleVerdict:
            """Deny."""
            asked.append((self.any_thread, threading.current_thread() is threading.main_thread()))
            return RuleVerdict(action="deny", rule="r", reason="no")

    for any_thread in (True, False):
        session = SessionCoordinator(rules=Policy(any_thread=any_thread))
        assert (await session.call_tool("Write", {"x": "y" * 70_000}, lambda _: pytest.fail("it ran"))).denied
        assert (await session.call_tool("Write", {"x": "y"}, lambda _: pytest.fail("it ran"))).denied
    assert asked == [(True, False), (True, True), (False, True), (False, True)]
    assert Rules.any_thread


# -- report-only -------------------------------------------------------------------------------------------------------

REPORT_ONLY = "version: 1\nreport_only: true\nrules:\n"


@pytest.mark.rule("BCK-9")
@pytest.mark.parametrize(
    ("text", "command", "would"),
    [
        (DENY_RM, "rm -rf x", {"action": "deny", "reason": "Not for agents."}),
        (ASK_HIGH.replace("risk: high, ", ""), "rm -rf x", {"action": "ask_user", "reason": "Sure?"}),
        (ALLOW_GIT, "git push", {"action": "allow", "reason": None}),
        (ALLOW_GIT, "rm -rf x", None),
    ],
)
async def test_report_only_rules_decide_nothing(text: str, command: str, would: object) -> None:
    """A verdict of report-only rules changes neither the outcome nor the question, and is on record."""
    registry, audit = HookRegistry(), CollectingAudit()
    registry.gate("tool:pre", lambda event, data: HookResult.ask("Run it?"), name="shell")
    approver = ScriptedApprover("Allow")
    policy = rules(text, head=REPORT_ONLY)
    async with SessionCoordinator(registry, session_id="s", approvals=approver, rules=policy, audit=audit) as session:
        outcome = await session.call_tool("Bash", {"command": command}, lambda given: "done")
    assert outcome.ok
    assert [request.prompt for request in approver.requests] == ["Run it?"]
    assert [facts["would"] for facts in audit.facts("rules.reported")] == ([would] if would else [])


@pytest.mark.rule("BCK-9")
def test_an_explanation_says_that_the_rules_stop_nothing() -> None:
    """The explanation of report-only rules begins with the words that the file stops nothing."""
    explained = rules(DENY_RM, head=REPORT_ONLY).explain(shell("rm -rf x"))
    assert str(explained).startswith("The file is report-only: it stops nothing.")
