"""After any steps, the history of a context is valid for the providers, by their own types and by their rules."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from amplifier_hooks.errors import HookUsageError
from amplifier_hooks.injection.memory_context import InMemoryContext, to_anthropic, to_openai

if TYPE_CHECKING:
    from collections.abc import Callable

HOOK: Final = {"source": "hook"}


@cache
def openai_messages() -> TypeAdapter[Any]:
    """Return OpenAI's own type of a list of messages, which takes a second to import."""
    from openai.types.chat import ChatCompletionMessageParam

    return TypeAdapter(list[ChatCompletionMessageParam])


@cache
def anthropic_request() -> TypeAdapter[Any]:
    """Return Anthropic's own type of a request, which takes a second to import."""
    from anthropic.types.message_create_params import MessageCreateParamsNonStreaming

    return TypeAdapter(MessageCreateParamsNonStreaming)


Operation = tuple[str, tuple[Any, ...]]

# Every text is there once, so that one that is lost or doubled is seen.
words: Final = st.text("ab \n\t⟦⟧\u200b\ud800é", max_size=4)
roles: Final = st.sampled_from(["system", "user", "assistant"])
ids: Final = st.sampled_from(["c1", "c2", "c3", "call_0", "call_1", "a.b", "x" * 41, "\ud800", " "])
names: Final = st.sampled_from(["Bash", "mcp.server/tool", "\ud800", "n" * 200, "x" * 64])
values: Final = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("a\ud800é", max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("k\ud800", max_size=2), inner, max_size=2),
    max_leaves=4,
)
calls: Final = st.lists(
    st.fixed_dictionaries(
        {
            "id": ids,
            "name": names,
            "input": st.dictionaries(st.text("k\ud800", max_size=2), values, max_size=2),
        }
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda call: str(call["id"]),
)
operations: Final[st.SearchStrategy[Operation]] = st.one_of(
    st.tuples(st.just("say"), st.tuples(roles, words)),
    st.tuples(st.just("inject"), st.tuples(roles, words)),
    st.tuples(st.just("append"), st.tuples(words)),
    st.tuples(st.just("next"), st.tuples(roles, words)),
    st.tuples(st.just("calls"), st.tuples(calls, words)),
    st.tuples(st.just("result"), st.tuples(ids, words, st.booleans())),
    st.tuples(st.just("result of an open call"), st.tuples(st.integers(0, 2), words, st.booleans())),
)


class Story:
    """A context to which things happen, with what should be in its exports."""

    def __init__(self) -> None:
        self.context = InMemoryContext()
        self.kept: list[str] = []
        self.next: list[str] = []

    def happen(self, operation: Operation) -> None:
        """Do one step, unless the context refuses it."""
        what, given_to_it = operation
        with suppress(HookUsageError):  # refused, so nothing has happened
            self.steps[what](self, *given_to_it)

    def text(self, word: str, into: list[str] | None = None) -> str:
        """Return a text with a unique mark in it, or a blank text."""
        if not word.strip():
            return word
        name = f"#{len(self.kept) + len(self.next)}#"
        (self.kept if into is None else into).append(name)
        return word + name

    def say(self, role: Any, word: str) -> None:
        """Add a message of the host."""
        self.context.add_message(role, self.text(word))

    def inject(self, role: Any, word: str) -> None:
        """Add a message of a hook."""
        self.context.add_message(role, self.text(word), HOOK)

    def append(self, word: str) -> None:
        """Add a hook's text to the last tool result, or else as a message."""
        text = self.text(word)
        if not self.context.append_to_last_tool_result(text, HOOK):
            self.context.add_message("user", text, HOOK)

    def wait(self, role: Any, word: str) -> None:
        """Add a hook's text for the next call only."""
        if len(self.context._ephemeral) < 64:
            self.context.add_ephemeral(role, self.text(word, self.next), HOOK)

    def calls(self, calls: Any, word: str) -> None:
        """Add a model's answer that calls tools."""
        self.context.add_tool_calls(calls, self.text(word))

    def result(self, call: str, word: str, failed: bool) -> None:
        """Add a tool's answer, under the id of an open call or under any other."""
        if call in self.context.open_calls or call in self.context._missing:
            self.context.add_tool_result(call, self.text(word), failed)
        else:
            self.context.add_tool_result(call, word, failed)

    def open_result(self, number: int, word: str, failed: bool) -> None:
        """Add the answer of a tool that was called."""
        if opened := sorted(self.context.open_calls):
            self.result(opened[number % len(opened)], word, failed)

    steps: Final[dict[str, Callable[..., None]]] = {
        "say": say,
        "inject": inject,
        "append": append,
        "next": wait,
        "calls": calls,
        "result": result,
        "result of an open call": open_result,
    }


def read(value: Any) -> Any:
    """Return a value as its type read it; lists of a type are checked only while they are read."""
    if isinstance(value, dict):
        return {name: read(part) for name, part in value.items()}
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        return value
    return [read(part) for part in value]


def check_openai(messages: list[Any]) -> None:
    """Check the types, and the further rules of the API."""
    assert read(openai_messages().validate_python(messages)) == messages
    json.dumps(messages, ensure_ascii=False).encode()
    waited: list[str] = []
    seen: set[str] = set()
    for message in messages:
        assert message.get("content", "x").strip(), "blank"
        if message["role"] == "tool":
            assert message["tool_call_id"] in waited, "a result that is not behind its call"
            waited.remove(message["tool_call_id"])
            continue
        assert not waited, "a call without its result"
        for call in message.get("tool_calls", ()):
            assert re.fullmatch(r"[A-Za-z0-9_-]{1,40}", call["id"])
            assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", call["function"]["name"])
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
            assert call["id"] not in seen, "an id that is there twice"
            seen.add(call["id"])
            waited.append(call["id"])
        assert message.get("tool_calls") != []
    assert not waited, "a call without its result"


def check_anthropic(arguments: dict[str, Any]) -> None:
    """Check the types, and the further rules of the API."""
    request = {"model": "claude", "max_tokens": 1, **arguments}
    assert read(anthropic_request().validate_python(request)) == request
    json.dumps(arguments, ensure_ascii=False).encode()
    assert arguments.keys() <= {"messages", "system"}
    assert arguments.get("system", "x").strip(), "blank"
    messages = arguments["messages"]
    if not messages:
        assert "system" not in arguments, "no message"
        return
    assert [message["role"] for message in messages[::2]] == ["user"] * len(messages[::2])
    assert [message["role"] for message in messages[1::2]] == ["assistant"] * len(messages[1::2])
    assert len(messages) % 2, "ends with the assistant"
    seen: set[str] = set()
    waited: list[str] = []
    for message in messages:
        assert message["content"], "empty"
        results = [block["tool_use_id"] for block in message["content"] if block["type"] == "tool_result"]
        assert sorted(results) == sorted(waited), "calls and results that do not match"
        kinds = [block["type"] for block in message["content"]]
        assert "tool_result" not in kinds[len(results) :], "results that are not first"
        waited = []
        for block in message["content"]:
            assert block.get("text", "x").strip(), "blank"
            assert block.get("content", "x").strip(), "blank"
            if block["type"] == "tool_use":
                assert message["role"] == "assistant"
                assert re.fullmatch(r"[A-Za-z0-9_-]{1,40}", block["id"])
                assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", block["name"])
                assert block["id"] not in seen, "an id that is there twice"
                seen.add(block["id"])
                waited.append(block["id"])
    assert not waited


def check(story: Story) -> None:
    """Check both exports, with and without texts for the next call only."""
    for ephemeral in (False, True):
        for_openai = story.context.to_openai(ephemeral=ephemeral)
        for_anthropic = story.context.to_anthropic(ephemeral=ephemeral)
        check_openai(for_openai)
        check_anthropic(for_anthropic)
        for exported in (repr(for_openai), repr(for_anthropic)):
            assert [exported.count(name) for name in story.kept] == [1] * len(story.kept)
            assert [exported.count(name) for name in story.next] == [int(ephemeral)] * len(story.next)


ONE: Final = {"id": "c1", "name": "Bash", "input": {}}
TWO: Final = {"id": "c2", "name": "Bash", "input": {}}


@pytest.mark.rule("INJ-1", "INJ-7", "COO-8")
@given(st.lists(operations, max_size=12))
@example([("calls", ([ONE], "")), ("inject", ("system", "a")), ("result", ("c1", "", True))])
@example([("calls", ([ONE, TWO], "a")), ("append", ("a",)), ("result", ("c2", "b", False)), ("say", ("user", "a"))])
@example([("calls", ([ONE], "")), ("say", ("user", "a")), ("result", ("c1", "late", False))])
@example([("calls", ([ONE], "")), ("result", ("c1", "a", False)), ("calls", ([ONE], ""))])
@example([("calls", ([ONE, TWO], "")), ("say", ("system", "")), ("append", ("a",)), ("result", ("c2", "", False))])
@example([("calls", ([ONE, TWO], "")), ("say", ("system", "")), ("append", ("a",)), ("result", ("c2", "b", False))])
@example([("next", ("assistant", "a"))])
def test_always_valid(happened: list[Operation]) -> None:
    """At every moment both exports are valid, hold every text once, and what is ephemeral only when asked."""
    story = Story()
    for operation in happened:
        story.happen(operation)
        check(story)


@pytest.mark.rule("INJ-1")
@given(st.lists(operations, max_size=12))
def test_at_any_time(happened: list[Operation]) -> None:
    """The messages themselves are in order too: results directly behind their calls, nothing of a hook between."""
    story = Story()
    for operation in happened:
        story.happen(operation)
        waited: set[str] = set()
        for message in story.context.messages:
            if message["role"] == "tool":
                assert message["tool_call_id"] in waited
                waited.remove(message["tool_call_id"])
            else:
                assert not waited
            waited |= {call["id"] for call in message.get("tool_calls", ())}
        assert waited == story.context.open_calls


foreign: Final = st.one_of(
    st.fixed_dictionaries({"role": roles, "content": words}),
    st.fixed_dictionaries({"role": roles, "content": words, "metadata": st.just(HOOK)}),
    st.fixed_dictionaries(
        {
            "role": st.just("assistant"),
            "content": words,
            "tool_calls": st.lists(calls, max_size=2).map(lambda some: [call for part in some for call in part]),
        }
    ),
    st.fixed_dictionaries({"role": st.just("tool"), "content": words, "tool_call_id": ids, "is_error": st.booleans()}),
)


@pytest.mark.rule("INJ-1")
@given(st.lists(foreign, max_size=10))
def test_any_history(history: list[Any]) -> None:
    """A history that the host has put together or cut apart is exported validly too."""
    check_openai(to_openai(history))
    check_anthropic(to_anthropic(history))
