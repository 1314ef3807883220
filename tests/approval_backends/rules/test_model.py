"""Rules files: their mistakes, each with its line and its remedy, and the effect of a reload."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_hooks.errors import HookError, HookUsageError
from amplifier_hooks.ports import ActionFacts
from approval_backends.errors import InvalidRules, RulesUnreadable
from approval_backends.rules.policy import Rules

if TYPE_CHECKING:
    from pathlib import Path

GOOD = "version: 1\nrules:\n  - id: a\n    action: deny\n    tool: Bash\n"
BASH = ActionFacts(tool="Bash", arguments={}, event="tool:pre", session="s", tenant="", cwd="/")


def mistakes(text: str | bytes) -> list[str]:
    """Return the mistakes of a file, as the lines of the error."""
    with pytest.raises(InvalidRules) as caught:
        Rules(text if isinstance(text, bytes) else text.encode(), "r.yaml")
    assert isinstance(caught.value, HookUsageError)
    assert [f"{caught.value.file}:{line}: {said}" for line, said in caught.value.mistakes] == str(
        caught.value
    ).splitlines()
    return [line.removeprefix("r.yaml:") for line in str(caught.value).splitlines()]


@pytest.mark.rule("BCK-9")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "1: the file is empty; to have no rules, name no file"),
        ("# nothing\n", "1: the file is empty; to have no rules, name no file"),
        ("- a\n", "1: a file of rules is a mapping with version: 1 and rules"),
        ("version: 1\nrules:\n", "2: 'rules' is no list with rules in it; begin each with '- id: …', or name no …"),
        ("version: 1\nrules: []\n", "2: 'rules' is no list with rules in it; begin each with '- id: …', or name no …"),
        ("version: 1\nrules: {a: 1}", "2: 'rules' is no list with rules in it; begin each with '- id: …', or name …"),
        ("version: 1\nrules:\n- a\n", "3: a rule is a mapping, as in '- id: no-secrets'"),
        ("version: 2\n" + GOOD[11:], "1: 'version' is 2; this program reads version: 1"),
        ("version: true\n" + GOOD[11:], "1: 'version' is True; this program reads version: 1"),
        (GOOD[11:], "1: 'version' is missing; add version: 1"),
        (GOOD.replace("tool: Bash", "tol: Bash"), "3: 'tool' is missing; add tool: a tool, or '*'"),
        (GOOD + "    pth: ./x\n", "6: unknown key 'pth'; did you mean 'path'?"),
        (GOOD + "colour: red\n", "6: unknown key 'colour'; known are version, otherwise, report_only, rules"),
        (GOOD + "    tool: Write\n", "6: 'tool' is there already, in line 5; keep one of them"),
        (GOOD.replace("deny", "permit"), "4: 'action' is 'permit'; write 'allow', 'ask' or 'deny'"),
        (GOOD.replace("deny", "Deny"), "4: 'action' is 'Deny'; write 'allow', 'ask' or 'deny'"),
        (GOOD.replace("id: a", "id: 7"), "3: 'id' is no name for a rule; write small letters, digits and '-', at …"),
        (GOOD.replace("id: a", "id: otherwise"), "3: 'id' is no name for a rule; write small letters, digits and …"),
        (GOOD + "  - {id: a, action: ask, tool: X}\n", "6: rule 'a' is there already, in line 3; give one another id"),
        (GOOD.replace("Bash", "'Write, Edit'"), "5: 'tool' cannot be used: matcher 'Write, Edit' has a comma; …"),
        (
            GOOD.replace("Bash", "Write.*"),
            "5: 'tool' cannot be used: matcher 'Write.*' looks like a regular expression…",
        ),
        (GOOD.replace("Bash", "'re:('"), "5: 'tool' cannot be used: matcher 're:(' is not a regular expression: …"),
        (GOOD.replace("Bash", "[1]"), "5: 'tool' is a tool name, 'Write|Edit', a glob like 'mcp__*', 're:…', or '*' …"),
        (GOOD + "    event: PreToolUse\n", "6: 'event' is 'PreToolUse'; write the event's own name, 'tool:pre'"),
        (GOOD + "    event: tool:prre\n", "6: 'event' is 'tool:prre', an unknown event; did you mean 'tool:pre'?"),
        (GOOD + "    event: [tool:pre, my:own]\n", "6: 'event' is 'my:own', an unknown event; did you mean …"),
        (GOOD + "    event: my:*\n", "6: 'event' is 'my:*', which covers no event that has rules; those are …"),
        (GOOD + "    event: 're:tool:p.+st'\n", "6: 'event' is 're:tool:p.+st', which covers no event that has …"),
        (GOOD + "    event: tool:post\n", "6: 'event' is 'tool:post', where no rule is consulted: nothing can stop …"),
        (GOOD + "    event: hook:*\n", "6: 'event' is 'hook:*', which covers no event that has rules; those are …"),
        (
            GOOD + "    event: agent:stop\n",
            "6: 'event' is 'agent:stop', where no rule is consulted: a denial would set the agent going again; …",
        ),
        (
            GOOD + "    event: run:start\n",
            "6: 'event' is 'run:start', where no rule is consulted: no session judges it; write one …",
        ),
        (
            GOOD + "    event: approval:required\n",
            "6: 'event' is 'approval:required', where no rule is consulted: rules have judged the act at its own …",
        ),
        (GOOD + "    risk: severe\n", "6: 'risk' is severe; write one or more of low, medium, high"),
        (GOOD + "    risk: []\n", "6: 'risk' is a name or a list of names"),
        (
            GOOD + "    with_risk: high\n",
            "3: with_risk is the risk of what an ask asks about; the condition is called …",
        ),
        (GOOD + "    with_risk: hihg\n", "6: 'with_risk' is 'hihg'; write 'low', 'medium' or 'high'"),
        (GOOD + "    with_risk: [low, high]\n", "6: 'with_risk' is ['low', 'high']; write 'low', 'medium' or 'high'"),
        (GOOD + "    wiht_risk: high\n", "6: unknown key 'wiht_risk'; did you mean 'with_risk'?"),
        (GOOD.replace("deny", "ask") + "    risk_reason: why\n", "3: risk_reason belongs to with_risk"),
        (
            GOOD.replace("deny", "ask") + f"    with_risk: low\n    risk_reason: {'x' * 2_049}\n",
            "7: 'risk_reason' has more than 2,048 characters; say it shorter",
        ),
        (GOOD + "    arguments: {}\n", "6: 'arguments' names one argument or more with what each has to be; …"),
        (GOOD + "    arguments: {a: []}\n", "6: 'arguments' is an empty list, which nothing matches; …"),
        (GOOD + "    arguments: {a: {like: x}}\n", "6: 'arguments' is neither a plain value nor a pattern; write …"),
        (
            GOOD + "    arguments: {a: {glob: 'x*', regex: y}}\n",
            "6: 'arguments' is neither a plain value nor a pattern; write …",
        ),
        (GOOD + "    arguments: {a: {glob: 1}}\n", "6: 'arguments' needs a text as its glob"),
        (
            GOOD + "    arguments: {a: {glob: '[z-a]'}}\n",
            "6: 'arguments' has a pattern that cannot be used: matcher '[z-a]' can never match; turn …",
        ),
        (GOOD + "    arguments: {a: {regex: '('}}\n", "6: 'arguments' has a pattern that cannot be used: …"),
        (GOOD + "    other_arguments: any\n", "3: other_arguments belongs to an allow; deny and ask apply whatever …"),
        (GOOD + "    other_arguments: []\n", "6: 'other_arguments' is a name or a list of names"),
        (
            GOOD.replace("deny", "allow") + "    hooks: '*'\n    command: git -c core.pager=b *\n",
            "3: in an allow, ' *' may not follow words that run any program; write the whole command",
        ),
        (
            GOOD + "    command: ''\n",
            "6: 'command' has ''; write the words of a command, and ' *' at its end for any …",
        ),
        (
            GOOD + "    command: a * b\n",
            "6: 'command' has 'a * b'; write the words of a command, and ' *' at its end …",
        ),
        (GOOD + "    command: it's\n", "6: 'command' has a command that is no list of words, \"it's\": No closing …"),
        (GOOD + "    command: [1]\n", "6: 'command' is a command or a list of commands, as text: 'git status' or …"),
        (GOOD + "    command_argument: run\n", "3: command_argument belongs to a command"),
        (GOOD + "    path: .env\n", "6: 'path' has '.env'; write './.env' for the one in the working directory, …"),
        (GOOD + "    path: ../x\n", "6: 'path' has '../x'; a pattern is compared with paths that are resolved, so …"),
        (GOOD + "    path: ~robin/x\n", "6: 'path' has '~robin/x'; write the folder of another user in full"),
        (
            GOOD + "    path: a\\b/c\n",
            "6: 'path' has 'a\\\\b/c'…; a pattern has at most 512 characters, no NUL and no …",
        ),
        (
            GOOD + "    path: ./[z-a]\n",
            "6: 'path' has './[z-a]', which nothing matches; turn the range in its brackets …",
        ),
        (GOOD + "    path: **/x\n", "6: this is not YAML: while scanning an alias expected alphabetic or numeric …"),
        (GOOD + "    path: {a: 1}\n", "6: 'path' is a pattern or a list of patterns, as text: 'src/**' or …"),
        (GOOD + "    path_arguments: [a]\n", "3: path_arguments belongs to a path"),
        (GOOD + "    hooks: '*'\n", "3: only an allow names hooks; deny and ask apply whichever hook asks"),
        (GOOD + "    reason: no\n    reason2: 1\n", "7: unknown key 'reason2'; did you mean 'reason'?"),
        (GOOD + "    reason: 1\n", "6: 'reason' is no text; put it between quotes"),
        (GOOD + "    reason: " + "x" * 3_000, "6: 'reason' has more than 2,048 characters; say it shorter"),
        (
            GOOD.replace("deny", "allow"),
            "3: an allow answers questions of hooks: add hooks: '*' for all, or their names",
        ),
        (
            GOOD.replace("deny", "allow").replace("Bash", "'*'") + "    hooks: '*'\n",
            "3: this would allow everything; name tools, or what their arguments have to be",
        ),
        (
            GOOD.replace("deny", "allow") + "    hooks: '*'\n    path: '**/x'\n",
            "3: in an allow, '**/…' would be anywhere on the machine; write './**/…' for the working directory",
        ),
        ("a: &x 1\nb: *x\n", "2: this is not YAML: an alias; a text that begins with '*' stands between quotes"),
        ("a: [\n", "2: this is not YAML: while parsing a flow node expected the node content, but found '<stream …"),
        ("a: 1\n---\nb: 1\n", "2: this is not YAML: expected a single document in the stream but found another …"),
        ("a: !!python/object/apply:os.system [x]\n", "1: the tag 'tag:yaml.org,2002:python/object/apply:os.system' …"),
        ("a: !!int yes\n", "1: 'yes' is no 'int'; write it as text"),
        ("a: !mine x\n", "1: 'x' is no '!mine'; write it as text"),
        ("1: x\n", "1: a key is a text; put it between quotes"),
        ("? [a]\n: x\n", "1: a key is a text; put it between quotes"),
        ("a: " + "9" * 400, "1: '999999999999999999999999999999999999999…"),
        ("[" * 3_000, "1: it is nested too deeply; rules are a flat list"),
        ("a: 1\nb: \x07\n", "2: this is not YAML: special characters are not allowed"),
        (b"a: 1\nb: \xff\n", "2: this is not UTF-8; save the file as that"),
    ],
)
def test_mistakes(text: str | bytes, said: str) -> None:
    """A mistake is refused with its line and what to write instead."""
    begins, cut, _ = said.partition("…") if said.endswith("…") else (said, "", "")
    assert any(line.startswith(begins) if cut else line == said for line in mistakes(text)), mistakes(text)


@pytest.mark.rule("BCK-9")
@pytest.mark.parametrize("event", ["memory:pre", "agent:*", "'*'", "'re:.+:pre'", "[llm:pre, 'tool:*']"])
def test_events_with_rules(event: str) -> None:
    """A rule may be about any event at which a session consults rules."""
    assert len(Rules(f"{GOOD}    event: {event}\n".encode())) == 1


@pytest.mark.rule("BCK-9")
def test_all_mistakes_at_once() -> None:
    """An error names all mistakes at once, in the order of the lines."""
    said = mistakes(GOOD.replace("deny", "forbid") + "    path: .env\n    colour: red\n")
    assert [line.partition(":")[0] for line in said] == ["4", "6", "7"]


@pytest.mark.rule("BCK-9")
@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes(data: bytes) -> None:
    """Any bytes are rules, or an error that says what is wrong with them."""
    for text in (data, GOOD.encode() + b"    path: " + data, GOOD.replace("Bash", "").encode().rstrip() + b" " + data):
        with suppress(InvalidRules):
            Rules(text)


@pytest.mark.rule("BCK-9")
def test_missing_file(tmp_path: Path) -> None:
    """A file that is missing, a folder, too large, or writable for every user is an error of its own."""
    path = tmp_path / "rules.yaml"
    with pytest.raises(
        RulesUnreadable, match="No such file or directory; name a file of rules that is there"
    ) as caught:
        Rules.load(path)
    assert isinstance(caught.value, HookError)
    assert str(path) in str(caught.value)
    with pytest.raises(RulesUnreadable, match="Is a directory"):
        Rules.load(tmp_path)
    path.write_text(GOOD)
    path.chmod(0o666)
    with pytest.raises(RulesUnreadable, match=r"every user may write to it; chmod o-w "):
        Rules.load(path)
    path.chmod(0o600)
    assert len(Rules.load(path)) == 1
    path.write_text("#" * 1_048_577)
    with pytest.raises(RulesUnreadable, match="more than 1,048,576 bytes"):
        Rules.load(path)


@pytest.mark.rule("BCK-9")
def test_reload(tmp_path: Path) -> None:
    """A change counts from the reload on; a broken or missing file is an error, and the rules stay as they were."""
    path = tmp_path / "rules.yaml"
    path.write_text(GOOD)
    rules = Rules.load(path)
    before = rules.digest
    assert not rules.reload()
    path.write_text(GOOD.replace("deny", "ask"))
    verdict = rules.judge(BASH)
    assert verdict is not None
    assert verdict.action == "deny"
    assert rules.reload()
    assert rules.digest != before
    verdict = rules.judge(BASH)
    assert verdict is not None
    assert verdict.action == "ask"
    kept = rules.digest
    path.write_text("")
    with pytest.raises(InvalidRules, match="the file is empty"):
        rules.reload()
    path.unlink()
    with pytest.raises(RulesUnreadable):
        rules.reload()
    assert (rules.judge(BASH), rules.digest) == (verdict, kept)
    assert not Rules(GOOD.encode()).reload()
