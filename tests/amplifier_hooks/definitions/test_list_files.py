"""The list of files that trust covers."""

import mmap
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from amplifier_hooks.definitions import InvalidDefinitions, load_files
from amplifier_hooks.definitions.list_files import LARGEST_HASHED, FileDigests, FilesNotListed, list_files
from amplifier_hooks.definitions.trust import UNREAD, FileList, TrustStore

pytestmark = pytest.mark.rule("TRU-4")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with a few files, and a script beside it."""
    project = tmp_path / "project"
    for name in ("guard.sh", "lib.sh", "hooks/guard.py", "hooks/rules.py", "Makefile", "bin/tool"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(f"# {name}\n")
    (project / "deep.sh").write_text("#!/bin/sh\n. ./lib.sh\n")
    (project / "lib.sh").write_text("./guard.sh && . ./lib.sh\n")
    (project / "hooks" / "deep.py").write_text("import rules, json\n")
    (project / "run.sh").write_text("#!/usr/bin/env python3\n")
    (project / "line.sh").write_text("#!/bin/sh ./guard.sh\n")
    (project / "nested").write_text("#!./bin/python3\n")
    (project / "bare").write_text("#!/bin/sh\t-e\n. ./rules.sh\n")
    (project / "rules.sh").write_text("")
    (project / "tabs").write_text("#!/usr/bin/env\tperl\n")
    (project / "bin" / "python3").write_text("#!/bin/sh\n")
    (project / "bin" / "sh").symlink_to("/bin/sh")
    (tmp_path / "opt").mkdir()
    (tmp_path / "opt" / "guard.sh").write_text("#!/bin/sh\n")
    (project / "link").symlink_to("hooks")
    (project / "env" / "bin").mkdir(parents=True)
    (project / "env" / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (project / "env" / "bin" / "python3").symlink_to(sys.executable)
    return project


def listed(project: Path, *, known: FileList | None = None, top: dict[str, Any] | None = None, **hook: Any) -> FileList:
    """List the files of a set with one hook."""
    said = {"name": "guard", "event_type": "tool:pre", "handler_ref": "command", **hook}
    (project / "hooks.yaml").write_text(yaml.safe_dump({"version": 1, **(top or {}), "hooks": [said]}))
    return list_files(load_files(project / "hooks.yaml", environment={}), FileDigests(), known)


def roles(found: FileList, project: Path) -> dict[str, str]:
    """Return the role of each file but the definitions, by its path from the project; programs by their name."""
    return {
        Path(one.path).name if one.role == "installed" else os.path.relpath(one.path, project): one.role
        for one in found.files
        if one.path != str(project / "hooks.yaml")
    }


@pytest.mark.parametrize(
    ("argv", "config", "files"),
    [
        (["./guard.sh"], {}, {"guard.sh": "copied"}),
        (["./guard.py"], {"cwd": "hooks"}, {"hooks/guard.py": "copied"}),
        (["./run.sh"], {}, {"run.sh": "copied", "python3": "installed"}),
        (["../opt/guard.sh"], {}, {"../opt/guard.sh": "copied", "sh": "installed"}),
        (["./link/guard.py"], {}, {"hooks/guard.py": "copied"}),
        (["sh", "guard.sh", "lib.sh"], {}, {"sh": "installed", "guard.sh": "copied", "lib.sh": "read"}),
        (["python3", "-u", "hooks/guard.py"], {}, {"python3": "installed", "hooks/guard.py": "copied"}),
        (["env", "X=1", "sh", "-c", ". ./guard.sh"], {}, {"env": "installed", "guard.sh": "read"}),
        (["sh", "-c", "exec ./guard.sh --strict"], {}, {"sh": "installed", "guard.sh": "read"}),
        (["sh", "-c", "cd hooks && python3 guard.py"], {}, {"sh": "installed", "hooks/guard.py": "read"}),
        (["sh", "-c", "grep -qf lib.sh; exit 2"], {}, {"sh": "installed", "lib.sh": "read"}),
        (["./deep.sh"], {}, {"deep.sh": "copied", "sh": "installed", "lib.sh": "read", "guard.sh": "read"}),
        (
            ["python3", "hooks/deep.py"],
            {},
            {"python3": "installed", "hooks/deep.py": "copied", "hooks/rules.py": "copied"},
        ),
        (["grep", "--file=lib.sh"], {}, {"grep": "installed", "lib.sh": "read"}),
        (["sh", "gone.sh"], {}, {"sh": "installed", "gone.sh": "copied"}),
        (["./bare", "node"], {}, {"bare": "copied", "sh": "installed", "rules.sh": "read"}),
        (["./line.sh"], {}, {"line.sh": "copied", "sh": "installed", "guard.sh": "copied"}),
        (["./nested"], {}, {"nested": "copied", "bin/python3": "copied", "sh": "installed"}),
        (["./bin/python3", "lib.sh"], {}, {"bin/python3": "copied", "sh": "installed", "lib.sh": "read"}),
        (["./bin/sh", "guard.sh"], {}, {"sh": "installed", "guard.sh": "copied"}),
        (["sh", "-c", "exec ./line.sh"], {}, {"sh": "installed", "line.sh": "read", "guard.sh": "read"}),
        (["./guard.sh"], {"env": {"RULES": "lib.sh:none.sh"}}, {"guard.sh": "copied", "lib.sh": "read"}),
        (["./guard.sh"], {"env": {"HOME": "/nowhere", "LEVEL": "2"}}, {"guard.sh": "copied"}),
    ],
)
def test_commands(argv: list[str], config: dict[str, Any], files: dict[str, str], project: Path) -> None:
    """Programs, scripts, files in shell texts and arguments, and interpreters of scripts are listed, links resolved."""
    assert roles(listed(project, config={"argv": argv, **config}), project) == files


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["make", "-s", "guard"], "'make' decides itself"),
        (["npx", "prettier", "."], "'prettier' decides itself"),
        (["python3", "-m", "hooks.guard"], "'hooks.guard' decides itself"),
        (["python3", "-c", "import rules"], "'python'"),
        (["sh", "-c", './"$NAME".sh'], "only a run tells"),
        (["sh", "-c", "eval $(cat lib.sh)"], "only a run tells"),
        (["sh", "-c", "cat lib.sh | sh"], "only a run tells"),
        (["node", "-r", "./hooks/rules", "guard.js"], " decides itself"),
        (["perl", "lib.sh"], "is in a language"),
        (["./tabs"], "is in a language"),
        (["env", "./nested"], "has the interpreter './bin/python3' of the project"),
        (["./env/bin/python3", "hooks/guard.py"], "files beside it decide"),
        (["env", "HOME=.", "./guard.sh"], "variable 'HOME' decides"),
    ],
)
def test_files_that_cannot_be_listed(argv: list[str], why: str, project: Path) -> None:
    """A command whose files no reading tells is refused; `files` lists them, and an empty list says there are none."""
    with pytest.raises(FilesNotListed, match=why) as refused:
        listed(project, config={"argv": argv})
    assert "write them as files: [GLOB, …]" in str(refused.value)
    own = listed(project, config={"argv": argv}, files=["Makefile", "hooks/*.py"])
    assert {"Makefile": "read", "hooks/rules.py": "read"}.items() <= roles(own, project).items()
    assert roles(listed(project, config={"argv": argv}, top={"files": ["**/*.sh"]}), project)["lib.sh"] == "read"
    assert listed(project, config={"argv": argv}, files=[]).files


def test_variables_that_load(project: Path) -> None:
    """A variable that decides what programs load has the hook refused unless it says `files`."""
    (project / "inside").symlink_to(project)
    names = ["PYTHONPATH", "PATH", "NODE_PATH", "GIT_CONFIG_GLOBAL", "BASH_ENV", "ENV", "LD_PRELOAD", "PERL5LIB"]
    given: list[dict[str, Any]] = [{"env": {name: "hooks"}} for name in names]
    homes: list[dict[str, Any]] = [
        {"env": {name: "."}} for name in ("HOME", "XDG_CONFIG_HOME", "GNUPGHOME", "USERPROFILE", "RULES")
    ]
    homes += [{"env": {"HOME": value}} for value in ("later", str(project), "inside/later", f"/nowhere:{project}")]
    for config in (*given, *homes, {"pass_env": ["LD_PRELOAD"]}):
        with pytest.raises(FilesNotListed, match="decides what its programs load"):
            listed(project, config={"argv": ["./guard.sh"], **config})
        assert listed(project, config={"argv": ["./guard.sh"], **config}, files=[]).files


@pytest.mark.parametrize(
    ("said", "why"),
    [("x", "write a list of globs"), ([3], "write a list of globs"), (["*.rb"], "matches no file")],
)
def test_globs_that_are_wrong(said: object, why: str, project: Path) -> None:
    """A glob that is no text, or matches nothing, is a mistake with its line."""
    with pytest.raises(InvalidDefinitions, match=f"hooks.yaml:[0-9]+: .*{why}"):
        listed(project, config={"argv": ["./guard.sh"]}, files=said)


@pytest.mark.rule("TRU-4")
@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("**/*.zzz", "matches no file"),
        ("/".join(["*"] * 30), "looks at more than 20,000 names"),
        ("loop/" * 5_000 + "guard.sh", "leads through too many folders"),
    ],
    ids=["any folders", "named folders", "deep"],
)
def test_globs_that_lead_in_circles(pattern: str, why: str, project: Path) -> None:
    """A glob through links that lead in a circle ends, with a mistake that names the reason."""
    for name in ("loop", "other", "third"):
        (project / name).symlink_to(".")
    with pytest.raises(InvalidDefinitions, match=f"hooks.yaml:[0-9]+: .*{why}"):
        listed(project, config={"argv": ["./guard.sh"]}, files=[pattern])


@pytest.mark.rule("TRU-4")
@pytest.mark.parametrize(
    "argv",
    [
        ["env", "PYTHONPATH=.", "python3", "guard.py"],
        ["sh", "-c", "export PYTHONPATH=.; python3 guard.py"],
        ["env", "PYTHONPYCACHEPREFIX=cache", "python3", "guard.py"],
        ["./first-line"],
    ],
    ids=["env", "shell", "bytecode", "first line"],
)
def test_variables_in_the_words_of_a_command(argv: list[str], project: Path) -> None:
    """A command that makes its programs load from the project needs `files`, also by words or by its first line."""
    (project / "guard.py").write_text("import json\n")
    (project / "first-line").write_text("#!/usr/bin/env -S PYTHONPATH=. python3\n")
    (project / "first-line").chmod(0o755)
    with pytest.raises(FilesNotListed, match="decides what its programs load"):
        listed(project, config={"argv": argv})
    assert listed(project, config={"argv": argv}, files=[]).files


def test_a_glob_may_be_absolute(project: Path) -> None:
    """A glob that starts at the root finds files anywhere."""
    found = listed(project, config={"argv": ["./guard.sh"]}, files=[f"{project}/hooks/dee*.py"])
    assert str(project / "hooks" / "deep.py") in {one.path for one in found.files}


def test_a_bare_name_stays_its_program(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program that a name stood for stays listed whatever the PATH is later; at first it is that of the PATH."""
    monkeypatch.setenv("PATH", f"{project / 'bin'}{os.pathsep}{os.environ['PATH']}")
    (project / "bin" / "tool").chmod(0o755)
    before = listed(project, config={"argv": ["tool"]})
    assert before.programs["tool"] == str(project / "bin" / "tool")
    other = project / "other" / "tool"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", f"{other.parent}{os.pathsep}{os.environ['PATH']}")
    assert listed(project, config={"argv": ["tool"]}, known=before).digest == before.digest
    assert listed(project, config={"argv": ["tool"]}).programs["tool"] == str(other)


def test_no_file_of_the_project_is_an_installed_program(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of the project is copied, whatever its name is and whatever the PATH has; others are found first."""
    monkeypatch.setenv("PATH", f"{project / 'bin'}{os.pathsep}{os.environ['PATH']}")
    for name in ("tool", "python3", "own"):
        (project / "bin" / name).write_text("#!/bin/sh\n")
        (project / "bin" / name).chmod(0o755)
    assert roles(listed(project, config={"argv": ["own"]}), project) == {"bin/own": "copied", "sh": "installed"}
    [found] = [one for one in listed(project, config={"argv": ["python3", "-V"]}, files=[]).files if one.name]
    assert (Path(found.path).is_relative_to(project), found.role) == (False, "installed")


def test_a_script_that_loads_files(project: Path) -> None:
    """The files that a script in JavaScript loads by a name in its text are listed, and those that they load."""
    texts = {
        "guard.js": "const fs = require('fs'), x = require('./lib/x')\n",
        "lib/x.js": "import './y.mjs'\n",
        "lib/y.mjs": "",
        "package.json": "{}",
    }
    for name, text in texts.items():
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(text)
    found = roles(listed(project, config={"argv": ["node", "guard.js"]}), project)
    assert {name: role for name, role in found.items() if role != "installed" and name != "node"} == dict.fromkeys(
        texts, "copied"
    )


@pytest.mark.parametrize(
    ("script", "text", "why"),
    [
        ("guard.js", "require('left-pad')", "loads 'left-pad', whose files"),
        ("guard.mjs", "import x from '#inside'", "loads '#inside', whose files"),
        ("guard.js", "require(name)", "computes the names"),
        ("guard.node", "require(name)", "computes the names"),
        ("guard.js", "require('./gone')", "loads './gone', which is not there"),
        ("guard.mjs", "await import(`./${name}.js`)", "only a run tells"),
        ("guard.js", "require('/opt/rules.js')", "loads '/opt/rules.js', whose files"),
        ("guard.rb", "require_relative 'x'", "is in a language"),
        ("guard.pl", "use strict;", "is in a language"),
        ("guard.php", "<?php", "is in a language"),
        ("guard.lua", "", "is in a language"),
    ],
)
def test_scripts_whose_loading_no_reading_tells(script: str, text: str, why: str, project: Path) -> None:
    """A script that loads a package, or a file with a computed name, is refused unless the definition says `files`."""
    (project / script).write_text(text)
    interpreter = {"js": "node", "mjs": "node", "rb": "ruby", "pl": "perl"}.get(script[6:], script[6:])
    with pytest.raises(FilesNotListed, match=why) as refused:
        listed(project, config={"argv": [interpreter, script]})
    assert "write them as files: [GLOB, …]" in str(refused.value)
    assert listed(project, config={"argv": [interpreter, script]}, files=["lib.sh"]).files


def test_modules(project: Path) -> None:
    """A handler's module and the project's modules that it imports are listed; installed and missing ones are not."""
    (project / "hooks" / "guard.py").write_text(
        "import os, attrs, nowhere\nfrom hooks import rules\nfrom amplifier_hooks import HookResult\n"
        "def check(event, data):\n    from . import late\n    import plain.deep as deep\n"
    )
    for name in ("hooks/late.py", "plain/__init__.py", "plain/deep.py", "attrs.py", "os.py", "unused.py"):
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text("")
    (project / "hooks" / "rules.py").write_text("import hooks.guard\n")
    found = listed(project, handler_ref="hooks.guard:check", config={})
    assert set(roles(found, project)) == {
        "hooks/guard.py",
        "hooks/rules.py",
        "hooks/late.py",
        "plain/__init__.py",
        "plain/deep.py",
    }
    assert not roles(listed(project, handler_ref="rate_limit", config={}), project)
    assert not [name for name in sys.modules if name.startswith(("hooks.guard", "plain.deep"))]


def test_each_change_changes_the_digest_and_no_other_file_does(project: Path) -> None:
    """Other content, a missing file that appears, and another target of a link count; files beside them do not."""
    config = {"argv": ["sh", "link/guard.py", "gone.sh"]}
    digests = {listed(project, config=config).digest}
    (project / "unrelated.txt").write_text("x")
    assert listed(project, config=config).digest in digests
    (project / "hooks" / "guard.py").write_text("other")
    digests.add(listed(project, config=config).digest)
    (project / "gone.sh").write_text("")
    digests.add(listed(project, config=config).digest)
    (project / "hooks2").mkdir()
    (project / "hooks2" / "guard.py").write_text("other")
    (project / "link").unlink()
    (project / "link").symlink_to("hooks2")
    digests.add(listed(project, config=config).digest)
    assert len(digests) == 4


def test_ready_made_hooks(project: Path) -> None:
    """Of a ready-made hook the program and the files of its command are listed, and no path that it protects."""
    library = {"linter_feedback": {"command": ["./guard.sh", "{file}"]}, "protected_paths": {"paths": ["./lib.sh"]}}
    found = listed(project, config={"argv": ["sh", "run.sh"]}, top={"library": library})
    assert [Path(one.path).name for one in found.groups["linter_feedback"]] == ["guard.sh"]
    assert "lib.sh" not in roles(found, project)


def test_the_guarded_files(project: Path) -> None:
    """Every listed file, and every source of trust, is named as trusted, missing ones as well."""
    store = TrustStore(project.parent / "state" / "trust.json")
    found = listed(project, config={"argv": ["sh", "gone.sh"]})
    store.trust(str(project / "hooks.yaml"), [found])
    assert {str(project / "gone.sh"), str(project / "hooks.yaml")} < store.trusted_files()
    store.trust(str(project / "hooks.yaml"), [])
    assert store.trusted_files() == {str(project / "hooks.yaml")}


@pytest.mark.rule("TRU-5")
def test_a_change_without_a_trace_in_the_times(tmp_path: Path) -> None:
    """A mapped file can change while its times stay; a digest that is made afresh is that of its content."""
    path = tmp_path / "file"
    path.write_bytes(b"one")
    digests = FileDigests(lambda: path.stat().st_ctime_ns + 3_000_000_000)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 3) as mapped:
        mapped[:] = b"two"
        before = digests.of(str(path))
        known = path.stat().st_mtime_ns
        mapped[:] = b"six"
        if path.stat().st_mtime_ns == known:
            assert digests.of(str(path)) == before
        assert digests.of(str(path), afresh=True) != before


def test_digests_are_kept_until_a_file_changes(tmp_path: Path) -> None:
    """A file is read again after any change of its times, its size or its inode, and a fresh file is read each time."""
    path, now = tmp_path / "file", [0]
    digests = FileDigests(lambda: now[0])
    path.write_text("one")
    first = digests.of(str(path))
    path.write_text("two")
    assert digests.of(str(path)) != first
    now[0] = path.stat().st_ctime_ns + 3_000_000_000
    kept = digests.of(str(path))
    assert digests.of(str(path)) == kept
    other = tmp_path / "other"
    other.write_text("2wo")
    os.utime(other, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    other.replace(path)
    assert digests.of(str(path)) != kept
    assert digests.of(str(tmp_path / "absent")) == digests.of(str(path / "below")) == ""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").touch()
    os.truncate(tmp_path / "large", LARGEST_HASHED + 1)
    assert {digests.of(str(one)) for one in (tmp_path, tmp_path / "pipe", tmp_path / "large")} == {UNREAD}
