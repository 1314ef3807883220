"""Trusted files run from private copies."""

import os
import shutil
import stat
import sys
from pathlib import Path
from time import time

import pytest

from amplifier_hooks import HookRegistry
from amplifier_hooks.definitions import DefinedHooks, TrustStore, load_files
from amplifier_hooks.definitions.list_files import FileDigests, list_files
from amplifier_hooks.definitions.private_copies import UNUSED_FOR, TrustedFiles, remove_unused
from amplifier_hooks.errors import HookUnavailable
from amplifier_hooks.result import Outcome

HOOK = "version: 1\nhooks:\n- {name: guard, event_type: tool:pre, priority: 10, handler_ref: %s}\n"


def trusted(project: Path, handler: str) -> TrustedFiles:
    """Trust a project with one hook as it is now, and copy its files."""
    (project / "hooks.yaml").write_text(HOOK % handler)
    store = TrustStore(project / ".." / "state" / "trust.json")
    files = TrustedFiles(list_files(load_files(project / "hooks.yaml"), FileDigests()), store.copies)
    files.make()
    return files


async def emit_call(files: TrustedFiles) -> Outcome:
    """Put the hook in force, and ask it."""
    hooks = DefinedHooks(HookRegistry())
    hooks.install(hooks.plan(files.load(), files=files))
    return await hooks.registry.emit("tool:pre", {"tool_name": "x", "session_id": "s", "tool_input": {}})


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project as the current folder."""
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


SCRIPT = '#!/bin/sh\ncat "$(dirname "$0")/lib.sh" >&2; pwd >&2; exit 2\n'


@pytest.mark.rule("TRU-5")
@pytest.mark.parametrize("argv", ["[./guard.sh]", "[sh, guard.sh]", "[env, X=1, sh, guard.sh]"])
async def test_scripts_run_from_their_copies(argv: str, project: Path) -> None:
    """A script runs as it was trusted, with the files beside it, in the folder of the project."""
    (project / "guard.sh").write_text(SCRIPT)
    (project / "guard.sh").chmod(0o755)
    (project / "lib.sh").write_text("trusted\n")
    files = trusted(project, f"command, files: ['lib.*'], config: {{argv: {argv}}}")
    (project / "guard.sh").write_text("exit 0\n")
    assert (await emit_call(files)).reason == f"trusted\n{project}"


@pytest.mark.rule("TRU-5")
@pytest.mark.parametrize(
    ("argv", "changed", "why"),
    [
        ("[sh, -c, '. ./guard.sh']", "guard.sh", "guard.sh' is not as it was trusted"),
        ("[sh, -c, 'exec ./bin/guard.sh']", "bin", "bin/guard.sh' is not as it was trusted"),
        ("[./guard.sh], cwd: sub", "", "'./guard.sh' was not there when it was trusted"),
        ("[guard-of-no-machine]", "", "was not there when it was trusted"),
    ],
)
async def test_other_files_are_compared(
    argv: str, changed: str, why: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that runs or is read in its place is compared before each start, and a difference denies at a gate."""
    (project / "guard.sh").write_text("echo ran > ran\n")
    for name, text in {"v1": "exit 0", "v2": "echo ran > ran"}.items():
        (project / name).mkdir()
        (project / name / "guard.sh").write_text(f"#!/bin/sh\n{text}\n")
        (project / name / "guard.sh").chmod(0o755)
    (project / "bin").symlink_to("v1")
    (project / "sub").mkdir()
    files = trusted(project, f"command, config: {{argv: {argv}}}")
    if changed == "bin":
        (project / "bin").unlink()
        (project / "bin").symlink_to("v2")
    elif changed:
        (project / changed).write_text("echo other > ran\n")
    (project / "sub" / "guard.sh").write_text("#!/bin/sh\necho ran > ran\n")
    (project / "sub" / "guard.sh").chmod(0o755)
    outcome = await emit_call(files)
    assert (outcome.denied, outcome.answers[0].status) == (True, "unavailable")
    assert why in (outcome.answers[0].error or "")
    assert not (project / "ran").exists()


@pytest.mark.rule("TRU-5")
@pytest.mark.parametrize("argv", ["./python3", "own", "./line.sh", "./nested", "./sh, guard.sh", "env, ./python3"])
async def test_programs_of_the_project_run_from_their_copies(
    argv: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program of the project runs as it was trusted, with an interpreter's name, on the PATH, or behind a `#!`."""
    monkeypatch.setenv("PATH", f"{project}{os.pathsep}{os.environ['PATH']}")
    texts = {"guard.sh": "#!/bin/sh\n", "python3": "#!/bin/sh\n", "own": "#!/bin/sh\n", "interpreter": "#!/bin/sh\n"}
    for name, line in {**texts, "line.sh": "#!/bin/sh ./guard.sh\n", "nested": "#!./interpreter\n"}.items():
        (project / name).write_text(f"{line}echo trusted >&2; exit 2\n")
        (project / name).chmod(0o755)
    (project / "sh").symlink_to("/bin/sh")
    files = trusted(project, f"command, config: {{argv: [{argv}]}}")
    (project / "sh").unlink()
    for name in ("guard.sh", "python3", "own", "interpreter", "line.sh", "nested", "sh", "env"):
        (project / name).write_text("#!/bin/sh\ntouch ran; exit 0\n")
        (project / name).chmod(0o755)
    assert (await emit_call(files)).reason == "trusted"
    assert not (project / "ran").exists()


@pytest.mark.rule("TRU-5")
@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node.js here")
async def test_a_script_of_node_runs_with_the_files_that_it_loads(project: Path) -> None:
    """A script in JavaScript and the files that it loads run as they were trusted, `package.json` included."""
    (project / "lib").mkdir()
    (project / "package.json").write_text('{"type": "module"}')
    (project / "guard.js").write_text("import { word } from './lib/word.js'\nconsole.error(word); process.exit(2)\n")
    (project / "lib" / "word.js").write_text("export const word = 'trusted'\n")
    files = trusted(project, "command, timeout_ms: 60000, config: {argv: [node, guard.js]}")
    (project / "lib" / "word.js").write_text("process.exit(0)\n")
    (project / "package.json").write_text("{}")
    assert (await emit_call(files)).reason == "trusted"


@pytest.mark.rule("TRU-5")
async def test_no_folder_of_the_project_is_on_the_path(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bare name in a trusted script finds no program of the project, also with its folder or `.` on our PATH."""
    monkeypatch.setenv("PATH", f".{os.pathsep}{project}{os.pathsep}{os.environ['PATH']}")
    (project / "guard.sh").write_text("#!/bin/sh\ngrep -q secret && exit 2; exit 0\n")
    (project / "guard.sh").chmod(0o755)
    files = trusted(project, "command, config: {argv: [./guard.sh]}")
    (project / "grep").write_text("#!/bin/sh\ntouch ran\n")
    (project / "grep").chmod(0o755)
    assert not (await emit_call(files)).denied
    assert not (project / "ran").exists()


@pytest.mark.rule("TRU-5")
async def test_a_copy_is_compared_and_private(project: Path) -> None:
    """Copies are for their owner alone; a changed copy does not run, and a missing one is no set to put in force."""
    (project / "guard.sh").write_text("#!/bin/sh\nexit 0\n")
    files = trusted(project, "command, config: {argv: [./guard.sh]}")
    copies = [path for path in files.folder.rglob("[!.]*") if path.is_file()]
    assert sorted(path.name for path in copies) == ["guard.sh", "hooks.yaml"]
    places = [*copies, *(path for one in copies for path in one.parents if path.is_relative_to(files.folder))]
    assert not any(stat.S_IMODE(path.stat().st_mode) & 0o077 for path in places)
    [copy] = [path for path in copies if path.name == "guard.sh"]
    copy.chmod(0o700)
    copy.write_text("#!/bin/sh\ntouch ran\n")
    outcome = await emit_call(files)
    assert "the private copy of" in (outcome.answers[0].error or "")
    assert not (project / "ran").exists()
    files.make()
    assert not (await emit_call(files)).denied
    for path in copies:
        path.unlink()
    with pytest.raises(HookUnavailable, match=r"hooks\.yaml' is not as it was trusted"):
        files.load()


@pytest.mark.rule("TRU-5")
def test_a_file_that_changes_while_it_is_copied(project: Path) -> None:
    """A file that changed between the listing and the copying is refused, and so is one that is too large."""
    (project / "guard.sh").write_text("#!/bin/sh\n")
    (project / "hooks.yaml").write_text(HOOK % "command, config: {argv: [./guard.sh]}")
    listed = list_files(load_files(project / "hooks.yaml"), FileDigests())
    (project / "guard.sh").write_text("#!/bin/sh\nexit 0\n")
    with pytest.raises(HookUnavailable, match="changed while it was read"):
        TrustedFiles(listed, project.parent / "copies").make()
    os.truncate(project / "guard.sh", 17 * 1024 * 1024)
    listed = list_files(load_files(project / "hooks.yaml"), FileDigests())
    with pytest.raises(HookUnavailable, match="too large to be copied"):
        TrustedFiles(listed, project.parent / "copies").make()


@pytest.mark.rule("TRU-5")
@pytest.mark.parametrize("argv", ["[python3, -c, 'import json']", "[sh, -c, \"python3 -c 'import json'\"]"])
async def test_code_in_an_argument_imports_nothing_of_the_project(argv: str, project: Path) -> None:
    """Python that runs no copied script finds no module in the working folder."""
    (project / "json.py").write_text("open('ran', 'w').close()\n")
    assert not (await emit_call(trusted(project, f"command, files: [], config: {{argv: {argv}}}"))).denied
    assert not (project / "ran").exists()


GUARD = """
import dataclasses, pickle
from pathlib import Path
from time import time
from pydantic import BaseModel
from amplifier_hooks import HookResult
import my_rules
from pack import deep
from pack.deep import *
import pack.other as other

class Model(BaseModel):
    path: Path

@dataclasses.dataclass
class Data:
    path: Path

def check(event, data):
    import my_late
    words = my_rules.WORD, deep.WORD, STAR, other.WORD, my_late.WORD, str(Model(path="x").path)
    assert pickle.loads(pickle.dumps(Data(Path("x")))) == Data(Path("x"))
    return HookResult.deny(" ".join(words))
"""


@pytest.fixture
def modules(project: Path) -> Path:
    """A project with modules that import each other."""
    (project / "pack").mkdir()
    for name, text in {
        "my_hooks.py": GUARD,
        "my_rules.py": "WORD = 'rules'\n",
        "my_late.py": "WORD = 'late'\n",
        "pack/__init__.py": "",
        "pack/deep.py": "from .other import WORD as _\nfrom . import other\nWORD = 'deep'\nSTAR = 'star'\n",
        "pack/other.py": "WORD = 'other'\n",
    }.items():
        (project / name).write_text(text)
    return project


@pytest.mark.rule("TRU-6")
async def test_modules_come_from_their_copies(modules: Path) -> None:
    """Modules run as they were trusted, also those that are imported late, and nothing else finds them."""
    files = trusted(modules, "'my_hooks:check'")
    for path in (*modules.glob("*.py"), *modules.glob("*/*.py")):  # noqa: ASYNC240  # a test may wait for its own folder
        path.write_text("raise SystemExit(7)\n")
    before = {*sys.path}
    assert (await emit_call(files)).reason == "rules deep star other late x"
    assert {*sys.path} == before
    assert str(modules) not in sys.path
    assert not {"my_hooks", "my_rules", "pack.deep"} & sys.modules.keys()


@pytest.mark.rule("TRU-6")
@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "__import__('my_late')",
            "needs the module 'my_late', which is not installed, and not among the trusted files",
        ),
        ("import importlib\nimportlib.import_module('my_late')", "not among the trusted files"),
        ("import ctok_of_nobody", "not among the trusted files"),
    ],
)
def test_an_import_outside_of_the_list_fails(text: str, why: str, modules: Path) -> None:
    """A module that is not listed is not found, wherever it lies in the project."""
    (modules / "my_hooks.py").write_text(f"{text}\ndef check(event, data): ...\n")
    files = trusted(modules, "'my_hooks:check'")
    hooks = DefinedHooks(HookRegistry())
    with pytest.raises(Exception, match=why):
        hooks.plan(files.load(), files=files)


@pytest.mark.rule("TRU-6")
async def test_a_trusted_change_of_a_module_is_imported_anew(modules: Path) -> None:
    """The hooks of a newly trusted set use the new modules, and those in force before keep theirs until then."""
    files = trusted(modules, "'my_hooks:check'")
    hooks = DefinedHooks(HookRegistry())
    hooks.install(hooks.plan(files.load(), files=files))
    (modules / "my_rules.py").write_text("WORD = 'new'\n")
    call = {"tool_name": "x", "session_id": "s", "tool_input": {}}
    assert (await hooks.registry.emit("tool:pre", call)).reason == "rules deep star other late x"
    newer = trusted(modules, "'my_hooks:check'")
    assert str(hooks.install(hooks.plan(newer.load(), files=newer))) == "0 added, 1 changed, 0 removed"
    assert (await hooks.registry.emit("tool:pre", call)).reason == "new deep star other late x"
    await hooks.close()


HOOKS = (
    "version: 1\nhooks:\n- {name: guard, event_type: tool:pre, handler_ref: command, config: {argv: [./guard.sh]}}\n"
)
OLD = "0" * 64


@pytest.fixture
def store(tmp_path: Path) -> TrustStore:
    """A store that trusts one project, whose copies are made, and beside them copies of nothing."""
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "hooks.yaml").write_text(HOOKS)
    (tmp_path / "project" / "guard.sh").write_text("#!/bin/sh\n")
    store = TrustStore(tmp_path / "state" / "trust.json")
    listed = list_files(load_files(tmp_path / "project" / "hooks.yaml"), FileDigests())
    TrustedFiles(listed, store.copies).make()
    store.trust("project", [listed])
    (store.copies / OLD / "sub").mkdir(parents=True)
    (store.copies / OLD / "sub" / "guard.sh").write_text("")
    os.utime(store.copies / OLD, (0, 0))
    return store


def names(store: TrustStore) -> set[str]:
    """Return the names of all copies."""
    return {path.name for path in store.copies.glob("[!.]*")}


@pytest.mark.rule("TRU-9")
def test_copies_that_nothing_uses_are_removed(store: TrustStore) -> None:
    """The copies of trusted lists stay, of every source, and so does what is no copy; others are removed."""
    (store.copies / "notes").mkdir()
    before = names(store)
    assert remove_unused(store) == 1
    assert names(store) == before - {OLD}
    assert remove_unused(store) == 0
    assert remove_unused(TrustStore(store.path.parent / "absent" / "trust.json")) == 0


@pytest.mark.rule("TRU-9")
def test_copies_that_were_used_lately_stay(store: TrustStore) -> None:
    """Copies of a list that is no longer trusted stay for 30 days after a process has put them in force."""
    listed = store.trusted_list("project")
    assert listed is not None
    for one in store.copies.iterdir():
        os.utime(one, (0, 0))
    TrustedFiles(listed, store.copies).inspect()
    store.trust("project", [])
    before = names(store)
    assert remove_unused(store) == 1
    assert names(store) == before - {OLD}
    assert remove_unused(store, lambda: time() + UNUSED_FOR + 1) == len(listed.groups)
    assert not names(store)
