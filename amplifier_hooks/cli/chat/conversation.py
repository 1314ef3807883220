"""The loop of a chat orchestrator and its tools: prompt, model, tools, until the model has nothing left to call.

The loop reaches hooks only through the session: `turn`, `stream_model`, `call_tool`, and `agent:stop` before it ends.
Texts that hooks inject are in the context when the model is called next.

The tools read a file, write one, and run a command, all in one folder. Paths outside the folder are refused, also
through links. A command could leave the folder: this is no sandbox, and only hooks judge commands.
"""

from __future__ import annotations

import asyncio
import os
import re
from typing import TYPE_CHECKING, Any, Final, Literal

from attrs import define, evolve, field, frozen
from pydantic import ConfigDict, InstanceOf, TypeAdapter, ValidationError
from pydantic_core import ArgsKwargs

from amplifier_hooks.cli.chat.models import ToolUse
from amplifier_hooks.definitions.kinds.command import Programs
from amplifier_hooks.events import AGENT_STOP
from amplifier_hooks.text.escape import for_model

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence
    from pathlib import Path

    from amplifier_hooks.cli.chat.chat_session import ChatScreen
    from amplifier_hooks.cli.chat.models import ChatModel, Piece
    from amplifier_hooks.session.coordinator import SessionCoordinator
    from amplifier_hooks.session.model_call import ModelOutcome
    from amplifier_hooks.session.tool_call import ToolOutcome


STEPS: Final = 100
"""Model calls in one turn."""
REFUSALS: Final = 8
"""The number of times in a row that hooks may keep the loop from stopping."""

LARGEST_FILE: Final = 256 * 1024
"""Bytes of the largest file that a model may read."""
KEPT: Final = 32 * 1024
"""Bytes that a model reads of the end of a command's output."""
SECRET: Final = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)
"""Variables that are kept from commands, since the model reads what a command prints."""


@frozen
class TurnResult:
    """The result of a turn."""

    status: Literal["success", "denied", "error"]
    text: str = ""
    """The model's last text, or the reason that there is none."""
    tools: tuple[Mapping[str, Any], ...] = ()
    """Each tool call with its name, its input, its status and its result."""


@frozen
class ChatAnswer:
    """A whole answer of the model: its text and its tool calls."""

    text: str = ""
    uses: tuple[ToolUse, ...] = ()

    @classmethod
    def of(cls, pieces: list[Piece]) -> ChatAnswer:
        """Join the pieces of an answer."""
        text = "".join(piece for piece in pieces if isinstance(piece, str))
        return cls(text, tuple(piece for piece in pieces if isinstance(piece, ToolUse)))

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The tool calls, for hooks and for the context."""
        return [{"id": use.id, "name": use.name or "?", "input": use.input or {}} for use in self.uses]


@define
class Conversation:
    """One session, one model and its tools, with a screen."""

    session: SessionCoordinator
    model: ChatModel
    tools: Sequence[Tool]
    screen: ChatScreen
    _used: list[Mapping[str, Any]] = field(factory=list)

    async def turn(self, prompt: str) -> TurnResult:
        """Run one turn. Cancelling ends it: a running tool is cancelled, and an open request is withdrawn."""
        self._used = []
        async with self.session.turn(prompt, orchestrator="chat") as turn:
            if turn.denied:
                return TurnResult("denied", turn.reason or "the prompt was denied")
            self.session.context.add_message("user", turn.prompt)
            result = await self._work()
            turn.response, turn.status = result.text, result.status
            return evolve(result, tools=tuple(self._used))

    async def _work(self) -> TurnResult:
        """Call the model and its tools by turns, until the model calls no tool and no hook keeps it from stopping."""
        context, kept_going = self.session.context, 0
        for _ in range(STEPS):
            outcome = await self._ask_model()
            if outcome.denied:
                return TurnResult("denied", outcome.reason or "")
            if outcome.error is not None:
                return TurnResult("error", f"The model did not answer: {outcome.error}")
            answer: ChatAnswer = outcome.value
            if answer.uses:
                context.add_tool_calls(answer.calls, answer.text)
                for use in answer.uses:
                    result, failed = await self._use_tool(use)
                    context.add_tool_result(use.id, result, is_error=failed)
                continue
            context.add_message("assistant", answer.text)
            stops = {"agent_name": "chat", "response": answer.text, "stop_hook_active": kept_going > 0}
            if not (await self.session.emit(AGENT_STOP, stops)).denied or kept_going == REFUSALS:
                return TurnResult("success", answer.text)
            kept_going += 1
        return TurnResult("error", f"it was not done after {STEPS} calls of the model")

    async def _ask_model(self) -> ModelOutcome:
        """Call the model, and pass its text to the screen as it comes."""
        stream = self.session.stream_model(
            lambda messages: self.model.stream(messages, self.tools),
            join=ChatAnswer.of,
            model=self.model.name,
            tool_calls=lambda answer: answer.calls,
        )
        async for piece in stream:
            if isinstance(piece, str):
                self.screen.text(piece)
        self.screen.text_ended()
        assert stream.outcome is not None  # noqa: S101  # it is there once nothing more comes
        return stream.outcome

    async def _use_tool(self, use: ToolUse) -> tuple[str, bool]:
        """Run one tool call; return the text for the model, and True if the text is no result."""
        tool = next((tool for tool in self.tools if tool.name == use.name), None)
        if tool is None:
            there = ", ".join(tool.name for tool in self.tools)
            return f"there is no tool {for_model(use.name)}; there are {there}", True
        if use.input is None:
            return "the arguments are no JSON object; nothing was run", True
        self.screen.show_call(use.name, use.input)
        outcome = await self.session.call_tool(use.name, use.input, tool.run, call_id=use.id)
        self.screen.show_outcome(outcome)
        result = outcome_text(outcome)
        self._used.append({"name": use.name, "input": use.input, "status": outcome.status, "result": result})
        return result, not outcome.ok


def outcome_text(outcome: ToolOutcome[Any]) -> str:
    """Return the text about a tool call for the model and the screen: its result, its error, or the denial."""
    if outcome.error is not None:
        return f"{type(outcome.error).__name__}: {outcome.reason or ''}"
    return str(outcome.value) if outcome.ok else outcome.reason or outcome.status


# -- the tools --------------------------------------------------------------------------------------------------------


class ToolRefused(Exception):
    """The tool cannot do this; the message is for the model."""


@frozen
class Tool:
    """One tool, by the function that carries it out: it gives the description, the arguments and their schema."""

    name: str
    function: Any

    @property
    def _arguments(self) -> TypeAdapter[Awaitable[str] | str]:
        return TypeAdapter(self.function, config=ConfigDict(strict=True))

    @property
    def explanation(self) -> dict[str, Any]:
        """The description for the model, which is the first line of the docstring, and the schema of the arguments."""
        description = (self.function.__doc__ or "").partition("\n")[0]
        return {"description": description, "parameters_json_schema": self._arguments.json_schema()}

    def run(self, given: Mapping[str, Any]) -> Awaitable[str] | str:
        """Call the function. Raises `ToolRefused` for arguments that it does not take, and the errors of the tool."""
        try:
            return self._arguments.validate_python(ArgsKwargs((), dict(given)))
        except ValidationError as problem:
            wrong = (f"{error['loc'][0]}: {error['msg']}" for error in problem.errors(include_url=False))
            raise ToolRefused("; ".join(wrong)) from None


Text = InstanceOf[str]
"""A text, with lone surrogates too: a user's line may have bytes that are no text, and a command may be given them."""


@define
class Workplace:
    """A folder, and the tools in it."""

    folder: Path
    """A resolved path."""
    seconds: float = 600.0
    """The time that a command has."""
    programs: Programs = field(factory=Programs)

    def tools(self) -> tuple[Tool, ...]:
        """Return the tools Read, Write and Bash, named as in other agents, so that the same hooks fit."""
        return Tool("Read", self.read), Tool("Write", self.write), Tool("Bash", self.shell)

    def inside(self, name: str) -> Path:
        """Return the path of a file, with every link followed.

        Raises `ToolRefused` for one outside of the folder, and for a folder, a pipe or a device.
        """
        path = self.folder if "\0" in name else (self.folder / name).resolve()
        if not path.is_relative_to(self.folder) or path == self.folder:
            raise ToolRefused(f"{name!r} is not a file inside of the project's folder")
        if path.exists() and not path.is_file():
            raise ToolRefused(f"{name} is no plain file")
        return path

    def read(self, file_path: Text) -> str:
        """Read a text file of the project.

        Raises `ToolRefused`, `OSError`.
        """
        with self.inside(file_path).open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
        if len(data) > LARGEST_FILE:
            raise ToolRefused(f"{file_path} has more than {LARGEST_FILE:,} bytes; look at parts of it with sh")
        return data.decode("utf-8", "replace")

    def write(self, file_path: Text, content: Text) -> str:
        """Write a text file of the project; what was in it is gone.

        Makes the folders that it needs. Raises `ToolRefused`, `OSError`.
        """
        path = self.inside(file_path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8", newline="") as file:
            file.write(content)
        return f"wrote {len(content.encode('utf-8', 'surrogatepass')):,} bytes to {file_path}"

    async def shell(self, command: Text) -> str:
        """Run a command in the project's folder with sh. Its standard input is empty.

        Returns the end of its output and a failing exit status. A command that takes too long is ended
        with everything it started, and raises `ToolRefused`. Cancelling ends the command.
        """
        output = bytearray()

        def keep(data: bytes) -> None:
            output.extend(data)
            del output[:-KEPT]

        def printed() -> str:
            return "…" * (len(output) == KEPT) + output.decode("utf-8", "replace")

        argv, cwd = ["sh", "-c", f"exec 2>&1\n{command}"], os.fspath(self.folder)
        environment = {name: value for name, value in os.environ.items() if not SECRET.search(name)}
        try:
            async with asyncio.timeout(self.seconds):
                ended = await self.programs.run(argv, feed=b"", env=environment, cwd=cwd, heard=keep)
        except TimeoutError:
            raise ToolRefused(f"it took longer than {self.seconds:g} s and was ended\n{printed()}") from None
        return printed() if ended.code == 0 else f"exit status {ended.code}\n{printed()}"
