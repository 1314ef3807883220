"""Transcripts of agent programs: the calls in them, as the programs' hooks would see them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_hooks.programs import transcripts
from amplifier_hooks.programs.transcripts import NOT_KEPT, SOURCES, Transcript

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.rule("CLI-10")

REJECTED = "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was a file edit"


def read(source: str, path: Path, *entries: Any) -> Transcript:
    """Write a transcript of these lines, and read it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in entries))
    return SOURCES[source].read(path)


def calls_of(transcript: Transcript) -> list[tuple[str, Any, str]]:
    """Return tool, input and end of each call."""
    return [(call.tool, call.input, call.happened) for call in transcript.calls]


# -- Claude Code -------------------------------------------------------------------------------------------------------


def use(call_id: str, tool: str, **given: Any) -> dict[str, Any]:
    """Return an entry with a call, as Claude Code writes it."""
    part = {"type": "tool_use", "id": call_id, "name": tool, "input": given}
    about = {"uuid": f"u-{call_id}", "sessionId": "s1", "cwd": "/shop", "timestamp": "2026-03-01T10:00:00.5Z"}
    return {"type": "assistant", "message": {"role": "assistant", "content": [part]}, **about}


def result(call_id: str, text: Any, *, error: bool = False, **more: Any) -> dict[str, Any]:
    """Return an entry with the result of a call, as Claude Code writes it."""
    part = {"type": "tool_result", "tool_use_id": call_id, "content": text, "is_error": error}
    return {"type": "user", "message": {"role": "user", "content": [part]}, "sessionId": "s1", **more}


def test_claude_code(tmp_path: Path) -> None:
    """A call has its tool, input, session, folder, time and line; a text of the user is none."""
    text = {"type": "user", "message": {"role": "user", "content": "do it"}, "sessionId": "s1", "cwd": "/shop"}
    [call] = read("claude-code", tmp_path / "s1.jsonl", text, use("t1", "Bash", command="ls")).calls
    assert (call.tool, call.input, call.session, call.cwd, call.line) == ("Bash", {"command": "ls"}, "s1", "/shop", 2)
    assert (call.time, call.happened) == (datetime(2026, 3, 1, 10, 0, 0, 500_000, UTC), "unknown")


@pytest.mark.parametrize(
    ("end", "happened"),
    [
        (result("t1", "a.py\n"), "ran"),
        (result("t1", "Exit code 3", error=True), "ran"),
        (result("t1", [{"type": "text", "text": REJECTED}], error=True), "rejected"),
        (result("t1", REJECTED), "ran"),
        (result("t1", "PreToolUse:Bash hook error: never", error=True), "denied"),
        (result("t1", "no", permissionDecision={"decision": "reject", "source": "hook"}), "denied"),
        (result("t1", "no", permissionDecision={"decision": "reject", "source": "user_reject"}), "rejected"),
        (result("t1", "yes", permissionDecision={"decision": "accept", "source": "config"}), "ran"),
        (result("t2", "of another call"), "unknown"),
    ],
)
def test_ends_of_claude_code(end: dict[str, Any], happened: str, tmp_path: Path) -> None:
    """The end of a call is that of its decision, or that of the text of its result in older transcripts."""
    [call] = read("claude-code", tmp_path / "s1.jsonl", use("t1", "Bash", command="ls"), end).calls
    assert call.happened == happened


def test_a_continued_session_counts_once(tmp_path: Path) -> None:
    """A file that continues another begins with a copy of its entries; these are not read again."""
    source, seen = SOURCES["claude-code"], set[str]()
    for name, entries in {"a": [use("t1", "Read")], "b": [use("t1", "Read"), use("t2", "Write")]}.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in entries))
    found = [source.read(tmp_path / f"{name}.jsonl", seen) for name in "ab"]
    assert [[call.id for call in one.calls] for one in found] == [["t1"], ["t2"]]


# -- Codex -------------------------------------------------------------------------------------------------------------


def item(**payload: Any) -> dict[str, Any]:
    """Return an entry with an item, as Codex writes it."""
    return {"timestamp": "2026-03-01T10:00:00Z", "type": "response_item", "payload": payload}


def function(name: str, arguments: Any, **more: Any) -> dict[str, Any]:
    """Return the item of a function call."""
    return item(type="function_call", name=name, arguments=json.dumps(arguments), call_id="c1", **more)


@pytest.mark.parametrize(
    ("entry", "tool", "given"),
    [
        (function("exec_command", {"cmd": "git push", "workdir": "/x"}), "Bash", {"command": "git push"}),
        (function("shell", {"command": ["bash", "-lc", "ls -l"]}), "Bash", {"command": "bash -lc 'ls -l'"}),
        (function("shell_command", {"command": "ls"}), "Bash", {"command": "ls"}),
        (function("update_plan", {"plan": []}), "update_plan", {"plan": []}),
        (function("search", {"q": 1}, namespace="mcp__docs"), "mcp__docs__search", {"q": 1}),
        (function("mcp__docs__search", {"q": 1}), "mcp__docs__search", {"q": 1}),
        (
            item(type="custom_tool_call", name="apply_patch", input="*** Begin Patch", call_id="c1"),
            "apply_patch",
            {"command": "*** Begin Patch"},
        ),
        (item(type="local_shell_call", action={"command": ["ls"]}, call_id="c1"), "Bash", {"command": "ls"}),
        (
            {"type": "function_call", "name": "shell_command", "arguments": '{"command": "ls"}'},
            "Bash",
            {"command": "ls"},
        ),
    ],
)
def test_codex(entry: dict[str, Any], tool: str, given: Any, tmp_path: Path) -> None:
    """A call has the name and the input that Codex gives its hooks, in old transcripts, too."""
    meta = {"timestamp": "2026-03-01T10:00:00Z", "type": "session_meta", "payload": {"id": "s1", "cwd": "/shop"}}
    transcript = read("codex", tmp_path / "rollout-1.jsonl", meta, entry)
    [call] = transcript.calls
    assert (call.tool, call.input, call.session, call.cwd) == (tool, given, "s1", "/shop")
    assert transcript.problems == []


@pytest.mark.parametrize(
    ("output", "happened"),
    [
        ("Process exited with code 1", "ran"),
        ("Command blocked by PreToolUse hook: never. Command: ls", "denied"),
        ("exec command rejected by user", "rejected"),
        ({"content": "done", "success": True}, "ran"),
    ],
)
def test_ends_of_codex(output: Any, happened: str, tmp_path: Path) -> None:
    """The end of a call follows from the text of its output."""
    end = item(type="function_call_output", call_id="c1", output=output)
    [call] = read("codex", tmp_path / "rollout-1.jsonl", function("exec_command", {"cmd": "ls"}), end).calls
    assert call.happened == happened


def test_the_folder_of_codex_may_change(tmp_path: Path) -> None:
    """A turn may be in another folder than the session."""
    turn = {"type": "turn_context", "payload": {"cwd": "/other"}}
    [call] = read("codex", tmp_path / "rollout-1.jsonl", turn, function("exec_command", {"cmd": "ls"})).calls
    assert call.cwd == "/other"


# -- Gemini CLI --------------------------------------------------------------------------------------------------------

HEAD = {"sessionId": "s1", "projectHash": "x", "startTime": "2026-03-01T10:00:00Z", "kind": "main"}
CONTEXT = "<session_context>\n- **Workspace Directories:**\n  - /shop\n- **Directory Structure:**\n"


def message(status: str, response: Any) -> dict[str, Any]:
    """Return a message with a call, as Gemini CLI writes it."""
    call = {"id": "g1", "name": "run_shell_command", "args": {"command": "ls"}, "status": status, "result": [response]}
    return {"id": "m1", "type": "gemini", "timestamp": "2026-03-01T10:00:00Z", "content": "", "toolCalls": [call]}


@pytest.mark.parametrize(
    ("status", "response", "happened"),
    [
        ("success", {"output": "a"}, "ran"),
        ("error", {"error": "no such file"}, "ran"),
        ("error", {"error": "Tool execution blocked: never"}, "denied"),
        ("cancelled", {"error": "cancelled"}, "rejected"),
        ("scheduled", None, "unknown"),
    ],
)
def test_gemini(status: str, response: Any, happened: str, tmp_path: Path) -> None:
    """A call has its end, and the folder that the program tells its model."""
    first = {"$set": {"messages": [{"type": "user", "content": [{"text": CONTEXT}]}]}}
    transcript = read("gemini", tmp_path / "chats" / "session-1.jsonl", HEAD, first, message(status, response))
    [call] = transcript.calls
    assert calls_of(transcript) == [("run_shell_command", {"command": "ls"}, happened)]
    assert (call.session, call.cwd) == ("s1", "/shop")


def test_a_message_that_grows_is_one_call(tmp_path: Path) -> None:
    """A message is written again when its call has ended; the call counts once, with its last end."""
    path = tmp_path / "chats" / "session-1.jsonl"
    transcript = read("gemini", path, HEAD, message("scheduled", None), message("success", {"output": "a"}))
    assert [call.happened for call in transcript.calls] == ["ran"]


def test_older_transcripts_of_gemini(tmp_path: Path) -> None:
    """An older transcript is one object over many lines; the folder of the project stands beside its chats."""
    path = tmp_path / "project" / "chats" / "session-1.json"
    path.parent.mkdir(parents=True)
    (tmp_path / "project" / ".project_root").write_text("/shop")
    path.write_text(json.dumps({"sessionId": "s1", "messages": [message("success", {"output": "a"})]}, indent=1))
    [call] = SOURCES["gemini"].read(path).calls
    assert (call.session, call.cwd, call.happened) == ("s1", "/shop", "ran")


# -- records -----------------------------------------------------------------------------------------------------------


def test_a_record_has_no_inputs(tmp_path: Path) -> None:
    """A record names calls by their digests; inputs from elsewhere complete them, and the others are counted."""
    lines = [
        {"kind": kind, "time": "2026-03-01T10:00:00Z", "facts": {"tool": "Bash", "call": name, "session": session}}
        for kind, name, session in (
            ("tool.running", "c1", "s1"),
            ("tool.denied", "c1", "s2"),
            ("tool.done", "c1", "s1"),
        )
    ]
    transcript = read("record", tmp_path / "record.jsonl", *lines)
    assert calls_of(transcript) == [("Bash", NOT_KEPT, "ran"), ("Bash", NOT_KEPT, "denied")]
    assert transcript.take_inputs({("s2", "c1"): {"command": "ls"}}) == 1
    assert calls_of(transcript) == [("Bash", {"command": "ls"}, "denied")]


# -- lines that cannot be read -----------------------------------------------------------------------------------------


def test_bad_lines_are_named(tmp_path: Path) -> None:
    """A line that is no JSON, no object, or a call without a name is named by its number; the others are read."""
    entries = ["{", "[1]", "", use("t1", ""), use("t2", "Read"), "[" * 100_000]
    transcript = read("claude-code", tmp_path / "s1.jsonl", *entries)
    assert [line for line, _ in transcript.problems] == [1, 2, 4, 6]
    assert [call.id for call in transcript.calls] == ["t2"]


def test_the_files_of_a_folder(tmp_path: Path) -> None:
    """A folder is searched at every depth for names that the program gives its transcripts."""
    for name in ("2026/03/rollout-1.jsonl", "2026/03/other.jsonl", "history.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert SOURCES["codex"].files(tmp_path) == [tmp_path / "2026/03/rollout-1.jsonl"]


NAMES = (
    "type", "payload", "message", "content", "tool_use", "tool_result", "function_call", "response_item", "name", "id",
    "input", "arguments", "toolCalls", "messages", "$set", "cwd", "sessionId", "kind", "facts", "timestamp", "uuid",
    "session_meta", "call_id", "output", "action", "args", "status", "result", "permissionDecision", "tool.running",
)  # fmt: skip
words = st.sampled_from(NAMES) | st.text(max_size=3)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize("source", SOURCES)
@given(entries=st.lists(st.dictionaries(words, values, max_size=5), max_size=4))
def test_no_entry_breaks_a_reader(source: str, entries: list[dict[str, Any]]) -> None:
    """Whatever an entry holds, a reader raises nothing, and every call has a name and an input."""
    from pathlib import Path

    transcript = Transcript(Path("/nowhere/chats/x.jsonl"))
    for line, entry in enumerate(entries, 1):
        SOURCES[source].read_entry(transcript, line, entry)
    assert all(call.tool and isinstance(call.input, dict | type(NOT_KEPT)) for call in transcript.calls)


# -- hostile transcripts -----------------------------------------------------------------------------------------------


def test_an_id_that_is_used_again(tmp_path: Path) -> None:
    """Another call under the same id is a call of its own; the same entry once more is not."""
    entries = [use("call_0", "Read", file_path="a"), *[{**use("call_0", "Write", file_path=".env"), "uuid": ""}] * 2]
    found = read("claude-code", tmp_path / "s1.jsonl", entries[0], entries[1], {**entries[2], "uuid": "again"})
    assert [call.tool for call in found.calls] == ["Read", "Write"]


def test_a_key_that_stands_twice(tmp_path: Path) -> None:
    """A line that two readers could understand differently is named, because a program may have run either reading."""
    line = json.dumps(use("t1", "Write", file_path=".env")).replace('".env"', '".env", "file_path": "ok"')
    found = read("claude-code", tmp_path / "s1.jsonl", line)
    assert (found.calls, found.problems) == ([], [(1, "this is no JSON that all readers understand alike")])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("timestamp", time) for time in ("9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00", "9999-12-31")),
        ("cwd", "/shop/\ud800"),
    ],
)
def test_times_and_folders_that_cannot_be(field: str, value: str, tmp_path: Path) -> None:
    """A time in no year of computers, or a folder that no system can have, counts as absent."""
    [call] = read("claude-code", tmp_path / "s1.jsonl", {**use("t1", "Read"), field: value}).calls
    assert (call.time if field == "timestamp" else call.cwd) is None


@pytest.mark.parametrize("name", ["s1.jsonl", "s1.json"])
def test_a_line_that_is_too_long(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line, or a file that is one object, is read up to a limit; a longer one is named, and others are read."""
    monkeypatch.setattr(transcripts, "LONGEST_ENTRY", 1_000)
    found = read("claude-code", tmp_path / name, use("t1", "Read", file_path="x" * 5_000), use("t2", "Read"))
    assert found.problems == [(1, "it is longer than 1,000 bytes")]
    assert [call.line for call in found.calls] == ([2] if name == "s1.jsonl" else [])
