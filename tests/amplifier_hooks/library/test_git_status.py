"""The state of the repository, and the limits of a hostile one."""

from __future__ import annotations

import os
import stat
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks import HookRegistry, SessionCoordinator
from amplifier_hooks.library import GitStatus
from amplifier_hooks.testing import CollectingDisplay, RecordingContext

if TYPE_CHECKING:
    from pathlib import Path

    from amplifier_hooks.result import Outcome

pytestmark = pytest.mark.rule("LIB-6")

TRAPS = [
    "fsmonitor",
    "clean",
    "smudge",
    "process",
    "textconv",
    "pager",
    "ssh",
    "submodule",
    "editor",
    "post-index-change",
]


def git(folder: Path, *words: str) -> None:
    """Run git as its owner would."""
    who = ("-c", "user.name=Robin", "-c", "user.email=robin@example.org", "-c", "init.defaultBranch=main")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


def careless_status(folder: Path) -> None:
    """Ask for the status without precautions."""
    subprocess.run(["git", "status"], cwd=folder, check=False, capture_output=True, timeout=20)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Create a repository with one commit."""
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "--quiet")
    (folder / "a.txt").write_text("one\n")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message=one")
    return folder


async def begun(folder: Path, **settings: Any) -> Outcome:
    """Begin a session in a folder."""
    registry = HookRegistry()
    GitStatus.from_config({"cwd": str(folder), **settings}).register(registry)
    return await registry.emit("session:start", {})


async def test_status(repository: Path) -> None:
    """The agent reads the branch and the changed files, labelled as git's and not the system's."""
    (repository / "a.txt").write_text("two\n")
    (repository / "new\u202e.txt").write_text("")
    registry, context = HookRegistry(), RecordingContext()
    GitStatus().register(registry)
    async with SessionCoordinator(hooks=registry, context=context, cwd=repository):
        pass
    [message] = context.messages
    assert "## main\n M a.txt\n?? " in message.content
    assert "\u202e" not in message.content
    assert message.metadata["origin"] == "git"
    assert message.role != "system"


async def test_many_files(repository: Path) -> None:
    """If too many files have changed, the rest is a number."""
    for number in range(5):
        (repository / f"n{number}").write_text("")
    assert (await begun(repository, lines=2)).context_injection.splitlines()[-2:] == ["?? n1", "… and 3 more"]  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", ["folder", "empty", "pointer", "broken", "hangs", "missing"])
async def test_no_repository(tmp_path: Path, kind: str) -> None:
    """Without a repository, or with a broken one, the user reads one line, and the session goes on."""
    folder = tmp_path / "here"
    if kind != "missing":
        folder.mkdir()
    if kind == "empty":
        (folder / ".git").mkdir()
    if kind == "pointer":
        (folder / ".git").write_text("gitdir: /dev/null\n")
    if kind == "broken":
        git(folder, "init", "--quiet")
        (folder / ".git" / "config").write_text("[core\n")
    if kind == "hangs":
        git(folder, "init", "--quiet")
        os.mkfifo(folder / "pipe")
        (folder / ".git" / "config").write_text(f"[include]\n\tpath = {folder}/pipe\n")
    registry, display = HookRegistry(), CollectingDisplay()
    GitStatus.from_config({"cwd": str(folder), "seconds": 0.2 if kind == "hangs" else 10}).register(registry)
    async with SessionCoordinator(hooks=registry, display=display, context=(context := RecordingContext())):
        pass
    assert context.messages == []
    [(text, _, _)] = display.messages
    assert text.startswith("git status: ")
    assert (str(folder) in text) or (kind == "hangs" and "'git' did not end within 0.2 s" in text)


async def test_git_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another failure of git is one line for the user, and empty output injects nothing."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "git"
    monkeypatch.setenv("PATH", str(program.parent))
    for code, said in ((3, "git status: git ended with status 3"), (0, None)):
        program.write_text(f"#!/bin/sh\nexit {code}\n")
        program.chmod(stat.S_IRWXU)
        outcome = await begun(tmp_path)
        assert (outcome.user_message, outcome.action) == (said, "continue")


async def test_no_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without git, the user reads one line."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    outcome = await begun(tmp_path)
    assert "'git' cannot be started" in (outcome.user_message or "")
    assert outcome.user_message_level == "warning"


@pytest.mark.fault("F-LC-01")
@pytest.mark.parametrize(
    ("where", "filtered", "careless"),
    [
        ("config", "process", {"fsmonitor", "process"}),
        ("config", "clean", {"fsmonitor", "clean", "submodule", "post-index-change"}),
        ("included", "clean", {"fsmonitor", "clean", "submodule", "post-index-change"}),
    ],
)
async def test_hostile(repository: Path, tmp_path: Path, where: str, filtered: str, careless: set[str]) -> None:
    """Nothing that a repository names is run: no monitor, filter, hook, pager, and nothing in a submodule."""
    traces = tmp_path / "traces"
    traces.mkdir()
    names = (
        "fsmonitor",
        "clean",
        "smudge",
        "process",
        "textconv",
        "pager",
        "ssh",
        "submodule",
        "editor",
        "post-index-change",
    )
    trap = {}
    for name in names:
        script = tmp_path / name
        script.write_text(f"#!/bin/sh\ntouch {traces}/{name}\ncat\n")
        script.chmod(stat.S_IRWXU)
        trap[name] = script
    inner = repository / "inner"
    inner.mkdir()
    git(inner, "init", "--quiet")
    (inner / "x").write_text("x")
    git(inner, "add", ".")
    git(inner, "commit", "--quiet", "--message=x")
    git(inner, "config", "core.fsmonitor", str(trap["submodule"]))
    git(repository, "add", "inner")
    (repository / ".gitattributes").write_text("* filter=evil diff=evil\n")
    (repository / ".git" / "hooks").mkdir(exist_ok=True)
    (repository / ".git" / "hooks" / "post-index-change").symlink_to(trap["post-index-change"])
    text = f"""
[core]
	fsmonitor = {trap["fsmonitor"]}
	pager = {trap["pager"]}
	sshCommand = {trap["ssh"]}
	editor = {trap["editor"]}
	hooksPath = {repository}/.git/hooks
[filter "evil"]
	smudge = {trap["smudge"]}
	{filtered} = {trap[filtered]}
	required = true
[diff "evil"]
	textconv = {trap["textconv"]}
[status]
	submoduleSummary = true
	showUntrackedFiles = all
[diff]
	submodule = log
"""
    config = repository / ".git" / "config"
    if where == "included":
        (repository / "more").write_text(text)
        text = f'[includeIf "gitdir:{repository}/**"]\n\tpath = {repository}/more\n[include]\n\tpath = ../more\n'
    config.write_text(config.read_text() + text)
    (repository / "a.txt").write_text("two\n")
    os.utime(repository / "a.txt", (0, 0))
    careless_status(repository)
    assert careless <= {trace.name for trace in traces.iterdir()}, "the traps work"
    for trace in traces.iterdir():
        trace.unlink()
    outcome = await begun(repository)
    assert os.listdir(traces) == []  # noqa: PTH208
    assert " M a.txt" in (outcome.context_injection or "")


@pytest.mark.fault("F-LC-01")
@pytest.mark.parametrize("name", [b"a=b", b"a.clean=x", b"\xff"], ids=["equals", "twice", "no text"])
async def test_hostile_names(repository: Path, tmp_path: Path, name: bytes) -> None:
    """A filter does not run, whatever its name: with special characters, or with bytes that are no text."""
    trace = tmp_path / "trace"
    driver = b'[filter "%s"]\n\tclean = touch %s; cat\n' % (name, os.fsencode(trace))
    with (repository / ".git" / "config").open("ab") as config:
        config.write(driver)
    (repository / ".gitattributes").write_bytes(b"* filter=%s\n" % name)
    (repository / "a.txt").write_text("two\n")
    os.utime(repository / "a.txt", (0, 0))
    outcome = await begun(repository)
    assert " M a.txt" in (outcome.context_injection or "")
    assert not trace.exists()
    careless_status(repository)
    assert trace.exists(), "the trap works"
