from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from amplifier_hooks.dispatch.merge import merge
from amplifier_hooks.result import Answer, HookResult, Outcome
from tests.strategies import chains

DATA = {"tool_name": "Write"}


def outcome(*results: HookResult) -> Outcome:
    """Merge the answers of the hooks a, b, and c."""
    answers = [Answer(hook_name=name, result=result) for name, result in zip("abc", results, strict=False)]
    return merge("tool:pre", DATA, answers)


@pytest.mark.rule("RES-4")
def test_reads_like_a_result() -> None:
    """Every field of a result can be read; without answers it has its default, but for the data."""
    silent = Outcome("tool:pre", DATA)
    fields = set(HookResult.__struct_fields__)
    assert {name: getattr(silent, name) for name in fields} == {
        **{name: getattr(HookResult(), name) for name in fields},
        "data": DATA,
    }


@pytest.mark.rule("RES-4")
def test_frozen() -> None:
    """No field of an outcome, an answer, a question or a message can be assigned."""
    whole = outcome(HookResult.ask("sure?", user_message="hi", context_injection="text"))
    for record in (whole, *whole.answers, *whole.asks, *whole.messages, *whole.injections):
        for name in record.__struct_fields__:
            with pytest.raises(AttributeError):
                setattr(record, name, None)


@pytest.mark.rule("RES-4")
def test_texts_together() -> None:
    """The injections read as one text, with a blank line between them and the first one's role."""
    whole = outcome(HookResult.inject("one", role="user"), HookResult.deny("no"), HookResult.inject("two"))
    assert whole.context_injection == "one\n\ntwo"
    assert whole.context_injection_role == "user"
    assert whole.context_injections == whole.injections


@pytest.mark.rule("RES-4")
@pytest.mark.parametrize("flag", ["ephemeral", "append_to_last_tool_result"])
@pytest.mark.parametrize(
    ("flags", "together"), [((True,), True), ((False,), False), ((True, True), True), ((True, False), False)]
)
def test_flags_hold_for_all_texts(flag: str, flags: tuple[bool, ...], together: bool) -> None:
    """A flag is reported for all text together only if each text has it."""
    said: list[dict[str, Any]] = [{flag: value} for value in flags]
    assert getattr(outcome(*(HookResult.inject("text", **fields) for fields in said)), flag) is together


@pytest.mark.rule("RES-4")
def test_questions_together() -> None:
    """Several questions read as one: all prompts, common options, shortest time, stricter default and scope."""
    whole = outcome(
        HookResult.ask(
            "one?", options=["Allow always", "Allow", "Deny"], timeout=60, default="allow", approval_key="k"
        ),
        HookResult.ask("two?", options=["Deny", "Allow"], timeout=5, scope="action", approval_key="k"),
        HookResult.ask("three?", default="allow", approval_key="k"),
    )
    assert whole.approval_prompt == "one?\ntwo?\nthree?"
    assert whole.approval_options == ("Allow", "Deny")
    assert whole.approval_timeout == 5
    assert whole.approval_default == "deny"
    assert whole.approval_scope == "action"
    assert whole.approval_key == "k"


@pytest.mark.rule("RES-4")
def test_questions_that_agree() -> None:
    """A default of allow and the wider scope hold if all questions have them; keys that differ are no key."""
    whole = outcome(
        HookResult.ask("one?", default="allow", approval_key="k"), HookResult.ask("two?", default="allow", timeout=900)
    )
    assert whole.approval_default == "allow"
    assert whole.approval_scope == "prompt"
    assert whole.approval_key is None
    assert whole.approval_timeout == 300


@pytest.mark.rule("RES-4")
def test_messages_together() -> None:
    """The messages read as lines, with the first one's source and the most serious level."""
    whole = outcome(
        HookResult.proceed(user_message="one", user_message_source="Lint"),
        HookResult.deny(user_message="two", user_message_level="error"),
        HookResult.proceed(user_message="three", user_message_level="warning"),
    )
    assert whole.user_message == "one\ntwo\nthree"
    assert whole.user_message_source == "Lint"
    assert whole.user_message_level == "error"
    mild = outcome(
        HookResult.proceed(user_message="a", user_message_level="warning"), HookResult.proceed(user_message="b")
    )
    assert mild.user_message_level == "warning"
    assert mild.user_message_source == "a"


@pytest.mark.rule("RES-4")
def test_output_is_suppressed_for_all() -> None:
    """One hook that hides its output is enough."""
    assert outcome(HookResult.deny(), HookResult.modify({}, suppress_output=True)).suppress_output
    assert not outcome(HookResult.deny()).suppress_output


# -- chains ------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("RES-8")
def test_reads_like_a_chain() -> None:
    """An outcome has chains' names for event, records, abortion, reason, duration, success and count."""
    said = Answer(hook_name="b", result=HookResult.deny("no", data={"a": 1}), duration_ms=2.0)
    whole = merge("tool:pre", DATA, [said], ran=("a", "b"), duration_ms=3.0)
    assert whole.event_type == "tool:pre"
    assert (whole.aborted, whole.abort_reason) == (True, "no")
    assert whole.total_duration_ms == 3.0
    assert whole.all_succeeded
    assert whole.hook_count == 2
    records: Any = [(r.hook_name, r.success, r.data, r.error, r.duration_ms) for r in whole.hook_results]
    assert records == [("a", True, None, None, None), ("b", True, {"a": 1}, None, 2.0)]


@pytest.mark.rule("RES-8")
def test_not_aborted() -> None:
    """An outcome that is not denied has no reason for an abortion, also if a reason was given."""
    whole = outcome(HookResult.modify({}, reason="tidied"))
    assert (whole.aborted, whole.abort_reason, whole.reason) == (False, None, "tidied")


@pytest.mark.rule("RES-8")
def test_nobody_spoke() -> None:
    """Hooks that stayed silent have a record each."""
    whole = Outcome("tool:pre", DATA, ran=("a", "b"))
    assert whole.hook_results == (Answer(hook_name="a"), Answer(hook_name="b"))
    assert whole.hook_count == 2
    assert whole.all_succeeded


@pytest.mark.rule("RES-8", "DSP-2")
def test_second_looks_come_last() -> None:
    """The records of second looks stand behind all others, which have the order of the hooks."""
    late, early = Answer(hook_name="c", status="error", error="it broke"), Answer(hook_name="a")
    again = Answer(hook_name="a", result=HookResult.deny("no"), recheck=True)
    stranger = Answer(hook_name="z")
    whole = merge("tool:pre", DATA, [again, stranger, late, early], ran=("a", "b", "c"))
    assert whole.hook_results == (early, Answer(hook_name="b"), late, stranger, again)
    assert not whole.all_succeeded
    assert whole.failures == (late,)


@pytest.mark.rule("RES-8")
@given(chains())
def test_nothing_after_a_denial(given: tuple[tuple[str, ...], list[Answer]]) -> None:
    """If the first round was denied, its last record is the denial."""
    ran, said = given
    whole = merge("tool:pre", DATA, said, ran=ran)
    first = [record for record in whole.hook_results if not record.recheck]
    if whole.denied and not any(answer.recheck for answer in said):
        assert first[-1].action == "deny"
        assert first[-1].hook_name == whole.denied_by


@pytest.mark.rule("RES-4", "DSP-4")
def test_a_failure_is_not_an_answer() -> None:
    """A failure's record has its error and no data, and denies only if the hook gates."""
    failed = Answer(hook_name="a", status="timeout", error="too slow", result=HookResult.modify({"a": 1}))
    assert (failed.success, failed.error, failed.data, failed.action) == (False, "too slow", None, "continue")
    gate = Answer(hook_name="a", status="timeout", error="too slow", denies=True)
    assert (gate.success, gate.action) == (False, "deny")
    said = Answer(hook_name="a", result=HookResult.modify({"a": 1}))
    assert (said.success, said.data, said.action) == (True, {"a": 1}, "modify")
