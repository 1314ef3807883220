"""A change of trusted files that waits comes in; a request with its differences goes to the approvers.

The approved change is trusted, and takes effect at the next look at the files. A denied one stays out of force, and no
approver is asked about it again, also after a restart: the store of trust remembers it.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any, Final

from attrs import define

from amplifier_hooks.definitions.private_copies import TrustedFiles
from amplifier_hooks.definitions.reload import EVERY
from amplifier_hooks.definitions.trust import SETS_OWN
from amplifier_hooks.logs import get_logger
from amplifier_hooks.registry.registry import HookRegistry
from amplifier_hooks.result import HookResult
from amplifier_hooks.session.coordinator import SessionCoordinator

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from amplifier_hooks.definitions.reload import PinnedModules, WatchedFiles
    from amplifier_hooks.definitions.trust import FileList, TrustStore
    from amplifier_hooks.ports import ApprovalBackend, AuditSink


TOOL: Final = "TrustHooks"
"""Name of the act that approvers decide about."""

ANSWER_WITHIN: Final = 30 * 86_400.0
"""Seconds for which a request stays open. The change waits on after that, without a request."""

AGAIN_AFTER: Final = 60
"""Looks after which a request that failed is made again."""
FAILED: Final = ("approval_unavailable", "audit_unavailable", "hook_error", "hook_timeout")
"""Causes of a denial that no approver gave."""

LONGEST_TEXT: Final = 200_000
"""Characters of one file that a request shows; of a longer file it shows the digest."""
MOST_TEXT: Final = 600_000
"""Characters of all files that a request shows, so that it stays below the limit of an input."""

log = get_logger(__name__)


@define(eq=False)
class ChangeRequests:
    """Requests about the changes of watched files that wait to be trusted, one at a time.

    The approvers see every file whose content differs, with its old and its new text. `audit` records the requests and
    the decisions.
    """

    files: WatchedFiles | PinnedModules
    trust: TrustStore
    approvals: ApprovalBackend
    audit: AuditSink

    async def follow(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Ask about each change that waits. Runs until it is cancelled, and then withdraws the open request.

        A request that failed, as one does while the store cannot be reached, is made again after a minute.
        """
        asked, asking, failed = "", None, 0
        try:
            while True:
                failed = failed + 1 if asking is not None and asking.done() and asking.result() is None else 0
                asked = "" if failed > AGAIN_AFTER else asked
                waiting = self.files.waiting
                digest = "" if waiting is None else waiting.digest
                if digest != asked:
                    await _cancel(asking)
                    asked, asking = digest, None
                    if waiting is not None and not self.trust.denied(self.files.source, waiting):
                        asking = asyncio.ensure_future(self.ask(waiting))
                await sleep(EVERY)
        finally:
            await _cancel(asking)

    async def ask(self, waiting: FileList) -> bool | None:
        """Ask the approvers about one change, and trust it once one of them approves.

        Returns True if it is trusted, and None if it could not be asked about. A person's denial is remembered. A
        failure is logged. Cancelling withdraws the request.
        """
        registry = HookRegistry()
        prompt = self.files.question(waiting)
        question = HookResult.ask(
            prompt,
            timeout=ANSWER_WITHIN,
            risk="high",
            risk_reason="These files decide what agents may do, and what runs on this machine.",
        )
        registry.gate("tool:pre", lambda _event, _data: question, name="trusted files")
        session = SessionCoordinator(
            registry, approvals=self.approvals, audit=self.audit, agent="hook files", cwd=waiting.folder
        )

        def accept(_shown: Mapping[str, Any]) -> str:
            self.trust.trust(self.files.source, [waiting])
            return waiting.digest

        try:
            async with session:
                outcome = await session.call_tool(TOOL, self.change(waiting), accept)
                if outcome.cause == "denied_by_person":
                    self.trust.deny(self.files.source, waiting)
        except Exception as problem:  # noqa: BLE001  # the set in force stays, and the next change is asked about
            log.warning("change_request_failed", path=self.files.source, error=repr(problem))
            return None
        return None if outcome.cause in FAILED else outcome.ok

    def change(self, waiting: FileList) -> dict[str, Any]:
        """Return the differences between the trusted files and those that wait, in the shape of an edit."""
        kept = self.trust.trusted_list(self.files.source)
        files = () if kept is None else kept.groups.get(SETS_OWN, ()) if waiting.is_removal else kept.files
        before = {one.path: one for one in files}
        after = {one.path: one for one in waiting.files}
        changed = [
            path
            for path in sorted({*before, *after})
            if path not in before or path not in after or before[path].digest != after[path].digest
        ]
        edits, left = [], MOST_TEXT
        for path in changed:
            old = "" if kept is None else _text(TrustedFiles(kept, self.trust.copies), path)
            new = _text(TrustedFiles(waiting, self.trust.copies), path)
            if len(old) + len(new) > left:
                old, new = "", f"({path}: no room for its text; compare its digest)\n"
            left -= len(old) + len(new)
            edits.append({"old_string": old, "new_string": new})
        names = {path: path.removeprefix(f"{waiting.folder}{os.sep}") for path in changed}
        known = ((names[path], before.get(path), after.get(path)) for path in changed)
        facts = [f"{name}: SHA-256 {_digest(old)} → {_digest(new)}" for name, old, new in known]
        shown: dict[str, Any] = {"file_path": ", ".join(names.values()) or self.files.path.name}
        shown |= edits[0] if len(edits) == 1 else {"edits": edits}
        return {**shown, "files": facts, "digest": waiting.digest}


def _digest(one: Any) -> str:
    return "no file" if one is None or not one.digest else one.digest


def _text(files: TrustedFiles, path: str) -> str:
    """Return the text of a file's copy, or a line about a file that is missing, installed or too long to be shown."""
    for key, listed in files.listed.groups.items():
        for one in listed:
            if one.path == path and one.role != "installed" and one.digest:
                text = files.of(key).copy_of(path).read_text("utf-8", "backslashreplace")
                return text if len(text) <= LONGEST_TEXT else f"({len(text):,} characters: too long to be shown)\n"
    return ""


async def _cancel(asking: asyncio.Future[bool | None] | None) -> None:
    if asking is not None:
        asking.cancel()
        await asyncio.wait([asking])
