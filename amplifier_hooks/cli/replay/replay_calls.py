"""Calls of a transcript pass through a session with the hooks of a file; a finding for each call goes out.

A hook is replayed if it answers before a tool call from the call alone: python definitions, and ready-made hooks that
say so (`ReadyMade.for_replay`). Hooks that run a program, send a request, write, or watch are not built and not run;
`ReplayHooks.left_out` names each with the reason. A python definition runs only if its file is trusted as it is.

The session is a real one, with the path of every call. Its clock shows the recorded times, its approver allows
everything, its tools do nothing, and its record, which stays in memory, tells the end of each call.
"""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal

from attrs import define, evolve, field, frozen

from amplifier_hooks.approvals import SessionGrants
from amplifier_hooks.cli.approvals.open_store import KEPT_GRANTS
from amplifier_hooks.cli.project.read_project import trusted_as_now
from amplifier_hooks.definitions import DefinedHooks, load_files
from amplifier_hooks.definitions.install.build_hooks import ASKING as ANSWERING
from amplifier_hooks.definitions.kinds.python import find_hook
from amplifier_hooks.errors import HookError, HookUnavailable
from amplifier_hooks.events import TOOL_PRE
from amplifier_hooks.ports import Decision
from amplifier_hooks.registry.entry_points import list_installed
from amplifier_hooks.registry.event_names import applies
from amplifier_hooks.registry.registry import HookRegistry
from amplifier_hooks.session.coordinator import SessionCoordinator
from amplifier_hooks.text.escape import clip, for_log
from amplifier_hooks.text.secrets import Secrets, replace_spans
from approval_backends.in_process import InProcessBackend

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping
    from pathlib import Path

    from amplifier_hooks.definitions import DefinitionSet
    from amplifier_hooks.definitions.files.load_files import ReadyMadeEntry
    from amplifier_hooks.definitions.model import HookDefinition, Kind
    from amplifier_hooks.dispatch.chain import Hook
    from amplifier_hooks.library.parts.ready_made import ReadyMade
    from amplifier_hooks.ports import ApprovalRequest, RulePolicy
    from amplifier_hooks.programs.transcripts import RecordedCall, Source, Transcript


EXTERNAL: Final[Mapping[Kind, str]] = {
    "command": "it runs a program",
    "http": "it sends a request",
    "agent": "it runs an agent",
}
NOT_TRUSTED: Final = "its code is not trusted as it is now; amplifier-hooks validate --trust trusts it"
NEEDS_MORE: Final = "it needs more than the call, or writes, sends or runs something"
NO_PART: Final = "it decides nothing before a tool call"


@frozen(eq=False, kw_only=True)
class ReplayHooks:
    """The hooks of a file that judge calls of the past."""

    path: Path
    registry: HookRegistry
    left_out: tuple[tuple[str, str], ...]
    """Hooks of the file that take no part, each with the reason."""

    @property
    def report_only(self) -> tuple[str, ...]:
        """Names of the hooks that take part, and stop nothing."""
        return tuple(hook.name for hook in self.registry.hooks() if hook.report_only)


def replay_hooks(path: Path, now: Callable[[], float]) -> ReplayHooks:
    """Return the hooks of a file that can judge calls of the past; `now` is the time of the call, in seconds.

    Raises `InvalidDefinitions` with every mistake of the definitions, `HookUnavailable` for a ready-made hook that
    cannot be built, and `OSError` for a file that cannot be read.
    """
    found = load_files(path)
    left_out: dict[str, str] = {}
    registry = HookRegistry(register_on_error="deny")
    files = trusted_as_now(found, path)
    if files is not None:
        files.make()
    kept = _definitions_to_run(found, left_out, trusted=files is not None)
    hooks = DefinedHooks(registry)
    hooks.install(hooks.plan(evolve(found, definitions=kept, library=()), files=files))
    for entry in found.library if found.settings.hooks_enabled else ():
        _enter_ready_made(registry, entry, now, left_out)
    there = registry.hooks()
    judging = {hook.name for hook in there if _judges_calls(hook)}
    left_out |= {hook.name: NO_PART for hook in there if hook.name not in judging}
    registry.remove([hook for hook in there if not _judges_calls(hook)])
    return ReplayHooks(path=path, registry=registry, left_out=tuple(sorted(left_out.items())))


def _definitions_to_run(found: DefinitionSet, left_out: dict[str, str], *, trusted: bool) -> tuple[HookDefinition, ...]:
    """Return the definitions whose code may run here, and add the others that are in force to `left_out`."""
    in_force = [one for one in found.definitions if one.enabled and found.settings.hooks_enabled]
    python = [one for one in in_force if one.kind == "python"]
    left_out |= {one.name: EXTERNAL.get(one.kind, NOT_TRUSTED) for one in in_force if one.kind != "python"}
    left_out |= {one.name: NOT_TRUSTED for one in python if not trusted}
    return tuple(python) if trusted else ()


def _enter_ready_made(
    registry: HookRegistry, entry: ReadyMadeEntry, now: Callable[[], float], left_out: dict[str, str]
) -> None:
    """Register a ready-made hook that can judge calls of the past; add any other to `left_out`."""
    try:
        hook = _ready_made(entry)
        judge = None if hook is None else hook.for_replay(now)
        if judge is not None:
            judge.register(registry.scope(entry.name, built_in=True, report_only=entry.report_only))
            return
    except HookError as problem:
        raise HookUnavailable(f"{entry.spot}: {problem}") from problem
    judges = hook is None or any(point.intent in ANSWERING and point.event == TOOL_PRE for point in hook.points())
    left_out[entry.name] = NEEDS_MORE if judges else NO_PART


def _ready_made(entry: ReadyMadeEntry) -> ReadyMade[Any] | None:
    """Return a ready-made hook with its settings; None for a hook of another package in another shape.

    Raises `HookUnavailable` for a name that no installed package has, and the errors of the settings.
    """
    from amplifier_hooks.library.parts.ready_made import ReadyMade

    if entry.name not in list_installed():
        raise HookUnavailable(f"no installed package has a hook called {entry.name!r}")
    kind = find_hook(entry.name)
    if not (isinstance(kind, type) and issubclass(kind, ReadyMade)):
        return None
    made: ReadyMade[Any] = kind.from_config(entry.config)
    return made


def _judges_calls(hook: Hook) -> bool:
    """Return True if a hook answers before a tool call."""
    return hook.intent in ANSWERING and applies(hook.event, TOOL_PRE)


Always = Literal["session", "project"]
"""The reach of an "always"."""

Answer = Literal["allowed", "asked", "denied", "covered"]
"""The decision about a call. `covered` is a question that an earlier "always" has answered."""

BY: Final = "replay"

DIFFERENCES: Final[Mapping[tuple[str, str], str]] = {
    ("denied", "ran"): "ran, and would have been denied",
    ("allowed", "rejected"): "rejected by the user would have run unasked",
    ("covered", "rejected"): 'rejected by the user would have been covered by an earlier "always"',
    ("allowed", "denied"): "denied there would have run unasked",
    ("covered", "denied"): 'denied there would have been covered by an earlier "always"',
    ("asked", "denied"): "denied there would have been asked about",
}
"""Decisions that differ from the end of the call in its transcript."""


@frozen(kw_only=True)
class Finding:
    """The decision of a configuration about one call of a transcript, in texts that can be shown."""

    file: str
    line: int
    session: str
    tool: str
    call: str
    """The tool, and the beginning of the argument that tells most."""
    happened: str
    answer: Answer
    by: tuple[str, ...]
    """The hooks that asked, or the hook or rule that denied."""
    reason: str
    risk: str
    difference: str
    """The difference from the transcript, in words; empty if there is none."""
    would: tuple[tuple[str, str], ...]
    """The answers of report-only hooks and rules: name and action."""


ROOM: Final = 100
"""Bytes of a call, or of a reason, on a line."""
READ: Final = 80
"""Times as much of it is searched for secrets."""


@define(eq=False)
class CallText:
    """Writes calls on one line, without their secrets."""

    secrets: Secrets = field(factory=Secrets)

    def of(self, call: RecordedCall) -> str:
        """Return a call: its tool, and the argument that tells most."""
        names = ("command", "file_path", "path", "url", "pattern")
        telling = next((call.input[name] for name in names if isinstance(call.input.get(name), str)), None)
        text = json.dumps(call.input, ensure_ascii=False) if telling is None else telling
        return f"{self.cover(call.tool)}  {self.cover(text)}"

    def cover(self, text: str) -> str:
        """Return the beginning of a text, escaped, with known secrets covered.

        A secret is known by its end, too, so that the text is read further than it is shown.
        """
        spans = [span for span in self.secrets.spans(text[: ROOM * READ]) if span[0] < ROOM]
        end = max([ROOM, *(span[1] for span in spans)])
        covered = for_log(replace_spans(text[:end], spans, ["(secret)"] * len(spans)))
        shown = clip(covered, ROOM)
        return f"{shown}…" if end < len(text) and shown == covered else shown


@define(eq=False)
class ReplayClock:
    """The time of the call that is replayed. A call without a time has that of the call before it."""

    time: datetime = datetime(2000, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        """Return the time of the call."""
        return self.time

    def seconds(self) -> float:
        """Return the time of the call in seconds."""
        return self.time.timestamp()


class AllowingApprover(InProcessBackend):
    """An approval backend that allows every request: once, or for good where that is offered.

    Where the grants are kept for a project, an answer for good is for the project.
    """

    def __init__(self, *, always: bool) -> None:
        super().__init__()
        self._always = always

    async def ask(self, request: ApprovalRequest) -> Decision:
        """Allow the request."""
        kinds = {option.kind: option.id for option in request.options}  # the last of a kind: that for the project
        lasting = kinds.get("allow_always") if self._always else None
        chosen = lasting or kinds.get("allow_once") or kinds.get("allow_always") or ""
        return Decision(option=chosen, by=BY, channel=BY, keep=request.keep if chosen == lasting else None)


@define(eq=False)
class MemoryRecord:
    """A record in memory, of the call that is replayed."""

    lines: list[tuple[str, Mapping[str, Any]]] = field(factory=list)

    async def write(self, kind: str, facts: Mapping[str, Any], *, durable: bool = False) -> None:  # noqa: ARG002  # the port's
        """Keep a line."""
        self.lines.append((kind, facts))


@define(eq=False, kw_only=True)
class Replay:
    """Replays transcripts of one source through one configuration."""

    source: Source
    hooks: ReplayHooks
    clock: ReplayClock
    folder: Path
    """The folder of a call whose transcript has none."""
    rules: RulePolicy | None = None
    always: Always | None = None
    """The reach of the answers for good, if the approver gives any."""
    text: CallText = field(factory=CallText)
    _kept: SessionGrants = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._kept = SessionGrants(self.clock, keep_grants=KEPT_GRANTS)

    async def run(self, transcript: Transcript) -> AsyncIterator[Finding]:
        """Yield the decision about each call of a transcript, in its order."""
        record = MemoryRecord()
        async with AsyncExitStack() as stack:
            sessions: dict[str, tuple[SessionCoordinator, str]] = {}
            for call in transcript.calls:
                self.clock.time = call.time or self.clock.time
                if call.session not in sessions:
                    root = call.cwd or str(self.folder)
                    opened = await stack.enter_async_context(self._session(call.session, root, record))
                    sessions[call.session] = opened, root
                session, root = sessions[call.session]
                record.lines.clear()
                await session.call_tool(call.tool, call.input, _do_nothing, cwd=call.cwd or root)
                yield _finding(transcript.path, call, record.lines, self.text)

    def _session(self, session_id: str, root: str, record: MemoryRecord) -> SessionCoordinator:
        return SessionCoordinator(
            self.hooks.registry,
            session_id=session_id,
            agent=self.source.title,
            cwd=root,
            clock=self.clock,
            approvals=AllowingApprover(always=self.always is not None),
            grants=self._kept if self.always == "project" else None,
            rules=self.rules,
            audit=record,
        )


def _do_nothing(_given: Any) -> None:
    """Stand in for the tool: a call of the past is not carried out again."""


def _finding(path: Path, call: RecordedCall, lines: list[tuple[str, Mapping[str, Any]]], text: CallText) -> Finding:
    """Return the decision about a call, by the record of its replay."""
    answer: Answer = "allowed"
    by: dict[str, None] = {}
    reasons: dict[str, None] = {}
    risk, asking, refused = "", list[str](), False
    for kind, facts in lines:
        if kind == "outcome" and facts["event"] == TOOL_PRE:
            asking = [one["hook"] for one in facts.get("answers", ()) if one["action"] == "ask_user"]
        elif kind == "approval.requested":
            by |= dict.fromkeys(facts["hooks"])
            reasons[facts["prompt"]] = None
            risk = facts["risk"]
        elif kind == "approval.decided" and facts.get("channel") == BY:
            answer, refused = "asked", not facts["allowed"]  # a question that no option allows
        elif kind == "approval.decided" and facts.get("channel") == "grant" and facts["allowed"]:
            answer = "covered" if answer == "allowed" else answer
            by |= dict.fromkeys(asking)
        elif kind == "tool.denied" and not refused:
            answer, by, reasons = "denied", {str(facts.get("by")): None}, {str(facts.get("reason")): None}
    return Finding(
        file=str(path),
        line=call.line,
        session=call.session,
        tool=text.cover(call.tool),
        call=text.of(call),
        happened=call.happened,
        answer=answer,
        by=tuple(by),
        reason=text.cover("\n".join(reasons)),
        risk=risk,
        difference=DIFFERENCES.get((answer, call.happened), ""),
        would=tuple(one for _, facts in lines for one in _would(facts)),
    )


def _would(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    from amplifier_hooks.cli.audit.record_text import would_answers

    if facts.get("event") == TOOL_PRE:
        yield from ((hook, str(would.get("action"))) for hook, would in would_answers(facts))
