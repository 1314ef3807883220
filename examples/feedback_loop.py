"""A linter reads along: the agent gets its findings in the same turn and mends them; the person gets one line.

The linter is ruff, and it really runs; the agent follows a script. Its last file has more findings than a turn has room
for, so the report is cut at the end of a line, says so to the model, and the person is told.

Run it, with ruff installed: python examples/feedback_loop.py

Prints:
    agent: writes app.py
      screen: app.py has 1 finding (info, hook:lint)
    agent: reads "app.py:1:8: F401 [*] `os` imported but unused" and writes app.py again
    agent: writes old.py
      screen: old.py has 150 findings (info, hook:lint)
      screen: a text of hook 'lint' was cut (warning, session)
    agent: reads 43 of 150 lines, and ⟦trimmed · kept 903 of 3,150 tokens · 5f3c9e21⟧
"""

import asyncio
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from amplifier_hooks import HookRegistry, HookResult, InMemoryContext, SessionCoordinator

MENDED = "print('hello')\n"
BROKEN = f"import os\n\n{MENDED}"
OLD = "".join(f"import module_{number}\n" for number in range(150))

registry = HookRegistry()


@registry.on("tool:post", match="Write", timeout=60)
async def lint(_event: str, data: Mapping[str, Any]) -> HookResult | None:
    """Let ruff look at what was written; say nothing where it finds nothing."""
    folder, name = data["tool_input"]["folder"], data["tool_input"]["name"]
    options = ["check", "--isolated", "--no-cache", "--output-format", "concise", "--quiet", name]
    ruff = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "ruff", *options, cwd=folder, stdout=asyncio.subprocess.PIPE
    )
    findings, _ = await ruff.communicate()
    if not ruff.returncode:
        return None
    count = findings.count(b"\n")
    said = f"{name} has {count} finding{'s' * (count > 1)}"
    return HookResult.inject(findings.decode(), user_message=said)


def write(given: dict[str, Any]) -> str:
    """Write a file."""
    Path(given["folder"], given["name"]).write_text(given["text"], encoding="utf-8")
    return "written"


def model(messages: list[Any]) -> dict[str, str] | None:
    """Decide on the next file to write by what there is to read; a real model goes here."""
    read = "\n".join(message["content"] for message in messages)
    if "⟦trimmed" in read:
        *findings, cut = read.splitlines()
        count = sum("old.py" in line for line in findings)
        print(f"agent: reads {count} of 150 lines, and {cut}")
        return None
    if "F401" in read and read.count("written") == 1:
        print(f'agent: reads "{read.splitlines()[-1]}" and writes app.py again')
        return {"name": "app.py", "text": MENDED}
    name, text = ("old.py", OLD) if "written" in read else ("app.py", BROKEN)
    print(f"agent: writes {name}")
    return {"name": name, "text": text}


class Screen:
    """The screen of the user."""

    def show_message(self, message: str, level: str, source: str) -> None:
        """Print the beginning."""
        print(f"  screen: {message.partition(':')[0]} ({level}, {source})")


async def main() -> None:
    """One turn."""
    context = InMemoryContext(mark="5f3c9e21")
    with TemporaryDirectory() as folder:
        async with (
            SessionCoordinator(hooks=registry, context=context, display=Screen()) as session,
            session.turn("Tidy up."),
        ):
            while (wanted := (await session.call_model(model)).value) is not None:
                call_id = f"call-{len(context.messages)}"
                given = {"folder": folder, **wanted}
                context.add_tool_calls([{"id": call_id, "name": "Write", "input": given}])
                done = await session.call_tool("Write", given, write, call_id=call_id)
                context.add_tool_result(call_id, done.value or "")


if __name__ == "__main__":
    if find_spec("ruff") is None:  # without findings the script would write for ever
        sys.exit("this example needs ruff: pip install ruff")
    asyncio.run(main())
