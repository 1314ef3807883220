"""What `amplifier-hooks demo` tells: a scripted agent, three hooks, and the record of it all.

Everything is real except the agent and its shell: the hooks, the session that carries out what they say, the approver,
the files and the record. The text is the same on every run.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console

from amplifier_hooks import AuditLog, HookRegistry, HookResult, SessionCoordinator, ToolOutcome
from amplifier_hooks.effects.context import InMemoryContext
from amplifier_hooks.escape import for_terminal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_hooks.ports import ApprovalBackend
    from amplifier_hooks.result import Level

__all__ = ["tell"]

PROJECT: Final = {"app.py": 'print("hello")\n', "config/production.yaml": "payment_provider: sandbox\n"}
FIRST_TRY: Final = 'import os\n\nprint("hello, world")\n'
SECOND_TRY: Final = 'print("hello, world")\n'
LIVE: Final = "payment_provider: live\n"


async def tell(*, ask: bool, record: Path | None = None) -> None:
    """Run the demo, printing as it goes.

    With `ask`, the person at the terminal is asked; otherwise nobody is. The record goes to `record` if one is named,
    else into the demo's folder, which is removed at the end.
    """
    with TemporaryDirectory(prefix="amplifier-hooks-demo-") as name:
        folder = Path(name)
        for path, content in PROJECT.items():
            write(folder / path, content)
        say = Narrator()
        context = InMemoryContext()
        session = SessionCoordinator(
            hooks=hooks(folder),
            context=context,
            approvals=person() if ask else None,
            display=say,
            audit=AuditLog.open(record or folder / "record.jsonl"),
        )
        async with session:
            say.line("An agent works on a small project, and three hooks look on. The agent is a script;")
            say.line("nothing leaves this machine, and the project is a folder that goes away again.")
            async with session.turn("Update the greeting and the payment provider"):
                await wipe(say, session)
                await feedback(say, session, context, folder)
                await protected(say, session, folder, ask=ask)
        show_record(say, record or folder / "record.jsonl", kept=record is not None)


def person() -> ApprovalBackend:
    """Whoever sits at the terminal."""
    from approval_backends import TerminalApprovals

    return TerminalApprovals()


# -- the hooks ---------------------------------------------------------------------------------------------------------


def hooks(folder: Path) -> HookRegistry:
    """Three hooks: one that denies, one that gives feedback, one that wants a person to look."""
    registry = HookRegistry()

    @registry.gate("tool:pre", match="Bash")
    async def no_wiping(_event: str, data: Mapping[str, Any]) -> HookResult | None:
        if "rm -rf" in data["tool_input"]["command"]:
            return HookResult.deny("rm -rf deletes what nobody can bring back")
        return None

    @registry.on("tool:post", match="Write")
    async def lint(_event: str, data: Mapping[str, Any]) -> HookResult | None:
        path, content = data["tool_input"]["file_path"], data["tool_input"]["content"]
        findings = unused_imports(content) if path.endswith(".py") else []
        if not findings:
            return None
        text = "\n".join(f"{path}, line {line}: {name} is imported and never used" for line, name in findings)
        return HookResult.inject(text, user_message=f"lint: {len(findings)} finding in {path}")

    @registry.gate("tool:pre", match="Write")
    async def protect_production(_event: str, data: Mapping[str, Any]) -> HookResult | None:
        target = (folder / data["tool_input"]["file_path"]).resolve()
        if not target.is_relative_to((folder / "config").resolve()):
            return None
        return HookResult.ask("Change a file that production reads?", options=["Allow once", "Deny"], timeout=60)

    return registry


def unused_imports(source: str) -> list[tuple[int, str]]:
    """Line and name of every plain import whose name does not occur again."""
    tree = ast.parse(source)
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import)]
    return [(node.lineno, alias.name) for node in imports for alias in node.names if alias.name not in used]


# -- the scenes --------------------------------------------------------------------------------------------------------


async def wipe(say: Narrator, session: SessionCoordinator) -> None:
    """A dangerous command, and a gate."""
    say.scene("1", "The agent wants to start from nothing")
    command = "rm -rf ."
    say.wants("Bash", command)
    result = await session.call_tool("Bash", {"command": command}, lambda given: f"ran {given['command']}")
    say.line("A gate looks at every command before it runs. It denies this one, and the agent reads why:")
    say.read_by_agent(became(result))


async def feedback(say: Narrator, session: SessionCoordinator, context: InMemoryContext, folder: Path) -> None:
    """A mistake, found in the same turn."""
    say.scene("2", "The agent writes code")
    await write_file(say, session, folder, "app.py", FIRST_TRY)
    say.line("A hook looked at the file right after. The line above is for you; the agent reads this:")
    for message in context.messages:
        say.read_by_agent(message["content"])
    say.line("The agent mends it in the same turn.")
    await write_file(say, session, folder, "app.py", SECOND_TRY)
    say.line("The hook has nothing to say this time.")


async def protected(say: Narrator, session: SessionCoordinator, folder: Path, *, ask: bool) -> None:
    """A file that somebody should look at first."""
    say.scene("3", "The agent wants to change what production reads")
    if ask:
        say.line("A hook wants a person to look at this one. That is you.")
    result = await write_file(say, session, folder, "config/production.yaml", LIVE)
    if result.denied:
        say.line("This needs a person's yes, and nobody gave it. So it did not happen, and the agent reads why:")
        say.read_by_agent(became(result))
    content = (folder / "config/production.yaml").read_text(encoding="utf-8")
    say.line(f"The file {'is as it was' if content == PROJECT['config/production.yaml'] else 'has changed'}:")
    say.read_by_agent(content.rstrip())


async def write_file(say: Narrator, session: SessionCoordinator, folder: Path, path: str, content: str) -> ToolOutcome:
    """One call of the agent's Write tool, past the hooks."""
    say.wants("Write", path)

    def run(given: Mapping[str, Any]) -> str:
        write(folder / given["file_path"], given["content"])
        return "written"

    return await session.call_tool("Write", {"file_path": path, "content": content}, run)


def write(path: Path, content: str) -> None:
    """Write a file, in a folder that may not be there yet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")


def became(result: ToolOutcome) -> str:
    """What the agent reads about a call."""
    return result.reason or str(result.value)


def show_record(say: Narrator, path: Path, *, kept: bool) -> None:
    """The record, a line each, without what differs from run to run."""
    lines = [json.loads(line) for line in path.read_text(encoding="ascii").splitlines()]
    say.scene("4", "What was decided is on record")
    name = str(path) if kept else path.name
    say.line(f"{len(lines)} lines of JSON in {name}, which only its owner can read. In short:")
    for line in lines:
        say.line(f"  {line['seq']:>2}  {line['kind']:<19} {in_short(line['facts'])}".rstrip())


def in_short(facts: Mapping[str, Any]) -> str:
    """The telling parts of one record."""
    about = (facts.get("event"), facts.get("tool"), facts.get("action") or facts.get("status"), facts.get("hook"))
    return "  ".join(str(part) for part in about if part)


# -- the voice ---------------------------------------------------------------------------------------------------------


class Narrator:
    """Plain lines on standard output; bold and dim where there is a terminal and nobody set NO_COLOR."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)

    def scene(self, number: str, title: str) -> None:
        """A heading."""
        self._console.print(f"\n{number}  {title}", style="bold")

    def line(self, text: str) -> None:
        """One line."""
        self._console.print(f"   {for_terminal(text)}")

    def wants(self, tool: str, what: str) -> None:
        """What the agent is about to do."""
        self._console.print(f"   agent > {tool} {for_terminal(what)}", style="cyan")

    def read_by_agent(self, text: str) -> None:
        """What others wrote, behind a bar."""
        for line in for_terminal(text).splitlines():
            self._console.print(f"   | {line}", style="dim")

    def show_message(self, message: str, level: Level, source: str) -> None:
        """The display of the session: what hooks want the person to know."""
        self._console.print(
            f"   screen < {for_terminal(message)} ({level}, from {for_terminal(source)})", style="green"
        )
