"""A whole chat orchestrator: prompt, model, tools, model again, until the model has nothing left to call.

The model here reads from a script. Put your provider's call in its place; nothing else changes.

Run it: python examples/chat_orchestrator.py

Prints:
    $ rm -rf build → Operation denied by careful: not with -rf
    $ rmdir build → removed
    The build folder is gone. (2 tool calls)
"""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator

SCRIPT: Iterator[dict[str, Any]] = iter(
    [
        {"text": "", "tools": [{"id": "1", "command": "rm -rf build"}]},
        {"text": "", "tools": [{"id": "2", "command": "rmdir build"}]},
        {"text": "The build folder is gone.", "tools": []},
    ]
)
registry = HookRegistry()


@registry.gate("tool:pre", match="Bash", name="careful")
async def careful(_event: str, data: Mapping[str, Any]) -> HookResult | None:
    """Deny what cannot be undone."""
    return HookResult.deny("not with -rf") if "-rf" in data["tool_input"]["command"] else None


def model(_messages: list[Any]) -> dict[str, Any]:
    """Answer as the script says."""
    return next(SCRIPT)


def bash(_given: dict[str, Any]) -> str:
    """Pretend to run a command."""
    return "removed"


async def chat(session: SessionCoordinator, prompt: str) -> str:
    """One turn."""
    async with session.turn(prompt) as turn:
        session.context.add_message("user", turn.prompt)
        used = 0
        while True:
            answer = await session.call_model(model, tool_calls=lambda response: response["tools"])
            if not answer.ok:
                return f"Stopped: {answer.reason or answer.error}"
            for call in answer.value["tools"]:
                used += 1
                done = await session.call_tool("Bash", {"command": call["command"]}, bash, call_id=call["id"])
                said = done.value if done.ok else done.reason or str(done.error)
                print(f"$ {call['command']} → {said}")
                session.context.add_message("assistant", f"{call['command']}: {said}")
            if not answer.value["tools"]:
                turn.response = answer.value["text"]
                return f"{turn.response} ({used} tool calls)"


async def main() -> None:
    """Chat once."""
    async with SessionCoordinator(hooks=registry) as session:
        print(await chat(session, "Remove the build folder."))


if __name__ == "__main__":
    asyncio.run(main())
