"""`amplifier-hooks init`, `validate`, `list` and `test`: the hooks of a project."""

from __future__ import annotations

import json
import re
import shlex
import sys
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from amplifier_hooks import HookRegistry
from amplifier_hooks.cli.app import app
from amplifier_hooks.cli.project.project_commands import TEMPLATE
from amplifier_hooks.cli.project.read_project import functions_of, hooks_named, hooks_of_folder
from amplifier_hooks.definitions import load_files
from amplifier_hooks.errors import HookError, HookRefused, SettingsError, UnknownEvent
from amplifier_hooks.library.rate_limit import RateLimit, RateLimitSettings
from amplifier_hooks.runs.blueprint import load_agents

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from typer.testing import Result


FILE = "amplifier-hooks.yaml"
MODELS = ("ANTHROPIC", "OPENAI")
GUARD = """version: 1
hooks:
  - {name: guard, event_type: tool:pre, matcher: Bash, priority: 10, handler_ref: command,
     config: {argv: [sh, guard.sh]}}
  - {name: watch, event_type: tool:post, handler_ref: "shop_hooks:watch", description: looks on}
  - {name: later, event_type: tool:pre, handler_ref: "shop_hooks:watch", enabled: false}
"""

LIBRARY = "register(scope) cannot be called with (event, data); a function that registers hooks stands under library"
HOUSE = """
def register(scope):
    scope.gate("tool:pre", handle, name="house")
def handle(event, data): ...
async def later(scope): ...
def broken(scope): raise KeyError("no setting")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty project as the current folder, with a state folder of its own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("AMPLIFIER_HOOKS_TRUST", *(f"{one}_{what}" for one in MODELS for what in ("API_KEY", "BASE_URL"))):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "shop").mkdir()
    monkeypatch.chdir(tmp_path / "shop")
    yield tmp_path / "shop"
    for name in ("shop_hooks", "my_hooks", "named"):
        sys.modules.pop(name, None)


@pytest.fixture
def guarded(folder: Path) -> Path:
    """A project with a gate that denies, and an observer."""
    (folder / FILE).write_text(GUARD)
    (folder / "guard.sh").write_text("echo not here >&2; exit 2\n")
    (folder / "shop_hooks.py").write_text("def watch(event, data):\n    return None\n")
    return folder


def called(*arguments: str, said: str | None = None) -> Result:
    """Run the command, and return its result."""
    return CliRunner().invoke(app, [*arguments], input=said, env={"COLUMNS": "200"})


# -- init --------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("CLI-7")
def test_init(folder: Path) -> None:
    """The file that init writes is right, switches useful hooks on, and is trusted as it is."""
    told = called("init")
    assert (told.exit_code, told.stdout) == (0, f"Wrote {folder / FILE}.\n")
    assert {entry.name for entry in load_files(folder / FILE).library} >= {"guard", "redact_secrets"}
    assert called("validate").exit_code == 0
    assert hooks_of_folder(folder).registry.hooks()


@pytest.mark.rule("CLI-7", "LIB-9")
@pytest.mark.parametrize("preset", ["careful", "balanced", "open"])
def test_init_with_a_preset(preset: str, folder: Path) -> None:
    """The file that init writes has the preset that was named, and a second init finds it as it is."""
    assert called("init", "--preset", preset).exit_code == 0
    [config] = [one.config for one in load_files(folder / FILE).library if one.name == "guard"]
    assert config["preset"] == preset
    assert called("validate").exit_code == 0
    assert "as init writes it already" in called("init", "--preset", preset).stderr
    assert called("init", "--preset", "brave").exit_code == 2


@pytest.mark.rule("CLI-7", "CLI-10")
def test_init_offers_a_replay(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a program keeps transcripts, init names the command that replays them."""
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME"):
        monkeypatch.setenv(name, str(folder.parent / name))
    (folder.parent / "CODEX_HOME" / "sessions").mkdir(parents=True)
    told = called("init").stderr
    assert "amplifier-hooks replay --from codex shows" in told
    assert "claude-code" not in told


@pytest.mark.rule("LIB-6")
async def test_init_lets_agents_work(folder: Path) -> None:
    """The rate limit that init writes lets 200 calls of one session in 10 seconds pass."""
    called("init")
    [config] = [one.config for one in load_files(folder / FILE).library if one.name == "rate_limit"]
    registry, times = HookRegistry(), (call * 0.05 for call in range(200))
    RateLimit(RateLimitSettings.model_validate(config), now=lambda: next(times)).register(registry)
    for _ in range(200):
        assert (await registry.emit("tool:pre", {"tool_name": "Read", "tool_input": {}})).action == "continue"


@pytest.mark.rule("CLI-7")
def test_init_overwrites_nothing(folder: Path) -> None:
    """An existing file is left alone, also by a second init."""
    (folder / FILE).write_text("version: 1\n")
    told = called("init")
    assert (told.exit_code, told.stdout) == (1, "")
    assert "rename it first" in told.stderr
    assert (folder / FILE).read_text() == "version: 1\n"
    (folder / FILE).unlink()
    called("init")
    assert "as init writes it already" in called("init").stderr
    assert called("init").exit_code == 0


@pytest.mark.rule("CLI-7")
@pytest.mark.parametrize("taken", ["#:", "#: "])
def test_init_example(taken: str, folder: Path) -> None:
    """Removing the mark of the example, with its blank or without, switches that hook on without a mistake."""
    (folder / "my_hooks.py").write_text("def no_publishing(event, data): ...")
    (folder / FILE).write_text(re.sub(f"(?m)^{taken}", "", TEMPLATE))
    told = called("validate")
    assert told.exit_code == 0, told.stdout + told.stderr
    assert called("validate", "--trust").exit_code == 0
    assert [one.name for one in load_files(folder / FILE).definitions] == ["no publishing"]


@pytest.mark.rule("CLI-7", "CLI-6")
def test_a_first_hook(folder: Path) -> None:
    """A new hook blocks a tool in chat after four steps: init, write it, trust it, try it."""
    called("init")
    example = TEMPLATE[TEMPLATE.index("#:  #   from amplifier_hooks") : TEMPLATE.index("#:  #\n#:  - name: no pub")]
    code = "\n".join(line.removeprefix("#:  #").removeprefix("   ") for line in example.splitlines())
    (folder / "my_hooks.py").write_text(code.replace('ask("Publish this?")', 'deny("not on a Friday")'))
    hook = "{name: friday, event_type: tool:pre, matcher: Bash, priority: 10, handler_ref: my_hooks:no_publishing}"
    (folder / FILE).write_text(TEMPLATE.replace("hooks:\n", f"hooks:\n  - {hook}\n"))
    assert called("validate").exit_code == 0
    assert "--trust" in called("chat", "-p", "run git push").stderr
    assert called("validate", "--trust").exit_code == 0
    tried = called("test", "tool:pre", "--tool", "Bash", "--input", '{"tool_input": {"command": "git push"}}', "--run")
    assert "deny, by friday: not on a Friday" in tried.stdout
    told = called("chat", "-p", "run git push\nrun echo hi", "--json")
    assert told.exit_code == 0, told.stderr
    assert [tool["status"] for tool in json.loads(told.stdout)["tools"]] == ["denied", "ok"]


@pytest.mark.rule("CLI-7", "CLI-3")
def test_a_folder_of_an_odd_name(folder: Path) -> None:
    """A command in a message is a valid command line, also for folders with odd names."""
    odd = folder / "a b;ü\nc"
    odd.mkdir()
    called("init", "-C", str(odd))
    (odd / FILE).write_text(f"{TEMPLATE}# changed\n")
    refused = called("chat", "-C", str(odd), "-p", "run ls")
    assert refused.exit_code == 1
    typed = shlex.split(refused.stderr.partition("then: ")[2])
    assert typed == ["amplifier-hooks", "validate", str(odd / FILE), "--trust"]
    assert called(*typed[1:]).exit_code == 0
    assert called("chat", "-C", str(odd), "-p", "run ls", "--json").exit_code == 0


@pytest.mark.rule("CLI-7", "CLI-3")
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            "call.json",
            "call.json is neither JSON nor a file that can be read (No such file or directory); write such as",
        ),
        ("{tool: 1}", "{tool: 1} is no JSON: Expecting property name"),
        ("[1]", "[1] is no JSON object; write such as '{"),
        (".", "(Is a directory)"),
    ],
)
def test_an_input_that_is_none(given: str, said: str, folder: Path) -> None:
    """The error about invalid data of an event shows valid data."""
    called("init")
    told = called("test", "tool:pre", "--input", given)
    assert (told.exit_code, told.stdout) == (2, "")
    assert said in " ".join(told.stderr.split())


@pytest.mark.rule("CLI-7")
def test_trust_that_cannot_be_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the state of the user cannot be written, the error names the step that failed."""
    called("init")
    (folder / "taken").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "taken"))
    told = called("validate", "--trust")
    assert told.exit_code == 1
    assert "trust in it cannot be kept: [Errno 20]" in told.stdout


# -- validate ----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("CLI-7")
def test_validate(guarded: Path) -> None:
    """A valid file is reported as right; a hook that could not run is a warning."""
    told = called("validate", "--json")
    value = json.loads(told.stdout)
    assert (told.exit_code, value["ok"], value["hooks"], value["warnings"]) == (0, True, 3, [])
    (guarded / "guard.sh").unlink()
    told = called("validate", FILE)
    assert told.exit_code == 0
    assert f"{guarded / FILE}:3: the script 'guard.sh'" in told.stdout


@pytest.mark.rule("CLI-7", "TRU-8")
def test_looking_imports_nothing(guarded: Path) -> None:
    """Nothing of a project is imported before it is trusted; --trust lists the files first, and builds the hooks."""
    (guarded / "shop_hooks.py").write_text(
        "def watch(event, data): ...\nopen('ran', 'w').close()\nraise SystemExit(7)\n"
    )
    for words in (("validate",), ("list",), ("test", "tool:pre"), ("validate", "--json")):
        assert called(*words).exit_code == 0, words
    refused = called("test", "tool:pre", "--run")
    assert (refused.exit_code, "--trust" in refused.stderr) == (1, True)
    (guarded / "shop_hooks.py").write_text((guarded / "shop_hooks.py").read_text().replace("watch", "wach"))
    assert "module 'shop_hooks' has no 'watch'" in called("validate").stdout
    (guarded / "shop_hooks.py").write_text((guarded / "shop_hooks.py").read_text().replace("wach", "watch"))
    assert "no Python of it was imported" in called("list").stderr
    assert not (guarded / "ran").exists()
    told = called("validate", "--trust")
    assert told.exit_code == 1
    assert (guarded / "ran").exists()
    lines = told.stdout.splitlines()
    assert lines[0] == "Trusting these files as they are now:"
    assert any(line.endswith("copied     guard.sh") for line in lines)
    assert lines[-1].startswith(f"{guarded / FILE}:5: ")
    assert "has not been trusted" in called("chat", "-p", "run ls").stderr


@pytest.mark.rule("CLI-7", "CLI-3")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("version: 1\nhoks: []\n", ":2: unknown key 'hoks'; did you mean 'hooks'?"),
        ("version: 1\nhooks:\n  - {name: a}\n", ":3: "),
        ("version: 1\nlibrary: {redact_secret: {}}\n", "no installed package has a hook called 'redact_secret'"),
        ("version: [", "yaml:"),
    ],
)
def test_validate_mistakes(folder: Path, text: str, said: str) -> None:
    """Each mistake is printed with its line and the nearest name, in JSON too; the exit code is 1."""
    (folder / FILE).write_text(text)
    told = called("validate")
    assert told.exit_code == 1
    assert said in told.stdout
    assert json.loads(called("validate", "--json").stdout)["ok"] is False


@pytest.fixture
def package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install a package with two entry points: of a function that registers, and of a handler."""
    site = folder / "site"
    info = site / "house_hooks-1.dist-info"
    info.mkdir(parents=True)
    (site / "house_hooks.py").write_text(HOUSE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: house-hooks\nVersion: 1\n")
    points = "".join(f"house-{name} = house_hooks:{name}\n" for name in ("register", "handle", "later", "broken"))
    (info / "entry_points.txt").write_text(f"[amplifier_hooks.hooks]\n{points}")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delitem(sys.modules, "house_hooks", raising=False)
    return folder


@pytest.mark.rule("CLI-7", "DEF-1")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hooks: [{name: a, event_type: tool:pre, handler_ref: house-register}]", LIBRARY),
        ("hooks: [{name: a, event_type: tool:pre, handler_ref: 'house_hooks:register'}]", LIBRARY),
        ("library: {house-handle: {}}", "TypeError: handle() missing 1 required positional argument"),
        ("library: {house-later: {}}", "is async; registering hooks waits for nothing"),
        ("library: {house-broken: {}}", "'house-broken' cannot register its hooks: KeyError: 'no setting'"),
    ],
)
def test_validate_finds_a_function_with_other_arguments(package: Path, text: str, said: str) -> None:
    """A function that registers hooks is no handler, and a handler registers none: each is a mistake of the file."""
    (package / FILE).write_text(f"version: 1\n{text}\n")
    told = called("validate", "--trust")
    assert (told.exit_code, said in told.stdout) == (1, True), told.stdout


@pytest.mark.rule("CLI-7", "DEF-1")
def test_a_package_in_a_file(package: Path) -> None:
    """A function that registers hooks is switched on by the name of its entry point, under `library`."""
    (package / FILE).write_text("version: 1\nlibrary: {house-register: {}}\n")
    assert called("validate", "--trust").exit_code == 0
    assert "house  gate (can deny)" in called("list").stdout


# -- list --------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("CLI-7")
def test_list(guarded: Path) -> None:
    """Each hook is listed with its order, its place in the file, and the effect of its failure."""
    told = called("list")
    assert told.exit_code == 0
    assert told.stdout.splitlines()[:2] == [
        "tool:pre",
        f"    1  guard  gate (can deny) · a failure denies · command, security 10 · {FILE}:3 · for Bash",
    ]
    assert "off    later at tool:pre" in told.stdout
    rows = json.loads(called("list", "--json").stdout)
    assert [(row["name"], row["runs"], row["on_failure"]) for row in rows] == [
        ("guard", True, "a failure denies"),
        ("watch", True, "a failure skips it"),
        ("later", False, "it does not run"),
    ]
    assert [row["name"] for row in json.loads(called("list", "--event", "PostToolUse", "--json").stdout)] == ["watch"]
    assert called("list", "--event", "prompt:submit").stderr.endswith("There are no hooks at prompt:submit.\n")


OWN = """\
version: 1
events: [deploy:before]
hooks:
- {name: a, event_type: %s, handler_ref: command, config: {argv: [ls]}}
"""


@pytest.mark.rule("CLI-7", "DEF-1", "EVT-5")
@pytest.mark.parametrize("options", [(), ("--trust",)])
def test_an_unknown_event(folder: Path, options: tuple[str, ...]) -> None:
    """A hook at an event that is neither in the catalogue nor named in the file is a mistake: the exit code is 1."""
    for event, said in {
        "tool.execute.pe": "'tool.execute.pre'",
        "tool:before": "'tool:pre'",
        "TOOL:PRE": "tool:pre",
    }.items():
        (folder / FILE).write_text(OWN % event)
        told = called("validate", *options)
        assert told.exit_code == 1
        assert f"{FILE}:4: " in told.stdout
        assert said in told.stdout
    (folder / FILE).write_text(OWN % "deploy:before")
    assert called("validate", *options).exit_code == 0


@pytest.mark.rule("CLI-7", "CLI-3", "EVT-5")
def test_an_event_of_the_projects_own(folder: Path) -> None:
    """An event that the file names can be tried and listed; an unknown one is a mistake of the call."""
    (folder / FILE).write_text(OWN % "deploy:before")
    tried = called("test", "deploy:before", "--json")
    assert (tried.exit_code, [one["name"] for one in json.loads(tried.stdout)["asked"]]) == (0, ["a"])
    assert [row["name"] for row in json.loads(called("list", "--event", "deploy:before", "--json").stdout)] == ["a"]
    for arguments, said in {
        ("list", "--event", "tool:pra"): "did you mean tool:pre?",
        ("test", "tool:before"): "did you mean tool:pre?",
        ("test", "deploy:befor"): "did you mean deploy:before?",
        ("test", "nothing"): "events are such as tool:pre",
    }.items():
        told = called(*arguments)
        assert (told.exit_code, said in told.stderr) == (2, True)


@pytest.mark.rule("CLI-7", "CLI-3")
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["list"], 1, "it is not there; amplifier-hooks init writes one"),
        (["list", "nowhere.yaml"], 1, "nowhere.yaml: it is not there"),
        (["validate", "--jsn"], 2, "--json"),
        (["validate"], 1, "amplifier-hooks.yaml: 1 mistake"),
        (["init", "--directory", "nowhere"], 2, "dir 'nowhere' does not exist"),
        (["init", "extra"], 2, "unexpected"),
        (["test", "tool:pre"], 1, "amplifier-hooks init"),
        (["test"], 2, "EVENT"),
        (["test", "tool:pre", "--input", "nowhere.json"], 2, "nowhere.json"),
    ],
)
def test_called_wrongly(folder: Path, arguments: list[str], code: int, said: str) -> None:
    """An error on standard error names its remedy, and the exit code tells a wrong call from a wrong file."""
    told = called(*arguments)
    assert told.exit_code == code
    assert said in told.stderr
    assert not isinstance(told.exception, HookError)


# -- test --------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("CLI-7")
def test_try_an_event(guarded: Path) -> None:
    """Without --run the command lists the hooks that an event would reach and why, and nothing runs."""
    (guarded / "guard.sh").write_text("touch ran; exit 2\n")
    told = called("test", "PreToolUse", "--tool", "Bash")
    assert told.exit_code == 0
    first = "  asked: guard (gate, priority 10, looks twice): it is for tool:pre, and 'Bash' matches 'Bash'"
    assert told.stdout.splitlines()[1] == f"{first}; if it fails, the event is denied"
    assert "left out: watch (on, priority 100): it is for tool:post" in told.stdout
    assert not (guarded / "ran").exists()
    assert "'Bash' does not match 'Write'" in called("test", "tool:pre", "--tool", "Write").stdout


@pytest.mark.rule("CLI-7")
def test_run_an_event(guarded: Path) -> None:
    """With --run trusted hooks run, and a denial is exit code 1; the data may come from standard input."""
    assert called("validate", "--trust").exit_code == 0
    told = called("test", "tool:pre", "--input", "-", "--run", said='{"tool_name": "Bash"}')
    assert told.exit_code == 1
    assert "guard answered deny" in told.stdout
    outcome = told.stdout.index("outcome: deny, by guard: not here")
    assert told.stdout.index("asked: guard") < told.stdout.index("left out: watch") < outcome
    value = json.loads(called("test", "tool:pre", "--tool", "Bash", "--run", "--json").stdout)
    assert (value["outcome"]["action"], value["outcome"]["denied_by"]) == ("deny", "guard")
    assert value["outcome"]["answers"][0]["status"] == "ok"


@pytest.mark.rule("CLI-7")
@pytest.mark.parametrize("text", ["[]", "{", "3", '"\\ud800"'])
def test_data_that_is_none(guarded: Path, text: str) -> None:
    """Data that is no JSON object is refused before any hook is built."""
    told = called("test", "tool:pre", "--input", "-", said=text)
    assert told.exit_code == 2
    assert "Invalid value for --input" in told.stderr


# -- trust -------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("CLI-7", "TRU-2")
def test_a_project_runs_nothing_unread(guarded: Path) -> None:
    """Hooks of a folder run once their content is trusted, scripts included, and not after a change."""
    (guarded / "shop_hooks.py").write_text("raise SystemExit(7)\n")
    with pytest.raises(HookRefused, match=r"validate .*amplifier-hooks\.yaml --trust"):
        hooks_of_folder(guarded)
    (guarded / "shop_hooks.py").write_text("def watch(event, data):\n    return None\n")
    assert f"amplifier-hooks validate {guarded / FILE} --trust\n" in called("validate").stderr
    assert "trusted as it is now" in called("validate", "--trust").stdout
    assert "--trust" not in called("validate").stderr
    assert [hook.name for hook in hooks_of_folder(guarded).registry.hooks()] == ["guard", "watch"]
    (guarded / "guard.sh").write_text("exit 0\n")
    with pytest.raises(HookRefused):
        hooks_of_folder(guarded)
    assert not hooks_of_folder(guarded.parent).registry.hooks()


@pytest.mark.rule("CLI-7")
def test_naming_a_file_trusts_its_content(guarded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--hooks takes a file, a folder or a module; the error about anything else shows valid values."""
    assert len(hooks_named(FILE).registry.hooks()) == len(hooks_named(str(guarded)).registry.hooks()) == 2
    assert capsys.readouterr().err == ""
    (guarded / FILE).write_text("version: 1\n")
    assert len(hooks_named(FILE).registry.hooks()) == 2
    assert f"{FILE} is not taken over, and the hooks that were trusted are in force: " in capsys.readouterr().err
    assert "the trusted files stay in force" in called("list").stderr
    assert "the trusted files stay in force" in called("validate").stderr
    assert json.loads(called("validate", "--json").stdout)["changed"] is True
    (guarded / FILE).unlink()
    assert len(hooks_named(FILE).registry.hooks()) == 2
    (guarded / FILE).write_text(GUARD)
    (guarded / "named.py").write_text("from amplifier_hooks import HookRegistry\nregistry = HookRegistry()\n")
    assert hooks_named("named:registry").registry.hooks() == ()
    (guarded / "blind.py").write_text(
        "from amplifier_hooks import HookRegistry\nregistry = HookRegistry()\n"
        "registry.gate('tool:before', lambda event, data: None, name='stop')\n"
    )
    with pytest.raises(UnknownEvent, match="the hook 'stop' would never run"):
        hooks_named("blind:registry")
    for name in ("nowhere.yaml", "nowhere:registry", "named:other"):
        with pytest.raises(HookError):
            hooks_named(name)


@pytest.mark.rule("CLI-7", "TRU-7")
def test_the_removal_of_a_file_is_accepted_by_hand(guarded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Hooks of a file that is gone stay in force, in `chat` as well, until its removal is trusted; then none runs."""
    hooks_named(FILE)
    (guarded / FILE).unlink()
    assert len(hooks_of_folder(guarded).registry.hooks()) == 2
    assert "it is gone" in capsys.readouterr().err
    told = called("list")
    assert (told.exit_code, "stay in force where they run" in told.output) == (1, True)
    assert json.loads(called("validate", "--json").stdout)["flaws"]
    assert json.loads(called("validate", "--trust", "--json").stdout)["removed"] is True
    assert not hooks_of_folder(guarded).registry.hooks()
    with pytest.raises(SettingsError, match="it is not there"):
        hooks_named(FILE)
    (guarded / FILE).write_text(GUARD)
    with pytest.raises(HookRefused):
        hooks_of_folder(guarded)
    assert not hooks_named(FILE).registry.hooks()
    assert "is not taken over" in capsys.readouterr().err
    assert called("validate", "--trust").exit_code == 0
    (guarded / FILE).unlink()
    assert len(hooks_of_folder(guarded).registry.hooks()) == 2


@pytest.mark.rule("CLI-7", "TRU-10")
def test_modules_that_are_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--hooks MODULE:NAME runs the modules that were trusted first; `validate` shows and trusts those that wait."""
    gate = "from amplifier_hooks import HookRegistry\nregistry = HookRegistry()\n"
    (folder / "named.py").write_text(gate)
    assert json.loads(called("validate", "named:registry", "--json").stdout)["trusted"] is False
    assert hooks_named("named:registry").registry.hooks() == ()
    (folder / "named.py").write_text(f"{gate}registry.gate('tool:pre', lambda event, data: None, name='stop')\n")
    assert hooks_named("named:registry").registry.hooks() == ()
    assert "named:registry is not taken over" in capsys.readouterr().err
    assert str(folder / "named.py") in hooks_named("named:registry").protection().more()
    assert "the change waits" in called("validate", "named:registry").stdout
    told = called("validate", "named:registry", "--trust").stdout
    assert "named.py" in told
    assert "1 module of this folder, trusted as they are now" in told
    assert [hook.name for hook in hooks_named("named:registry").registry.hooks()] == ["stop"]


@pytest.mark.rule("TRU-10")
def test_functions_of_blueprints_that_are_named(folder: Path) -> None:
    """`validate FOLDER` shows and trusts the modules of functions that the blueprints of a folder name."""
    hook = {"type": "python", "handler_ref": "starts:begin", "on_error": "block"}
    (folder / "bp").mkdir()
    (folder / "bp" / "a.json").write_text(
        json.dumps({"name": "writer", "type": "procedural", "hooks": {"on_run_start": hook}})
    )
    (folder / "starts.py").write_text("begin = 'old'\ndef run(event, data): ...\n")
    functions = functions_of(load_agents(folder / "bp"), folder / "bp")
    (folder / "starts.py").write_text("begin = 'new'\n")
    assert "the change waits" in called("validate", "bp").stdout
    assert functions_of(load_agents(folder / "bp"), folder / "bp").modules.load("starts").begin == "old"
    assert called("validate", "bp", "--trust").exit_code == 0
    assert functions_of(load_agents(folder / "bp"), folder / "bp").modules.load("starts").begin == "new"
    assert functions.modules.load("starts").begin == "old"


@pytest.mark.rule("CLI-7", "TRU-6")
def test_modules_of_a_project_shadow_nobody(guarded: Path) -> None:
    """No module of the project is imported in place of ours or of an installed one, and its folder is on no path."""
    (guarded / "json.py").write_text("raise SystemExit(7)\n")
    (guarded / "amplifier_hooks.py").write_text("raise SystemExit(7)\n")
    assert called("validate", "--trust").exit_code == 0
    assert str(guarded) not in sys.path


@pytest.mark.rule("CLI-6", "CLI-7", "TRU-2")
def test_chat_asks_for_trust(guarded: Path) -> None:
    """The chat refuses a project that is not trusted, with the command that trusts it; then it runs the hooks."""
    refused = called("chat", "-p", "run ls")
    assert (refused.exit_code, "--trust" in refused.stderr) == (1, True)
    assert called("validate", "--trust").exit_code == 0
    told = called("chat", "-p", "run ls")
    assert told.exit_code == 0, told.stderr
    assert "Operation denied by guard: not here" in told.stdout


# -- report-only -------------------------------------------------------------------------------------------------------

REPORT_ONLY = """version: 1
hooks:
  - {name: guard, event_type: tool:pre, priority: 10, handler_ref: "shop_hooks:guard", report_only: true}
library:
  protected_paths: {report_only: true}
  redact_secrets: {report_only: %s}
"""


@pytest.fixture
def watching(folder: Path) -> Path:
    """A project whose gates only report."""
    (folder / FILE).write_text(REPORT_ONLY % "false")
    (folder / "shop_hooks.py").write_text("def guard(event, data):\n    return {'action': 'deny', 'reason': 'never'}\n")
    return folder


@pytest.mark.rule("DSP-11", "DEF-1", "LIB-8", "CLI-7")
def test_report_only_hooks_are_named(watching: Path) -> None:
    """List, validate and test say of each report-only hook that it stops nothing."""
    listed = " ".join(called("list").stdout.split())
    for name in ("guard", "protected_paths"):
        assert f"{name} gate (report-only: it stops nothing)" in listed
    assert "redact_secrets gate (can deny)" in listed
    rows = {(row["name"], row["event"]): row["report_only"] for row in json.loads(called("list", "--json").stdout)}
    assert (rows["guard", "tool:pre"], rows["redact_secrets", "tool:pre"]) == (True, False)
    assert "protected_paths is report-only: it stops nothing" in called("validate").stdout
    given = json.dumps({"tool_name": "Write", "tool_input": {"file_path": ".env", "content": "x"}})
    assert called("validate", "--trust").exit_code == 0
    tried = called("test", "tool:pre", "--input", given, "--run")
    assert tried.exit_code == 0
    assert "looks twice, report-only: it stops nothing)" in tried.stdout
    assert "guard would have answered deny, but is report-only: it stops nothing" in tried.stdout
    assert "protected_paths would have answered ask_user" in tried.stdout


@pytest.mark.rule("DSP-11", "LIB-8")
def test_a_hook_around_an_operation_cannot_only_report(watching: Path) -> None:
    """A ready-made hook that is around an operation, and a report_only of another type, are mistakes with a line."""
    for value, problem in (("true", "an around hook carries the operation out"), ("2", "report_only is true or false")):
        (watching / FILE).write_text(REPORT_ONLY % value)
        told = called("validate")
        assert told.exit_code == 1
        assert problem in told.stdout
        assert f"{FILE}:6" in told.stdout
