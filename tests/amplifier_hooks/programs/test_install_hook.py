"""The bridge in other programs' settings."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from amplifier_hooks.bridge import DOWN
from amplifier_hooks.cli.common.terminal_io import SERVE
from amplifier_hooks.errors import InvalidRegistration
from amplifier_hooks.programs.dialects import CLAUDE_CODE, CODEX, GEMINI, Dialect
from amplifier_hooks.programs.install_hook import ABSENT, Bridge, is_ours, with_bridge, without_bridge

COMMAND = Bridge(python="/usr/bin/python3", file="/x y/amplifier_hooks/bridge.py", socket="/run/hooks.sock")
PORTABLE = Bridge()
POSTS = Bridge(url="http://127.0.0.1:8123")
BOTH = evolve(COMMAND, url="http://127.0.0.1:8439", token="secret")
THEIRS = {"type": "command", "command": "their guard"}

GROUPS = st.lists(
    st.one_of(
        st.just("nonsense"),
        st.fixed_dictionaries({"hooks": st.lists(st.just(THEIRS), max_size=2)}, optional={"matcher": st.just("Bash")}),
    ),
    max_size=3,
)
SETTINGS = st.fixed_dictionaries(
    {}, optional={"model": st.just("opus"), "hooks": st.dictionaries(st.sampled_from(["PreToolUse", "Stop"]), GROUPS)}
)


def without_empty(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings without events that have no group."""
    hooks = {event: groups for event, groups in settings.get("hooks", {}).items() if groups}
    return {key: value for key, value in settings.items() if key != "hooks"} | ({"hooks": hooks} if hooks else {})


@pytest.mark.rule("DIA-5")
@pytest.mark.parametrize("dialect", [CLAUDE_CODE, CODEX, GEMINI])
@given(settings=SETTINGS, bridge=st.sampled_from([COMMAND, PORTABLE]), posts=st.booleans())
def test_what_was_put_in_comes_out_again(
    dialect: Dialect, settings: dict[str, Any], bridge: Bridge, posts: bool
) -> None:
    """A second installation changes nothing, and a removal restores the settings."""
    bridge = BOTH if posts and dialect.posting else bridge
    once = with_bridge(settings, dialect, bridge)
    assert with_bridge(once, dialect, bridge) == once
    assert without_empty(without_bridge(once)) == without_empty(settings)


@pytest.mark.rule("DIA-5")
def test_every_event_is_covered_and_gates_refuse() -> None:
    """The bridge stands at every event, and without a server it refuses at gates and stops the program nowhere else."""
    hooks = with_bridge({}, CLAUDE_CODE, COMMAND)["hooks"]
    assert set(hooks) == {spelling.theirs for spelling in CLAUDE_CODE.spellings}
    policies = {event: groups[0]["hooks"][0]["command"].split()[7] for event, groups in hooks.items()}
    assert policies["PreToolUse"] == policies["UserPromptSubmit"] == "deny"
    assert policies["PostToolUse"] == policies["SessionStart"] == "allow"
    assert hooks["PreToolUse"][0]["matcher"] == "*"
    assert hooks["PreToolUse"][0]["hooks"][0]["command"].startswith("/usr/bin/python3 -I -S '/x y/amplifier_hooks/")


@pytest.mark.rule("DIA-5")
@pytest.mark.parametrize("dialect", [CLAUDE_CODE, CODEX, GEMINI])
@pytest.mark.parametrize("ends", [0, 1, 2, 127])
def test_a_bridge_that_fails_is_a_server_that_is_down(dialect: Dialect, ends: int, tmp_path: Path) -> None:
    """A missing or crashed bridge blocks at a gate, unless that is not wanted; its own exit status 2 stays 2."""
    if ends != 127:
        program = tmp_path / "amplifier-hooks"
        program.write_text(f"#!/bin/sh\nexit {ends}\n")
        program.chmod(0o755)

    def status(policy: Any) -> int:
        line = PORTABLE.command(dialect, policy)
        return subprocess.run(
            ["/bin/sh", "-c", line], env={"PATH": os.fspath(tmp_path)}, check=False, stderr=subprocess.DEVNULL
        ).returncode

    blocks = [2] if dialect.failures == "open" else [code for code in range(256) if code not in (0, 1)]
    assert (status("deny") in blocks) is (status("ask") in blocks) is (ends != 0)
    assert (status("allow") in blocks) is (ends == 2)


def test_time_is_in_the_units_of_the_program() -> None:
    """The program waits a little longer than the approver's timeout, in its own units."""
    assert with_bridge({}, CLAUDE_CODE, COMMAND)["hooks"]["PreToolUse"][0]["hooks"][0]["timeout"] == 315
    assert with_bridge({}, GEMINI, COMMAND)["hooks"]["BeforeTool"][0]["hooks"][0]["timeout"] == 315_000


def test_a_program_that_posts_has_its_token_in_the_environment() -> None:
    """A posting program gets the address and the name of the variable that holds the token, never the token."""
    entry = with_bridge({}, CLAUDE_CODE, POSTS)["hooks"]["PreToolUse"][0]["hooks"][0]
    assert entry["url"] == "http://127.0.0.1:8123/v1/bridge/claude_code"
    assert entry["headers"] == {"Authorization": "Bearer ${AMPLIFIER_HOOKS_TOKEN}"}
    assert entry["onFailure"] == "block"
    assert is_ours(entry)
    with pytest.raises(InvalidRegistration, match="posts to no address"):
        with_bridge({}, CODEX, POSTS)


@pytest.mark.rule("DIA-4", "DIA-5")
def test_a_failed_post_blocks_where_a_question_was_wanted() -> None:
    """A post that fails asks no user, so it blocks; with "allow" it does not."""
    for bridge, blocks in ((evolve(POSTS, when_down="ask"), True), (evolve(POSTS, when_down="allow"), False)):
        assert ("onFailure" in with_bridge({}, CLAUDE_CODE, bridge)["hooks"]["PreToolUse"][0]["hooks"][0]) is blocks


@pytest.mark.rule("DIA-5")
def test_a_program_posts_what_comes_with_every_call() -> None:
    """A server on this machine is posted to at tool events alone, a failed post blocks, and the address says why."""
    hooks = {event: groups[0]["hooks"][0] for event, groups in with_bridge({}, CLAUDE_CODE, BOTH)["hooks"].items()}
    posts = {event for event, hook in hooks.items() if hook["type"] == "http"}
    assert posts == {"PreToolUse", "PostToolUse", "PostToolUseFailure"}
    assert {event for event in posts if hooks[event].get("onFailure") == "block"} == {"PreToolUse"}
    assert hooks["PreToolUse"]["headers"] == {"Authorization": "Bearer secret"}
    assert hooks["PreToolUse"]["url"].endswith(f"?if-down=start-it-with:{SERVE.replace(' ', '+')}")
    assert SERVE in DOWN
    assert SERVE in ABSENT
    assert hooks["UserPromptSubmit"]["command"].endswith("claude_code deny || exit 2")
    assert hooks["SessionStart"]["type"] == "command"


@pytest.mark.rule("DIA-5")
def test_a_program_gets_no_hook_that_it_would_skip() -> None:
    """Settings for a server elsewhere have no hook at an event where the program skips hooks that post."""
    hooks = with_bridge({}, CLAUDE_CODE, POSTS)["hooks"]
    assert set(hooks) == {spelling.theirs for spelling in CLAUDE_CODE.spellings} - {"SessionStart"}


@pytest.mark.parametrize("hooks", [[], "x", {"PreToolUse": "x"}])
def test_settings_of_another_shape_are_left_alone(hooks: Any) -> None:
    """Settings whose hooks are malformed are refused rather than corrected."""
    with pytest.raises(InvalidRegistration):
        with_bridge({"hooks": hooks}, CLAUDE_CODE, COMMAND)


@pytest.mark.parametrize(
    "hook",
    [None, "x", {}, {"command": 1}, {"command": "python bridge.py"}, {"command": "amplifier-hooks test"}, THEIRS],
)
def test_others_hooks_are_not_ours(hook: Any) -> None:
    """A hook that does not run the bridge or post to the server is not recognised as the bridge."""
    assert not is_ours(hook)


@pytest.mark.parametrize(
    "command",
    [
        "amplifier-hooks bridge codex",
        "/home/ada/.local/bin/amplifier-hooks bridge claude-code --when-down allow",
        '"C:\\tools\\amplifier-hooks.exe" bridge codex',
        "/usr/bin/python3 -I -S /lib/amplifier_hooks/bridge.py /run/s codex deny",
        "C:\\py\\python.exe -I -S C:\\lib\\amplifier_hooks\\bridge.py s codex deny",
    ],
)
def test_ours_in_every_form(command: str) -> None:
    """The bridge is recognised by its file and by its name, whatever its folder and the author of the line."""
    assert is_ours({"type": "command", "command": command})
