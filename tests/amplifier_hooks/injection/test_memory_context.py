"""The messages of a session, kept in memory."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from amplifier_hooks.errors import HookUsageError, InputNotFreezable
from amplifier_hooks.injection.memory_context import InMemoryContext, to_anthropic, to_openai
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
    """A late result of a call whose messages the host removed is not wanted any more."""
    context = InMemoryContext()
    context.add_tool_calls([call()])
    context.add_message("user", "never mind")
    del context.messages[:2]
    context.add_tool_result("c1", "here I am")
    assert story(context) == [("user", "never mind")]


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


LINTER: Final = {"source": "hook"}


def entry(role: str, content: str, **fields: Any) -> dict[str, Any]:
    """Return a message."""
    return {"role": role, "content": content, **fields}


def calls(*ids: str, name: str = "Bash", content: str = "") -> dict[str, Any]:
    """Return a message in which the model calls tools."""
    return entry("assistant", content, tool_calls=[{"id": one, "name": name, "input": {"n": 1}} for one in ids])


def result(one: str, content: str, *, failed: bool = False) -> dict[str, Any]:
    """Return the result of a tool."""
    return entry("tool", content, tool_call_id=one, is_error=failed)


@pytest.mark.rule("INJ-1")
def test_a_whole_story() -> None:
    """One history in both shapes."""
    context = InMemoryContext()
    context.add_message("system", "You mend things.")
    context.add_message("user", "Mend it")
    context.add_tool_calls([{"id": "c1", "name": "Write", "input": {"file_path": "app.py"}}], "I shall")
    context.add_message("system", "⟦hook lint⟧\nE501", LINTER)
    context.add_tool_result("c1", "written")
    context.add_message("assistant", "Done")
    assert context.to_openai() == [
        {"role": "system", "content": "You mend things."},
        {"role": "user", "content": "Mend it"},
        {
            "role": "assistant",
            "content": "I shall",
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "Write", "arguments": '{"file_path": "app.py"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "written"},
        {"role": "system", "content": "⟦hook lint⟧\nE501"},
        {"role": "assistant", "content": "Done"},
    ]
    assert context.to_anthropic() == {
        "system": "You mend things.",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Mend it"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "I shall"},
                    {"type": "tool_use", "id": "c1", "name": "Write", "input": {"file_path": "app.py"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": "written"},
                    {"type": "text", "text": "⟦hook lint⟧\nE501"},
                ],
            },
            {"role": "assistant", "content": [{"type": "text", "text": "Done"}]},
            {"role": "user", "content": [{"type": "text", "text": "⟦go on⟧"}]},
        ],
    }


@pytest.mark.rule("INJ-1")
def test_before_the_results_are_in() -> None:
    """An export while calls are open says which results are missing, and has what is held behind them."""
    context = InMemoryContext()
    context.add_tool_calls([{"id": "c1", "name": "Bash", "input": {}}])
    context.add_message("user", "held", LINTER)
    context.append_to_last_tool_result("appended", LINTER)
    assert context.to_openai()[1:] == [
        {"role": "tool", "tool_call_id": "c1", "content": "⟦no result⟧"},
        {"role": "user", "content": "held"},
        {"role": "user", "content": "appended"},
    ]
    assert context.to_anthropic()["messages"][2]["content"][0] == {
        "type": "tool_result",
        "tool_use_id": "c1",
        "content": "⟦no result⟧",
        "is_error": True,
    }


@pytest.mark.rule("INJ-1")
def test_results_anywhere() -> None:
    """Results stand behind their calls, in the order of the calls, wherever the history has them."""
    history = [calls("a", "b"), result("b", "second"), entry("user", "hm"), result("a", "first")]
    assert [message.get("content") for message in to_openai(history)] == [None, "first", "second", "hm"]
    kinds = [[block["type"] for block in message["content"]] for message in to_anthropic(history)["messages"]]
    assert kinds == [["text"], ["tool_use", "tool_use"], ["tool_result", "tool_result", "text"]]


def test_results_of_nothing_in_a_history() -> None:
    """A result whose call is gone, or has one already, is still read."""
    history = [result("a", "whose?"), calls("b"), result("b", "done"), result("b", "again"), entry("tool", "no id")]
    assert [message.get("content") for message in to_openai(history)] == [
        "⟦tool result⟧\nwhose?",
        None,
        "done",
        "⟦tool result⟧\nagain",
        "⟦tool result⟧\nno id",
    ]


def test_errors() -> None:
    """A tool's failure is marked in each provider's own way."""
    history = [calls("a", "b"), result("a", "boom", failed=True), result("b", "", failed=True)]
    assert [message["content"] for message in to_openai(history)[1:]] == ["⟦error⟧\nboom", "⟦error⟧\n⟦no output⟧"]
    results = to_anthropic(history)["messages"][2]["content"]
    assert [(block["content"], block["is_error"]) for block in results] == [("boom", True), ("⟦no output⟧", True)]


def test_system_messages() -> None:
    """System messages at the top are the system prompt; later ones are marked, or have a hook's heading."""
    history = [
        entry("system", "one"),
        entry("system", " "),
        entry("system", "two"),
        entry("user", "hello"),
        entry("system", "three"),
        entry("system", "⟦hook lint⟧\nfour", metadata=LINTER),
    ]
    assert [message["role"] for message in to_openai(history)] == ["system", "system", "user", "system", "system"]
    exported = to_anthropic(history)
    assert exported["system"] == "one\n\ntwo"
    (message,) = exported["messages"]
    assert [block["text"] for block in message["content"]] == ["hello", "⟦system⟧\nthree", "⟦hook lint⟧\nfour"]
    (message,) = to_anthropic(history, "ours")["messages"]
    assert message["content"][1]["text"] == "⟦system · ours⟧\nthree"


def test_begin_and_end() -> None:
    """Anthropic's conversations begin and end with the user."""
    only = to_anthropic([entry("assistant", "hi"), entry("assistant", "there")])["messages"]
    assert [message["role"] for message in only] == ["user", "assistant", "user"]
    assert only[0]["content"][0]["text"] == "⟦begin⟧"
    assert len(only[1]["content"]) == 2
    assert to_anthropic([entry("system", "be kind")]) == {
        "system": "be kind",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "⟦begin⟧"}]}],
    }
    assert to_anthropic([]) == to_anthropic([entry("user", " \n")]) == {"messages": []}
    assert to_openai([entry("user", " \n"), calls(content="\t")]) == []


@pytest.mark.parametrize("one", ["a.b", "x" * 41, "", " ", "é", "\ud800"])
def test_ids_they_refuse(one: str) -> None:
    """An id that a provider refuses becomes an unused one, for the call and its result."""
    history = [calls("call_0"), result("call_0", "zero"), calls(one), result(one, "one"), calls("call_1")]
    exported = to_openai(history)
    assert [message.get("tool_call_id") for message in exported] == [None, "call_0", None, "call_2", None, "call_1"]
    assert exported[3]["content"] == "one"
    assert exported[2]["tool_calls"][0]["id"] == "call_2"


def test_ids_used_again_in_a_history() -> None:
    """An id that is used again gets another, and each result stays with its own call."""
    history = [calls("a"), result("a", "one"), calls("a"), result("a", "two"), calls("a"), calls("x" * 40)]
    exported = to_openai(history)
    assert [(m["tool_call_id"], m["content"]) for m in exported if m["role"] == "tool"] == [
        ("a", "one"),
        ("call_0", "two"),
        ("call_1", "⟦no result⟧"),
        ("x" * 40, "⟦no result⟧"),
    ]


@pytest.mark.parametrize(
    ("name", "becomes"),
    [("mcp.server/tool", "mcp_server_tool"), ("n" * 65, "n" * 64), ("", "_"), ("naïve", "na_ve"), ("Bash", "Bash")],
)
def test_names_they_refuse(name: str, becomes: str) -> None:
    """A tool's name holds letters, digits, `_` and `-`, up to 64 of them."""
    history = [calls("a", name=name)]
    assert to_openai(history)[0]["tool_calls"][0]["function"]["name"] == becomes
    assert to_anthropic(history)["messages"][1]["content"][0]["name"] == becomes


def test_what_cannot_be_encoded() -> None:
    """Lone surrogates are escaped, in texts and in inputs, so that a request can be written."""
    broken = entry("assistant", "a\ud800", tool_calls=[{"id": "a", "name": "B", "input": {"\udfff": ["\ud83d", 1]}}])
    for exported in (to_openai([broken]), to_anthropic([broken])):
        json.dumps(exported, ensure_ascii=False).encode()
    exported = to_anthropic([broken])["messages"][1]["content"]
    assert exported[0]["text"] == "a\\u{D800}"
    assert exported[1]["input"] == {"\\u{DFFF}": ["\\u{D83D}", 1]}
    assert to_openai([entry("user", "naïve 😀")])[0]["content"] == "naïve 😀"


@pytest.mark.parametrize(
    "message", [{}, entry("developer", "x"), {"role": "user"}, {"role": "user", "content": [{"type": "text"}]}]
)
@pytest.mark.parametrize("export", [to_openai, to_anthropic])
def test_what_is_no_message(message: Any, export: Any) -> None:
    """An invalid message is refused, with the shape it should have."""
    with pytest.raises(HookUsageError, match="pass system, user, assistant or tool, and a str"):
        export([message])
