"""A codec for hooks that were written for another program, in the program's dialect."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Final

from attrs import evolve, field, frozen

from amplifier_hooks import events
from amplifier_hooks.definitions.kinds.event_codec import (
    BLOCKED,
    STRAY,
    ProgramExit,
    as_reason,
    decode_answer,
    encode_message,
    hides,
)
from amplifier_hooks.errors import HookFailed, HookUnavailable, InvalidResult
from amplifier_hooks.logs import get_logger
from amplifier_hooks.programs.dialect import ABSENT, Dialect, Spelling, Verdict
from amplifier_hooks.result import CONTINUE, HookResult

if TYPE_CHECKING:
    from collections.abc import Mapping


log = get_logger(__name__)

DECISION: Final = re.compile(
    rb'"(?:hookSpecificOutput|permissionDecision|stopReason)"\s*:|"continue"\s*:\s*false'
    rb'|"(?:decision|behavior)"\s*:\s*"(?:allow|approve|ask|block|defer|deny)"'
)
"""Pattern of a program's decision within other text."""


@frozen(kw_only=True)
class DialectCodec:
    """A codec that speaks a dialect to commands and services, as the program would."""

    dialect: Dialect
    cwd: str = field(factory=os.getcwd)
    tools: Mapping[str, str] = field(factory=dict)
    """The program's names of tools, by their names here."""

    def question(self, event: str, data: Mapping[str, Any], request_id: str | None = None) -> bytes:  # noqa: ARG002  # dialects have no request ids
        """Return the payload in the program's spelling. Raises `HookUnavailable` for an event that it does not have."""
        spelling = self._spelling(event)
        said = self.dialect.describe(spelling, data, self.cwd)
        if "tool_name" in said:
            said["tool_name"] = self.tools.get(said["tool_name"], said["tool_name"])
        return encode_message(said)

    def answer(self, event: str, data: Mapping[str, Any], ended: ProgramExit) -> HookResult:
        """Return the result that the program would read from a command's output and exit status.

        Raises `InvalidResult` or `HookFailed` if the program counts the hook as failed. The registration fixed the
        consequence of a failure, by the program's policy.
        """
        dialect, spelling = self.dialect, self._spelling(event)
        said = as_reason(ended.errors)
        if ended.code == BLOCKED and (said or dialect.silent_block):
            return as_hook_result(spelling, Verdict(decision="deny", reason=said))
        if ended.code in dialect.warns:
            return HookResult.proceed(user_message=said, user_message_level="warning") if said else CONTINUE
        if ended.code != 0:
            if dialect.failures == "closed":
                return as_hook_result(
                    spelling, Verdict(decision="deny", reason=said or f"the command {ended.in_words}")
                )
            raise HookFailed(f"the command {ended.in_words}{f': {said}' if said else ''}")
        output = ended.output.strip()
        if output.startswith(b"{"):
            return self._read(spelling, data, decode_answer(output))
        if hides(output, DECISION):
            if dialect.failures == "closed":
                return as_hook_result(spelling, Verdict(decision="deny", reason=STRAY))
            raise InvalidResult(STRAY)
        text = output.decode("utf-8", "backslashreplace")
        return as_hook_result(spelling, Verdict(context=text)) if text and spelling.text_counts else CONTINUE

    def reply(self, event: str, data: Mapping[str, Any], body: bytes, request_id: str) -> HookResult:  # noqa: ARG002  # dialects have no request ids
        """Return the result that the program would read from a service's answer. An empty body changes nothing."""
        return self._read(self._spelling(event), data, decode_answer(body)) if body.strip() else CONTINUE

    def _spelling(self, event: str) -> Spelling:
        spelling = self.dialect.spelling(event)
        if spelling is None:
            raise HookUnavailable(f"{self.dialect.title} has no event like {event!r}; register the hook where it has")
        return spelling

    def _read(self, spelling: Spelling, data: Mapping[str, Any], answer: dict[str, Any]) -> HookResult:
        verdict = self.dialect.read(spelling, answer)
        before = data.get(spelling.changes)
        if self.dialect.merges and isinstance(verdict.update, dict) and isinstance(before, dict):
            verdict = evolve(verdict, update={**before, **verdict.update})
        if verdict.unknown:
            log.warning("hook_answer_has_unknown_keys", dialect=self.dialect.name, keys=sorted(verdict.unknown))
        return as_hook_result(spelling, verdict)


def as_hook_result(spelling: Spelling, verdict: Verdict) -> HookResult:
    """Return a program's verdict as a `HookResult`.

    A hook can refuse and ask, never grant: a program's permit is no objection here.
    """
    extra: dict[str, Any] = {}
    if verdict.message:
        extra["user_message"] = verdict.message
    if verdict.quiet:
        extra["suppress_output"] = True
    context = [verdict.context] if verdict.context else []
    refused = verdict.decision == "deny" or verdict.stop
    if refused and spelling.blocks == "inject" and not verdict.stop:
        context.insert(0, verdict.reason or "a hook objects to this, without a reason")
        refused = False
    if context:
        extra["context_injection"] = "\n\n".join(context)
        extra["append_to_last_tool_result"] = spelling.ours in (events.TOOL_POST, events.TOOL_ERROR)
    if refused and spelling.blocks != "nothing":
        return HookResult.deny(verdict.reason or None, **extra)
    if verdict.update is not ABSENT and spelling.changes:
        extra["data"] = {spelling.changes: verdict.update}
    if verdict.decision in ("ask", "defer"):
        return HookResult.ask(verdict.reason or None, **extra)
    if "data" in extra:
        return HookResult.modify(extra.pop("data"), **extra)
    if context:
        return HookResult(action="inject_context", **extra)
    return HookResult.proceed(**extra)
