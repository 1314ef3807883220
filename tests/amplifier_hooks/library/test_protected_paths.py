"""Files that no tool touches without a person's yes, in every spelling."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.errors import InvalidHookSettings
from amplifier_hooks.library import ProtectedPaths
from amplifier_hooks.testing import ScriptedApprover

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.rule("LIB-6")

PATCH = "*** Begin Patch\n*** Update File: {}\n@@\n-a\n+b\n*** End Patch\n"
DIFF = "--- a/src/x\n+++ b/{}\n@@ -1 +1 @@\n"

DISGUISES: list[dict[str, Any]] = [
    {"file_path": "config/live.yaml"},
    {"file_path": "./config//./live.yaml"},
    {"file_path": "src/../config/live.yaml"},
    {"file_path": "src/inside/../../config/live.yaml"},
    {"file_path": "link/live.yaml"},
    {"file_path": "src/direct"},
    {"file_path": "CONFIG/LIVE.YAML"},
    {"file_path": "config%2flive.yaml"},
    {"file_path": "%2e/config/live.yaml"},
    {"file_path": "config%25252flive.yaml"},
    {"file_path": "file:config/live.yaml"},
    {"file_path": "$PROJECT/config/live.yaml"},
    {"file_path": "{folder}/config/live.yaml"},
    {"file_path": "file://{folder}/config/live.yaml"},
    {"file_path": "{real}/config/live.yaml"},
    {"file_path": "config"},
    {"path": "config/new/deep.yaml"},
    {"notebook_path": "config/live.yaml"},
    {"source": "src/a.py", "destination": "config/live.yaml"},
    {"paths": ["src/a.py", "config/live.yaml"]},
    {"edits": [{"where": {"to": "config/live.yaml"}}]},
    {"whatever": "config/live.yaml"},
    {"command": "echo x > config/live.yaml"},
    {"command": "cp 'src/a.py' \"config\"/live.yaml"},
    {"command": "tee --output=config/live.yaml"},
    {"command": "cat<config/live.yaml"},
    {"cmd": "cd src && rm ../x; rm {folder}/config/live.yaml"},
    {"command": "rm -r con*"},
    {"command": "cat src/d?re[a-d]t"},
    {"input": PATCH.format("config/live.yaml")},
    {"patch": DIFF.format("config/live.yaml")},
    {"file_path": "config/live.yaml\0.txt"},
    {"file_path": "a/../" * 900 + "config/live.yaml"},
    {"filePath": "./" * 2_500 + "config/live.yaml"},
    {"filePath": "config/live.yaml\0.txt"},
    {"filePath": "src/loop"},
    {"filePath": "src/" + "inside/" * 1_000 + "direct"},
    {"command": "cat src/loop"},
]

HARMLESS: list[dict[str, Any]] = [
    {"file_path": "src/a.py"},
    {"file_path": "configs/live.yaml"},
    {"file_path": "src/config/live.yaml"},
    {"file_path": "../config/live.yaml"},
    {"command": "echo config, live and yaml"},
    {"command": "ls src/in* *.md none/*"},
    {"content": "the file config/live.yaml is not to be changed"},
    {"file_path": ""},
    {"input": PATCH.format("src/a.py")},
    {},
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project, reached over a link, with links in it to a protected folder."""
    real = tmp_path / "real"
    (real / "config").mkdir(parents=True)
    (real / "config" / "live.yaml").write_text("")
    (real / "src").mkdir()
    (real / "src" / "inside").symlink_to(real / "src")
    (real / "src" / "direct").symlink_to(real / "config" / "live.yaml")
    (real / "src" / "loop").symlink_to(real / "src" / "loop")
    (real / "link").symlink_to(real / "config")
    (tmp_path / "project").symlink_to(real)
    monkeypatch.setenv("PROJECT", str(tmp_path / "project"))
    return tmp_path / "project"


def filled(value: Any, folder: Path) -> Any:
    """Return the arguments with this folder in them."""
    if isinstance(value, str):
        return value.replace("{folder}", str(folder)).replace("{real}", str(folder.resolve()))
    if isinstance(value, dict):
        return {name: filled(item, folder) for name, item in value.items()}
    return [filled(item, folder) for item in value]


async def ran(folder: Path, given: Any, approver: ScriptedApprover | None = None, **settings: Any) -> tuple[bool, str]:
    """Return True if a call with this input runs in a session, and the reason if it does not."""
    registry = HookRegistry()
    ProtectedPaths.from_config({"paths": ["config/**"], "cwd": str(folder), **settings}).register(registry)
    async with SessionCoordinator(hooks=registry, approvals=approver, cwd=folder) as session:
        result = await session.call_tool("Write", given, lambda _: "done")
    return result.ok, result.reason or ""


@pytest.mark.parametrize("given", DISGUISES, ids=lambda given: str(given)[:40])
@pytest.mark.parametrize("absolute", [False, True], ids=["relative pattern", "absolute pattern"])
async def test_disguises(folder: Path, given: dict[str, Any], absolute: bool) -> None:
    """A protected file is protected in every spelling, and in every argument."""
    paths = [f"{folder}/config/**" if absolute else "./config/**"]
    ok, reason = await ran(folder, filled(given, folder), paths=paths, action="deny")
    assert not ok
    assert "protected" in reason or "cannot be resolved" in reason


@pytest.mark.parametrize("given", HARMLESS, ids=lambda given: str(given)[:40])
async def test_harmless(folder: Path, given: dict[str, Any]) -> None:
    """Other files are left alone."""
    assert await ran(folder, given, action="deny") == (True, "")


@pytest.mark.parametrize("form", ["NFC", "NFD"])
async def test_accents(tmp_path: Path, form: Any) -> None:
    """An accent may be written either way, in the pattern and in the path."""
    for pattern in ("NFC", "NFD"):
        paths = [unicodedata.normalize(pattern, "**/Gehälter/**")]
        given = {"file_path": unicodedata.normalize(form, "x/gehÄlter/mai.csv")}
        assert not (await ran(tmp_path, given, paths=paths, action="deny"))[0]


async def test_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A protected file at home is protected by `~`, by a variable and in full."""
    (tmp_path / "home" / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for path in ("~/.ssh/id", "$HOME/.ssh/id", "${HOME}/.ssh/../.ssh", str(tmp_path / "home" / ".SSH" / "id")):
        assert not (await ran(tmp_path, {"file_path": path}, paths=["~/.ssh/**"], action="deny"))[0]
    assert (await ran(tmp_path, {"file_path": "~/notes"}, paths=["~/.ssh/**"], action="deny"))[0]


async def test_asked(folder: Path) -> None:
    """The approver sees exactly this call, with the file and the reason; without an approver, the call is denied."""
    approver = ScriptedApprover("Allow", "Deny")
    given = {"file_path": "link/live.yaml"}
    assert (await ran(folder, given, approver))[0]
    assert not (await ran(folder, given, approver))[0]
    assert approver.requests[0].prompt == "'link/live.yaml' is protected ('config/**'). Let Write do it?"
    assert approver.requests[0].questions[0].scope == "action"
    assert not (await ran(folder, given))[0]


@pytest.mark.parametrize(
    ("given", "quoted"),
    [
        ({"file_path": "config/$API_TOKEN"}, "config/$API_TOKEN"),
        ({"file_path": "file:$PROJECT/config/${API_TOKEN}"}, "file:$PROJECT/config/${API_TOKEN}"),
        ({"file_path": "~/$API_TOKEN"}, "~/$API_TOKEN"),
        ({"file_path": "src/secret-link"}, "src/secret-link"),
        ({"paths": ["%24PROJECT/config/%24API_TOKEN"]}, "%24PROJECT/config/%24API_TOKEN"),
        ({"command": "cat $PROJECT/config/$API_TOKEN"}, "…/config/…"),
        ({"command": 'cat "$PROJECT"/config/${API_TOKEN}'}, "…/config/…"),
        ({"command": "cat $SEVERAL"}, "…"),
        ({"command": "rm src/secret-l*"}, "src/secret-l*"),
        ({"paths": ["%PROJECT%/config/%API_TOKEN%"]}, "%PROJECT%/config/%API_TOKEN%"),
        ({"input": PATCH.format("config/$API_TOKEN")}, "config/$API_TOKEN"),
    ],
    ids=str,
)
@pytest.mark.parametrize("action", ["deny", "ask"])
async def test_own_words_only(
    folder: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], quoted: str, action: str
) -> None:
    """The model and the approver read a path as the call has it: no variable's value, no home, no link's target."""
    secret = "zq-canary-7f3d1c"
    monkeypatch.setenv("API_TOKEN", secret)
    monkeypatch.setenv("SEVERAL", f"a {folder}/config/{secret} b")
    monkeypatch.setenv("HOME", str(folder / "config" / "home"))
    (folder / "src" / "secret-link").symlink_to(folder / "config" / secret)
    approver = ScriptedApprover("Deny")
    ok, reason = await ran(folder, given, approver, paths=["./config/**"], action=action)
    words = [reason, *(request.prompt for request in approver.requests)]
    assert not ok
    assert all(re.search(rf"'{re.escape(quoted)}' (is|may be) protected", text) for text in words)
    assert not any(secret in text or str(folder.parent) in text for text in words)


@pytest.mark.parametrize("name", ["content", "command"])
@pytest.mark.parametrize("text", ["${", "${IFS", "%a"])
async def test_braces_without_end(name: str, text: str) -> None:
    """Half a mebibyte of variables that are never closed is searched within the gate's time."""
    registry = HookRegistry()
    ProtectedPaths.from_config({"action": "deny"}).register(registry)
    given = {name: text * (2**19 // len(text))}
    outcome = await registry.emit("tool:pre", {"tool_name": "Write", "tool_input": given})
    assert outcome.cause != "hook_timeout"


async def test_what_is_usually_protected(folder: Path) -> None:
    """Without settings, keys and secrets and git's own files are protected."""
    hook = ProtectedPaths()
    for path in (".env", "deep/.env.local", ".git/config", "~/.ssh/id_ed25519"):
        result = await hook.before("tool:pre", {"tool_name": "Read", "tool_input": {"file_path": path}})
        assert result.action == "ask_user"
    result = await hook.before("tool:pre", {"tool_name": "Read", "tool_input": {"file_path": "environment.py"}})
    assert result.action == "continue"


@pytest.mark.parametrize(
    "given",
    [
        {"files": [f"f{number}" for number in range(5_000)]},
        {"command": " ".join(map(str, range(5_000)))},
        ["config/live.yaml"],
        "config/live.yaml",
    ],
    ids=["many", "words", "list", "text"],
)
async def test_odd_input(folder: Path, given: Any) -> None:
    """Input that is too large to search, or no object at all, is not let through."""
    registry = HookRegistry()
    ProtectedPaths.from_config({"paths": ["config/**"], "cwd": str(folder), "action": "deny"}).register(registry)
    assert (await registry.emit("tool:pre", {"tool_name": "Write", "tool_input": given})).denied


async def test_folder_of_the_session(folder: Path, tmp_path: Path) -> None:
    """Relative paths are in the session's folder, if no other is set; no hook can change that."""
    registry = HookRegistry()
    ProtectedPaths.from_config({"paths": [f"{folder}/config/**"], "action": "deny"}).register(registry)
    for cwd, path, ok in (
        (folder, "config/x", False),
        (tmp_path, "config/x", True),
        (tmp_path, "project/config/x", False),
    ):
        async with SessionCoordinator(hooks=registry, cwd=cwd) as session:
            assert (await session.call_tool("Write", {"file_path": path}, str)).ok is ok
    registry.on(
        "tool:pre", lambda event, data: HookResult.modify({"cwd": "/"}), priority=-1, name="liar", on_error="deny"
    )
    async with SessionCoordinator(hooks=registry, cwd=tmp_path) as session:
        assert (await session.call_tool("Write", {"file_path": "config/x"}, str)).by == "liar"


async def test_changed_by_others(folder: Path) -> None:
    """A path that another hook puts in afterwards is checked, too."""
    registry = HookRegistry()
    ProtectedPaths.from_config({"paths": ["config/**"], "cwd": str(folder), "action": "deny"}).register(registry)

    @registry.on("tool:pre", priority=400)
    async def redirect(event: str, data: Any) -> HookResult:
        return HookResult.modify({"tool_input": {"file_path": "config/live.yaml"}})

    given = {"tool_name": "Write", "tool_input": {"file_path": "src/a.py"}}
    assert (await registry.emit("tool:pre", given)).denied


async def test_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the home folder that a pattern begins at is unknown, every call is stopped with the reason."""

    def no_home() -> Path:
        raise RuntimeError

    monkeypatch.setattr("pathlib.Path.home", no_home)
    hook = ProtectedPaths.from_config({"paths": ["~/.ssh/**"], "action": "deny"})
    result = await hook.before("tool:pre", {"tool_name": "Write", "tool_input": {"file_path": "a"}})
    assert result.reason == "the folder that '~/.ssh/**' begins at is not known; leave it as it is, or ask the user"


async def test_told_in_one_line(folder: Path) -> None:
    """Odd characters of a path are shown, and a long path is cut."""
    given = {"file_path": "config/\x1b[31m\n\u202e" + "x" * 400}
    _, reason = await ran(folder, given, action="deny")
    assert "\n" not in reason
    assert not set("\x1b\u202e") & set(reason)
    assert len(reason) < 700


@pytest.mark.parametrize("paths", [[], ["config"], ["../x"], ["[z-a]/**"], ["~root/x"]])
def test_patterns_that_cannot_work(paths: list[str]) -> None:
    """A pattern that would protect nothing is refused."""
    with pytest.raises(InvalidHookSettings, match="paths"):
        ProtectedPaths.from_config({"paths": paths})


@pytest.mark.rule("LIB-6", "COO-4")
async def test_folder_of_the_call(tmp_path: Path) -> None:
    """Relative patterns begin at the session's root; the paths of a call are resolved in the call's own folder."""
    (tmp_path / "config").mkdir()
    registry = HookRegistry()
    ProtectedPaths(ProtectedPaths.Settings(paths=("config/live.yaml",), action="deny")).register(registry)
    session = SessionCoordinator(registry, cwd=tmp_path)
    inside = await session.call_tool("Write", {"file_path": "live.yaml"}, str, cwd=tmp_path / "config")
    beside = await session.call_tool("Write", {"file_path": "live.yaml"}, str, cwd=tmp_path)
    assert (inside.denied, beside.ok) == (True, True)


@pytest.mark.rule("BCK-9")
async def test_too_many_names_to_look_up(tmp_path: Path) -> None:
    """A call whose paths or globs would keep the file system busy is asked about, without looking at all of them."""
    for number in range(2_000):
        (tmp_path / f"f{number}").touch()
    registry = HookRegistry()
    ProtectedPaths.from_config({}).register(registry)
    inputs: list[tuple[str, dict[str, Any]]] = [
        ("Write", {"paths": [f"{number}/" + "a/" * 1_900 for number in range(30)]}),
        ("Bash", {"command": "ls " + " ".join(f"*{number:03}x" for number in range(300))}),
        ("Write", {"path": "src/a.py"}),
        ("Bash", {"command": "ls *1 *2 *3"}),
    ]
    async with SessionCoordinator(hooks=registry, cwd=str(tmp_path)) as session:
        outcomes = [await session.call_tool(tool, given, lambda _: "ran") for tool, given in inputs]
    assert [outcome.status for outcome in outcomes] == ["denied", "denied", "ok", "ok"]
