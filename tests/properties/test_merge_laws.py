"""Laws of merging, for all answers of hooks."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from amplifier_hooks.dispatch.merge import CAUSES, PRECEDENCE, merge, refusal, stricter
from amplifier_hooks.result import Answer, HookResult, Outcome
from tests.strategies import answers, chains, results

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

DATA = {"tool_name": "Write"}
first_looks = answers(rechecks=st.just(value=False))
second_looks = answers(rechecks=st.just(value=True))


def merged(given: Sequence[Answer], **more: Any) -> Outcome:
    """Merge answers, at one event."""
    return merge("tool:pre", DATA, given, **more)


def brought(answer: Answer) -> list[tuple[object, ...]]:
    """Return every text, message and question of one answer, with kind and hook."""
    if not answer.success:
        return []
    said, name = answer.result, answer.hook_name
    items: list[tuple[object, ...]] = [
        ("injection", name, item.content, item.role, item.ephemeral, item.append_to_last_tool_result)
        for item in said.injections
    ]
    if said.user_message:
        items.append(("message", name, said.user_message, said.user_message_level))
    if said.action == "ask_user":
        items.append(("ask", name, said.approval_prompt or "Allow this operation?", said.approval_timeout))
    if said.risk is not None:
        items.append(("risk", name, said.risk, said.risk_reason or ""))
    return items


def carried(outcome: Outcome) -> list[tuple[object, ...]]:
    """Return every text, message and question of an outcome, with kind and hook."""
    return [
        *(
            ("injection", i.hook_name, i.content, i.role, i.ephemeral, i.append_to_last_tool_result)
            for i in outcome.injections
        ),
        *(("message", m.hook_name, m.text, m.level) for m in outcome.messages),
        *(("ask", a.hook_name, a.prompt, a.timeout) for a in outcome.asks),
        *(("risk", a.by, a.risk, a.reason) for a in outcome.assessments),
    ]


def strength(answer: Answer) -> int:
    """Return the rank of an answer in the precedence; an answer with text injects, whatever its action."""
    amount = stricter(answer.action, "inject_context") if answer.success and answer.result.injections else answer.action
    return PRECEDENCE.index(amount)


def strictest(answers: Iterable[Answer]) -> str:
    """Return the strictest of the answers that count, without merge."""
    counted = (a for a in answers if not a.recheck or a.action in ("deny", "ask_user"))
    return PRECEDENCE[min(map(strength, counted), default=len(PRECEDENCE) - 1)]


@pytest.mark.rule("RES-5")
@given(chains())
def test_strictest_is_reported(given: tuple[tuple[str, ...], list[Answer]]) -> None:
    """The action is the strictest of the answers that count."""
    ran, said = given
    assert merged(said, ran=ran).action == strictest(said)


@pytest.mark.rule("RES-5")
@given(st.lists(answers(), max_size=6).flatmap(lambda said: st.tuples(st.just(said), st.permutations(said))))
def test_order_does_not_change_the_action(lists: tuple[list[Answer], list[Answer]]) -> None:
    """The order of answers does not change the action."""
    said, shuffled = lists
    assert merged(said).action == merged(shuffled).action


@pytest.mark.rule("RES-5")
@given(st.lists(answers(), max_size=5), answers(), st.integers(0, 5))
def test_one_more_answer_is_never_milder(said: list[Answer], more: Answer, place: int) -> None:
    """An answer added anywhere leaves the action or makes it stricter."""
    before, after = merged(said).action, merged([*said[:place], more, *said[place:]]).action
    assert PRECEDENCE.index(after) <= PRECEDENCE.index(before)


@pytest.mark.rule("RES-5")
@given(st.lists(answers(), max_size=5), answers().filter(lambda a: a.action == "deny"), st.integers(0, 5))
def test_deny_absorbs(said: list[Answer], denial: Answer, place: int) -> None:
    """One denial among the answers denies, from a hook by name and never from a person."""
    outcome = merged([*said[:place], denial, *said[place:]])
    assert outcome.denied
    assert outcome.denied_by in {a.hook_name for a in [*said, denial] if a.action == "deny"}
    assert outcome.cause in set(CAUSES.values())


@pytest.mark.rule("RES-5")
@given(st.lists(answers(), max_size=4), st.lists(answers(), max_size=4))
def test_parts_and_whole_agree(one: list[Answer], other: list[Answer]) -> None:
    """Two lists merged apart come to the same action as merged together, and bring the same."""
    whole, parts = merged([*one, *other]), [merged(one), merged(other)]
    assert whole.action == stricter(parts[0].action, parts[1].action)
    assert set(carried(whole)) == set(chain.from_iterable(map(carried, parts)))


@pytest.mark.rule("RES-4", "RES-5", "RES-7")
@given(st.lists(first_looks, max_size=6))
def test_nothing_is_lost(said: list[Answer]) -> None:
    """Every text, message, question and risk arrives as often as it was given, in order and under its hook's name."""
    outcome = merged(said)
    assert Counter(carried(outcome)) == Counter(chain.from_iterable(map(brought, said)))
    assert [i.content for i in outcome.injections] == [i.content for a in said for i in a.effective_result.injections]
    assert {i.event for i in outcome.injections} <= {"tool:pre"}
    assert list(outcome.answers) == said


@pytest.mark.rule("RES-4", "DSP-2")
@given(st.lists(first_looks, max_size=4), st.lists(second_looks, max_size=4))
def test_second_look_adds_what_is_new(first: list[Answer], second: list[Answer]) -> None:
    """A second look that objects brings what is new, and one that does not object brings its risk alone."""
    objections = [a for a in second if a.action in ("deny", "ask_user")]
    risks = [item for a in second for item in brought(a) if item[0] == "risk"]
    before, after = carried(merged(first)), carried(merged([*first, *second]))
    assert set(after) == {*before, *risks, *chain.from_iterable(map(brought, objections))}
    assert Counter(before) <= Counter(after)
    echo = [replace(a, recheck=True) for a in first]
    assert carried(merged([*first, *echo])) == before


@pytest.mark.rule("RES-4", "RES-8")
@given(chains())
def test_every_hook_has_a_record(given: tuple[tuple[str, ...], list[Answer]]) -> None:
    """Each hook that was reached has one record, in the order they ran, then come the second looks."""
    ran, said = given
    outcome = merged(said, ran=ran)
    records = outcome.hook_results
    assert tuple(r.hook_name for r in records if not r.recheck) == ran
    assert records[len(ran) :] == tuple(a for a in said if a.recheck)
    assert outcome.hook_count == len(ran)
    spoke = {a.hook_name for a in said if not a.recheck}
    assert all(r in said or (r.hook_name not in spoke and r == Answer(hook_name=r.hook_name)) for r in records)
    assert outcome.all_succeeded == all(r.success for r in records)


@pytest.mark.rule("RES-4")
@given(st.lists(answers(), max_size=6))
def test_no_record_is_lost_without_names(said: list[Answer]) -> None:
    """Answers alone, even several under one name, all come back as records."""
    records = merged(said).hook_results
    assert Counter(map(id, said)) <= Counter(map(id, records))
    assert merged(said).ran == tuple(dict.fromkeys(a.hook_name for a in said))


@pytest.mark.rule("RES-4")
@given(results())
def test_one_answer_reads_as_itself(result: HookResult) -> None:
    """The outcome of a single answer reads, field by field, like that answer."""
    outcome = merged([Answer(hook_name="lint", result=result)])
    assert outcome.action == stricter(result.action, "inject_context" if result.injections else "continue")
    assert outcome.reason == result.reason
    assert outcome.suppress_output == result.suppress_output
    assert [replace(i, hook_name="lint", event="tool:pre") for i in result.injections] == list(outcome.injections)
    if result.user_message:
        assert outcome.user_message == result.user_message
        assert outcome.user_message_level == result.user_message_level
        assert outcome.user_message_source == (result.user_message_source or "lint")
    if result.action == "ask_user":
        assert outcome.approval_prompt == (result.approval_prompt or "Allow this operation?")
        assert outcome.approval_options == (result.approval_options or ("Allow", "Deny"))
        assert outcome.approval_timeout == result.approval_timeout
        assert outcome.approval_default == result.approval_default
        assert outcome.approval_scope == (result.approval_scope if result.approval_prompt else "action")
        assert outcome.approval_key == result.approval_key
    assert (outcome.risk, outcome.risk_reason) == (result.risk, result.risk_reason or None)


@pytest.mark.rule("RES-4")
@given(chains())
def test_refusal_keeps_everything(given: tuple[tuple[str, ...], list[Answer]]) -> None:
    """An outcome the registry refuses differs in the decision alone."""
    ran, said = given
    outcome = merged(said, ran=ran, modified=True, duration_ms=7.0)
    refused = refusal(outcome, "no_policy", "registry", "no gate looks at this")
    assert (refused.action, refused.reason, refused.denied_by, refused.cause) == (
        *("deny", "no gate looks at this", "registry", "no_policy"),
    )
    decision = {"action": outcome.action, "reason": outcome.reason}
    assert replace(refused, **decision, denied_by=outcome.denied_by, cause=outcome.cause) == outcome
    assert refused.data is outcome.data
