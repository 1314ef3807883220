"""Reading what the person says, and answering."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from amplifier_hooks.cli.chat.chat_session import Room
from amplifier_hooks.cli.chat.conversation import Said
from amplifier_hooks.cli.chat.screen import ChatScreen, Silence
from amplifier_hooks.cli.chat.slash_commands import QuitChat, answered
from amplifier_hooks.errors import HookError
from amplifier_hooks.text.escape import for_log, for_terminal
from amplifier_hooks.threads import DaemonPool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from amplifier_hooks.cli.chat.chat_session import Wishes


async def one_turn(wishes: Wishes, prompt: str, *, as_json: bool) -> int:
    """Say one thing, and return the exit code."""
    screen = Silence() if as_json else ChatScreen()
    async with Room.opened(wishes, screen) as room:
        where(room)
        said = await room.conversation.turn(prompt)
        if as_json:
            whole = {"status": said.status, "text": said.text, "tools": said.tools, "record": str(room.record)}
            typer.echo(json.dumps(whole, indent=1))
    if said.status != "completed" and not as_json:
        typer.echo(for_terminal(said.text), err=True)
    return 0 if said.status == "completed" else 1


async def talk(wishes: Wishes) -> int:
    """Say what the person says, until they go."""
    screen = ChatScreen()
    async with Room.opened(wishes, screen) as room:
        greet(room, wishes, screen)
        async for line in lines():
            if line.startswith("/"):
                try:
                    async for text in answered(room, line):
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
    """One turn. Ctrl-C ends it, and the chat goes on."""
    turn = asyncio.ensure_future(room.conversation.turn(prompt))
    with interrupts(turn):
        await asyncio.wait({turn})
    screen.text_ended()
    if turn.cancelled():
        screen.line("Stopped.", "yellow")
        return
    problem = turn.exception()
    said = Said("failed", f"{type(problem).__name__}: {problem}") if problem is not None else turn.result()
    if said.status != "completed":
        screen.line(said.text, "yellow")


@contextmanager
def interrupts(turn: asyncio.Future[Said]) -> Iterator[None]:
    """Ctrl-C cancels this instead of the program."""
    loop = asyncio.get_running_loop()
    try:
        loop.add_signal_handler(signal.SIGINT, turn.cancel)
    except NotImplementedError:  # Windows: an interrupt ends the chat instead
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


async def lines() -> AsyncIterator[str]:
    """What is said, a line each: at a terminal with a prompt, otherwise what standard input has."""
    from approval_backends import BackendUnavailable
    from approval_backends.terminal.line_prompt import LinePrompt

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


def greet(room: Room, wishes: Wishes, screen: ChatScreen) -> None:
    """Who talks, where, and what looks on."""
    hooks = len(wishes.hooks.registry.hooks())
    model = for_log(wishes.model.name)
    folder = for_log(str(wishes.folder))
    home = for_log(str(Path.home()))
    folder = folder.replace(home, "~", 1) if folder.startswith(f"{home}/") else folder
    screen.line(f"{model} in {folder}, {hooks} hook{'' if hooks == 1 else 's'}. /help, /quit", escaped=True)
    tools = ", ".join(tool.name for tool in room.conversation.tools)
    screen.line(f"Its tools, as a matcher names them: {tools}")
    if model == "script":
        screen.line("No key is set, so the model is a script. Say: run ls")
    where(room)


def where(room: Room) -> None:
    """Where else one can approve. The token goes to a terminal, and nowhere else."""
    if room.page is None:
        return
    gateway = room.page.gateway
    typer.echo(f"Approvals are at {gateway.link() if sys.stderr.isatty() else gateway.address}", err=True)
    if not sys.stderr.isatty():
        typer.echo(f"The token is in {room.page.files.file}, which only you can read.", err=True)
