"""A notification on the desktop, or a call to a service, when the user is needed.

On Linux `notify-send` shows the notification, or the session's D-Bus if that program is missing; on macOS `osascript`
does. A service receives one signed JSON object, with the event, the text and the session, and never a tool's input. A
notification that cannot be delivered is one warning in the log. The hook observes, and fails open.

```python
from amplifier_hooks import HookRegistry
from amplifier_hooks.library import Notify

registry, said = HookRegistry(), []
Notify(desktop=said.append).register(registry)
await registry.emit("approval:required", {"tool_name": "Bash", "tool_input": {"command": "rm -rf build"}})
print(*said)
```

```output
Bash waits for an approval
```
"""

from __future__ import annotations

import html
import inspect
import os
import shutil
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field, SecretStr

from amplifier_hooks import events
from amplifier_hooks.definitions.kinds.event_codec import NativeCodec
from amplifier_hooks.definitions.kinds.webhook import PUBLIC, WebhookHook
from amplifier_hooks.errors import HookError, HookUnavailable, InvalidHookSettings, InvalidRegistration, InvalidResult
from amplifier_hooks.library.parts.command_runner import CommandRunner
from amplifier_hooks.library.parts.ready_made import HookSettings, Once, Point, ReadyMade
from amplifier_hooks.logs import get_logger
from amplifier_hooks.result import CONTINUE
from amplifier_hooks.text.escape import clip, for_log

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from amplifier_hooks.definitions.kinds.webhook import AllowedUrls
    from amplifier_hooks.result import HookResult, Outcome


log = get_logger(__name__)

PRIORITY: Final = 710

TITLE: Final = "amplifier-hooks"

NOTHING_MORE: Final = ("@as []", "@a{sv} {}", "int32 -1")
"""No buttons, no hints, and the desktop's own duration; with the types that D-Bus requires."""

LONGEST: Final = 300
"""Bytes of a notification."""

GRACE: Final = 2.0

SEEN: Final = ("DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR")
"""Variables that a program needs to find the desktop."""

SENTENCES: Final = {
    events.APPROVAL_REQUIRED: "{tool_name} waits for an approval",
    events.APPROVAL_EXPIRED: "no approver decided about {tool_name} in time",
    events.USER_NOTIFICATION: "{message}",
    events.PROMPT_COMPLETE: "the agent is done",
    events.SESSION_END: "the session has ended",
    events.TOOL_ERROR: "{tool_name} failed",
}
"""Texts of some events; the text of any other event is its name."""


class NotifySettings(HookSettings):
    """The events, and the receivers of their notifications."""

    events: tuple[str, ...] = Field(
        default=(events.APPROVAL_REQUIRED, events.USER_NOTIFICATION),
        min_length=1,
        description="the events that are told; patterns as for any hook",
    )
    desktop: bool = Field(default=True, description="whether the desktop is told")
    webhook: str = Field(default="", description="the address of a service to tell; none if it is empty")
    secrets: tuple[SecretStr, ...] = Field(default=(), description="what calls to the service are signed with: whsec_…")
    seconds: float = Field(default=3.0, gt=0, le=25, description="how long the desktop, or the service, may take")


async def show_on_desktop(text: str, seconds: float = 3.0, platform: str = sys.platform) -> None:
    """Show a text on the user's desktop, through a program of the system.

    Raise `HookUnavailable` if no program can show it, `HookFailed` if the program takes too long.
    """
    argv = _desktop_command(text, platform)
    seen = {name: os.environ[name] for name in SEEN if name in os.environ}
    ended = await CommandRunner().run(argv, cwd=os.sep, seconds=seconds, **seen)
    if ended.code != 0:
        said = for_log(ended.errors.decode("utf-8", "backslashreplace").strip())
        raise HookUnavailable(f"{argv[0]!r} {ended.in_words}: {said:.200}")


def _desktop_command(text: str, platform: str) -> list[str]:
    if platform == "darwin":
        # The text is an argument of the script and no part of it.
        script = ("on run argv", "display notification (item 2 of argv) with title (item 1 of argv)", "end run")
        return ["osascript", *(part for line in script for part in ("-e", line)), TITLE, text]
    body = html.escape(text, quote=False)  # desktops read some HTML in the text
    if shutil.which("notify-send") is not None:
        return ["notify-send", f"--app-name={TITLE}", "--", TITLE, body]
    if shutil.which("gdbus") is not None:
        name, path = "org.freedesktop.Notifications", "/org/freedesktop/Notifications"
        call = ["gdbus", "call", "--session", f"--dest={name}", f"--object-path={path}", f"--method={name}.Notify"]
        texts = [_gvariant_string(TITLE), "uint32 0", "''", _gvariant_string(TITLE), _gvariant_string(body)]
        return [*call, "--", *texts, *NOTHING_MORE]
    raise HookUnavailable("neither notify-send nor gdbus is there to tell the desktop")


class _IgnoredReply(NativeCodec):
    """A codec that ignores the reply of a service, because the reply is no decision."""

    def reply(self, event: str, data: Mapping[str, Any], body: bytes, request_id: str) -> HookResult:  # not read
        return CONTINUE


class Notify(ReadyMade[NotifySettings]):
    """Tells the desktop, or a service, that an approval waits or that the user should know something.

    Args:
        desktop: Function that shows a text on the desktop; the system's own way if None.
    """

    name = "notify"
    Settings = NotifySettings

    def __init__(
        self,
        settings: NotifySettings | None = None,
        *,
        desktop: Callable[[str], Awaitable[None] | None] | None = None,
        reach: AllowedUrls = PUBLIC,
    ) -> None:
        super().__init__(settings)
        self._once = Once()
        self._desktop: Callable[[str], Awaitable[None] | None] | None = None
        if self.settings.desktop:
            self._desktop = desktop or partial(show_on_desktop, seconds=self.settings.seconds)
        self._webhook: WebhookHook | None = None
        if self.settings.webhook:
            try:
                self._webhook = WebhookHook(
                    url=self.settings.webhook,
                    secrets=tuple(secret.get_secret_value() for secret in self.settings.secrets),
                    reach=reach,
                    codec=_IgnoredReply(),
                    retry_within=self.settings.seconds,
                )
            except InvalidRegistration as problem:
                raise InvalidHookSettings(self.name, (f"'webhook': {problem}",)) from None

    def points(self) -> tuple[Point, ...]:
        """Return observers of the chosen events."""
        seconds = 2 * self.settings.seconds + GRACE
        return tuple(
            Point(event=event, call=self.watch, intent="observe", priority=PRIORITY, timeout=seconds)
            for event in self.settings.events
        )

    async def watch(self, event: str, data: Mapping[str, Any], outcome: Outcome) -> None:  # an observer's
        """Notify all receivers."""
        text = _sentence(event, data)
        if self._desktop is not None:
            try:
                shown = self._desktop(text)
                if inspect.isawaitable(shown):
                    await shown
            except HookError as problem:
                self._log_trouble(data, "desktop", problem)
        if self._webhook is not None:
            told = {"event": event, "text": text, "session_id": str(data.get("session_id") or "")}
            try:
                await self._webhook(event, told)
            except InvalidResult:
                pass  # delivered; the reply is no decision
            except HookError as problem:
                self._log_trouble(data, "webhook", problem)

    def _log_trouble(self, data: Mapping[str, Any], where: str, problem: HookError) -> None:
        if self._once.is_first(data, where, str(problem)):
            log.warning("not_notified", where=where, problem=str(problem))


def _sentence(event: str, data: Mapping[str, Any]) -> str:
    said = SENTENCES.get(event, event)
    for name in ("tool_name", "message"):
        said = said.replace(f"{{{name}}}", str(data.get(name) or "something"))
    return clip(for_log(said), LONGEST)


def _gvariant_string(text: str) -> str:
    """Return a string in GVariant's text format."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
