"""The hooks that run a linter, a type checker or tests, and the behaviour that all three share."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks import HookRegistry, SessionCoordinator
from amplifier_hooks.errors import InvalidHookSettings
from amplifier_hooks.library import LinterFeedback, TestFeedback, TypeFeedback
from amplifier_hooks.testing import CollectingDisplay, RecordingContext

if TYPE_CHECKING:
    from pathlib import Path

BROKEN = "import os\n"


class Project:
    """A session in a folder, with a tool that writes files there."""

    def __init__(self, folder: Path, *hooks: Any) -> None:
        self.folder = folder
        self.context, self.display = RecordingContext(), CollectingDisplay()
        registry = HookRegistry()
        for hook in hooks:
            hook.register(registry)
        self.session = SessionCoordinator(hooks=registry, context=self.context, display=self.display)

    async def write(self, path: str, text: str = BROKEN, *, tool: str = "Write", **more: Any) -> bool:
        """Write a file with a tool, and return True if that worked."""

        def run(given: dict[str, Any]) -> str:
            (self.folder / path).write_text(text)
            return "written"

        return (await self.session.call_tool(tool, {"file_path": path, **more}, run)).ok

    @property
    def shown(self) -> list[str]:
        """Return the messages that the user saw."""
        return [text for text, _, _ in self.display.messages]


def python(*program: str) -> list[str]:
    """Return a command that is a line of Python."""
    return [sys.executable, "-c", *program]


@pytest.fixture
def project(tmp_path: Path, request: pytest.FixtureRequest) -> Project:
    """Return a project with ruff."""
    return Project(tmp_path, LinterFeedback.from_config({"cwd": str(tmp_path)}))


@pytest.mark.rule("LIB-6")
async def test_findings(project: Project) -> None:
    """Findings of ruff in the written file are injected as ruff's words, and the user sees one line."""
    (project.folder / "other.py").write_text("import sys\n")
    assert await project.write("app.py")
    [message] = project.context.messages
    assert "app.py:1:8: F401" in message.content
    assert "other.py" not in message.content
    assert message.metadata["standing"] == "external"
    assert message.metadata["origin"] == "ruff"
    assert message.role != "system"
    assert project.shown == ["ruff has findings in app.py"]


@pytest.mark.rule("LIB-6")
async def test_nothing_found(project: Project) -> None:
    """A correct file, one of another kind and a missing one cause no message."""
    assert await project.write("app.py", "print('hello')\n")
    assert await project.write("notes.md")
    assert await project.write("app.txt", file_path="gone.py")
    assert await project.write("read.py", tool="Read")
    assert (project.context.messages, project.shown) == ([], [])


@pytest.mark.rule("LIB-6")
async def test_written_by_patch(project: Project) -> None:
    """A file that a patch names is checked, too."""
    patch = "*** Begin Patch\n*** Add File: patched.py\n+import os\n*** End Patch\n"
    assert await project.write("patched.py", tool="apply_patch", file_path="", input=patch)
    assert "patched.py:1:8" in project.context.texts[0]


@pytest.mark.rule("LIB-6")
@pytest.mark.parametrize("given", [None, "app.py", {"file_path": 7}, {"paths": [[]] * 5_000}])
async def test_odd_input(tmp_path: Path, given: Any) -> None:
    """Input that names no file starts no program."""
    registry = HookRegistry()
    LinterFeedback.from_config({"cwd": str(tmp_path), "command": ["no-such-linter", "{file}"]}).register(registry)
    outcome = await registry.emit("tool:post", {"tool_name": "Write", "tool_input": given})
    assert (outcome.all_succeeded, outcome.user_message) == (True, None)


@pytest.mark.rule("LIB-6")
async def test_odd_names(project: Project) -> None:
    """A name that looks like an option is a file, and its odd characters are shown."""
    assert await project.write("--fix \u202e.py")
    assert "F401" in project.context.texts[0]
    assert project.shown == ["ruff has findings in --fix \\u{202E}.py"]
    assert (project.folder / "--fix \u202e.py").read_text() == BROKEN


@pytest.mark.rule("LIB-6")
@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (["no-such-linter", "{file}"], "'no-such-linter' cannot be started"),
        (python("import time; time.sleep(60)"), "did not end within 0.2 s"),
        (python("import sys; sys.exit('out of order')"), None),
        (python("raise SystemExit(7)"), "ended with exit status 7"),
        (python("raise SystemExit(1)"), "ended with exit status 1, and said nothing"),
        (python("while True: print('x' * 10_000)"), "wrote more than 1,048,576 bytes"),
    ],
    ids=["missing", "hangs", "finds", "fails", "silent", "endless"],
)
async def test_trouble(tmp_path: Path, command: list[str], problem: str | None) -> None:
    """A command that is missing, hangs or fails is one clear warning, and the session goes on."""
    seconds = 0.2 if problem == "did not end within 0.2 s" else 20
    settings = {"cwd": str(tmp_path), "command": command, "seconds": seconds}
    project = Project(tmp_path, LinterFeedback.from_config(settings))
    assert [await project.write("app.py") for _ in range(2)] == [True, True]
    if problem is None:
        assert len(project.context.messages) == 2
        return
    [(text, level, _)] = project.display.messages
    assert problem in text
    assert text.endswith("this warning appears once")
    assert level == "warning"
    assert project.context.messages == []


@pytest.mark.rule("LIB-6")
async def test_long_reports(tmp_path: Path) -> None:
    """A long report is cut at the end of a line, and says so."""
    command = [*python("print(*range(10_000), sep='\\n'); raise SystemExit(1)")]
    project = Project(tmp_path, LinterFeedback.from_config({"cwd": str(tmp_path), "command": command, "longest": 500}))
    await project.write("app.py")
    lines = project.context.texts[0].splitlines()
    shown = [line for line in lines if line.isdigit()]
    assert shown == [str(number) for number in range(len(shown))]
    assert f"… and {10_000 - len(shown):,} more lines" in lines


@pytest.mark.rule("LIB-6")
async def test_what_it_sees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command sees no variables that hold keys."""
    monkeypatch.setenv("API_KEY", "canary-1234")
    command = python("import os, sys; print(*sorted(os.environ)); sys.exit(1)")
    project = Project(tmp_path, LinterFeedback.from_config({"cwd": str(tmp_path), "command": command}))
    await project.write("app.py")
    assert "PATH" in project.context.texts[0]
    assert "API_KEY" not in project.context.texts[0]
    assert os.environ["API_KEY"] == "canary-1234"


@pytest.mark.rule("LIB-6")
@pytest.mark.parametrize("command", [[], ["lint", "--path={file}"], "ruff check"])
def test_no_command(command: Any) -> None:
    """A command that is empty, or would not get the files, is refused in the settings."""
    with pytest.raises(InvalidHookSettings, match="command"):
        LinterFeedback.from_config({"command": command})


@pytest.mark.rule("LIB-6")
async def test_one_long_line(tmp_path: Path) -> None:
    """Of a finding that is one very long line, the beginning is passed on."""
    command = python("print('E1 ' + 'x' * 5_000); raise SystemExit(1)")
    hook = LinterFeedback.from_config({"cwd": str(tmp_path), "command": command, "longest": 200})
    project = Project(tmp_path, hook)
    assert await project.write("app.py")
    [text] = project.context.texts
    assert "E1 xxx" in text
    assert len(text) < 400


@pytest.mark.slow
@pytest.mark.rule("LIB-6")
async def test_findings_of_a_type_checker(tmp_path: Path) -> None:
    """Findings of mypy in the written file are injected, and none of the files that it imports."""
    registry = HookRegistry()
    TypeFeedback.from_config({"cwd": str(tmp_path)}).register(registry)
    (tmp_path / "other.py").write_text("x: int = 'two'\n")
    for text, findings in (("import other\ny: int = 'one'\n", 1), ("import other\ny = other.x\n", 0)):
        (tmp_path / "app.py").write_text(text)
        given = {"tool_name": "Edit", "tool_input": {"file_path": str(tmp_path / "app.py")}}
        outcome = await registry.emit("tool:post", given)
        assert (outcome.context_injection or "").count("error:") == findings
        assert "other.py" not in (outcome.context_injection or "")


@pytest.mark.rule("LIB-6")
@pytest.mark.slow
async def test_failures_of_tests(tmp_path: Path) -> None:
    """The tests named after a written file run, and failures are injected; so are tests that cannot be loaded."""
    registry = HookRegistry()
    TestFeedback.from_config({"cwd": str(tmp_path)}).register(registry)
    (tmp_path / "tests").mkdir()
    (tmp_path / "conftest.py").write_text("")
    (tmp_path / "tests" / "test_app.py").write_text("from app import one\n\ndef test_one():\n    assert one() == 1\n")
    for text, found in (("def one(): return 2", "1 failed"), ("def one(", "SyntaxError"), ("def one(): return 1", "")):
        (tmp_path / "app.py").write_text(text)
        outcome = await registry.emit("tool:post", {"tool_name": "Write", "tool_input": {"file_path": "app.py"}})
        assert found in (outcome.context_injection or "")
        assert bool(outcome.context_injection) == bool(found)


@pytest.mark.rule("LIB-6")
async def test_no_tests(tmp_path: Path) -> None:
    """A file without tests of its own causes no message and starts no program."""
    registry = HookRegistry()
    TestFeedback.from_config({"cwd": str(tmp_path), "command": ["no-such-runner"]}).register(registry)
    for name in ("app.py", "od*d.py"):
        (tmp_path / name).write_text("")
        outcome = await registry.emit("tool:post", {"tool_name": "Write", "tool_input": {"file_path": name}})
        assert (outcome.action, outcome.user_message) == ("continue", None)
