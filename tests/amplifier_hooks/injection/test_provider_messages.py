"""Exports for providers, by example; tests/properties/test_context_exports.py checks them against their types."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from amplifier_hooks.errors import HookUsageError
from amplifier_hooks.injection.memory_context import InMemoryContext
from amplifier_hooks.injection.provider_messages import to_anthropic, to_openai

HOOK: Final = {"source": "hook"}


def said(role: str, content: str, **fields: Any) -> dict[str, Any]:
    """Return a message."""
    return {"role": role, "content": content, **fields}


def calls(*ids: str, name: str = "Bash", content: str = "") -> dict[str, Any]:
    """Return a message in which the model calls tools."""
    return said("assistant", content, tool_calls=[{"id": one, "name": name, "input": {"n": 1}} for one in ids])


def result(one: str, content: str, *, failed: bool = False) -> dict[str, Any]:
    """Return the result of a tool."""
    return said("tool", content, tool_call_id=one, is_error=failed)


@pytest.mark.rule("INJ-1")
def test_a_whole_story() -> None:
    """One history in both shapes."""
    context = InMemoryContext()
    context.add_message("system", "You mend things.")
    context.add_message("user", "Mend it")
    context.add_tool_calls([{"id": "c1", "name": "Write", "input": {"file_path": "app.py"}}], "I shall")
    context.add_message("system", "⟦hook lint⟧\nE501", HOOK)
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
    context.add_message("user", "held", HOOK)
    context.append_to_last_tool_result("appended", HOOK)
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
    history = [calls("a", "b"), result("b", "second"), said("user", "hm"), result("a", "first")]
    assert [message.get("content") for message in to_openai(history)] == [None, "first", "second", "hm"]
    kinds = [[block["type"] for block in message["content"]] for message in to_anthropic(history)["messages"]]
    assert kinds == [["text"], ["tool_use", "tool_use"], ["tool_result", "tool_result", "text"]]


def test_results_of_nothing() -> None:
    """A result whose call is gone, or has one already, is still read."""
    history = [result("a", "whose?"), calls("b"), result("b", "done"), result("b", "again"), said("tool", "no id")]
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
        said("system", "one"),
        said("system", " "),
        said("system", "two"),
        said("user", "hello"),
        said("system", "three"),
        said("system", "⟦hook lint⟧\nfour", metadata=HOOK),
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
    only = to_anthropic([said("assistant", "hi"), said("assistant", "there")])["messages"]
    assert [message["role"] for message in only] == ["user", "assistant", "user"]
    assert only[0]["content"][0]["text"] == "⟦begin⟧"
    assert len(only[1]["content"]) == 2
    assert to_anthropic([said("system", "be kind")]) == {
        "system": "be kind",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "⟦begin⟧"}]}],
    }
    assert to_anthropic([]) == to_anthropic([said("user", " \n")]) == {"messages": []}
    assert to_openai([said("user", " \n"), calls(content="\t")]) == []


@pytest.mark.parametrize("one", ["a.b", "x" * 41, "", " ", "é", "\ud800"])
def test_ids_they_refuse(one: str) -> None:
    """An id that a provider refuses becomes an unused one, for the call and its result."""
    history = [calls("call_0"), result("call_0", "zero"), calls(one), result(one, "one"), calls("call_1")]
    exported = to_openai(history)
    assert [message.get("tool_call_id") for message in exported] == [None, "call_0", None, "call_2", None, "call_1"]
    assert exported[3]["content"] == "one"
    assert exported[2]["tool_calls"][0]["id"] == "call_2"


def test_ids_used_again() -> None:
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
    broken = said("assistant", "a\ud800", tool_calls=[{"id": "a", "name": "B", "input": {"\udfff": ["\ud83d", 1]}}])
    for exported in (to_openai([broken]), to_anthropic([broken])):
        json.dumps(exported, ensure_ascii=False).encode()
    exported = to_anthropic([broken])["messages"][1]["content"]
    assert exported[0]["text"] == "a\\u{D800}"
    assert exported[1]["input"] == {"\\u{DFFF}": ["\\u{D83D}", 1]}
    assert to_openai([said("user", "naïve 😀")])[0]["content"] == "naïve 😀"


@pytest.mark.parametrize(
    "message", [{}, said("developer", "x"), {"role": "user"}, {"role": "user", "content": [{"type": "text"}]}]
)
@pytest.mark.parametrize("export", [to_openai, to_anthropic])
def test_what_is_no_message(message: Any, export: Any) -> None:
    """An invalid message is refused, with the shape it should have."""
    with pytest.raises(HookUsageError, match="pass system, user, assistant or tool, and a str"):
        export([message])
