"""The story of `amplifier-hooks demo`: a scripted agent, three hooks, and their record, told in plain lines.

Everything is real except the agent and its shell: the hooks, the linter, the session that carries out their answers,
the approver, the files and the record. Every run prints the same text. The linter is ruff if it is installed, otherwise
a few lines that find unused imports.
"""

from __future__ import annotations

import ast
import asyncio
import os
import shlex
import shutil
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final

from attrs import define, field, frozen
from rich.console import Console

from amplifier_hooks import AuditLog, HookRegistry, HookResult, SessionCoordinator, ToolOutcome
from amplifier_hooks.cli.audit import record_text
from amplifier_hooks.cli.audit.find_record import RecordFiles, pinned_keys
from amplifier_hooks.definitions.kinds.command import Programs
from amplifier_hooks.injection.memory_context import InMemoryContext
from amplifier_hooks.text.escape import for_terminal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from amplifier_hooks.ports import ApprovalBackend
    from amplifier_hooks.result import Level


PAUSE: Final = 2.5
"""Seconds to read a scene, at a terminal."""
WIDTH: Final = 110


class Narrator:
    """Plain lines on standard output; bold and dim at a terminal without NO_COLOR."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
        self._width = min(self._console.width, WIDTH) if self._console.is_terminal else WIDTH

    def scene(self, number: int, title: str) -> None:
        """Print the heading of a scene."""
        self._console.print(f"\n{number}  {title}", style="bold")

    def line(self, text: str = "") -> None:
        """Print one line of the narration."""
        self._say("   ", for_terminal(text))

    def wants(self, tool: str, what: str) -> None:
        """Print the call that the agent wants to make."""
        self._say("   agent > ", f"{tool} {for_terminal(what)}", style="cyan")

    def quote(self, lines: Iterable[str]) -> None:
        """Print foreign lines, each behind a bar."""
        for line in lines:
            self._say("   | ", for_terminal(line), again="   | ", style="dim")

    def show_message(self, message: str, level: Level, source: str) -> None:
        """Print a message of a hook for the user, as the display of the session."""
        first = message.partition("\n")[0]
        self._say("   screen < ", f"{for_terminal(first)} ({level}, from {for_terminal(source)})", style="green")

    def _say(self, before: str, text: str, *, again: str = "", style: str | None = None) -> None:
        """Print one line, wrapped between words at the width of the terminal."""
        again = again or " " * len(before)
        for row in wrap(text, self._width, initial_indent=before, subsequent_indent=again, break_on_hyphens=False) or [
            before
        ]:
            self._console.print(row.rstrip(), style=style)


OPTIONS: Final = ("check", "--isolated", "--no-cache", "--output-format", "concise", "--quiet")
FINDINGS: Final = 1
"""Exit status of ruff with findings; a higher one is a failure of ruff."""


def find_ruff() -> str | None:
    """Return the ruff beside this Python, or the one on the path; None without one."""
    beside = Path(sys.executable).with_name("ruff")
    return os.fspath(beside) if os.access(beside, os.X_OK) else shutil.which("ruff")


async def findings_of(ruff: str | None, folder: Path, name: str) -> list[str]:
    """Return ruff's line for each finding in a file; without ruff, a line for each unused import.

    Raises `OSError`, and the errors of running a program.
    """
    if ruff is None:
        unused = unused_imports((folder / name).read_text(encoding="utf-8"))
        return [f"{name}:{line}: `{module}` imported but unused" for line, module in unused]
    ended = await Programs().run([ruff, *OPTIONS, name], feed=b"", env=dict(os.environ), cwd=os.fspath(folder))
    if ended.code > FINDINGS:
        raise OSError(f"ruff could not look at {name}: {ended.errors.decode('utf-8', 'replace')}")
    return ended.output.decode("utf-8", "replace").splitlines()


def unused_imports(source: str) -> list[tuple[int, str]]:
    """Return the line and name of every plain import whose name the source does not use."""
    tree = ast.parse(source)
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import)]
    return [(node.lineno, alias.name) for node in imports for alias in node.names if alias.name not in used]


PROJECT: Final = {"app.py": 'print("hello")\n', "config/production.yaml": "payment_provider: sandbox\n"}
FIRST_TRY: Final = 'import os\n\nprint("hello, world")\n'
SECOND_TRY: Final = 'print("hello, world")\n'
OLD: Final = "".join(f"import module_{number}\n" for number in range(150))
LIVE: Final = "payment_provider: live\n"
WIPE: Final = "rm -rf ."
TO_ANSWER: Final = 60.0
ON_THE_PAGE: Final = 180.0
"""Seconds to answer in the terminal, and in a browser that has to be opened first."""


@frozen(kw_only=True)
class Telling:
    """The options of the demo."""

    ask: bool = True
    web: bool = False
    record: Path | None = None
    """The file of the record. If None, the record is in the demo's folder, which is removed at the end."""
    fast: bool = False
    ruff: str | None = field(factory=find_ruff)


async def tell(telling: Telling) -> None:
    """Run the demo, and print its story. Raises `OSError` for a record or a port that cannot be opened."""
    with TemporaryDirectory(prefix="amplifier-hooks-demo-") as name:
        folder = Path(name)
        for path, content in PROJECT.items():
            write(folder / path, content)
        say = Narrator()
        pause = PAUSE if sys.stdout.isatty() and not telling.fast else 0
        record = telling.record or folder / "record.jsonl"
        introduce(say, telling)
        async with approver(telling) as approvals, AuditLog.open(record) as log:
            context = InMemoryContext(mark="5f3c9e21")
            session = SessionCoordinator(
                hooks=hooks(folder, telling.ruff, ON_THE_PAGE if telling.web else TO_ANSWER),
                context=context,
                approvals=approvals,
                display=say,
                audit=log,
                cwd=folder,
            )
            stage = Stage(say, session, context, folder)
            async with session, session.turn("Update the greeting and the payment provider"):
                for scene in (stage.show_feedback, stage.show_budget, stage.show_protection, stage.show_gate):
                    await scene()
                    await asyncio.sleep(pause)
        show_record(say, record)
        await asyncio.sleep(pause)
        tamper(say, record, folder)
        farewell(say, telling)


def introduce(say: Narrator, telling: Telling) -> None:
    """Print which parts of the demo are real."""
    say.line("An agent works on a small project, and three hooks look on. The agent is a script;")
    say.line("nothing leaves this machine, and the project is a folder that goes away again.")
    if telling.ruff is None:
        say.line("ruff is not installed here, so a few lines of our own look for unused imports in its place.")


@asynccontextmanager
async def approver(telling: Telling) -> AsyncIterator[ApprovalBackend | None]:
    """Yield the approver: the page, the terminal, or None without a person to ask."""
    if telling.web:
        from amplifier_hooks.cli.common.inbox import inbox
        from approval_backends import WebSocketApprovals

        async with WebSocketApprovals(port=0) as web, inbox(web.gateway, in_browser=True) as there:
            there.announce()
            yield web
    elif telling.ask:
        from approval_backends import TerminalApprovals

        yield TerminalApprovals()
    else:
        yield None


def hooks(folder: Path, ruff: str | None, seconds: float) -> HookRegistry:
    """Return a registry of three hooks: one gives feedback, one asks a person, one denies."""
    registry = HookRegistry()

    @registry.on("tool:post", match="Write", timeout=60)
    async def lint(_event: str, data: Mapping[str, Any]) -> HookResult | None:
        name = data["tool_input"]["file_path"]
        findings = await findings_of(ruff, folder, name) if name.endswith(".py") else []
        if not findings:
            return None
        message = f"lint: {len(findings)} finding{'s' * (len(findings) > 1)} in {name}"
        return HookResult.inject("\n".join(findings), user_message=message)

    @registry.gate("tool:pre", match="Write")
    async def protect_production(_event: str, data: Mapping[str, Any]) -> HookResult | None:
        target = (folder / data["tool_input"]["file_path"]).resolve()
        if not target.is_relative_to((folder / "config").resolve()):
            return None
        return HookResult.ask("Change a file that production reads?", options=["Allow once", "Deny"], timeout=seconds)

    @registry.gate("tool:pre", match="Bash")
    async def no_wiping(_event: str, data: Mapping[str, Any]) -> HookResult | None:
        if "rm -rf" in data["tool_input"]["command"]:
            return HookResult.deny("rm -rf deletes files for good")
        return None

    return registry


# -- the scenes --------------------------------------------------------------------------------------------------------


@define
class Stage:
    """The stage of the demo: each method shows a scene in the session."""

    say: Narrator
    session: SessionCoordinator
    context: InMemoryContext
    folder: Path
    _read: int = field(default=0, init=False)

    async def show_feedback(self) -> None:
        """Show a mistake that the linter finds and the agent mends in the same turn."""
        say = self.say
        say.scene(1, "The agent writes code")
        await self.write_file("app.py", FIRST_TRY)
        say.line("The linter looked at the file right after. The line above is for you; the agent reads this:")
        say.quote(self.read_messages())
        say.line("The agent mends it in the same turn.")
        await self.write_file("app.py", SECOND_TRY)
        say.line("The linter has nothing to say this time.")

    async def show_budget(self) -> None:
        """Show a report that is longer than the budget of the turn."""
        say = self.say
        say.scene(2, "A report that is too long")
        await self.write_file("old.py", OLD)
        first, *between, last = self.read_messages()[1:]
        say.line(
            "Hooks have 1,000 tokens in a turn. The report was cut at the end of a line, and says so to the agent:"
        )
        say.quote([first, f"… {len(between):,} more lines", last])

    async def show_protection(self) -> None:
        """Show a write that a person has to approve."""
        say, name = self.say, "config/production.yaml"
        say.scene(3, "The agent wants to change what production reads")
        say.line("A hook wants a person to look at this call.")
        result = await self.write_file(name, LIVE)
        if result.denied:
            say.line("This call needs a person's yes and did not get it. So it did not run, and the agent reads why:")
            say.quote(result_lines(result))
        content = (self.folder / name).read_text(encoding="utf-8")
        say.line(f"The file {'is as it was' if content == PROJECT[name] else 'has changed'}:")
        say.quote([content.rstrip()])

    async def show_gate(self) -> None:
        """Show a dangerous command, and the gate that denies it."""
        say = self.say
        say.scene(4, "The agent wants to start from nothing")
        say.wants("Bash", WIPE)
        result = await self.session.call_tool("Bash", {"command": WIPE}, lambda given: f"ran {given['command']}")
        say.line("A gate looks at every command before it runs. It denies this one, and the agent reads why:")
        say.quote(result_lines(result))

    async def write_file(self, path: str, content: str) -> ToolOutcome[Any]:
        """Make one call of the agent's Write tool, past the hooks."""
        self.say.wants("Write", path)

        def run(given: Mapping[str, Any]) -> str:
            write(self.folder / given["file_path"], given["content"])
            return "written"

        return await self.session.call_tool("Write", {"file_path": path, "content": content}, run)

    def read_messages(self) -> list[str]:
        """Return the lines that reached the agent's context since the last call."""
        new = self.context.messages[self._read :]
        self._read = len(self.context.messages)
        return [line for message in new for line in message["content"].splitlines()]


def write(path: Path, content: str) -> None:
    """Write a file, and make its folder if it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")


def result_lines(result: ToolOutcome[Any]) -> list[str]:
    """Return the lines that the agent reads about a call."""
    return (result.reason or str(result.value)).splitlines()


# -- the record --------------------------------------------------------------------------------------------------------


def show_record(say: Narrator, path: Path) -> None:
    """Show the decisions in the record, and the verdict on it."""
    say.scene(5, "The record has every decision")
    record = RecordFiles(path)
    entries = [line.entry for line in record.lines() if line.entry is not None]
    say.line(f"{len(entries)} lines of JSON, which only their owner can read. The lines about tools:")
    for entry in entries:
        if entry.kind.startswith(("tool.", "approval.")):
            say.line(f"  {entry.seq:>2}  {entry.kind:<18} {record_text.fact_summary(entry)}".rstrip())
    say.line("Each line holds the hash of the one before, and a key has signed them. So:")
    say.quote([record_text.verdict(verify_record(record, path))])


def tamper(say: Narrator, path: Path, folder: Path) -> None:
    """Show the verdict on a copy of the record with one word changed."""
    say.scene(6, "One word of the record is changed")
    changed = folder / "changed.jsonl"
    changed.write_bytes(path.read_bytes().replace(b'"tool.denied"', b'"tool.done"', 1))
    say.line("In a copy, the first denial now says that the tool ran. A check of the copy finds it:")
    report = verify_record(RecordFiles(changed), path)
    say.quote([record_text.verdict(report), *(record_text.finding_text(finding) for finding in report.findings[:1])])


def verify_record(record: RecordFiles, path: Path) -> Any:
    """Return the report on a record, by the key beside the record that the demo wrote."""
    return record.verify(pinned_keys([str(path.with_name("audit.key.pub"))]), None, None, [])


def farewell(say: Narrator, telling: Telling) -> None:
    """Print the next steps."""
    say.line()
    if telling.record is not None:
        key = telling.record.with_name("audit.key.pub")
        command = ["amplifier-hooks", "audit", "show", str(telling.record), "--key", str(key)]
        say.line(f"The record is kept: {shlex.join(command)}")
    say.line("Next: amplifier-hooks init writes hooks for a project of yours; amplifier-hooks chat tries them.")
