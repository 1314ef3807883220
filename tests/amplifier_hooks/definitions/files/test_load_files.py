import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from amplifier_hooks.definitions import InvalidDefinitions, load_files
from amplifier_hooks.text.strict_parsing import NotReadable, parse_json, parse_yaml

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write files into one folder, by name; `_` in a name stands for a dot, `__` for a slash."""

    def put(**texts: str) -> Path:
        for name, text in texts.items():
            path = tmp_path / name.replace("__", "/").replace("_", ".")
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return tmp_path

    return put


def mistakes(folder: Path) -> list[str]:
    """Tell what is wrong with the files of a folder, with their names instead of their paths."""
    with pytest.raises(InvalidDefinitions) as refused:
        load_files(folder, environment={})
    return [
        str(mistake).replace(f"{folder.resolve()}{os.sep}", "").replace(str(folder), ".")
        for mistake in refused.value.flaws
    ]


FULL = """\
version: 1
settings: {hooks_max_per_event: 5}
library:
  redact:
  limit: {calls: 3}
definitions:
  guard:
    event_type: PreToolUse
    handler_ref: command
    config: {argv: [./guard.sh], env: {A: "1"}}
hooks:
  - $ref: "#/definitions/guard"
    name: guard
    priority: 10
    config: {env: {B: "2"}}
  - $ref: "more/base.json#/definitions/lint"
    name: lint
    created_at: 2026-05-01T12:00:00+02:00
"""
BASE = json.dumps(
    {
        "version": 1,
        "definitions": {"lint": {"$ref": "#/definitions/at"}, "at": {"event_type": "tool:post", "handler_ref": "x:y"}},
    },
    indent="\t",
)


@pytest.mark.rule("DEF-1", "DEF-3")
def test_a_set_of_files(write: Write) -> None:
    """Hooks are read with what they refer to, in this file and others; what stands beside a `$ref` counts more."""
    folder = write(hooks_yaml=FULL, more__base_json=BASE)
    found = load_files(folder, environment={})
    guard, lint = found.definitions
    assert (guard.name, guard.event_type, guard.priority) == ("guard", "tool:pre", 10)
    assert guard.config == {"argv": ["./guard.sh"], "env": {"B": "2"}}
    assert (lint.event_type, lint.handler_ref) == ("tool:post", "x:y")
    assert lint.created_at == lint.updated_at == datetime(2026, 5, 1, 10, tzinfo=UTC)
    assert [(entry.name, entry.config) for entry in found.library] == [("redact", {}), ("limit", {"calls": 3})]
    assert found.settings.hooks_max_per_event == 5
    assert sorted(path.name for path in found.files) == ["base.json", "hooks.yaml"]
    assert [str(found.spot(guard, *part))[-2:] for part in ((), ("config", "argv"), ("config", "env"), ("tags",))] == [
        "12", "10", "15", "12",
    ]  # fmt: skip
    again = load_files(folder, environment={})
    assert again.digest == found.digest
    assert [one.hook_id for one in again.definitions] == [guard.hook_id, lint.hook_id]


@pytest.mark.rule("DEF-3")
def test_a_projects_file_names_its_folder(write: Write) -> None:
    """A file brings the files of its folder of definitions with it, whose name is a setting."""
    hook = "version: 1\nhooks: [{name: %s, event_type: tool:pre, handler_ref: 'm:f'}]\n"
    folder = write(**{
        "amplifier-hooks_yaml": hook % "first",
        "hook-definitions__b_yaml": hook % "third",
        "hook-definitions__a_yml": hook % "second",
        "hook-definitions___hidden_yaml": hook % "hidden",
        "other__x_yaml": hook % "other",
    })  # fmt: skip
    file = folder / "amplifier-hooks.yaml"
    assert [one.name for one in load_files(file, environment={}).definitions] == ["first", "second", "third"]
    environment = {"AMPLIFIER_HOOKS_DEFINITIONS_DIR": "other"}
    assert [one.name for one in load_files(file, environment=environment).definitions] == ["first", "other"]
    with pytest.raises(InvalidDefinitions, match="'nowhere' is no folder"):
        load_files(file, environment={"AMPLIFIER_HOOKS_DEFINITIONS_DIR": "nowhere"})


TO_X = "  $ref: '#/definitions/x'\n"
TO_B = "  $ref: 'sub/b.yaml#/definitions/x'\n"
HOOK = "version: 1\nhooks:\n- name: a\n  event_type: tool:pre\n  handler_ref: m:f\n"


@pytest.mark.rule("DEF-1")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a.yaml:1: a file of definitions is a mapping with version: 1, and hooks or others of its keys"),
        ("- a\n", "a.yaml:1: a file of definitions is a mapping …"),
        ("hooks: []\n", "a.yaml:1: 'version' is missing; add version: 1"),
        ("version: 2\n", "a.yaml:1: this is version 2; this program reads version: 1"),
        ("version: true\n", "a.yaml:1: 'version' is True; write 1"),
        ("version: 1\nhook: []\n", "a.yaml:2: unknown key 'hook'; did you mean 'hooks'?"),
        ("version: 1\n\nhooks: {}\n", "a.yaml:3: 'hooks' is {}; write a list of hooks"),
        ("version: 1\nhooks:\n- a\n", "a.yaml:3: a hook is a mapping, not 'a'"),
        ("version: 1\nhooks: [\n", "a.yaml:3: this is not YAML: …"),
        (HOOK + "  name: b\n", "a.yaml:6: 'name' is there already, in line 3; keep one of them"),
        (HOOK + "  prioritty: 1\n", "a.yaml:6: unknown key 'prioritty'; did you mean 'priority'?"),
        (HOOK + "  priority: high\n", "a.yaml:6: 'priority': input should be a valid integer"),
        (HOOK + "  enabled: yes\n", "a.yaml:6: 'enabled': input should be a valid boolean"),
        (HOOK + "  fail_mode: maybe\n", "a.yaml:6: 'fail_mode' is 'maybe'; write 'open' or 'closed'"),
        (HOOK + "  matcher: Write, Edit\n", "a.yaml:6: 'matcher': matcher 'Write, Edit' has a comma; …"),
        (HOOK + "  tags:\n  - ok\n  - not ok\n", "a.yaml:8: 'tags.1': a tag is …"),
        (HOOK + "  hook_id: x\n", "a.yaml:6: 'hook_id': …"),
        (HOOK + "- event_type: tool:pre\n  handler_ref: m:f\n", "a.yaml:6: 'name' is missing; add name: …"),
        (HOOK + HOOK[18:], "a.yaml:6: name 'a' could be taken for that of a.yaml:3; give one of them another name"),
        (HOOK + HOOK[18:].replace("name: a", "name: A"), "a.yaml:6: name 'A' could be taken for that of a.yaml:3; …"),
        (HOOK + "  $ref: '#/definitions/x'\n", "a.yaml:6: '$ref' names 'x', which a.yaml does not define; …"),
        (HOOK + "  $ref: x\n", "a.yaml:6: '$ref' is 'x'; write '#/definitions/name' or 'file.yaml#/definitions/name'"),
        (HOOK + "  $ref: 1\n", "a.yaml:6: '$ref' is 1; …"),
        (HOOK + "  $ref: /etc/a.yaml#/definitions/x\n", "a.yaml:6: '$ref' names '/etc/a.yaml'; name a YAML …"),
        (HOOK + "  $ref: passwd#/definitions/x\n", "a.yaml:6: '$ref' names 'passwd'; …"),
        (HOOK + "  $ref: ../a.yaml#/definitions/x\n", "a.yaml:6: … is outside of …; files come from there only"),
        (HOOK + "  $ref: b.yaml#/definitions/x\n", "a.yaml:6: 'b.yaml': No such file or directory; …"),
        ("version: 1\nlibrary: {a: 1}\n", "a.yaml:2: what a ready-made hook is set to is a mapping, not 1"),
        ("version: 1\nsettings:\n  hooks_max: 1\n", "a.yaml:3: unknown key 'hooks_max'; …"),
        ("version: 1\nsettings:\n  hooks_enabled: 1\n", "a.yaml:3: 'hooks_enabled': …"),
    ],
)  # fmt: skip
def test_a_mistake_has_its_line(write: Write, text: str, said: str) -> None:
    """A file that cannot be used says in which line, and what to write instead."""
    [found] = mistakes(write(a_yaml=text))
    before, dots, after = said.partition("…")
    assert found.startswith(before)
    assert dots or found == said
    assert all(part.strip("; ") in found for part in after.split("…"))


@pytest.mark.rule("DEF-1")
def test_every_mistake_at_once(write: Write) -> None:
    """All that is wrong with a set is told, in the order of its files and lines, and each thing once."""
    folder = write(a_yaml=HOOK + "  priority: -1\n  timeout_ms: 0\n", b_yaml="version: 3\n", c_json='{"version": 1,}')
    assert [found.partition(": ")[0] for found in mistakes(folder)] == ["a.yaml:6", "a.yaml:7", "b.yaml:1", "c.json:1"]


@pytest.mark.rule("DEF-1")
@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (
            {"a_yaml": HOOK + "  $ref: '#/definitions/x'\ndefinitions:\n  x: {$ref: '#/definitions/x'}\n"},
            ["a.yaml:8: "],
        ),
        (
            {
                "a_yaml": HOOK
                + "  $ref: 'sub/b.yaml#/definitions/x'\ndefinitions:\n  y: {$ref: 'sub/b.yaml#/definitions/x'}\n",
                "sub__b_yaml": "version: 1\ndefinitions:\n  x:\n    $ref: '../a.yaml#/definitions/y'\n",
            },
            ["a.yaml:8: "],
        ),
    ],
)
def test_a_circle_is_refused(write: Write, texts: dict[str, str], said: list[str]) -> None:
    """A `$ref` that comes back to where it began is an error that shows the way round."""
    [found] = mistakes(write(**texts))
    assert "leads in a circle" in found
    assert "a.yaml:8" in found
    assert all(found.startswith(start) for start in said)


@pytest.mark.rule("DEF-1")
def test_links_out_of_the_folder_are_not_followed(write: Write, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A file that is a link to somewhere else is refused, one to the same folder is read once."""
    secret = tmp_path_factory.mktemp("elsewhere") / "x.yaml"
    secret.write_text(HOOK, encoding="utf-8")
    folder = write(real_yaml=HOOK)
    (folder / "linked.yaml").symlink_to(folder / "real.yaml")
    assert len(load_files(folder, environment={}).definitions) == 1
    (folder / "out.yaml").symlink_to(secret)
    [found] = mistakes(folder)
    assert "is outside of" in found


@pytest.mark.rule("DEF-1")
def test_a_file_that_others_may_write_is_refused(write: Write) -> None:
    """The loader refuses a file that every user of the machine may change."""
    folder = write(a_yaml=HOOK)
    (folder / "a.yaml").chmod(0o666)
    assert mistakes(folder) == ["a.yaml: every user may write to it, or it is no plain file; chmod o-w it"]


OWN = "version: 1\nevents: [deploy:before]\n"
AT = "hooks:\n- name: a\n  event_type: %s\n  handler_ref: m:f\n"


@pytest.mark.rule("DEF-1", "EVT-5")
@pytest.mark.parametrize("event", ["deploy:before", "deploy:*", "tool:pre", "pre_tool_use", "*", "tool"])
def test_a_hook_stands_at_a_known_event(write: Write, event: str) -> None:
    """A hook may be at a catalogued event, in any spelling, at one that its set names, or around an operation."""
    at = AT.replace("hooks", "version: 1\nhooks") % f"{event!r}"
    found = load_files(write(a_yaml=at, b_yaml=OWN), environment={})
    assert found.events == ("deploy:before",)
    assert [one.event_type for one in found.definitions] == ["tool:pre" if event == "pre_tool_use" else event]


@pytest.mark.rule("DEF-1", "EVT-5")
@pytest.mark.parametrize("more", ["", "  enabled: false\n", "  priority: 10\n", "  config: {mode: async}\n"])
@pytest.mark.parametrize(
    ("event", "said"),
    [
        ("tool.execute.pe", "did you mean 'tool.execute.pre'? If not, name it under 'events'"),
        ("tool:before", "did you mean 'tool:pre'? If not, name it under 'events'"),
        ("deploy:befor", "did you mean 'deploy:before'? If not, name it under 'events'"),
        ("tol:*", "did you mean 'tool:*'? If not, name it under 'events'"),
        ("build:finished", "name it under 'events', if your program emits it"),
    ],
)
def test_a_hook_at_no_event_is_a_mistake(write: Write, event: str, said: str, more: str) -> None:
    """At an unknown event a hook is a mistake with its line, whatever else it says: it would never run."""
    (mistake,) = mistakes(write(a_yaml=OWN + AT % event + more))
    assert mistake.startswith(f"a.yaml:5: unknown event {event!r}, so the hook 'a' would never run: {said}")


@pytest.mark.rule("DEF-1", "EVT-5")
@pytest.mark.parametrize("event", ["LLM:POST", "Llm.Call.Post", "tool-pre", "TOOL_PRE", "llm_:*", "Deploy:Before"])
def test_a_name_that_reads_like_another_is_a_mistake(write: Write, event: str) -> None:
    """A hook whose event is a known one but for case and separators is a mistake that says how to write it."""
    (mistake,) = mistakes(write(a_yaml=OWN + AT % f"{event!r}"))
    assert mistake.startswith("a.yaml:5: ")
    assert "write" in mistake


@pytest.mark.rule("DEF-1", "EVT-5")
@pytest.mark.parametrize(
    ("said", "mistake"),
    [
        ("deploy:*", "'events' has 'deploy:*'; write the name of one event, as 'domain:phase'"),
        ("7", "'events' has 7; write the name of one event, as 'domain:phase'"),
        ("a b", "an event is a name such as 'tool:pre' in any spelling, 'tool:*' or '*'"),
        ("PreToolUse", "'events' has 'PreToolUse', which is an event of every program; leave it out"),
        ("TOOL:PRE", "'TOOL:PRE' is no event; write 'tool:pre'"),
    ],
)
def test_what_is_no_event_of_ones_own(write: Write, said: str, mistake: str) -> None:
    """The events of a file are names of their own, each once and none of the catalogue's."""
    assert mistakes(write(a_yaml=f"version: 1\nevents:\n- deploy:go\n- {said}\n")) == [f"a.yaml:4: {mistake}"]


@pytest.mark.rule("DEF-1")
def test_what_is_too_large_is_refused(write: Write) -> None:
    """A file, and a set of files, has an upper limit."""
    folder = write(a_yaml=HOOK + "#" * 1_048_576)
    assert mistakes(folder) == ["a.yaml: it has more than 1,048,576 bytes; split what it says"]
    many = "version: 1\nhooks:\n" + "".join(
        f"- {{name: h{number:04}x, event_type: tool:pre, handler_ref: 'm:f'}}\n" for number in range(1001)
    )
    assert mistakes(write(a_yaml=many)) == [".: there are 1,001 hooks; 1,000 at most"]


@pytest.mark.rule("DEF-1")
def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    """A file that does not exist is an error that names it."""
    with pytest.raises(InvalidDefinitions, match="No such file"):
        load_files(tmp_path / "a.yaml", environment={})


texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.rule("DEF-1")
@given(values, st.sampled_from([None, 1, "\t"]))
def test_json_is_read_as_json(value: Any, indent: int | str | None) -> None:
    """Whatever JSON holds is read as Python's own reader does, and every part of it has a line."""
    text = json.dumps(value, indent=indent)
    marked = parse_json(text.encode())
    assert marked.value == value
    for place, line in marked.lines.items():
        part = value
        for step in place:
            part = part[step]
        assert line <= text.count("\n") + 1


@pytest.mark.rule("DEF-1")
@given(values)
def test_yaml_is_read_as_it_was_written(value: Any) -> None:
    """A value that a YAML writer quotes is read back unchanged, where writer and reader agree on plain words."""
    text = yaml.safe_dump(value, default_style='"', allow_unicode=True)
    try:
        found = parse_yaml(text.encode()).value
    except NotReadable:
        return  # numbers under a tag that another YAML writes in another way
    assert found == value


@pytest.mark.rule("DEF-1")
@pytest.mark.parametrize(
    ("text", "line"),
    [(b'{"a": NaN}', 1), (b'{"a": 1,\n "a": 2}', 2), (b"{}\n[]", 2), (b"[" * 100_000, 1), (b'{"a":\n"\xff"}', 2)],
)
def test_what_is_no_json(text: bytes, line: int) -> None:
    """A key twice, a number that is none, something after the end and broken text are errors with their line."""
    with pytest.raises(NotReadable) as refused:
        parse_json(text)
    assert refused.value.line == line
