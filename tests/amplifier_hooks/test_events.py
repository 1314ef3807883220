import runpy
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from amplifier_hooks import events
from amplifier_hooks.events import (
    ALL_EVENTS,
    CATALOGUE,
    GOES_ON_WHEN_DENIED,
    IDENTITY_FIELDS,
    Event,
    alike,
    canonical,
    find,
    likely,
    payload_model,
    spellings,
    suggestion,
)
from amplifier_hooks.result import ACTIONS
from tests.cases import each

ROOT = Path(__file__).parent.parent.parent
SPELLINGS = [spelling for event in CATALOGUE for spelling in event.spellings]

# EVT-4: the events that have to be there.
AT_LEAST = {
    "session": "start end fork resume",
    "prompt": "submit complete",
    "context": "assembled pre_compact post_compact",
    "llm": "pre post",
    "provider": "request response error retry throttle",
    "decision": "tool_resolution",
    "tool": "pre post error",
    "orchestrator": "complete",
    "agent": "pre post stop",
    "subagent": "start stop",
    "workflow": "pre post",
    "request": "pre post",
    "memory": "pre post",
    "run": "start finish result error timeout",
    "user": "notification",
    "artifact": "read write",
    "policy": "violation",
    "approval": "required granted denied expired",
    "cancel": "requested completed",
    "error": "tool provider orchestrator",
    "hook": "start complete failed blocked timeout",
    "content_block": "delta",
    "thinking": "delta",
}

# `ALL_EVENTS` of amplifier-core 2.0.2, in its order.
UPSTREAM = [
    *("session:start", "session:end", "session:fork", "session:resume", "prompt:submit", "prompt:complete"),
    *("plan:start", "plan:end"),
    *("provider:request", "provider:response", "provider:retry", "provider:error", "provider:throttle"),
    *("provider:tool_sequence_repaired", "provider:resolve", "llm:request", "llm:response"),
    *("content_block:start", "content_block:delta", "content_block:end", "thinking:delta", "thinking:final"),
    *("tool:pre", "tool:post", "tool:error", "context:pre_compact", "context:post_compact", "context:compaction"),
    "context:include",
    *("orchestrator:complete", "execution:start", "execution:end", "user:notification", "artifact:write"),
    "artifact:read",
    *("policy:violation", "approval:required", "approval:granted", "approval:denied", "cancel:requested"),
    "cancel:completed",
    *("module:on_session_ready_failed", "module:load_failed"),
]

# EVT-3 and EVT-7: the names in other vocabularies.
ALIASES = {
    "agent.invoke.pre": "agent:pre",
    "agent.invoke.post": "agent:post",
    "tool.execute.pre": "tool:pre",
    "tool.execute.post": "tool:post",
    "workflow.step.pre": "workflow:pre",
    "workflow.step.post": "workflow:post",
    "request.pre": "request:pre",
    "request.post": "request:post",
    "memory.store.pre": "memory:pre",
    "memory.store.post": "memory:post",
    "llm.call.pre": "llm:pre",
    "llm.call.post": "llm:post",
    "onIntake": "prompt:submit",
    "onContextAssembled": "context:assembled",
    "onModelResponse": "llm:post",
    "onToolResult": "tool:post",
    "onTurnComplete": "prompt:complete",
    "on_run_start": "run:start",
    "on_run_finish": "run:finish",
    "on_result": "run:result",
    "on_tool_call": "tool:pre",
    "on_error": "run:error",
    "on_timeout": "run:timeout",
    "hook_start": "hook:start",
    "hook_complete": "hook:complete",
    "hook_failed": "hook:failed",
    "hook_blocked": "hook:blocked",
    "PreToolUse": "tool:pre",
    "PostToolUse": "tool:post",
    "PostToolUseFailure": "tool:error",
    "UserPromptSubmit": "prompt:submit",
    "SubagentStart": "subagent:start",
    "SubagentStop": "subagent:stop",
    "Stop": "agent:stop",
    "AgentStop": "agent:stop",
    "StopFailure": "error:provider",
    "SessionStart": "session:start",
    "SessionEnd": "session:end",
    "PreCompact": "context:pre_compact",
    "PostCompact": "context:post_compact",
    "Notification": "user:notification",
    "PermissionRequest": "approval:required",
    "PermissionDenied": "approval:denied",
}

GATES = [
    *("prompt:submit", "context:assembled", "context:pre_compact", "llm:pre", "llm:post", "provider:request"),
    "tool:pre",
    *("artifact:read", "artifact:write", "memory:pre", "agent:pre", "agent:stop", "subagent:stop", "workflow:pre"),
    *("request:pre", "run:start"),
    "approval:required",
]


@pytest.mark.rule("EVT-1")
def test_one_row_each() -> None:
    """Every event stands in the catalogue once, as `domain:phase`, with a sentence that says when it fires."""
    assert len(set(ALL_EVENTS)) == len(CATALOGUE) == len(ALL_EVENTS)
    for event in CATALOGUE:
        domain, phase = event.name.split(":")
        assert domain.replace("_", "").islower()
        assert phase.replace("_", "").islower()
        assert event.fires.startswith(("When ", "Before ", "After ", "Last "))
        assert event.fires.endswith(".")


@pytest.mark.rule("EVT-1")
def test_rows_are_values() -> None:
    """A row cannot be changed."""
    with pytest.raises(AttributeError, match="immutable"):
        CATALOGUE[0].gate = True  # type: ignore[misc]


@pytest.mark.rule("EVT-1")
@each("event", CATALOGUE)
def test_columns_agree(event: Event) -> None:
    """A gate can be denied, a modification names what it replaces, and only what can be stopped can be asked about."""
    assert event.answers <= set(ACTIONS)
    assert "continue" in event.answers
    assert event.gate == ("deny" in event.answers)
    assert (event.replaces is not None) == ("modify" in event.answers)
    assert event.gate or "ask_user" not in event.answers


@pytest.mark.rule("EVT-1", "RES-6")
def test_gates() -> None:
    """Exactly these events are gates; a denied stop of an agent makes it go on."""
    assert {event.name for event in CATALOGUE if event.gate} == set(GATES)
    assert {"agent:stop", "subagent:stop"} == GOES_ON_WHEN_DENIED


@pytest.mark.rule("EVT-1")
def test_hooks_about_hooks() -> None:
    """No event about hooks and modules accepts an answer, because that would go in circles."""
    about = [event for event in CATALOGUE if event.name.startswith(("hook:", "module:"))]
    assert {action for event in about for action in event.answers} == {"continue"}


@pytest.mark.rule("EVT-1", "TRU-1", "TRU-3")
@pytest.mark.parametrize(
    "name",
    [
        "context:assembled",
        "onContextAssembled",
        "llm:pre",
        "llm.call.pre",
        "llm:post",
        "llm.call.post",
        "onModelResponse",
    ],
)
def test_privileged(name: str) -> None:
    """The events of the model's messages and answers are privileged under every name, and no other event is."""
    event = find(name)
    assert event is not None
    assert event.privileged
    assert [row.name for row in CATALOGUE if row.privileged] == ["context:assembled", "llm:pre", "llm:post"]


@pytest.mark.rule("EVT-3")
def test_no_name_means_two_things() -> None:
    """No spelling belongs to two events, in whatever vocabulary."""
    assert [spelling for spelling, times in Counter(SPELLINGS).items() if times > 1] == []


@pytest.mark.rule("EVT-3", "EVT-7")
@each(("alias", "name"), ALIASES.items())
def test_aliases(alias: str, name: str) -> None:
    """Each name of another vocabulary means one event of ours."""
    assert canonical(alias) == name
    assert find(alias) is find(name) is not None
    assert alias in spellings(name)
    assert spellings(alias) == spellings(name)


@pytest.mark.rule("EVT-3")
@pytest.mark.parametrize(
    ("written", "name"),
    [
        *(("tool_pre", "tool:pre"), ("tool.pre", "tool:pre"), ("pre_tool_use", "tool:pre"), ("preToolUse", "tool:pre")),
        *(("session_start", "session:start"), ("stop", "agent:stop"), ("content_block.delta", "content_block:delta")),
        *(
            ("context.pre_compact", "context:pre_compact"),
            ("preCompact", "context:pre_compact"),
            ("llm_post", "llm:post"),
        ),
    ],
)
def test_other_ways_to_write_a_name(written: str, name: str) -> None:
    """A canonical name may have `_` or `.` for its colon, and one of Claude Code may be in camel case or with `_`."""
    assert canonical(written) == name
    assert written in spellings(name)


@pytest.mark.rule("EVT-3")
def test_canonical_name() -> None:
    """A canonical name is its own, and the first of the event's spellings."""
    assert [canonical(name) for name in ALL_EVENTS] == list(ALL_EVENTS)
    assert [spellings(name)[0] for name in ALL_EVENTS] == list(ALL_EVENTS)


@pytest.mark.rule("EVT-3", "EVT-5")
@pytest.mark.parametrize("name", ["deploy:pre", "", "*", "tool:*", "PRETOOLUSE"])
def test_unknown_name(name: str) -> None:
    """An unknown name comes back unchanged: it is an event of the host."""
    assert canonical(name) == name
    assert find(name) is None
    assert spellings(name) == (name,)


@pytest.mark.rule("EVT-4")
@pytest.mark.parametrize(("domain", "phases"), AT_LEAST.items())
def test_at_least_these(domain: str, phases: str) -> None:
    """The canonical set is complete."""
    assert {f"{domain}:{phase}" for phase in phases.split()} <= set(ALL_EVENTS)


@pytest.mark.rule("EVT-4")
def test_upstream_names() -> None:
    """The 43 names of the upstream kernel are canonical names here."""
    assert len(set(UPSTREAM)) == 43
    assert set(UPSTREAM) <= set(ALL_EVENTS)


@pytest.mark.rule("EVT-5")
@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("tool:pree", "tool:pre"),  # one letter too many
        ("tol:pre", "tool:pre"),  # one missing
        ("tool:prr", "tool:pre"),  # another one
        ("tool:rpe", "tool:pre"),  # two swapped
        ("ool:pre", "tool:pre"),
        ("too:lpre", "tool:pre"),
        ("toolpre", "tool:pre"),
        ("tool-pre", "tool:pre"),
        ("tool/pre", "tool:pre"),
        ("Tool:Pre", "tool:pre"),
        ("TOOL_PRE", "tool:pre"),
        ("PreToolUSe", "PreToolUse"),
        ("pretooluse", "PreToolUse"),
        ("PreToolsUse", "PreToolUse"),
        ("SubAgentStop", "SubagentStop"),
        ("STOP", "Stop"),
        ("ontoolresult", "onToolResult"),
        ("on_toolcall", "on_tool_call"),
        ("session:strat", "session:start"),
        ("context:precompact", "context:pre_compact"),
        ("llm.call.prе", "llm.call.pre"),  # the last letter is Cyrillic
    ],
)
def test_typo(typed: str, meant: str) -> None:
    """A name one typo away from a known one is recognised."""
    assert likely(typed) == meant


@pytest.mark.rule("EVT-5")
@pytest.mark.parametrize(
    "name",
    [
        *("deploy:pre", "tool:approved", "my_app:tool:pre", "Step", "Shop", "on", "", ":", "*", "build:finished"),
        *("tool:before", "session:started", "UserPromptExpansion", "TaskCompleted", "PreModelSwitch"),
    ],
)
def test_own_names(name: str) -> None:
    """A name further away is an event of the host, and raises no question of a typo."""
    assert likely(name) is None


@pytest.mark.rule("EVT-5")
def test_no_typo() -> None:
    """A known name is no typo."""
    assert [name for name in SPELLINGS if likely(name)] == []


@pytest.mark.rule("EVT-5")
@pytest.mark.parametrize(
    ("typed", "known"),
    [
        *(("LLM:POST", "llm:post"), ("Tool:Pre", "tool:pre"), ("tool-pre", "tool:pre"), ("tool:pre ", "tool:pre")),
        *(("TOOL_PRE", "tool:pre"), ("tool::pre", "tool:pre"), ("toolpre", "tool:pre"), ("pretooluse", "PreToolUse")),
        *(("ｌｌｍ:post", "llm:post"), ("llm:po\u200bst", "llm:post"), ("llm:poſt", "llm:post"), ("LLM:*", "llm:*")),
        *(("Llm.Call.Post", "llm.call.post"), ("Deploy:Pre", "deploy:pre"), ("Deploy:*", "deploy:*")),
    ],
)
def test_names_that_read_alike(typed: str, known: str) -> None:
    """A name that differs from a known one in case, separators or the form of its characters alone is like it."""
    assert alike(typed, also=["deploy:pre"]) == known


@pytest.mark.rule("EVT-5")
@each("name", [*SPELLINGS, "tool:pree", "tol:pre", "tool:before", "deploy:post", "tool:*", "*", ":", ""])
def test_names_that_do_not(name: str) -> None:
    """A known name is like no other, and neither is a name with other letters."""
    assert alike(name, also=["deploy:pre"]) is None


@pytest.mark.rule("EVT-5")
@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        *(("tool:pree", "tool:pre"), ("tool:before", "tool:pre"), ("before_tool_call", "tool:pre")),
        *(
            ("AfterTool", "tool:post"),
            ("session:started", "session:start"),
            ("UserPromptExpansion", "UserPromptSubmit"),
        ),
        *(("deploy:before", None), ("build:finished", None), ("::", None), ("deploy:begun", "deploy:begin")),
    ],
)
def test_what_was_meant(typed: str, meant: str | None) -> None:
    """A suggestion is a typo away, or has mostly the name's words, or looks much like it; else there is none."""
    assert suggestion(typed, also=["deploy:begin"]) == meant


@pytest.mark.rule("EVT-5")
def test_typo_of_declared() -> None:
    """A typo of a declared name is recognised, too."""
    assert likely("deploy:prre", also=["deploy:pre"]) == "deploy:pre"
    assert likely("deploy:pre", also=["deploy:pre"]) is None


LETTERS = st.sampled_from("abcdefghijklmnopqrstuvwxyz")


@st.composite
def misspelt(draw: st.DrawFn) -> str:
    """Return a known name with one edit."""
    name = draw(st.sampled_from([spelling for spelling in SPELLINGS if spelling.casefold() != "stop"]))
    at = draw(st.integers(0, len(name) - 1))
    before, letter, after = name[:at], name[at], name[at + 1 :]
    return draw(
        st.sampled_from([before + after, before + after[:1] + letter + after[1:]])
        | LETTERS.map(lambda other: before + other + after)
        | LETTERS.map(lambda more: before + more + letter + after)
    )


@pytest.mark.rule("EVT-5")
@given(misspelt())
def test_one_edit_is_found(name: str) -> None:
    """Any single edit of a known name yields a known name one edit away."""
    assume(find(name) is None and len(letters(name)) > 3)  # three letters are one edit from too many names
    meant = likely(name)
    assert meant in SPELLINGS
    assert edits(letters(name), letters(meant)) <= 1


@pytest.mark.rule("EVT-5")
@given(st.text("abcdehilmnoprstuPTSU:_.", max_size=20))
@example("tool:post:pre")
def test_two_edits_are_not(name: str) -> None:
    """A suggestion is made exactly for names that are one edit from a known one (or spelt alike, for a short one)."""
    assume(find(name) is None)
    distances = [(edits(letters(name), letters(known)), len(letters(known))) for known in SPELLINGS]
    assert (likely(name) is not None) == any(far == 0 or (far == 1 and length >= 6) for far, length in distances)


def letters(name: str) -> str:
    """Return a name without case and separators."""
    return "".join(letter for letter in name.casefold() if letter not in "_:.- ")


def edits(left: str, right: str) -> int:
    """Return the Damerau-Levenshtein distance the textbook's way, with the whole matrix."""
    rows = [[i + j if 0 in {i, j} else 0 for j in range(len(right) + 1)] for i in range(len(left) + 1)]
    for i, a in enumerate(left, 1):
        for j, b in enumerate(right, 1):
            rows[i][j] = min(rows[i - 1][j] + 1, rows[i][j - 1] + 1, rows[i - 1][j - 1] + (a != b))
            if i > 1 < j and a == right[j - 2] and b == left[i - 2]:
                rows[i][j] = min(rows[i][j], rows[i - 2][j - 2] + 1)
    return rows[-1][-1]


@pytest.mark.rule("EVT-8")
@pytest.mark.parametrize(
    ("name", "replaced"),
    {
        "prompt:submit": "prompt",
        "context:assembled": "messages",
        "llm:pre": "messages",
        "llm:post": "response",
        "tool:pre": "tool_input",
        "tool:post": "result",
        "tool:error": "error",
        "orchestrator:complete": None,
        "prompt:complete": None,  # effects only
    }.items(),
)
def test_replaced_part(name: str, replaced: str | None) -> None:
    """A modification replaces one named part of the payload, or the event has nothing to replace."""
    event = find(name)
    assert event is not None
    assert event.replaces == replaced


@pytest.mark.rule("EVT-8")
@each("event", CATALOGUE)
def test_identity_stays(event: Event) -> None:
    """Identity fields are kept at every event, and no event replaces one."""
    assert {"session_id", "tenant_id", "run_id", "timestamp", "tool_name", "tool_call_id"} <= IDENTITY_FIELDS
    assert event.keeps >= IDENTITY_FIELDS
    assert not event.keeps & {event.replaces, *event.also_replaces}


@pytest.mark.rule("EVT-8")
@each("event", CATALOGUE)
def test_all_fields_have_a_side(event: Event) -> None:
    """Each described field of an event is either replaced or kept; all other fields are custom."""
    described = set(payload_model(event.name).model_fields)
    changed = {event.replaces, *event.also_replaces} - {None}
    assert changed <= described
    assert described - changed == event.keeps - (IDENTITY_FIELDS - described)


@pytest.mark.rule("EVT-9")
def test_constants() -> None:
    """Every event has a constant for its name and for its dotted name, and no constant is left over."""
    constants = {name: value for name, value in vars(events).items() if name.isupper() and isinstance(value, str)}
    dotted = {name.upper().replace(".", "_"): row.name for row in CATALOGUE for name in row.middleware}
    assert constants == dotted | {name.upper().replace(":", "_"): name for name in ALL_EVENTS}
    assert events.AGENT_INVOKE_PRE == events.AGENT_PRE == "agent:pre"


@pytest.mark.rule("EVT-1")
def test_table_is_current() -> None:
    """The table in the specs is the one that the catalogue makes now."""
    page = (ROOT / "specs" / "events.md").read_text(encoding="utf-8")
    with_table = runpy.run_path(str(ROOT / "scripts" / "event_table.py"))["with_table"]
    assert with_table(page) == page, "run: uv run scripts/event_table.py --write"
    assert all(f"\n| `{name}` | " in page for name in ALL_EVENTS)


@pytest.mark.rule("EVT-1")
def test_table_needs_a_place() -> None:
    """A page without markers is refused rather than left without a table."""
    with_table = runpy.run_path(str(ROOT / "scripts" / "event_table.py"))["with_table"]
    with pytest.raises(ValueError, match="no place for the table"):
        with_table("# Events\n")


@pytest.mark.rule("EVT-1")
def test_loads_lightly() -> None:
    """The front door and the catalogue import pydantic only for the model of a payload."""
    program = (
        "import sys, amplifier_hooks.events as events\n"
        "assert 'pydantic' not in sys.modules\n"
        "events.payload_model('tool:pre')\n"
        "assert 'pydantic' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.rule("EVT-1")
def test_is_pure() -> None:
    """The catalogue brings no task, socket, logger or database with it; msgspec alone knows times."""
    # Loaded by its path, because the package around it is not pure.
    program = (
        "import importlib.util, sys\n"
        "before = set(sys.modules)\n"
        f"spec = importlib.util.spec_from_file_location('events', {events.__file__!r})\n"
        "module = importlib.util.module_from_spec(spec)\n"
        "sys.modules['events'] = module\n"
        "spec.loader.exec_module(module)\n"
        "print(*set(sys.modules) - before)\n"
    )
    run = subprocess.run([sys.executable, "-c", program], check=True, timeout=60, capture_output=True, text=True)
    brought = set(run.stdout.split())
    assert "msgspec" in brought
    assert not brought & {"asyncio", "logging", "socket", "structlog", "pydantic", "sqlite3"}
