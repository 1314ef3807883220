"""The messages of a session, kept in memory."""

from __future__ import annotations

from typing import Any, Final

import pytest

from amplifier_hooks.errors import HookUsageError, InputNotFreezable
from amplifier_hooks.injection.memory_context import InMemoryContext
from amplifier_hooks.ports import ContextManager
from amplifier_hooks.testing import RecordingContext

HOOK: Final = {"source": "hook", "hook": "lint"}


def call(one: str = "c1", name: str = "Bash", **given: Any) -> dict[str, Any]:
    """A tool call as a model makes it."""
    return {"id": one, "name": name, "input": given}


def story(context: InMemoryContext) -> list[tuple[str, str]]:
    """Return the role and content of each message."""
    return [(message["role"], message["content"]) for message in context.messages]


@pytest.mark.rule("COO-8")
def test_what_a_context_needs() -> None:
    """Two methods make a context, plain or async."""
    assert isinstance(InMemoryContext(), ContextManager)
    assert isinstance(RecordingContext(), ContextManager)


@pytest.mark.rule("COO-8")
def test_messages() -> None:
    """Messages are kept in order, each with its metadata and an id of its own; what is given out is a copy."""
    context = InMemoryContext()
    context.add_message("user", "hello")
    about = {"source": "host"}
    context.add_message("assistant", "hi", about)
    about["source"] = "hook"
    context.get_messages().clear()
    assert context.get_messages() == [
        {"id": "m1", "role": "user", "content": "hello", "metadata": {}},
        {"id": "m2", "role": "assistant", "content": "hi", "metadata": {"source": "host"}},
    ]


def test_tool_calls() -> None:
    """The model's text and calls are one message, and each result is another."""
    context = InMemoryContext()
    given = call(command="make")
    context.add_tool_calls([given, call("c2")], "Let me see", {"model": "m"})
    given["input"]["command"] = "rm"
    assert context.open_calls == {"c1", "c2"}
    context.add_tool_result("c2", "fine")
    context.add_tool_result("c1", "error", is_error=True, metadata={"ms": 3})
    assert context.open_calls == frozenset()
    assert context.messages == [
        {
            "id": "m1",
            "role": "assistant",
            "content": "Let me see",
            "metadata": {"model": "m"},
            "tool_calls": [call(command="make"), call("c2")],
        },
        {"id": "m2", "role": "tool", "content": "fine", "metadata": {}, "tool_call_id": "c2", "is_error": False},
        {"id": "m3", "role": "tool", "content": "error", "metadata": {"ms": 3}, "tool_call_id": "c1", "is_error": True},
    ]


@pytest.mark.rule("INJ-1")
def test_held_while_calls_are_open() -> None:
    """Texts that hooks inject while tool calls are open follow the last of their results, in order."""
    context = InMemoryContext()
    context.add_tool_calls([call(), call("c2")])
    context.add_message("system", "one", HOOK)
    context.add_tool_result("c1", "first")
    context.add_message("user", "two", HOOK)
    assert story(context) == [("assistant", ""), ("tool", "first")]
    context.add_tool_result("c2", "second")
    assert story(context)[2:] == [("tool", "second"), ("system", "one"), ("user", "two")]
    assert context.messages[-1]["metadata"] == HOOK


@pytest.mark.rule("INJ-1")
@pytest.mark.parametrize("way", ["a message", "more calls"])
def test_going_on_without_results(way: str) -> None:
    """A host that goes on has given up the missing results: they say so, and what was held comes behind them."""
    context = InMemoryContext()
    context.add_tool_calls([call(), call("c2")])
    context.add_message("system", "one", HOOK)
    context.add_tool_result("c2", "second")
    if way == "a message":
        context.add_message("user", "stop that")
    else:
        context.add_tool_calls([call("c3")], "stop that")
    assert [content for _, content in story(context)] == ["", "second", "⟦no result⟧", "one", "stop that"]
    assert context.messages[2] == {
        "id": "m3",
        "role": "tool",
        "content": "⟦no result⟧",
        "metadata": {"source": "session"},
        "tool_call_id": "c1",
        "is_error": True,
    }
    assert context.open_calls == ({"c3"} if way == "more calls" else frozenset())


def test_a_result_that_comes_late() -> None:
    """A result that comes after all replaces its substitute, once."""
    context = InMemoryContext()
    context.add_tool_calls([call()])
    context.add_message("user", "never mind")
    before = context.get_messages()
    context.add_tool_result("c1", "here I am", metadata={"ms": 900})
    assert story(context) == [("assistant", ""), ("tool", "here I am"), ("user", "never mind")]
    assert (context.messages[1]["id"], context.messages[1]["is_error"]) == ("m2", False)
    assert context.messages[1]["metadata"] == {"ms": 900}
    assert before[1]["content"] == "⟦no result⟧"
    with pytest.raises(HookUsageError, match="no tool call 'c1' waits"):
        context.add_tool_result("c1", "again")


def test_a_late_result_of_what_is_gone() -> None:
    """A late result of a call that was summarised away is not wanted any more."""
    context = InMemoryContext()
    context.add_tool_calls([call()])
    context.add_message("user", "never mind")
    context.compact(1, "it was quiet")
    context.add_tool_result("c1", "here I am")
    assert story(context) == [("user", "it was quiet"), ("user", "never mind")]


def test_ids_used_again() -> None:
    """An id may be used again once its call has ended; a late result then belongs to the new call."""
    context = InMemoryContext()
    context.add_tool_calls([call()])
    context.add_tool_calls([call()])
    context.add_tool_result("c1", "done")
    assert [content for _, content in story(context)] == ["", "⟦no result⟧", "", "done"]
    context.add_tool_calls([call()])
    assert context.open_calls == {"c1"}


@pytest.mark.rule("INJ-7")
def test_at_the_last_tool_result() -> None:
    """A text joins the last tool result, with its provenance, while the model has not answered to it."""
    context = InMemoryContext()
    assert context.append_to_last_tool_result("too early", HOOK) is False
    context.add_tool_calls([call(), call("c2")])
    context.add_tool_result("c1", "first")
    context.add_tool_result("c2", "")
    before = context.get_messages()
    assert context.append_to_last_tool_result("E501", HOOK) is True
    assert context.append_to_last_tool_result("E502") is True
    assert story(context)[1:] == [("tool", "first"), ("tool", "E501\n\nE502")]
    assert context.messages[2]["metadata"] == {"injections": [HOOK, {}]}
    assert (before[2]["content"], before[2]["metadata"]) == ("", {})
    context.add_message("user", "and now?")
    assert context.append_to_last_tool_result("E503") is True
    context.add_message("assistant", "all done")
    assert context.append_to_last_tool_result("too late") is False
    assert story(context)[2:] == [("tool", "E501\n\nE502\n\nE503"), ("user", "and now?"), ("assistant", "all done")]


@pytest.mark.rule("INJ-7", "INJ-1")
def test_at_the_last_result_of_open_calls() -> None:
    """While calls are open the text waits, and joins the last of their results."""
    context = InMemoryContext()
    context.add_tool_calls([call("c0")])
    context.add_tool_result("c0", "old")
    context.add_tool_calls([call(), call("c2")])
    context.add_message("system", "behind", HOOK)
    assert context.append_to_last_tool_result("E501", HOOK) is True
    context.add_tool_result("c1", "first")
    context.add_tool_result("c2", "second")
    assert story(context)[1:] == [
        ("tool", "old"),
        ("assistant", ""),
        ("tool", "first"),
        ("tool", "second\n\nE501"),
        ("system", "behind"),
    ]


@pytest.mark.rule("INJ-7")
def test_ephemeral() -> None:
    """Messages for the next call only are in an export that asks for them, and can be taken once."""
    context = InMemoryContext()
    context.add_message("user", "hello")
    assert context.add_ephemeral("user", "be brief", HOOK) is True
    assert len(context.to_openai()) == 1
    assert context.to_openai(ephemeral=True)[-1] == {"role": "user", "content": "be brief"}
    blocks = context.to_anthropic(ephemeral=True)["messages"][0]["content"]
    assert [block["text"] for block in blocks] == ["hello", "be brief"]
    assert len(context.to_anthropic()["messages"][0]["content"]) == 1
    assert context.take_ephemeral() == [{"role": "user", "content": "be brief", "metadata": HOOK}]
    assert context.take_ephemeral() == []
    assert len(context.messages) == 1


def test_too_much_for_the_next_call() -> None:
    """No more than 64 messages wait for a call."""
    context = InMemoryContext()
    assert [context.add_ephemeral("user", "x") for _ in range(65)] == [True] * 64 + [False]


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["tool", "developer", "System", "", None])
def test_roles_that_are_none(role: Any) -> None:
    """A message has one of three roles; results of tools have their own way in."""
    with pytest.raises(HookUsageError, match="pass system, user or assistant"):
        InMemoryContext().add_message(role, "hello")


@pytest.mark.parametrize("content", [None, b"hello", ["hello"], 7])
def test_contents_that_are_none(content: Any) -> None:
    """A content is a text, wherever it is added, and what is refused changes nothing."""
    context = InMemoryContext()
    context.add_tool_calls([call()])
    ways = [
        lambda: context.add_message("user", content),
        lambda: context.add_tool_calls([call("c2")], content),
        lambda: context.add_tool_result("c1", content),
        lambda: context.append_to_last_tool_result(content),
        lambda: context.add_ephemeral("user", content),
        lambda: context.compact(0, content),
    ]
    for way in ways:
        with pytest.raises(HookUsageError, match="pass a str"):
            way()  # type: ignore[no-untyped-call]  # a list of lambdas
    assert story(context) == [("assistant", "")]
    assert context.open_calls == {"c1"}
    assert len(context.to_openai(ephemeral=True)) == 2


@pytest.mark.parametrize(
    "calls",
    [
        [],
        [call(), call()],
        [{"id": "c1", "name": "Bash"}],
        [{"id": "", "name": "Bash", "input": {}}],
        [{"id": 1, "name": "Bash", "input": {}}],
        [{"id": "c1", "name": "", "input": {}}],
        [{"id": "c1", "name": None, "input": {}}],
        [{"id": "c1", "name": "Bash", "input": "make"}],
    ],
)
def test_calls_that_are_none(calls: Any) -> None:
    """A call has an id of its own, a name and an input; what is refused changes nothing."""
    context = InMemoryContext()
    context.add_tool_calls([call("c0")])
    with pytest.raises(HookUsageError, match="pass"):
        context.add_tool_calls(calls)
    assert (story(context), set(context.open_calls)) == ([("assistant", "")], {"c0"})


def test_inputs_that_are_not_json() -> None:
    """An input that no provider could be sent is refused when it is added."""
    with pytest.raises(InputNotFreezable):
        InMemoryContext().add_tool_calls([call(when=object())])


def test_results_of_nothing() -> None:
    """A result belongs to a call that waits for one."""
    context = InMemoryContext()
    with pytest.raises(HookUsageError, match="add it with add_tool_calls first"):
        context.add_tool_result("c1", "done")
    context.add_tool_calls([call()])
    context.add_tool_result("c1", "done")
    with pytest.raises(HookUsageError, match="'c1'"):
        context.add_tool_result("c1", "done")


# -- a shorter history -------------------------------------------------------------------------------------------------


def long_story() -> InMemoryContext:
    """Two rules, a question, two calls, an answer."""
    context = InMemoryContext()
    context.add_message("system", "be kind")
    context.add_message("system", "be brief")
    context.add_message("user", "what is it?")
    context.add_tool_calls([call(), call("c2")])
    context.add_tool_result("c1", "first")
    context.add_tool_result("c2", "second")
    context.add_message("assistant", "it is fine")
    return context


@pytest.mark.parametrize(
    ("keep", "gone", "left"),
    [
        (0, 5, []),
        (-1, 5, []),
        (1, 4, ["it is fine"]),
        (2, 1, ["", "first", "second", "it is fine"]),
        (3, 1, ["", "first", "second", "it is fine"]),
        (4, 1, ["", "first", "second", "it is fine"]),
    ],
)
def test_compact(keep: int, gone: int, left: list[str]) -> None:
    """A summary stands for all but the last; calls stay with their results, system messages at the top stay."""
    context = long_story()
    assert context.compact(keep, "a summary") == gone
    assert [content for _, content in story(context)] == ["be kind", "be brief", "a summary", *left]
    assert context.messages[2]["metadata"] == {"source": "summary"}


@pytest.mark.parametrize("keep", [5, 6, 100])
def test_nothing_to_compact(keep: int) -> None:
    """Where everything stays there is nothing to sum up."""
    context = long_story()
    before = context.get_messages()
    assert context.compact(keep, "a summary") == 0
    assert context.messages == before
    assert InMemoryContext().compact(0, "a summary") == 0


def test_ids_after_compacting() -> None:
    """Ids keep their meaning: those that stay are the same, and none is used again."""
    context = long_story()
    context.compact(1, "a summary")
    context.add_message("user", "thanks")
    assert [message["id"] for message in context.messages] == ["m1", "m2", "m8", "m7", "m9"]


def test_open_calls_stay() -> None:
    """Calls whose results are still to come are never summed up."""
    context = long_story()
    context.add_tool_calls([call("c3"), call("c4")], "look again")
    context.add_tool_result("c3", "third")
    context.add_message("system", "held", HOOK)
    assert context.compact(0, "a summary") == 5
    context.add_tool_result("c4", "fourth")
    assert [content for _, content in story(context)][3:] == ["look again", "third", "fourth", "held"]
