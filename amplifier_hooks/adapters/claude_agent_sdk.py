"""Claude's agents, through the Claude Agent SDK.

    async with SessionCoordinator(hooks=registry) as session:
        async with ClaudeSDKClient(ClaudeAgent(session).options()) as client:
            await client.query("Update the config")

The SDK runs a program, and that program runs the tools. At every point it has, the program asks the hooks in the SDK's
options; this adapter puts ours there, see `programs/program_session.py`. When the program's own permissions require a
decision, the program calls `can_use_tool`. That callback allows a call that was decided about, exactly as it was
decided, and leaves all other calls to the host's own callback.

Extra `claude-agent-sdk`.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from amplifier_hooks.adapters.shared import Texts, call_at_end
from amplifier_hooks.errors import MissingExtra
from amplifier_hooks.events import APPROVAL_REQUIRED
from amplifier_hooks.programs.dialects import CLAUDE_CODE
from amplifier_hooks.programs.program_session import ProgramSession

try:
    from claude_agent_sdk import ClaudeAgentOptions, HookMatcher, PermissionResultAllow, PermissionResultDeny
except ModuleNotFoundError as error:
    raise MissingExtra.from_import(error, "this adapter") or error from None

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from claude_agent_sdk import CanUseTool, HookContext, PermissionResult, ToolPermissionContext

    from amplifier_hooks.programs.program_session import Asking
    from amplifier_hooks.session.coordinator import SessionCoordinator

__all__ = ["ClaudeAgent"]


EVENTS: Final = (
    "PreToolUse", "PostToolUse", "PostToolUseFailure", "UserPromptSubmit", "Stop", "SubagentStart", "SubagentStop",
    "PreCompact", "Notification",
)  # fmt: skip
"""Events for which the SDK takes callbacks. `PermissionRequest` is left to the permission callback of this adapter."""

SLACK: Final = 60.0
"""Seconds a callback may take beyond the time a person has."""

THEIRS: Final = {"continue": "continue_", "async": "async_"}
"""Keys of an answer that are keywords of Python, and their names in the SDK."""

UNPERMITTED: Final = (
    "this is not approved, and not among allowed_tools; let a hook ask about it, allow the tool in the "
    "options, or give them a can_use_tool"
)
CHANGED: Final = "this is not the call that was decided about; nothing else may run"


class ClaudeAgent:
    """One agent inside a session. `options` are for one client at a time.

    `asking` names the place where a person decides. With "inbox" the session's approver decides; without a decision in
    time, the call is refused and the model is asked to make it again. With "defer" the run ends instead, with
    `deferred_tool_use` in its result: start another run with `resume`, in another process if need be, and it goes on
    from there. `waits` limits the seconds a person may take; after that the program gives up waiting, which blocks the
    call.

    Args:
        asking: Place where a person decides: the session's approver, or a run that is resumed later.
        waits: Seconds that a person may take.
    """

    def __init__(self, session: SessionCoordinator, *, asking: Asking = "inbox", waits: float = 3600.0) -> None:
        self.session = session
        self._waits = waits
        self._program_session = ProgramSession(CLAUDE_CODE, session, ContextNews(session), asking)
        call_at_end(session, "claude-agent-sdk", self._program_session.leave)

    def options(self, options: ClaudeAgentOptions | None = None) -> ClaudeAgentOptions:
        """Return a copy of `options` with our hooks beside its own, and our permission callback before its own.

        If `allowed_tools` allows a whole tool, our callback allows it instead, after a look at the input: only a call
        that was decided about runs. With `bypassPermissions`, or with a permission tool of the host, the program does
        not call our callback, and nothing checks the input.

        If a callback of ours fails, it blocks the call it was asked about. The SDK refuses a program that is too old
        for that.

        Args:
            options: Options of the host's own; the SDK's defaults if None.
        """
        own = copy.copy(options or ClaudeAgentOptions())
        hooks: dict[Any, list[HookMatcher]] = {name: list(one) for name, one in (own.hooks or {}).items()}
        ours = HookMatcher(hooks=[self._answer_hook], timeout=self._waits + SLACK, on_failure="block")
        for name in EVENTS:
            hooks.setdefault(name, []).append(ours)
        own.hooks = hooks
        if own.permission_mode != "bypassPermissions" and own.permission_prompt_tool_name is None:
            whole = {entry: whole_tool(entry) for entry in own.allowed_tools}
            own.allowed_tools = [entry for entry, tool in whole.items() if tool is None]
            own.can_use_tool = self._permission([tool for tool in whole.values() if tool is not None], own.can_use_tool)
        return own

    async def _answer_hook(self, question: Any, _tool_use_id: str | None, _context: HookContext) -> Any:
        answer = await self._program_session.answer(question)
        return {THEIRS.get(key, key): value for key, value in answer.items()}

    def _permission(self, patterns: list[str], theirs: CanUseTool | None) -> CanUseTool:
        """Return the callback that answers the program when its own permissions require a decision."""

        async def decide_permission(
            tool: str, tool_input: dict[str, Any], context: ToolPermissionContext
        ) -> PermissionResult:
            answer: PermissionResult | None = None
            try:
                answer = await find_permission(tool, tool_input, context)
            finally:
                if not isinstance(answer, PermissionResultAllow):  # the program reports nothing about it any more
                    await self._program_session.calls.give_up(context.tool_use_id or "")
            return answer

        async def find_permission(
            tool: str, tool_input: dict[str, Any], context: ToolPermissionContext
        ) -> PermissionResult:
            call = self._program_session.begin(context.tool_use_id or "", tool, tool_input)
            if call is None:
                return PermissionResultDeny(message=CHANGED)
            if call.allowed or any(fnmatchcase(tool, pattern) for pattern in patterns):
                return PermissionResultAllow(updated_input=call.input)  # hooks and host may change their own objects
            if theirs is None:
                return PermissionResultDeny(message=UNPERMITTED)
            about = {"tool_name": tool, "tool_call_id": call.id, "prompt": context.title or tool}
            shown = {**about, "tool_input": copy.deepcopy(call.input)}
            outcome = await self.session.emit(APPROVAL_REQUIRED, shown, cwd=call.cwd)
            if outcome.denied:
                return PermissionResultDeny(message=outcome.reason or "denied")
            answer = await theirs(tool, tool_input, context)
            if not isinstance(answer, PermissionResultAllow):
                return answer
            same = answer.updated_input is None or call.permits(tool, answer.updated_input)
            return replace(answer, updated_input=call.input) if same else PermissionResultDeny(message=CHANGED)

        return decide_permission


class ContextNews:
    """The texts that the session's context has for the model. The session shows its own lines on its own screen."""

    def __init__(self, session: SessionCoordinator) -> None:
        self._context = session.context
        self._texts: Texts[str] = Texts(session, lambda _role, text: text)  # the program has one kind of context

    async def take_texts(self) -> list[str]:
        """Return the texts that came since the last time. A text that is meant for one call only is included."""
        passing: Sequence[Mapping[str, Any]] = getattr(self._context, "take_ephemeral", tuple)()
        return await self._texts.new() + [one["content"] for one in passing]

    async def take_lines(self) -> list[str]:
        """Return no lines: the session shows them."""
        return []


def whole_tool(entry: str) -> str | None:
    """Return the pattern of the tools that an entry allows with any input, or None if it looks at the input."""
    name, bracket, specifier = entry.partition("(")
    if bracket and specifier not in (")", "*)"):
        return None
    pattern = name.replace("[", "[[]").replace("?", "[?]")  # to the program, only a star stands for others
    return f"{pattern}__*" if name.startswith("mcp__") and name.count("__") == 1 else pattern
