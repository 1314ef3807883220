from __future__ import annotations

from itertools import combinations_with_replacement, count, product
from typing import Any, get_args

import pytest

from amplifier_hooks.dispatch.merge import CAUSES, PRECEDENCE, merge, refusal, stricter
from amplifier_hooks.result import (
    ACTIONS,
    CONTINUE,
    Action,
    Answer,
    Ask,
    Cause,
    ContextInjection,
    HookResult,
    Outcome,
    Status,
    UserMessage,
)

DATA = {"tool_name": "Write"}
SAID = {
    "continue": HookResult(reason="continue it"),
    "deny": HookResult.deny("deny it"),
    "modify": HookResult.modify({"a": 1}, reason="modify it"),
    "inject_context": HookResult.inject("text", reason="inject it"),
    "ask_user": HookResult.ask("really?", reason="ask it"),
}
FAILURES = [status for status in get_args(Status) if status != "ok"]


def merged(*answers: Answer, **more: Any) -> Outcome:
    """Put answers together, at one event."""
    return merge("tool:pre", DATA, answers, **more)


def answer(action: str, name: str = "lint", **more: Any) -> Answer:
    """One of the five kinds of answer."""
    return Answer(hook_name=name, result=SAID[action], **more)


# -- precedence --------------------------------------------------------------------------------------------------------


@pytest.mark.rule("RES-5")
def test_the_table() -> None:
    """From the strictest to the mildest there are these five, which are all actions there are."""
    assert PRECEDENCE == ("deny", "ask_user", "inject_context", "modify", "continue")
    assert set(PRECEDENCE) == set(ACTIONS)


@pytest.mark.rule("RES-5")
@pytest.mark.parametrize(("strict", "mild"), list(combinations_with_replacement(PRECEDENCE, 2)))
def test_every_pair(strict: Action, mild: Action) -> None:
    """Of two answers the stricter is reported, in either order, and with its own reason."""
    assert stricter(strict, mild) == stricter(mild, strict) == strict
    for pair in ((strict, mild), (mild, strict)):
        outcome = merged(*(answer(action, f"hook {number}") for number, action in enumerate(pair)))
        assert outcome.action == strict
        assert outcome.reason == SAID[strict].reason


@pytest.mark.rule("RES-5")
def test_nobody_answers() -> None:
    """Without answers nothing stands against it."""
    outcome = merged()
    assert outcome == Outcome("tool:pre", DATA)
    assert not outcome.denied


@pytest.mark.rule("RES-5", "RES-7")
@pytest.mark.parametrize(("action", "text"), list(product(ACTIONS, ["", "text"])))
def test_text_injects_with_any_action(action: str, text: str) -> None:
    """An answer with text is an injection at least, and one that is more stays what it is."""
    said: Any = {"action": action, "data": {}, "context_injections": [ContextInjection(content="more")] if text else []}
    if action == "inject_context":
        said["context_injection"] = "single"
    outcome = merged(Answer(hook_name="lint", result=HookResult(**said)))
    injects = action == "inject_context" or text
    assert outcome.action == (stricter(said["action"], "inject_context") if injects else action)
    assert [item.content for item in outcome.injections] == ["single"] * (action == "inject_context") + ["more"] * bool(
        text
    )


# -- denials -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("RES-4", "RES-5")
def test_the_first_denial_is_reported() -> None:
    """Of two denials the first is named with its reason, even if only the second gave one."""
    silent = Answer(hook_name="first", result=HookResult.deny())
    outcome = merged(answer("ask_user"), silent, answer("deny", "second"))
    assert (outcome.denied_by, outcome.reason, outcome.cause) == ("first", None, "denied_by_hook")
    outcome = merged(answer("deny", "second"), silent)
    assert (outcome.denied_by, outcome.reason) == ("second", "deny it")


@pytest.mark.rule("RES-4")
@pytest.mark.parametrize("action", [action for action in ACTIONS if action != "deny"])
def test_nobody_denied(action: str) -> None:
    """Without a denial the outcome has no `denied_by` and no cause."""
    outcome = merged(answer(action))
    assert (outcome.denied_by, outcome.cause, outcome.denied) == (None, None, False)


@pytest.mark.rule("RES-5", "DSP-3", "DSP-4")
@pytest.mark.parametrize("status", FAILURES)
@pytest.mark.parametrize("recheck", [False, True])
def test_a_failed_gate_denies(status: Status, recheck: bool) -> None:
    """A gate that failed denies, at its first and at its second look, and what went wrong is the reason."""
    failed = Answer(hook_name="gate", status=status, error="it broke", denies=True, recheck=recheck)
    outcome = merged(answer("ask_user"), failed)
    assert (outcome.action, outcome.denied_by, outcome.reason) == ("deny", "gate", "it broke")
    assert outcome.cause == CAUSES[status]


@pytest.mark.rule("DSP-3")
@pytest.mark.parametrize("status", FAILURES)
@pytest.mark.parametrize("recheck", [False, True])
def test_a_failed_watcher_says_nothing(status: Status, recheck: bool) -> None:
    """A hook that failed and does not gate changes nothing, and nothing of a half answer counts."""
    said = HookResult.ask("really?", context_injection="text", user_message="hi", suppress_output=True, reason="so")
    failed = Answer(hook_name="on", status=status, error="it broke", result=said, recheck=recheck)
    outcome = merged(failed)
    assert outcome == Outcome("tool:pre", DATA, answers=(failed,), ran=("on",))
    assert not outcome.suppress_output
    assert outcome.failures == (failed,)


@pytest.mark.rule("DSP-4")
def test_causes() -> None:
    """Each way to fail has its own cause, and none is a person's."""
    assert CAUSES == {
        "ok": "denied_by_hook",
        "error": "hook_error",
        "timeout": "hook_timeout",
        "invalid": "hook_invalid_output",
        "unavailable": "hook_unavailable",
        "disabled": "hook_unavailable",
        "conflict": "conflict",
    }
    assert set(CAUSES) == set(get_args(Status))
    others = {
        *("no_policy", "emergency_stop", "session_cancelled", "audit_unavailable"),
        *("denied_by_rule", "denied_by_person", "approval_expired", "approval_unavailable"),
        "approval_mismatch",
    }
    assert set(get_args(Cause)) == set(CAUSES.values()) | others
    assert others.isdisjoint(CAUSES.values())


@pytest.mark.rule("RES-4")
def test_refusal() -> None:
    """A refusal by the registry denies in its name, and the answers of the hooks stay on record."""
    outcome = merged(answer("inject_context"), ran=("lint", "scope"), modified=True, duration_ms=2.0)
    refused = refusal(outcome, "emergency_stop", "registry", "stop it")
    assert refused == Outcome(
        "tool:pre",
        DATA,
        action="deny",
        reason="stop it",
        denied_by="registry",
        cause="emergency_stop",
        modified=True,
        injections=outcome.injections,
        answers=outcome.answers,
        ran=("lint", "scope"),
        total_duration_ms=2.0,
    )
    assert refused.aborted


# -- what is carried ---------------------------------------------------------------------------------------------------


@pytest.mark.rule("RES-4")
def test_texts_are_attributed_by_us() -> None:
    """Hook and event of a text are those it came from, whatever the hook wrote there, and the rest is as it was."""
    forged = ContextInjection(content="a", role="user", ephemeral=True, hook_name="system", event="session:start")
    result = HookResult(context_injection="b", append_to_last_tool_result=True, context_injections=[forged, forged])
    b = ContextInjection(content="b", append_to_last_tool_result=True, hook_name="lint", event="tool:pre")
    a = ContextInjection(content="a", role="user", ephemeral=True, hook_name="lint", event="tool:pre")
    assert merged(Answer(hook_name="lint", result=result)).injections == (b, a, a)


@pytest.mark.rule("RES-4")
def test_messages() -> None:
    """Every message is kept with its level and its source, which is the hook's name unless it gave one."""
    outcome = merged(
        Answer(hook_name="lint", result=HookResult.deny("no", user_message="one", user_message_level="error")),
        Answer(hook_name="scope", result=HookResult.proceed(user_message="two", user_message_source="Scope")),
        Answer(hook_name="quiet", result=HookResult.proceed(user_message="")),
    )
    assert outcome.messages == (
        UserMessage(text="one", level="error", hook_name="lint", source="hook:lint"),
        UserMessage(text="two", level="info", hook_name="scope", source="hook:Scope"),
    )


@pytest.mark.rule("RES-4")
@pytest.mark.parametrize(
    ("result", "ask"),
    [
        (
            HookResult.ask(),
            Ask(
                hook_name="lint",
                prompt="Allow this operation?",
                options=("Allow", "Deny"),
                timeout=300.0,
                default="deny",
                scope="action",
                key=None,
            ),
        ),
        (
            HookResult.ask("", scope="prompt"),
            Ask(
                hook_name="lint",
                prompt="Allow this operation?",
                options=("Allow", "Deny"),
                timeout=300.0,
                default="deny",
                scope="action",
                key=None,
            ),
        ),
        (
            HookResult.ask("sure?", options=["Go", "Stop"], timeout=5, default="allow", approval_key="k"),
            Ask(
                hook_name="lint",
                prompt="sure?",
                options=("Go", "Stop"),
                timeout=5,
                default="allow",
                scope="prompt",
                key="k",
            ),
        ),
        (
            HookResult.ask("sure?", scope="action"),
            Ask(
                hook_name="lint",
                prompt="sure?",
                options=("Allow", "Deny"),
                timeout=300.0,
                default="deny",
                scope="action",
                key=None,
            ),
        ),
    ],
    ids=count(),
)
def test_asks(result: HookResult, ask: Ask) -> None:
    """A question is kept complete, and one without words is about the exact action."""
    assert merged(Answer(hook_name="lint", result=result)).asks == (ask,)


@pytest.mark.rule("RES-4")
def test_only_who_asks_has_a_question() -> None:
    """The words of a question in any other answer reach no approver."""
    assert merged(Answer(hook_name="lint", result=HookResult(approval_prompt="sure?"))).asks == ()


# -- second looks ------------------------------------------------------------------------------------------------------


@pytest.mark.rule("DSP-2")
@pytest.mark.parametrize("action", ACTIONS)
def test_second_looks(action: str) -> None:
    """Of a second look a denial and a question count, with what they bring, and nothing else does."""
    said: Any = {"action": action, "data": {}, "context_injection": "text", "user_message": "hi"}
    again = Answer(hook_name="lint", result=HookResult(**said), recheck=True)
    outcome = merged(again)
    counts = action in ("deny", "ask_user")
    assert outcome.action == (action if counts else "continue")
    assert (len(outcome.injections), len(outcome.messages)) == (counts, counts)
    assert len(outcome.asks) == (action == "ask_user")
    assert outcome.answers == (again,)


@pytest.mark.rule("DSP-2", "RES-4")
def test_second_look_says_the_same_once_more() -> None:
    """Items that a second look repeats are kept once; equal words of two hooks are kept twice."""
    said = HookResult.ask("sure?", context_injection="text", user_message="hi")
    first, other = Answer(hook_name="lint", result=said), Answer(hook_name="scope", result=said)
    again = Answer(hook_name="lint", result=said, recheck=True)
    outcome = merged(first, other, again)
    assert [ask.hook_name for ask in outcome.asks] == ["lint", "scope"]
    assert [item.hook_name for item in outcome.injections] == ["lint", "scope"]
    assert [message.hook_name for message in outcome.messages] == ["lint", "scope"]
    assert outcome.answers == (first, other, again)


@pytest.mark.rule("DSP-2")
def test_the_stricter_look_stands() -> None:
    """A question of the first look stands when the second has none, and a denial of the second ends it."""
    nothing = Answer(hook_name="lint", result=CONTINUE, recheck=True)
    assert merged(answer("ask_user"), nothing).action == "ask_user"
    outcome = merged(answer("ask_user"), answer("deny", recheck=True))
    assert (outcome.action, outcome.reason, len(outcome.asks)) == ("deny", "deny it", 1)


# -- the rest ----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("RES-4", "RES-8")
def test_what_is_handed_through() -> None:
    """Event, data, names, duration and the modified flag are as they were given."""
    outcome = merged(answer("modify"), ran=("lint", "scope"), modified=True, duration_ms=1.5)
    assert outcome.event == "tool:pre"
    assert outcome.data is DATA
    assert outcome.ran == ("lint", "scope")
    assert outcome.modified
    assert outcome.total_duration_ms == 1.5
    plain = merged(answer("modify", "b"), answer("modify", "a"), answer("modify", "b"))
    assert (plain.ran, plain.modified, plain.total_duration_ms) == (("b", "a"), False, 0.0)
