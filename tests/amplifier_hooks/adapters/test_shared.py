"""Injected texts among an SDK's own messages."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import define
from hypothesis import given
from hypothesis import strategies as st

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.adapters.shared import Texts
from amplifier_hooks.injection.budget import InjectionLimits


@define(eq=False)
class Parts:
    """A message of an SDK, which hooks can change in place."""

    parts: list[str]


def made(_role: str, text: str) -> str:
    """Return a message of an SDK with plain texts."""
    return text.rpartition("\n")[2]


@pytest.mark.rule("DIA-3")
@given(steps=st.lists(st.integers(min_value=0, max_value=2), min_size=1, max_size=8))
async def test_a_text_stays_where_it_came(steps: list[int]) -> None:
    """However many texts come between two calls, the SDK's messages keep their order, and so do the texts."""
    async with SessionCoordinator(budget=InjectionLimits(per_turn=None)) as session:
        texts: Texts[str] = Texts(session, made)
        own: list[str] = []
        before: list[str] = []
        for call, count in enumerate(steps):
            own.append(f"message {call}")
            for number in range(count):
                await session.process_hook_result(HookResult.inject(f"text {call}-{number}"), "tool:post", "lint")
            whole = await texts.merge_into(own)
            assert [one for one in whole if one.startswith("message")] == own
            assert [one for one in whole if one in before] == before
            assert sum(one.startswith("text") for one in whole) == sum(steps[: call + 1])
            before = whole


@pytest.mark.rule("DIA-3")
async def test_what_the_sdk_kept_is_not_there_twice() -> None:
    """If the SDK keeps its input, a text is not added again."""
    async with SessionCoordinator() as session:
        texts: Texts[str] = Texts(session, made)
        await session.process_hook_result(HookResult.inject("be careful"), "tool:post", "lint")
        first = await texts.merge_into(["hello"], skip_present=True)
        assert first == ["hello", "be careful"]
        assert await texts.merge_into([*first, "more"], skip_present=True) == ["hello", "be careful", "more"]
        assert await texts.merge_into(["hello", "more"], skip_present=True) == ["hello", "be careful", "more"]


@pytest.mark.rule("DIA-3")
@pytest.mark.parametrize(
    ("left", "whole"),
    [
        (["ask", "call", "result", "done"], ["ask", "call", "result", "lint", "done"]),
        (["summary", "result", "done", "more"], ["summary", "result", "lint", "done", "more"]),
        (["summary", "call 2", "result 2", "more"], ["lint", "summary", "call 2", "result 2", "more"]),
        (["ask", "call", "result, masked", "done"], ["ask", "call", "result, masked", "lint", "done"]),
        (["ask", "call 2", "result 2", "more"], ["lint", "ask", "call 2", "result 2", "more"]),
        ([], ["lint"]),
    ],
    ids=["kept", "shortened", "gone", "changed", "middle gone", "empty"],
)
@pytest.mark.rule("DIA-10")
async def test_a_text_parts_no_call_from_its_result(left: list[str], whole: list[str]) -> None:
    """If the SDK has made another list of its messages, a text stays behind its message, or goes first."""
    async with SessionCoordinator() as session:
        texts: Texts[str] = Texts(session, made)
        await session.process_hook_result(HookResult.inject("lint"), "tool:post", "lint")
        assert await texts.merge_into(["ask", "call", "result"]) == ["ask", "call", "result", "lint"]
        assert await texts.merge_into(left) == whole
        assert await texts.merge_into(["ask", "call", "result", "done"]) == ["ask", "call", "result", "lint", "done"]


@pytest.mark.rule("DIA-7", "DSP-7")
async def test_hooks_hold_copies_of_what_the_sdk_goes_on_with() -> None:
    """A change of messages and answers in place reaches neither model nor SDK; a result does."""
    registry = HookRegistry()

    def spoil(event: str, data: Any) -> None:
        for one in [*data.get("messages", ()), data.get("response")]:
            if one is not None:
                one.parts[:] = ["spoilt"]

    async def layer(context: Any, call_next: Any) -> None:
        spoil("", {"messages": context.messages})
        await call_next()

    registry.on("*", spoil, name="spoil")
    undo = registry.around("model", layer, name="layer")
    own, answer, read = [Parts(["ask"])], Parts(["answer"]), list[Any]()

    async def model(messages: list[Any]) -> Parts:
        read.append([list(one.parts) for one in messages])
        return answer

    async with SessionCoordinator(registry) as session:
        texts: Texts[Any] = Texts(session, lambda _role, text: Parts([text]))

        async def call() -> Any:
            return await texts.call_model(model, own, await texts.merge_into(own), model="", tool_calls=lambda _: ())

        assert await call() is answer
        assert (read, own[0].parts, answer.parts) == ([[["ask"]]], ["ask"], ["answer"])
        undo()
        registry.unregister("spoil")
        registry.on("llm:post", lambda event, data: HookResult.modify({"response": Parts(["other"])}), name="other")
        registry.on("llm:pre", lambda event, data: HookResult.modify({"messages": [Parts(["new"])]}), name="new")
        assert (await call()).parts == ["other"]
        assert read[1] == [["new"]]
