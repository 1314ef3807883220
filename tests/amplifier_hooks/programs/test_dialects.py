"""Questions to hooks of other programs, and the meaning of their answers."""

import json
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from typed_agent_hooks import claude_code as their_claude
from typed_agent_hooks import codex as their_codex
from typed_agent_hooks.claude_code import outputs as claude_outputs
from typed_agent_hooks.codex import outputs as codex_outputs

from amplifier_hooks import HookRegistry, events
from amplifier_hooks.cli.programs.programs_commands import ProgramName, dialect_of
from amplifier_hooks.definitions.kinds.command import CommandHook
from amplifier_hooks.definitions.kinds.event_codec import ProgramExit
from amplifier_hooks.errors import HookFailed, HookUnavailable, InvalidPayload, InvalidResult
from amplifier_hooks.programs.dialects import ABSENT, CLAUDE_CODE, CODEX, DIALECTS, GEMINI, Dialect, Spelling, Verdict
from amplifier_hooks.programs.import_settings import DialectCodec
from amplifier_hooks.result import HookResult

EVERY = [
    pytest.param(dialect, row, id=f"{dialect.name}-{row.theirs}")
    for dialect in DIALECTS.values()
    for row in dialect.spellings
]

PAYLOAD: dict[str, Any] = {
    "session_id": "s", "timestamp": "2026-01-02T03:04:05Z", "transcript_path": "/tmp/t.jsonl", "cwd": "/repo",
    "turn_id": "t", "model": "m", "source": "startup", "reason": "other", "prompt": "hi", "tool_name": "Bash",
    "tool_call_id": "toolu", "tool_input": {"command": "ls"}, "result": {"stdout": "ok"}, "duration_ms": 17,
    "message": "look", "notification_type": "permission_prompt", "response": "done", "agent_id": "a",
    "agent_type": "Explore", "trigger": "manual", "error": {"type": "ValueError", "message": "boom"},
}  # fmt: skip

THEIR_INPUTS: dict[str, Any] = {
    "claude_code": their_claude.events.parse_input,
    "codex": their_codex.events.parse_input,
}
THEIR_OUTPUTS: dict[str, Any] = {
    "claude_code": claude_outputs._OUTPUT_TYPE_BY_EVENT,
    "codex": codex_outputs._OUTPUT_TYPE_BY_EVENT,
}


def codec(dialect: Dialect) -> DialectCodec:
    """Return a codec for the dialect."""
    return DialectCodec(dialect=dialect, cwd="/repo")


def answered(dialect: Dialect, event: str, answer: Any, data: dict[str, Any] | None = None) -> HookResult:
    """Return the result of an answer with exit status 0."""
    output = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    return codec(dialect).answer(event, PAYLOAD if data is None else data, ProgramExit(code=0, output=output))


def ended(dialect: Dialect, code: int, errors: bytes = b"", event: str = "tool:pre") -> HookResult:
    """Return the result of another exit status."""
    return codec(dialect).answer(event, PAYLOAD, ProgramExit(code=code, errors=errors))


# -- questions ---------------------------------------------------------------------------------------------------------


@pytest.mark.rule("DIA-1")
@pytest.mark.parametrize(("dialect", "spelling"), EVERY)
def test_a_question_is_one_of_theirs(dialect: Dialect, spelling: Spelling) -> None:
    """A question fits other people's model of the program, also if the payload here is bare."""
    for payload in (PAYLOAD, {"session_id": "s", "tool_name": "Bash"}):
        question = codec(dialect).question(spelling.ours, payload)
        said = json.loads(question)
        assert (said["hook_event_name"], said["session_id"], said["cwd"]) == (spelling.theirs, "s", "/repo")
        if spelling.theirs in THEIR_OUTPUTS.get(dialect.name, ()):
            needs = {"turn_id", "model", "transcript_path"} if dialect is CODEX and payload is not PAYLOAD else set()
            THEIR_INPUTS[dialect.name]({**dict.fromkeys(needs, ""), **said})


@pytest.mark.rule("DIA-1")
@pytest.mark.parametrize(("dialect", "spelling"), EVERY)
def test_a_question_is_understood_again(dialect: Dialect, spelling: Spelling) -> None:
    """A question that is read back is the event and the fields from which it was made."""
    found, payload = dialect.understand(json.loads(codec(dialect).question(spelling.ours, PAYLOAD)))
    assert found is spelling
    kept = {field.name for field in spelling.fields if field.name in PAYLOAD} - {"error", "result"}
    assert {name: payload[name] for name in kept} == {name: PAYLOAD[name] for name in kept}
    if "error" in payload:
        assert payload["error"]["message"] in ("boom", "unknown")  # one of them has a list of words for it


def test_fields_we_have_no_name_for_keep_theirs() -> None:
    """A question with an unknown field or event keeps it under its own name."""
    spelling, payload = CLAUDE_CODE.understand({"hook_event_name": "TeammateIdle", "session_id": "s", "team_name": "x"})
    assert (spelling.ours, payload["team_name"]) == ("claude_code:teammate_idle", "x")
    with pytest.raises(InvalidPayload):
        CLAUDE_CODE.understand({"session_id": "s"})


@pytest.mark.parametrize("dialect", DIALECTS.values())
def test_an_event_they_do_not_have_is_unavailable(dialect: Dialect) -> None:
    """A hook at an event that its program does not have cannot be asked."""
    with pytest.raises(HookUnavailable):
        codec(dialect).question("llm:pre", PAYLOAD)


# -- answers -----------------------------------------------------------------------------------------------------------


def own(name: str, **fields: Any) -> dict[str, Any]:
    """Return an answer with the event's own part."""
    return {"hookSpecificOutput": {"hookEventName": name, **fields}}


@pytest.mark.rule("DIA-1")
@pytest.mark.parametrize(
    ("event", "answer", "expected"),
    [
        ("tool:pre", own("PreToolUse", permissionDecision="allow"), HookResult()),
        ("tool:pre", own("PreToolUse", permissionDecision="deny", permissionDecisionReason="no"),
         HookResult.deny("no")),
        ("tool:pre", own("PreToolUse", permissionDecision="ask", permissionDecisionReason="?"),
         HookResult.ask("?")),
        ("tool:pre", own("PreToolUse", permissionDecision="defer"), HookResult.ask()),
        (
            "tool:pre",
            own("PreToolUse", permissionDecision="allow", updatedInput={"command": "ls -l"}),
            HookResult.modify({"tool_input": {"command": "ls -l"}}),
        ),
        (
            "tool:pre",
            own("PreToolUse", permissionDecision="ask", updatedInput={"command": "x"}),
            HookResult.ask(data={"tool_input": {"command": "x"}}),
        ),
        ("tool:pre", own("PreToolUse", additionalContext="mind"), HookResult.inject("mind")),
        ("tool:pre", {"decision": "block", "reason": "no"}, HookResult.deny("no")),
        ("tool:pre", {"decision": "approve"}, HookResult()),
        ("tool:pre", {"continue": False, "stopReason": "enough"}, HookResult.deny("enough")),
        ("tool:pre", {"systemMessage": "hey", "suppressOutput": True},
         HookResult(user_message="hey", suppress_output=True)),
        ("tool:post", {"decision": "block", "reason": "lint"},
         HookResult.inject("lint", append_to_last_tool_result=True)),
        ("tool:post", own("PostToolUse", updatedToolOutput="clean"), HookResult.modify({"result": "clean"})),
        ("tool:post", own("PostToolUse", additionalContext="note"),
         HookResult.inject("note", append_to_last_tool_result=True)),
        ("prompt:submit", {"decision": "block", "reason": "secret"}, HookResult.deny("secret")),
        ("prompt:submit", b"plain text is context", HookResult.inject("plain text is context")),
        ("tool:pre", b"plain text is not", HookResult()),
        ("agent:stop", {"decision": "block", "reason": "tests fail"}, HookResult.deny("tests fail")),
        ("approval:required", own("PermissionRequest", decision={"behavior": "allow"}), HookResult()),
        ("approval:required", own("PermissionRequest", decision={"behavior": "deny", "message": "no"}),
         HookResult.deny("no")),
        ("session:start", {"decision": "block", "reason": "x"}, HookResult()),
        ("tool:pre", {}, HookResult()),
        ("tool:pre", {"surprise": 1}, HookResult()),
    ],
)  # fmt: skip
def test_claude_code_answers(event: str, answer: Any, expected: HookResult) -> None:
    """Each answer that Claude Code knows has its meaning here; a permit is no objection, and no more."""
    assert answered(CLAUDE_CODE, event, answer) == expected


def test_unknown_keys_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    """An unknown key changes nothing and is reported."""
    answered(CLAUDE_CODE, "tool:pre", {"surprise": 1, **own("PreToolUse", extra=2)})
    assert "hook_answer_has_unknown_keys" in caplog.text


@pytest.mark.rule("DIA-1")
@pytest.mark.parametrize(
    "answer",
    [
        own("PreToolUse", permissionDecision="ask"),
        own("PreToolUse", permissionDecision="allow"),
        own("PreToolUse", permissionDecision="deny"),
        own("PreToolUse", updatedInput={}),
        own("PreToolUse", surprise=1),
        {"surprise": 1},
        {"continue": False},
        {"suppressOutput": True},
    ],
)
def test_what_codex_rejects_is_void(answer: Any) -> None:
    """An answer that Codex rejects as a whole is invalid here, whatever its other parts are."""
    with pytest.raises(InvalidResult):
        answered(CODEX, "tool:pre", {"systemMessage": "x", **answer})


@pytest.mark.rule("DIA-1")
@pytest.mark.parametrize(
    ("event", "answer", "expected"),
    [
        ("tool:pre", {"decision": "deny", "reason": "no"}, HookResult.deny("no")),
        ("tool:pre", {"decision": "block"}, HookResult.deny()),
        ("tool:pre", {"decision": "ask", "reason": "?"}, HookResult.ask("?")),
        ("tool:pre", {"decision": "approve"}, HookResult()),
        ("tool:pre", own("BeforeTool", tool_input={"dir": "/"}),
         HookResult.modify({"tool_input": {"command": "ls", "dir": "/"}})),
        ("tool:post", own("AfterTool", additionalContext="note"),
         HookResult.inject("note", append_to_last_tool_result=True)),
        ("prompt:submit", {"decision": "deny", "reason": "x"}, HookResult.deny("x")),
    ],
)  # fmt: skip
def test_gemini_answers(event: str, answer: Any, expected: HookResult) -> None:
    """Gemini decides at the top of its answer, and merges changed inputs."""
    assert answered(GEMINI, event, answer) == expected


@pytest.mark.parametrize("dialect", DIALECTS.values())
@pytest.mark.parametrize(
    "answer",
    [
        {"decision": "perhaps"},
        {"decision": 1},
        {"continue": "no"},
        {"systemMessage": ["x"]},
        {"hookSpecificOutput": "x"},
        {"hookSpecificOutput": {"hookEventName": "Other"}},
        b'{"decision": "approve", "decision": "block"}',
        b'{"decision": ',
    ],
)
def test_nonsense_is_invalid(dialect: Dialect, answer: Any) -> None:
    """An answer with an unknown word, a value of the wrong type or broken JSON is invalid in every dialect."""
    with pytest.raises(InvalidResult):
        answered(dialect, "tool:pre", answer)


@pytest.mark.rule("DIA-1")
@pytest.mark.parametrize("dialect", DIALECTS.values())
@pytest.mark.parametrize("event", ["tool:pre", "prompt:submit"])
@pytest.mark.parametrize(
    "answer",
    [
        "\ufeff{}".format('{"decision": "block"}').encode(),
        '{"decision": "block"}'.encode("utf-16"),
        b'loading\n{"hookSpecificOutput": {"permissionDecision": "deny"}}',
        b'\x1b[0m{"continue": false}',
    ],
)
def test_a_decision_behind_something_else_is_invalid(dialect: Dialect, event: str, answer: bytes) -> None:
    """A decision after stray bytes or lines fails its hook by the program's policy; other text keeps its meaning."""
    if dialect.failures == "closed":
        assert answered(dialect, event, answer).action == "deny"
    else:
        with pytest.raises(InvalidResult, match="no other text"):
            answered(dialect, event, answer)
    assert answered(dialect, event, b'see {"continue": true} there').action in ("continue", "inject_context")


# -- endings -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("DIA-1")
def test_endings_mean_what_they_mean_there() -> None:
    """Each program's exit statuses keep their meaning: a block, a warning, or a failure."""
    assert ended(CLAUDE_CODE, 2, b"why").reason == "why"
    assert ended(CLAUDE_CODE, 2).action == "deny"
    assert ended(CODEX, 2, b"why").action == "deny"
    assert ended(GEMINI, 2).action == "deny"
    assert ended(GEMINI, 1, b"careful") == HookResult(user_message="careful", user_message_level="warning")
    assert ended(GEMINI, 1) == HookResult()
    assert ended(GEMINI, 7).action == "deny"
    for dialect, code in ((CLAUDE_CODE, 1), (CLAUDE_CODE, -9), (CODEX, 1), (CODEX, 2)):
        with pytest.raises(HookFailed):
            ended(dialect, code)
    assert ended(CLAUDE_CODE, 2, b"lint", "tool:post").context_injection == "lint"


@pytest.mark.parametrize(("dialect", "goes_on"), [(CLAUDE_CODE, True), (CODEX, True), (GEMINI, False)])
async def test_a_failed_hook_keeps_its_programs_policy(dialect: Dialect, goes_on: bool) -> None:
    """After a crash of a hook the call continues where the program continues, and the failure is on record."""
    registry = HookRegistry()
    hook = CommandHook(argv=("/bin/sh", "-c", "exit 3"), codec=codec(dialect))
    registry.on("tool:pre", name="imported")(hook)
    outcome = await registry.emit("tool:pre", PAYLOAD)
    assert (outcome.action == "continue") is goes_on
    assert bool(outcome.failures) is goes_on


# -- answering them ----------------------------------------------------------------------------------------------------

VERDICTS = st.builds(
    Verdict,
    decision=st.sampled_from(["none", "allow", "deny", "ask", "defer"]),
    reason=st.sampled_from(["", "because"]),
    stop=st.booleans(),
    update=st.one_of(st.just(ABSENT), st.just({"command": "ls -l"})),
    context=st.sampled_from(["", "context"]),
    message=st.sampled_from(["", "message"]),
    quiet=st.booleans(),
)
STRICTNESS = {"none": 1, "allow": 0, "defer": 2, "ask": 2, "deny": 3}


@pytest.mark.rule("DIA-4")
@pytest.mark.parametrize(("dialect", "spelling"), EVERY)
@given(verdict=VERDICTS)
def test_what_they_are_told_is_never_more_lenient(dialect: Dialect, spelling: Spelling, verdict: Verdict) -> None:
    """The answer about a call is valid in the program's dialect, and at least as strict as the decision."""
    said = json.loads(json.dumps(dialect.write(spelling, verdict)))
    model = THEIR_OUTPUTS.get(dialect.name, {}).get(spelling.theirs)
    if model is not None:
        model.model_validate(said)
    read = dialect.read(spelling, said)
    assert not read.unknown
    if spelling.ours == events.TOOL_PRE:
        assert STRICTNESS[read.decision] >= STRICTNESS[verdict.decision]
        assert read.decision in ("deny", "defer") or read.update == verdict.update
    assert read.message == verdict.message
    assert read.context == (verdict.context if spelling.takes_context else "")


@pytest.mark.rule("DIA-4")
@pytest.mark.parametrize("dialect", DIALECTS.values())
def test_an_unapproved_change_is_not_let_through(dialect: Dialect) -> None:
    """A changed input without an approval is never written as a permit."""
    spelling = dialect.spelling("tool:pre")
    assert spelling is not None
    answer = dialect.write(spelling, Verdict(update={"command": "rm"}))
    assert dialect.read(spelling, answer).decision in ("ask", "deny")


@pytest.mark.parametrize(("dialect", "spelling"), EVERY)
def test_nothing_to_say_is_nothing_said(dialect: Dialect, spelling: Spelling) -> None:
    """An answer without content is empty."""
    assert dialect.write(spelling, Verdict()) == {}


@pytest.mark.rule("DIA-5")
def test_every_settings_file_of_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of a program are those of the machine, of the user, and of the project, each once."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    machine, project = tmp_path / "etc", tmp_path / "project"
    (machine / "more.d").mkdir(parents=True)
    for name in ("more.d/b.json", "more.d/a.json", "one.json"):
        (machine / name).write_text("{}")
    patterns = (str(machine / "one.json"), str(machine / "more.d" / "*.json"), str(machine / "none.json"))
    program = evolve(CLAUDE_CODE, machine={sys.platform: patterns, "other": ("/etc/passwd",)})
    assert program.settings_files(project) == [
        machine / "one.json",
        machine / "more.d" / "a.json",
        machine / "more.d" / "b.json",
        tmp_path / ".claude" / "settings.json",
        project / ".claude" / "settings.json",
        project / ".claude" / "settings.local.json",
    ]
    assert CODEX.in_home() == tmp_path / ".codex" / "hooks.json"
    assert GEMINI.settings_files(tmp_path)[-1:] == [tmp_path / ".gemini" / "settings.json"]
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "elsewhere"))
    assert CODEX.in_home() == tmp_path / "elsewhere" / "hooks.json"
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "elsewhere"))
    assert CLAUDE_CODE.in_home() == tmp_path / "elsewhere" / "settings.json"


@pytest.mark.rule("DIA-1")
def test_the_command_knows_every_program() -> None:
    """The command has a name for each row of the table of programs."""
    assert [name.replace("-", "_") for name in get_args(ProgramName)] == list(DIALECTS)
    assert all(dialect_of(name) is DIALECTS[name.replace("-", "_")] for name in get_args(ProgramName))
