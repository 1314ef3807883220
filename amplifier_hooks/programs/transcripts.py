"""Transcripts that agent programs keep come in; the tool calls in them go out, as the programs' hooks would see them.

A source is a row of `SOURCES`: the folder of its files, their names, and the function that reads one entry. A line that
cannot be read is named in `Transcript.problems`, and the others are read all the same. Nothing here runs anything.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal

from attrs import define, field, frozen

from amplifier_hooks.storage.state_folder import StateFolder
from amplifier_hooks.text.strict_parsing import load_json

Happened = Literal["ran", "rejected", "denied", "unknown"]
"""The end of a call as its transcript has it: it ran, its user rejected it, or a hook or a rule denied it."""


LONGEST_ENTRY: Final = 64 * 1024 * 1024
"""Bytes of a line, or of a file that is one object."""
YEARS: Final = range(1970, 3000)
"""Years in which a call can have been made: times far outside of them allow no arithmetic."""

NOT_KEPT: Final = object()
"""The input of a call in a file that has no inputs."""

Entry = Mapping[str, Any]


@define(eq=False)
class RecordedCall:
    """One tool call of a transcript. `line` counts from 1; an absent `cwd` or `time` is None."""

    line: int
    session: str
    tool: str
    input: Any
    """The input; `NOT_KEPT` if the file does not have it."""
    id: str = ""
    cwd: str | None = None
    time: datetime | None = None
    happened: Happened = "unknown"


@define(eq=False)
class Transcript:
    """The calls of one file, in their order, and the lines that could not be read."""

    path: Path
    session: str = ""
    cwd: str | None = None
    """The folder in force at the last line that was read, as `session` is the session."""
    calls: list[RecordedCall] = field(factory=list)
    problems: list[tuple[int, str]] = field(factory=list)
    _known: dict[tuple[str, str], RecordedCall] = field(factory=dict)
    """Calls by session and id."""

    def add(self, line: int, tool: Any, given: Any, *, id: Any = "", time: Any = None) -> None:  # noqa: A002  # its name everywhere
        """Add a call. A second entry about a call changes nothing; a call without a name is a problem.

        Two entries are about one call if id, tool and input are the same: some models count their ids anew.
        """
        if not isinstance(tool, str) or not tool or not (given is NOT_KEPT or isinstance(given, dict)):
            self.problems.append((line, "a tool call without a name or without an input"))
            return
        named = id if isinstance(id, str) else ""
        known = self._known.get((self.session, named))
        if known is not None and (known.tool, known.input) == (tool, given):
            return
        call = RecordedCall(line, self.session, tool, given, named, self.cwd, as_time(time))
        self.calls.append(call)
        if named:
            self._known[self.session, named] = call

    def note_end(self, call_id: Any, happened: Happened) -> None:
        """Note the end of a call; that of an unknown call changes nothing."""
        if isinstance(call_id, str) and (call := self._known.get((self.session, call_id))) is not None:
            call.happened = happened

    def take_inputs(self, inputs: Mapping[tuple[str, str], Any]) -> int:
        """Complete calls with these inputs, by session and id, and remove those without. Return their number."""
        for call in self.calls:
            if call.input is NOT_KEPT:
                call.input = inputs.get((call.session, call.id), NOT_KEPT)
        complete = [call for call in self.calls if isinstance(call.input, dict)]
        missing = len(self.calls) - len(complete)
        self.calls = complete
        return missing


Reader = Callable[[Transcript, int, Entry], None]


@frozen(kw_only=True)
class Source:
    """One kind of transcript."""

    name: str
    title: str
    folder: Callable[[], Path]
    """Returns the folder in which the program keeps its transcripts."""
    patterns: tuple[str, ...]
    """Names of its files within a folder, at any depth."""
    read_entry: Reader

    def files(self, path: Path) -> list[Path]:
        """Return the file, or the transcripts in the folder, oldest first."""
        if not path.is_dir():
            return [path]
        found = {file for pattern in self.patterns for file in path.rglob(pattern) if file.is_file()}
        return sorted(found, key=lambda file: (file.stat().st_mtime, file))

    def read(self, path: Path, seen: set[str] | None = None) -> Transcript:
        """Read a file whole. An entry whose id is in `seen` was read before, in a file that this one continues.

        Raises `OSError` for a file that cannot be read.
        """
        transcript = Transcript(path, session=path.stem)
        for line, entry in _entries(path, transcript):
            unique = entry.get("uuid")
            if seen is not None and isinstance(unique, str):
                if unique in seen:
                    continue
                seen.add(unique)
            self.read_entry(transcript, line, entry)
        return transcript


def _entries(path: Path, transcript: Transcript) -> Iterator[tuple[int, Entry]]:
    """Yield the JSON objects of a file of lines, or the one object that the file is, each with its line."""
    with path.open("rb") as file:
        whole = path.suffix == ".json"
        for line, data in enumerate([file.read(LONGEST_ENTRY + 1)] if whole else _lines(file), 1):
            if len(data) > LONGEST_ENTRY:
                transcript.problems.append((line, f"it is longer than {LONGEST_ENTRY:,} bytes"))
                continue
            if not data.strip():
                continue
            try:
                entry = load_json(data)
            except (ValueError, RecursionError):
                transcript.problems.append((line, "this is no JSON that all readers understand alike"))
                continue
            if isinstance(entry, dict):
                yield line, entry
            else:
                transcript.problems.append((line, "this is no JSON object"))


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a file; of a line that is too long, only the beginning, which is too long as well."""
    while data := file.readline(LONGEST_ENTRY + 1):
        yield data
        rest = data if len(data) > LONGEST_ENTRY else b""
        while rest and not rest.endswith(b"\n"):
            rest = file.readline(LONGEST_ENTRY)


# -- Claude Code -------------------------------------------------------------------------------------------------------

REJECTED: Final = ("The user doesn't want to proceed with this tool use", "The user doesn't want to take this action")
DENIED: Final = ("PreToolUse:", "Permission to use")


def read_claude_entry(transcript: Transcript, line: int, entry: Entry) -> None:
    """Read one entry of Claude Code's transcript."""
    transcript.session = _text(entry.get("sessionId")) or transcript.session
    transcript.cwd = entry["cwd"] if _is_folder(entry.get("cwd")) else transcript.cwd
    for part in _objects(_at(entry, "message", "content")):
        if part.get("type") == "tool_use":
            transcript.add(line, part.get("name"), part.get("input"), id=part.get("id"), time=entry.get("timestamp"))
        elif part.get("type") == "tool_result":
            transcript.note_end(part.get("tool_use_id"), _claude_end(part, _at(entry, "permissionDecision")))


def _claude_end(result: Entry, decision: Any) -> Happened:
    """Return the end of a call, by the decision in the transcript, or by the text of its result in older ones."""
    if isinstance(decision, dict) and decision.get("decision") == "reject":
        return "denied" if decision.get("source") in ("hook", "config") else "rejected"
    text = _joined(result.get("content")) if result.get("is_error") is True else ""
    return "rejected" if text.startswith(REJECTED) else "denied" if text.startswith(DENIED) else "ran"


# -- Codex -------------------------------------------------------------------------------------------------------------

SHELLS: Final = frozenset({"shell", "container.exec", "shell_command", "exec_command", "local_shell", "unified_exec"})
CODEX_BLOCKED: Final = "blocked by PreToolUse hook"
CODEX_REJECTED: Final = "rejected by user"


def read_codex_entry(transcript: Transcript, line: int, entry: Entry) -> None:
    """Read one entry of Codex's transcript; in older files the items stand at the top of their lines."""
    inner = entry.get("payload")
    item = inner if isinstance(inner, dict) else entry
    kind = item.get("type") if entry.get("type") in ("response_item", item.get("type")) else entry.get("type")
    if kind in ("session_meta", "turn_context") or "cwd" in item:
        transcript.cwd = item["cwd"] if _is_folder(item.get("cwd")) else transcript.cwd
    if kind == "session_meta":
        transcript.session = _text(item.get("id")) or transcript.session
    elif kind in ("function_call", "custom_tool_call", "local_shell_call"):
        tool, given = _codex_call(item)
        transcript.add(line, tool, given, id=item.get("call_id"), time=entry.get("timestamp"))
    elif kind in ("function_call_output", "custom_tool_call_output"):
        text = _joined(item.get("output"))
        happened: Happened = "denied" if CODEX_BLOCKED in text else "rejected" if CODEX_REJECTED in text else "ran"
        transcript.note_end(item.get("call_id"), happened)


def _codex_call(item: Entry) -> tuple[Any, Any]:
    """Return the tool and the input of a call, as Codex passes them to hooks."""
    if item.get("type") == "local_shell_call":
        return "Bash", _codex_command(_at(item, "action", "command"))
    name, namespace = item.get("name"), _text(item.get("namespace"))
    if item.get("type") == "custom_tool_call":
        return name, {"command" if name == "apply_patch" else "input": item.get("input")}
    try:
        given = load_json(_text(item.get("arguments")) or "{}")
    except (ValueError, RecursionError):
        return name, None
    if name in SHELLS and isinstance(given, dict):
        return "Bash", _codex_command(given.get("cmd", given.get("command")))
    if namespace.startswith("mcp__"):
        return f"{namespace.removesuffix('__')}__{name}", given
    return name, given


def _codex_command(command: Any) -> dict[str, Any] | None:
    if isinstance(command, list) and all(isinstance(word, str) for word in command):
        return {"command": shlex.join(command)}
    return {"command": command} if isinstance(command, str) else None


# -- Gemini CLI --------------------------------------------------------------------------------------------------------

WORKSPACE: Final = "**Workspace Directories:**\n  - "
GEMINI_BLOCKED: Final = ("Tool execution blocked", "denied by policy")
GEMINI_ENDS: Final[Mapping[str, Happened]] = {"success": "ran", "error": "ran", "cancelled": "rejected"}


def read_gemini_entry(transcript: Transcript, line: int, entry: Entry) -> None:
    """Read one entry of Gemini CLI's transcript, or the whole of an older one."""
    if isinstance(entry.get("sessionId"), str):
        transcript.session = entry["sessionId"]
    if transcript.cwd is None:
        transcript.cwd = _gemini_folder(transcript.path)
    messages = entry.get("messages", _at(entry, "$set", "messages"))
    for message in _objects(messages) if isinstance(messages, list) else [entry]:
        text = _joined(message.get("content"))
        if message.get("type") == "user" and WORKSPACE in text:
            folder = text.partition(WORKSPACE)[2].partition("\n")[0].strip()
            transcript.cwd = folder if _is_folder(folder) else transcript.cwd
        for call in _objects(message.get("toolCalls")):
            time = call.get("timestamp") or message.get("timestamp")
            transcript.add(line, call.get("name"), call.get("args"), id=call.get("id"), time=time)
            blocked = any(text in json.dumps(call.get("result")) for text in GEMINI_BLOCKED)
            happened = GEMINI_ENDS.get(_text(call.get("status")), "unknown")
            transcript.note_end(call.get("id"), "denied" if blocked else happened)


def _gemini_folder(path: Path) -> str | None:
    """Return the folder of the project, which newer versions keep beside its chats."""
    try:
        folder = (path.parent.parent / ".project_root").read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return None
    return folder if _is_folder(folder) else None


# -- the record of this package ----------------------------------------------------------------------------------------

RECORDED: Final[Mapping[str, Happened]] = {"tool.running": "ran", "tool.denied": "denied"}


def read_record_line(transcript: Transcript, line: int, entry: Entry) -> None:
    """Read one line of a record, which has no inputs: it names calls by their digests."""
    facts = entry.get("facts")
    happened = RECORDED.get(_text(entry.get("kind")))
    if happened is None or not isinstance(facts, dict):
        return
    transcript.session = _text(facts.get("session")) or transcript.session
    transcript.add(line, facts.get("tool"), NOT_KEPT, id=facts.get("call"), time=entry.get("time"))
    transcript.note_end(facts.get("call"), happened)


# -- the table ---------------------------------------------------------------------------------------------------------


def _home(variable: str, default: str, *more: str) -> Callable[[], Path]:
    return lambda: Path(os.environ.get(variable) or Path.home() / default).joinpath(*more)


SOURCES: Final[Mapping[str, Source]] = {
    one.name: one
    for one in (
        Source(
            name="claude-code",
            title="Claude Code",
            folder=_home("CLAUDE_CONFIG_DIR", ".claude", "projects"),
            patterns=("*.jsonl",),
            read_entry=read_claude_entry,
        ),
        Source(
            name="codex",
            title="Codex",
            folder=_home("CODEX_HOME", ".codex", "sessions"),
            patterns=("rollout-*.jsonl",),
            read_entry=read_codex_entry,
        ),
        Source(
            name="gemini",
            title="Gemini CLI",
            folder=_home("GEMINI_CLI_HOME", "", ".gemini", "tmp"),
            patterns=("chats/*.json", "chats/*.jsonl"),
            read_entry=read_gemini_entry,
        ),
        Source(
            name="record",
            title="agent",
            folder=lambda: StateFolder().record,
            patterns=("*.jsonl",),
            read_entry=read_record_line,
        ),
    )
}
"""The kinds of transcripts, a row each."""


# -- values that may be of any type ------------------------------------------------------------------------------------


def as_time(value: Any) -> datetime | None:
    """Return a time that stands as a text in ISO 8601; None for anything else. A time without a zone is in UTC."""
    try:
        time = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    if time.year not in YEARS:
        return None
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def _at(value: Any, *names: str) -> Any:
    """Return a member of nested objects; None if it is not there."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _objects(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _joined(value: Any) -> str:
    """Return a text, or the texts of a list of parts."""
    if isinstance(value, dict):
        return _joined(value.get("output") or value.get("content"))
    return "\n".join(_text(part.get("text")) for part in _objects(value)) if isinstance(value, list) else _text(value)


def _is_folder(value: Any) -> bool:
    try:
        return isinstance(value, str) and Path(value).is_absolute() and b"\0" not in os.fsencode(value)
    except UnicodeEncodeError:
        return False
