"""Calls that can take a guard away, in many spellings, and calls beside them that cannot."""

from __future__ import annotations

from typing import Any, Final

import pytest
from msgspec.structs import replace

from amplifier_hooks.impact.tools import predict_impact
from amplifier_hooks.impacts import FileFact
from tests.amplifier_hooks.impact.conftest import HOME, POLICY, ROOT
from tests.cases import each

pytestmark = pytest.mark.rule("IMP-9", "SLF-1")

GUARDED: Final = replace(
    POLICY, guarded=(f"{ROOT}/amplifier-hooks.yaml", f"{ROOT}/checks/guard.sh", "/opt/state"), guarded_ports=(8438,)
)
LINKS: Final = {f"{ROOT}/settings": f"{ROOT}/.claude", f"{ROOT}/g": f"{ROOT}/checks/guard.sh"}
FOLDERS: Final = frozenset((HOME, ROOT, f"{ROOT}/.claude", f"{ROOT}/checks", f"{ROOT}/new", "/tmp", "/"))


def stat(path: str) -> FileFact:
    """Answer about a made-up file system: two links, a few folders, and otherwise files."""
    for link, target in LINKS.items():
        if path == link or path.startswith(f"{link}/"):
            path = target + path[len(link) :]
    return FileFact(path, "folder" if path in FOLDERS else "file")


def unguards(tool: str, arguments: dict[str, Any], folder: str = ROOT) -> bool:
    """Return True if a call can take a guard away."""
    return any(one.unguards for one in predict_impact(tool, arguments, GUARDED, stat, folder=folder).impacts)


@each(
    "command",
    [
        "echo '{}' > .claude/settings.local.json",
        "tee .CLAUDE/Settings.json < x",
        "cp evil.json .claude/settings.json",
        "cp -t .claude settings.json",
        "cp -r new .gemini",
        "mv new .gemini",
        "mv .claude old",
        "rm -rf .claude",
        "rm -rf .cl*",
        "rm .claude/*",
        "rm -rf ~",
        "rm -rf *",
        "rmdir /opt",
        "ln -s /tmp/evil .gemini",
        "ln .claude/settings.json x",
        "ln -s checks/guard.sh x",
        "cp -l checks/guard.sh x",
        "sed -i s/deny/allow/ settings/settings.json",
        "sed -i s/deny/allow/ checks/*.sh",
        "truncate -s0 g",
        "cd checks && echo > guard.sh",
        "cd .. && echo > shop/amplifier-hooks.yaml",
        "rm /opt/state/trust.json",
        "cat ~/.local/state/amplifier-hooks/gateway-8437.json",
        "python3 -c \"open('amplifier-hooks.yaml','w')\"",
        "python3 -c \"import shutil; shutil.rmtree('.claude')\"",
        "python3 -c 'from amplifier_hooks.cli.app import main; main()' validate --trust",
        'python3 -c \'import subprocess; subprocess.run(["amplifier-hooks", "resume"])\'',
        "curl -X POST http://127.0.0.1:8438/v1/approvals/x",
        "curl http://[::1]:8438/",
        "nc localhost 8438",
        "http POST localhost:8438/v1/stop",
        "git checkout HEAD~1 -- .claude/settings.json",
        "git restore amplifier-hooks.yaml",
        "git rm -r .claude",
        "jq . x | sponge .claude/settings.json",
        "unzip x.zip -d .claude",
        "mount --bind /tmp .claude",
        "vim -c wq amplifier-hooks.yaml",
        "pkill -f amplifier-hooks",
        "uvx 'amplifier-hooks[server]@latest' resume",
        "curl --unix-socket /opt/state/hooks.sock http://x/",
        "amplifier-hooks validate --trust --json",
        "amplifier-hooks validate amplifier-hooks.yaml --tru",
        "env -i HOME=/x ./.venv/bin/amplifier-hooks approvals allow 8c1f --yes",
        "/home/dev/.local/bin/amplifier-hooks uninstall claude-code",
        "uv run amplifier-hooks resume --yes",
        "uvx amplifier-hooks stop --why x",
        "uv run python -m amplifier_hooks approvals revoke x",
        "python3 -m amplifier_hooks.__main__ token create x",
        "sudo amplifier-hooks audit accept",
        "echo a | xargs amplifier-hooks approvals allow",
        "bash -c 'amplifier-hooks serve --hooks /tmp/none.yaml'",
    ],
)
def test_a_command_that_takes_a_guard_away_says_so(command: str) -> None:
    """A command that can take a guard away says so."""
    assert unguards("Bash", {"command": command})


@pytest.mark.parametrize(
    "command",
    [
        "cat .claude/settings.json amplifier-hooks.yaml checks/guard.sh",
        "mkdir -p .claude/skills && cp notes.md .claude/skills/a.md",
        "rm .claude/skills/a.md",
        "rm -rf build src *.pyc",
        "sed -i s/a/b/ src/*",
        "grep -rl a . | xargs sed -i s/a/b/",
        "find . -name '*.orig' -delete",
        "mv a b && ln -s a c",
        "amplifier-hooks list && amplifier-hooks approvals list --json && amplifier-hooks validate",
        "amplifier-hooks --help",
        "curl http://127.0.0.1:3000/",
        "git commit -m 'amplifier-hooks validate --trust'",
        "grep -n 'amplifier-hooks resume' README.md",
        "python3 -c 'import amplifier_hooks; print(amplifier_hooks.__version__)'",
        "python3 -c \"open('out.txt','w').write('.')\"",
    ],
)
def test_a_command_beside_them_does_not(command: str) -> None:
    """A command that reads guarded files, or changes their neighbours, takes no guard away."""
    assert not unguards("Bash", {"command": command})


@pytest.mark.rule("SLF-4")
@pytest.mark.parametrize("command", ["make guard", "sh tools/x.sh", "python3 tools/x.py", "rm $FILE"])
def test_a_command_that_cannot_be_read_is_for_other_rules(command: str) -> None:
    """Code that cannot be read takes no guard away as far as the call shows; its kinds say that it is not read."""
    predicted = predict_impact("Bash", {"command": command}, GUARDED, stat)
    assert not any(one.unguards for one in predicted.impacts)
    assert predicted.kinds & {"runs_project", "runs_unread", "unreadable"}


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("Write", {"file_path": f"{ROOT}/amplifier-hooks.yaml", "content": ""}),
        ("Edit", {"file_path": "checks/../amplifier-hooks.yaml"}),
        ("Write", {"file_path": "FILE:///home/dev/shop/.claude/settings.local.json"}),
        ("apply_patch", {"input": "*** Begin Patch\n*** Update File: .codex/hooks.json\n+{}\n*** End Patch"}),
        ("mcp__filesystem__write_file", {"path": "checks/guard.sh", "content": ""}),
        ("mcp__filesystem__move_file", {"source": ".claude", "destination": "old"}),
        ("mcp__files__put", {"where": {"at": ["./.claude/settings.json"]}}),
        ("mcp__files__frobnicate", {"x": "checks"}),
        ("mcp__shell__run", {"command": "amplifier-hooks resume"}),
        ("WebFetch", {"url": "http://localhost:8438/v1/approvals"}),
        ("delete_file", {"path": f"{HOME}/.claude"}),
    ],
)
def test_a_tool_that_takes_a_guard_away_says_so(tool: str, arguments: dict[str, Any]) -> None:
    """A file tool, a web tool or a tool of a server that can take a guard away says so."""
    assert unguards(tool, arguments)


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("Read", {"file_path": "amplifier-hooks.yaml"}),
        ("mcp__files__read_file", {"where": ".claude/settings.json"}),
        ("mcp__mail__send_message", {"text": "see .claude/settings.json", "to": "."}),
        ("Grep", {"pattern": "x", "path": ".claude"}),
    ],
)
def test_a_tool_beside_them_does_not(tool: str, arguments: dict[str, Any]) -> None:
    """A tool that reads guarded files, or mentions them, takes no guard away."""
    assert not unguards(tool, arguments)


def test_the_folder_of_the_call_decides() -> None:
    """A path that begins at the folder of the call is found from there."""
    assert unguards("Write", {"file_path": "../amplifier-hooks.yaml"}, f"{ROOT}/src")
    assert not unguards("Write", {"file_path": "guard.sh"})
    assert unguards("Write", {"file_path": "guard.sh"}, f"{ROOT}/checks")
