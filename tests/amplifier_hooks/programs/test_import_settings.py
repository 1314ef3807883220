"""Settings of other programs that run here, and the trust that they need."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

from amplifier_hooks import HookRegistry
from amplifier_hooks.definitions.trust import FileList, TrustStore
from amplifier_hooks.errors import InvalidRegistration, SettingsError
from amplifier_hooks.programs.dialects import CLAUDE_CODE, CODEX, GEMINI, Dialect
from amplifier_hooks.programs.import_settings import ImportedSettings, compile_their_matcher, read_settings
from amplifier_hooks.result import Outcome

CALL: dict[str, Any] = {"session_id": "s", "tool_name": "Bash", "tool_call_id": "c", "tool_input": {"command": "ls"}}


@frozen
class Project:
    """A folder with settings in it, and a trust store outside."""

    root: Path
    trust: TrustStore

    def settings(self, hooks: Any, dialect: Dialect = CLAUDE_CODE, **extra: Any) -> ImportedSettings:
        """Return the settings with these hooks."""
        path = self.root / "settings.json"
        path.write_text(json.dumps({"hooks": hooks, **extra}))
        return read_settings(path, dialect, project=self.root)

    def gate(self, command: str, **options: Any) -> ImportedSettings:
        """Return settings with one command before every tool."""
        return self.settings({"PreToolUse": [{"hooks": [{"type": "command", "command": command, **options}]}]})

    def trusted(self, settings: ImportedSettings) -> HookRegistry:
        """Return a registry with the hooks, all of them trusted."""
        self.trust.trust("settings", [hook.files for hook in settings.hooks])
        registry = HookRegistry()
        settings.register(registry, self.trust)
        return registry


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Return an empty project."""
    (tmp_path / "project").mkdir()
    return Project(tmp_path / "project", TrustStore(tmp_path / "state" / "trust.json"))


async def call(registry: HookRegistry, **changes: Any) -> Outcome:
    """Return the outcome of a tool call."""
    return await registry.emit("tool:pre", {**CALL, **changes})


# -- trust -------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("TRU-2")
@pytest.mark.fault("F-CMD-15")
async def test_nothing_runs_before_it_was_trusted(project: Project) -> None:
    """A project's hook runs only after its content was trusted, and no more after its script has changed."""
    script = project.root / "guard.sh"
    script.write_text("echo ran >> ran.txt; exit 0")
    settings = project.gate("sh guard.sh")
    registry = HookRegistry()
    settings.register(registry, project.trust)

    assert (await call(registry)).denied
    assert not (project.root / "ran.txt").exists()

    project.trust.trust("settings", [hook.files for hook in settings.hooks])
    assert not (await call(registry)).denied
    assert (project.root / "ran.txt").read_text() == "ran\n"

    script.write_text("echo RAN >> ran.txt; exit 0")
    outcome = await call(registry)
    assert outcome.denied
    assert "not trusted" in (outcome.reason or "")
    assert (project.root / "ran.txt").read_text() == "ran\n"

    project.trust.trust("settings", [hook.files for hook in settings.hooks])
    assert not (await call(registry)).denied
    project.trust.trust("settings", [])
    assert (await call(registry)).denied


@pytest.mark.rule("TRU-2")
def test_trust_is_in_project_definition_and_files(project: Project, tmp_path: Path) -> None:
    """Another command, matcher, option, project or file content has another digest; equal ones have an equal digest."""
    (project.root / "a.sh").write_text("1")
    (project.root / "b.sh").write_text("1")
    first = project.gate("sh a.sh").hooks[0].files.digest
    assert project.gate("sh a.sh").hooks[0].files.digest == first
    others = {
        project.gate("sh b.sh").hooks[0].files.digest,
        project.gate("sh a.sh", timeout=5).hooks[0].files.digest,
        project.settings(
            {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "sh a.sh"}]}]}
        ).hooks[0].files.digest,
    }  # fmt: skip
    (project.root / "a.sh").write_text("2")
    others.add(project.gate("sh a.sh").hooks[0].files.digest)
    elsewhere = Project(tmp_path / "elsewhere", project.trust)
    elsewhere.root.mkdir()
    (elsewhere.root / "a.sh").write_text("1")
    others.add(elsewhere.gate("sh a.sh").hooks[0].files.digest)
    assert len(others - {first}) == 5


EMPTY = FileList(folder="/nowhere")


@pytest.mark.parametrize("content", ["", "[]", "not json", "{" * 100_000, '{"a'])
def test_a_broken_store_trusts_nothing(content: str, project: Project) -> None:
    """A trust file that cannot be read trusts nothing, and the next trust replaces it."""
    project.trust.path.parent.mkdir()
    project.trust.path.write_text(content)
    assert not project.trust.trusts(EMPTY)
    project.trust.trust("a", [EMPTY])
    assert project.trust.trusts(EMPTY)
    assert project.trust.path.stat().st_mode & 0o077 == 0


def test_a_store_others_can_write_trusts_nothing(project: Project) -> None:
    """A trust file that other users can write trusts nothing."""
    project.trust.trust("a", [EMPTY])
    project.trust.path.chmod(0o666)
    assert not project.trust.trusts(EMPTY)


def test_the_store_is_outside_of_the_project(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The trust file is in the desktop's state folder, or in the operator's."""
    monkeypatch.delenv("AMPLIFIER_HOOKS_TRUST", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", os.fspath(tmp_path))
    assert TrustStore().path == tmp_path / "amplifier-hooks" / "trust.json"
    monkeypatch.setenv("AMPLIFIER_HOOKS_TRUST", "/elsewhere/trust.json")
    assert TrustStore().path == Path("/elsewhere/trust.json")


# -- what a file holds -------------------------------------------------------------------------------------------------


@pytest.mark.rule("DIA-1")
@pytest.mark.parametrize(
    ("condition", "tool", "given", "runs"),
    [
        ("Bash(git push *)", "Bash", {"command": "true; git push origin main"}, True),
        ("Bash(git push *)", "Bash", {"command": "cd x && A=1 git  push"}, True),
        ("Bash(git push *)", "Bash", {"command": "sh -c '/usr/bin/git push -f' | cat"}, True),
        ("Bash(git push *)", "Bash", {"command": "echo $(git push)"}, True),
        ("Bash(git push *)", "Bash", {"command": "$(cat x) y"}, True),
        ("Bash(git push *)", "Bash", {"command": "echo 'git push x'"}, False),
        ("Bash(git push *)", "Bash", {"command": "git pushy"}, False),
        ("Bash(git:*)", "Bash", {"command": "true && git status"}, True),
        ("Bash(git:*)", "Read", {"file_path": "git"}, False),
        ("Write(*.env)", "Write", {"command": "", "file_path": "a.env"}, True),
        ("Write(*.env)", "Write", {"file_path": "a.py"}, False),
        ("Write", "Write", {"file_path": "a.py"}, True),
        ("(broken", "Write", {"file_path": "a.py"}, True),
    ],
)
async def test_a_condition_judges_every_part_of_a_command(
    project: Project, condition: str, tool: str, given: dict[str, Any], runs: bool
) -> None:
    """A hook with `if` runs if one part of a command matches, if a part cannot be read, and if one field matches."""
    deny = {"type": "command", "command": "echo no >&2; exit 2", "if": condition}
    registry = project.trusted(project.settings({"PreToolUse": [{"hooks": [deny]}]}))
    assert (await call(registry, tool_name=tool, tool_input=given)).denied is runs


@pytest.mark.rule("DIA-1")
async def test_a_settings_file_runs_unchanged(project: Project) -> None:
    """A settings file with several events, matchers and options runs as written, its project in the environment."""
    deny = {"type": "command", "command": "echo no rm >&2; exit 2", "if": "Bash(rm *)"}
    lint = {"type": "command", "command": 'echo "{\\"decision\\": \\"block\\", \\"reason\\": \\"$(pwd)\\"}"'}
    where = {"type": "command", "command": 'test "$CLAUDE_PROJECT_DIR" = "$(pwd)" || exit 2', "timeout": 5}
    settings = project.settings(
        {
            "PreToolUse": [{"matcher": "Bash|Write", "hooks": [deny, where]}],
            "PostToolUse": [{"matcher": "", "hooks": [lint]}],
            "UserPromptSubmit": [{"hooks": [{"type": "command", "command": "echo be brief"}]}],
        },
        model="opus",
    )
    assert settings.skipped == []
    registry = project.trusted(settings)
    assert not (await call(registry)).denied
    assert (await call(registry, tool_input={"command": "rm -r x"})).reason == "no rm"
    assert not (await call(registry, tool_name="Read", tool_input={"command": "rm -r x"})).denied
    after = await registry.emit("tool:post", {**CALL, "result": "ok", "duration_ms": 1})
    assert after.context_injection == os.fspath(project.root)
    prompt = await registry.emit("prompt:submit", {"session_id": "s", "prompt": "hi"})
    assert prompt.context_injection == "be brief"


@pytest.mark.rule("DIA-1")
@pytest.mark.parametrize(("options", "denied"), [({}, False), ({"onFailure": "block"}, True)])
async def test_its_failure_policy_is_its_own(options: dict[str, Any], denied: bool, project: Project) -> None:
    """After a crash of a hook the call continues, as in its program, unless its settings block it."""
    settings = project.gate("exit 1", **options)
    assert settings.hooks[0].when_it_fails == ("blocks" if denied else "goes on, and is recorded")
    outcome = await call(project.trusted(settings))
    assert outcome.denied is denied
    assert [answer.status for answer in outcome.answers] == ["error"]


async def test_once_is_once_a_session(project: Project) -> None:
    """A hook with `once` runs once in each session."""
    registry = project.trusted(project.gate("exit 2", once=True))
    assert [(await call(registry)).denied, (await call(registry)).denied] == [True, False]
    assert (await call(registry, session_id="other")).denied


async def test_a_background_hook_decides_nothing(project: Project) -> None:
    """A hook in the background runs, and its answer comes too late to count."""
    registry = project.trusted(project.gate("echo told >> told.txt; exit 2", **{"async": True}))
    assert not (await call(registry)).denied
    assert (project.root / "told.txt").read_text() == "told\n"


async def test_other_events_are_matched_by_their_own_field(project: Project) -> None:
    """A matcher at an event without a tool looks at the field at which its program looks."""
    hook = {"type": "command", "command": "exit 2"}
    registry = project.trusted(project.settings({"PreCompact": [{"matcher": "manual", "hooks": [hook]}]}))
    denied = [
        (await registry.emit("context:pre_compact", {"session_id": "s", "trigger": trigger})).denied
        for trigger in ("manual", "auto")
    ]
    assert denied == [True, False]


def test_what_is_not_run_is_said(project: Project) -> None:
    """Events, types and keys that do not run here, and values without meaning, are each named with the reason."""
    good = {"type": "command", "command": "true"}
    settings = project.settings(
        {
            "TeammateIdle": [{"hooks": [good]}],
            "PreToolUse": [
                {
                    "hooks": [{"type": "prompt", "prompt": "?"}, {**good, "surprise": 1}, {"type": "command"}],
                    "extra": 1,
                },
                {"hooks": [{**good, "timeout": -1}, {**good, "shell": "powershell"}, {**good, "args": "x"}, "x"]},
                {"hooks": [{"type": "http", "url": "http://example.com/"}]},
                {"matcher": "(", "hooks": [good]},
                "nonsense",
            ],
        }
    )
    assert [hook.where for hook in settings.hooks] == ["PreToolUse[0].hooks[1]"]
    assert {skipped.where for skipped in settings.skipped} == {
        "TeammateIdle", "PreToolUse[0].extra", "PreToolUse[0].hooks[0]", "PreToolUse[0].hooks[1].surprise",
        "PreToolUse[0].hooks[2]", "PreToolUse[1].hooks[0]", "PreToolUse[1].hooks[1]", "PreToolUse[1].hooks[2]",
        "PreToolUse[1].hooks[3]", "PreToolUse[2].hooks[0]", "PreToolUse[3].hooks[0]", "PreToolUse[4]",
    }  # fmt: skip
    assert all(skipped.why for skipped in settings.skipped)


@pytest.mark.parametrize("content", ["", "[]", "{", '{"hooks": 1}', '{"hooks": {}, "hooks": {}}', None])
def test_a_file_that_is_none_is_refused(content: str | None, project: Project) -> None:
    """The error names a settings file that is missing, broken, of another shape or with a duplicate key."""
    path = project.root / "settings.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SettingsError, match=r"settings\.json"):
        read_settings(path, CLAUDE_CODE, project=project.root)


@pytest.mark.parametrize(
    ("dialect", "timeout"), [(CLAUDE_CODE, 7.0), (CODEX, 7.0), (GEMINI, 0.007)], ids=lambda value: str(value)[:20]
)
def test_time_is_in_their_units(dialect: Dialect, timeout: float, project: Project) -> None:
    """A timeout has the units of its program."""
    event = "BeforeTool" if dialect is GEMINI else "PreToolUse"
    hook = {"type": "command", "command": "true", "timeout": 7}
    settings = project.settings({event: [{"hooks": [hook]}]}, dialect)
    assert settings.hooks[0].timeout == timeout


@pytest.mark.parametrize(
    ("spec", "dialect", "matching", "others"),
    [
        (None, CLAUDE_CODE, ["Bash", ""], []),
        ("", CLAUDE_CODE, ["Bash"], []),
        ("*", CLAUDE_CODE, ["Bash"], []),
        ("Bash", CLAUDE_CODE, ["Bash"], ["BashOutput", "bash"]),
        ("Write, Edit|Bash", CLAUDE_CODE, ["Write", "Edit", "Bash"], ["MultiEdit"]),
        ("mcp__.*", CLAUDE_CODE, ["mcp__x", "a_mcp__x"], ["mcp_x"]),
        ("^Edit", CLAUDE_CODE, ["Edit", "EditX"], ["MultiEdit"]),
        ("Write", CODEX, ["Write", "apply_patch"], ["Bash"]),
        ("write_file|replace", GEMINI, ["write_file", "replace", "my_write_file"], ["read_file"]),
    ],
)
def test_matchers_are_theirs(spec: Any, dialect: Dialect, matching: list[str], others: list[str]) -> None:
    """Matchers mean what they mean in their program: exact names in lists, expressions found anywhere."""
    matcher = compile_their_matcher(spec, dialect)
    assert [name for name in [*matching, *others] if matcher.matches(name)] == matching


@pytest.mark.parametrize("spec", ["(", 1, "a{1000}{1000}"])
def test_a_matcher_that_is_none_is_refused(spec: Any) -> None:
    """A matcher that is not a text, does not compile or could take for ever is refused."""
    with pytest.raises(InvalidRegistration):
        compile_their_matcher(spec, CLAUDE_CODE)
