"""Calls of a transcript pass through a session with the hooks of a configuration; a finding for each call goes out.

The session is a real one, with the path of every call. Its clock shows the recorded times, its approver allows
everything, its tools do nothing, and its record, which stays in memory, tells the end of each call.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal

from attrs import define, field, frozen

from amplifier_hooks.events import TOOL_PRE
from amplifier_hooks.ports import Decision
from amplifier_hooks.session.coordinator import SessionCoordinator
from amplifier_hooks.text.escape import clip

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping
    from pathlib import Path

    from amplifier_hooks.cli.replay.configuration import ReplayHooks
    from amplifier_hooks.ports import ApprovalRequest, KeptResult, RulePolicy, Settlement
    from amplifier_hooks.programs.transcripts import RecordedCall, Source, Transcript


Answer = Literal["allowed", "asked", "denied", "covered"]
"""The decision about a call. `covered` is a question that an earlier "always" has answered."""

BY: Final = "replay"

LONGEST_REASON: Final = 2_048
"""Bytes of a finding's reason."""

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
    """The decision of a configuration about one call of a transcript."""

    path: Path
    call: RecordedCall
    answer: Answer
    by: tuple[str, ...] = ()
    """The hooks that asked, or the hook or rule that denied."""
    reason: str = ""
    risk: str = ""
    would: tuple[tuple[str, str], ...] = ()
    """The answers of report-only hooks and rules: name and action."""

    @property
    def difference(self) -> str:
        """The difference from the transcript, in words; empty if there is none."""
        return DIFFERENCES.get((self.answer, self.call.happened), "")


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


@define(eq=False)
class AllowingApprover:
    """An approval backend that allows every request: once, or for good where that is offered."""

    always: bool

    async def request(self, request: ApprovalRequest) -> Decision:
        """Allow the request."""
        kinds = {option.kind: option.id for option in request.options}
        lasting = kinds.get("allow_always") if self.always else None
        chosen = lasting or kinds.get("allow_once") or kinds.get("allow_always") or ""
        return Decision(option=chosen, by=BY, channel=BY)

    async def claim(self, request_id: str, digest: str) -> bool:  # noqa: ARG002  # the port's
        """Return True."""
        return True

    async def settle(self, request_id: str, outcome: Settlement, result: KeptResult | None = None) -> None:
        """Do nothing."""

    async def withdraw(self, request_id: str, reason: str) -> None:
        """Do nothing."""


@define(eq=False)
class MemoryRecord:
    """A record in memory, of the call that is replayed."""

    lines: list[tuple[str, Mapping[str, Any]]] = field(factory=list)

    async def write(self, kind: str, facts: Mapping[str, Any], *, durable: bool = False) -> None:  # noqa: ARG002  # the port's
        """Keep a line."""
        self.lines.append((kind, facts))

    def take(self) -> list[tuple[str, Mapping[str, Any]]]:
        """Return and remove the lines."""
        taken, self.lines = self.lines, []
        return taken


@define(eq=False, kw_only=True)
class Replay:
    """Replays transcripts of one source through one configuration."""

    source: Source
    hooks: ReplayHooks
    clock: ReplayClock
    folder: Path
    """The folder of a call whose transcript has none."""
    rules: RulePolicy | None = None
    always: bool = False

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
                record.take()
                await session.call_tool(call.tool, call.input, _do_nothing, cwd=call.cwd or root)
                yield _finding(transcript.path, call, record.take())

    def _session(self, session_id: str, root: str, record: MemoryRecord) -> SessionCoordinator:
        return SessionCoordinator(
            self.hooks.registry,
            session_id=session_id,
            agent=self.source.title,
            cwd=root,
            clock=self.clock,
            approvals=AllowingApprover(self.always),
            rules=self.rules,
            audit=record,
        )


def _do_nothing(_given: Any) -> None:
    """Stand in for the tool: a call of the past is not carried out again."""


def _finding(path: Path, call: RecordedCall, lines: list[tuple[str, Mapping[str, Any]]]) -> Finding:
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
        path=path,
        call=call,
        answer=answer,
        by=tuple(by),
        reason=clip("\n".join(reasons), LONGEST_REASON),
        risk=risk,
        would=tuple(one for _, facts in lines for one in _would(facts)),
    )


def _would(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    from amplifier_hooks.cli.audit.record_text import would_answers

    if facts.get("event") == TOOL_PRE:
        yield from ((hook, str(would.get("action"))) for hook, would in would_answers(facts))
