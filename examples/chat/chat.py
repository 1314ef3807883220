"""A chat orchestrator of one's own, from the parts that `amplifier-hooks chat` is made of.

With ANTHROPIC_API_KEY, OPENAI_API_KEY or OPENAI_BASE_URL set it talks to a model; without any of them to a script that
understands `read`, `write` and `run`. The output below is of that case. The loop by hand is in chat_orchestrator.py.

Run it: python examples/chat/chat.py

Prints:
    > write notes.txt remember the milk
      Write: ok
    1 tool call: 1 done.
    Hooks added:
    ⟦hook proofread⟧
    notes.txt: begin with a capital letter
    > run rm -rf .
      Bash: denied
    1 tool call: 0 done, 1 not done.
    Injected by hooks in both turns: 1
"""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator, ToolOutcome
from amplifier_hooks.cli.chat.chat_tools import Workplace
from amplifier_hooks.cli.chat.choose_model import model_from
from amplifier_hooks.cli.chat.conversation import Conversation
from amplifier_hooks.cli.chat.screen import Silence

PROMPTS = ["write notes.txt remember the milk", "run rm -rf ."]
registry = HookRegistry()


@registry.gate("tool:pre", match="Bash", name="careful")
async def careful(_event: str, data: Mapping[str, Any]) -> HookResult | None:
    """Deny what cannot be undone."""
    return HookResult.deny("not with -rf") if "-rf" in data["tool_input"]["command"] else None


@registry.on("tool:post", match="Write", name="proofread")
async def proofread(_event: str, data: Mapping[str, Any]) -> HookResult | None:
    """Say what is wrong with a text, to the model that wrote it."""
    name, text = data["tool_input"]["file_path"], data["tool_input"]["content"]
    return HookResult.inject(f"{name}: begin with a capital letter") if text[:1].islower() else None


class Lines(Silence):
    """A line for each tool; everything else is left out."""

    def show_outcome(self, name: str, outcome: ToolOutcome, seconds: float) -> None:
        """Say what became of it."""
        print(f"  {name}: {outcome.status}")


async def main() -> None:
    """Two turns in a folder that goes away again."""
    with TemporaryDirectory() as folder:
        tools = Workplace(Path(folder)).tools()
        async with SessionCoordinator(hooks=registry, cwd=folder) as session:
            conversation = Conversation(session, model_from(os.environ), tools, Lines())
            for prompt in PROMPTS:
                print(f"> {prompt}")
                print((await conversation.turn(prompt)).text)
            print(f"Injected by hooks in both turns: {len(session.injections)}")


if __name__ == "__main__":
    asyncio.run(main())
