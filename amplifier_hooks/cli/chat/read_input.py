"""The lines of the user come in: prompts go to the model, and the chat itself answers those that begin with a slash."""

from __future__ import annotations

import asyncio
import json
import shlex
import signal
import sys
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from amplifier_hooks.cli.audit import record_text
from amplifier_hooks.cli.audit.find_record import RecordFiles
from amplifier_hooks.cli.chat.chat_session import Room
from amplifier_hooks.cli.chat.screen import ChatScreen
from amplifier_hooks.cli.common.terminal_io import count_text
from amplifier_hooks.errors import HookError
from amplifier_hooks.result import STOPS_NOTHING
from amplifier_hooks.text.escape import clip, for_log, for_terminal
from amplifier_hooks.threads import DaemonPool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from amplifier_hooks.cli.chat.chat_session import ChatOptions


LAST: Final = 8
"""Lines of the record, and injections, that an answer lists at most."""
DEEDS: Final = (
    *("tool.running", "tool.done", "tool.failed", "tool.denied", "tool.cancelled", "tool.pending"),
    *("approval.requested", "approval.decided", "approval.revoked", "model.denied", "model.failed"),
)
SHOWN: Final = 200
"""Bytes of foreign text that a line shows."""


class QuitChat(Exception):
    """The user ends the chat."""


async def _help(room: Room, rest: str) -> AsyncIterator[str]:
    del room, rest
    for name, (usage, what, _) in SLASH.items():
        yield f"  /{name} {usage}".ljust(16) + what


async def _budget(room: Room, rest: str) -> AsyncIterator[str]:
    del rest
    limit, session = room.limits.per_turn, room.session
    of = "with no limit" if limit is None else f"of {limit:,}"
    yield f"Hooks have used {session.tokens_this_turn:,} tokens {of} in the last turn."
    if session.injections:
        yield "Since the chat began, the last of them:"
    for one in session.injections[-LAST:]:
        cut = ", trimmed" if one.provenance.trimmed else ""
        yield f"  {for_log(one.provenance.hook_name)}  {one.provenance.tokens:,} tokens ({one.provenance.counter}){cut}"


async def _audit(room: Room, rest: str) -> AsyncIterator[str]:
    del rest
    # Lines reach the disk within a second; a durable line takes all earlier ones along.
    await room.log.write("chat.audit", {"session": room.session.session_id}, durable=True)
    for line in RecordFiles(room.record).lines(kinds=DEEDS, last=LAST):
        yield f"  {record_text.brief_text(line)}"
    files = [str(room.record), "--key", str(room.record.with_name("audit.key.pub"))]
    for word, what in (("show", "All of it"), ("verify", "Verify it")):
        yield f"{what}: {for_log(shlex.join(['amplifier-hooks', 'audit', word, *files]))}"


async def _grants(room: Room, rest: str) -> AsyncIterator[str]:
    del rest
    there = await room.session.grants()
    if not there:
        yield "No grant is in force."
    for grant in there:
        said = "allowed" if grant.allows else "denied"
        what = clip(for_log(f"{grant.key.tool}: {grant.key.hook}, {grant.key.scope}"), SHOWN)
        yield f"  {grant.id[:8]}  always {said}  {what}"


async def _revoke(room: Room, rest: str) -> AsyncIterator[str]:
    found = [grant for grant in await room.session.grants() if rest and grant.id.startswith(rest)]
    if len(found) == 1 and await room.session.revoke(found[0].id):
        yield "From now on it is asked again."
    else:
        yield f"{rest!r} does not name exactly one grant; /grants lists them."


async def _hooks(room: Room, rest: str) -> AsyncIterator[str]:
    del rest
    hooks = room.session.hooks.hooks()
    if not hooks:
        yield "There are no hooks. Write some: amplifier-hooks init"
    for hook in sorted(hooks, key=lambda one: (one.event, one.priority)):
        match = f"  for {for_log(hook.match.spec)}" if hook.match else ""
        only = f"  ({STOPS_NOTHING})" * hook.report_only
        yield f"  {hook.event:<16} {hook.priority:>4}  {hook.intent:<8} {for_log(hook.name)}{match}{only}"


def _quit(room: Room, rest: str) -> AsyncIterator[str]:
    del room, rest
    raise QuitChat


SLASH: Final[Mapping[str, tuple[str, str, Callable[[Room, str], AsyncIterator[str]]]]] = {
    "help": ("", "this list", _help),
    "hooks": ("", "the hooks in force", _hooks),
    "budget": ("", "the tokens that hooks have injected in the last turn", _budget),
    "audit": ("", "the last lines of the record, and the commands that show and verify it", _audit),
    "grants": ("", 'every "always" in force', _grants),
    "revoke": ("ID", "end one of them", _revoke),
    "quit": ("", "end the chat; Ctrl-D does so, too", _quit),
}


async def answer_command(room: Room, line: str) -> AsyncIterator[str]:
    """Return the lines of the answer to `/name rest`. Raises `QuitChat`."""
    name, _, rest = line.removeprefix("/").partition(" ")
    if name not in SLASH:
        likely = get_close_matches(name, SLASH, 1)
        meant = f"Did you mean /{likely[0]}?" if likely else "/help lists all commands."
        yield f"There is no /{for_log(name)}. {meant}"
        return
    async for text in SLASH[name][2](room, rest.strip()):
        yield text


async def one_turn(wishes: ChatOptions, prompt: str, *, as_json: bool) -> int:
    """Run one turn, print its result, and return the exit code."""
    screen = ChatScreen(quiet=as_json)
    async with Room.open_room(wishes, screen) as room:
        if room.page is not None:
            room.page.announce()
        said = await room.conversation.turn(prompt)
        if as_json:
            whole = {"status": said.status, "text": said.text, "tools": said.tools, "record": str(room.record)}
            typer.echo(json.dumps(whole, indent=1))
    if said.status != "completed" and not as_json:
        typer.echo(for_terminal(said.text), err=True)
    return 0 if said.status == "completed" else 1


async def talk(wishes: ChatOptions) -> int:
    """Pass the user's lines on until the user ends the chat, and return the exit code."""
    screen = ChatScreen()
    async with Room.open_room(wishes, screen) as room:
        greet(room, wishes, screen)
        async for line in input_lines():
            if line.startswith("/"):
                try:
                    async for text in answer_command(room, line):
                        screen.line(text, escaped=True)
                except QuitChat:
                    break
                except HookError as problem:
                    screen.line(str(problem), "red")
            elif line:
                await interruptible(room, line, screen)
                screen.turn_ended()
    typer.echo(f"The record is {room.record}", err=True)
    return 0


async def interruptible(room: Room, prompt: str, screen: ChatScreen) -> None:
    """Run one turn. Ctrl-C ends the turn, and the chat goes on; on Windows it ends the chat."""
    turn, loop = asyncio.ensure_future(room.conversation.turn(prompt)), asyncio.get_running_loop()
    with suppress(NotImplementedError):
        loop.add_signal_handler(signal.SIGINT, turn.cancel)
    try:
        await asyncio.wait({turn})
    finally:
        with suppress(NotImplementedError):
            loop.remove_signal_handler(signal.SIGINT)
    screen.text_ended()
    if turn.cancelled():
        screen.line("Stopped.", "yellow")
    elif (problem := turn.exception()) is not None:
        screen.line(f"{type(problem).__name__}: {problem}", "yellow")
    elif turn.result().status != "completed":
        screen.line(turn.result().text, "yellow")


async def input_lines() -> AsyncIterator[str]:
    """Return the user's lines: at a terminal behind a prompt, otherwise from standard input."""
    from approval_backends import BackendUnavailable
    from approval_backends.terminal.prompt import LinePrompt

    with suppress(BackendUnavailable):
        prompt = LinePrompt("> ")
        while True:
            try:
                yield (await prompt.read()).strip()
            except EOFError:
                return
            except KeyboardInterrupt:
                typer.echo("Ctrl-D or /quit ends the chat.", err=True)
    reader = DaemonPool(1, "chat-input")
    while line := await reader.run(sys.stdin.readline):
        yield line.strip()


def greet(room: Room, wishes: ChatOptions, screen: ChatScreen) -> None:
    """Print the model, the folder, the number of hooks and the tools."""
    hooks = len(wishes.hooks.registry.hooks())
    model = for_log(wishes.model.name)
    folder = for_log(str(wishes.folder))
    home = for_log(str(Path.home()))
    folder = folder.replace(home, "~", 1) if folder.startswith(f"{home}/") else folder
    screen.line(f"{model} in {folder}, {count_text(hooks, 'hook')}. /help, /quit", escaped=True)
    tools = ", ".join(tool.name for tool in room.conversation.tools)
    screen.line(f"Tools, by the names for matchers: {tools}")
    if model == "script":
        screen.line("No key is set, so the model is a script. Try: run ls")
    if room.page is not None:
        room.page.announce()
