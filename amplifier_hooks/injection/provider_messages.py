"""Converts a history to the shapes of two providers' APIs, valid for them whatever the history contains. Pure.

    messages = to_openai(history)            client.chat.completions.create(messages=messages, …)
    arguments = to_anthropic(history)        client.messages.create(**arguments, …)

A message is a mapping with `role`, `content` (a text), and `metadata`; one of the assistant may have `tool_calls`, each
with `id`, `name` and `input`, and one with the role `tool` has `tool_call_id` and may have `is_error`.

| the history                          | OpenAI                   | Anthropic                           |
|--------------------------------------|--------------------------|-------------------------------------|
| results apart from their calls       | after the call, in order | after the call, in order            |
| a call without a result              | gets `⟦no result⟧`       | gets `⟦no result⟧`, as an error     |
| a result without a call              | text of the user         | text of the user                    |
| system messages before all others    | as they are              | `system`                            |
| later ones                           | as they are              | text of the user, under `⟦system⟧`  |
| several of one role in a row         | as they are              | one message                         |
| begins with the assistant            | as it is                 | a user's `⟦begin⟧` before it        |
| ends with the assistant              | as it is                 | a user's `⟦go on⟧` after it         |
| blank messages                       | left out                 | left out                            |
| an id used again, or one they refuse | another                  | another                             |
| lone surrogates                      | escaped                  | escaped                             |

No model of Anthropic takes a conversation that begins with the assistant, and newer models take none that ends with it.
A text that a hook injected as the system has its own heading, and is not marked again.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from amplifier_hooks.errors import HookUsageError
from amplifier_hooks.provenance import is_injected
from amplifier_hooks.text.escape import marker

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


Message = dict[str, Any]

NO_RESULT: Final = marker("no result")
NO_OUTPUT: Final = marker("no output")
ERROR: Final = marker("error")

_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,40}")  # OpenAI takes no longer ones, Anthropic no other characters
_NOT_IN_A_NAME: Final = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_NAME: Final = 64
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def to_openai(history: Iterable[Mapping[str, Any]]) -> list[Message]:
    """Return the messages of a chat completion. Raises `HookUsageError` for an invalid message."""
    messages: list[Message] = []
    for step in _steps(history):
        if not step.calls:
            messages.append({"role": step.role, "content": step.text})
            continue
        calls = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": json.dumps(call.input)}}
            for call in step.calls
        ]
        content = {"content": step.text} if step.text else {}
        messages.append({"role": "assistant", **content, "tool_calls": calls})
        for call in step.calls:
            content_of = f"{ERROR}\n{call.result}" if call.failed and call.result != NO_RESULT else call.result
            messages.append({"role": "tool", "tool_call_id": call.id, "content": content_of})
    return messages


def to_anthropic(history: Iterable[Mapping[str, Any]], mark: str = "") -> dict[str, Any]:
    """Return the arguments `messages`, and `system` if there is one. `mark` is that of the session.

    Raises `HookUsageError` for an invalid message.
    """
    steps = list(_steps(history))
    first = next((number for number, step in enumerate(steps) if step.role != "system"), len(steps))
    messages: list[Message] = []

    def add(role: str, *blocks: Message) -> None:
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"].extend(blocks)
        else:
            messages.append({"role": role, "content": list(blocks)})

    if steps and (first == len(steps) or steps[first].role == "assistant"):
        add("user", _text(marker("begin")))
    for step in steps[first:]:
        if step.role == "system":
            add("user", _text(step.text if step.injected else f"{marker('system', mark)}\n{step.text}"))
        elif step.text:
            add(step.role, _text(step.text))
        if step.calls:
            add("assistant", *(_use(call) for call in step.calls))
            add("user", *(_result(call) for call in step.calls))
    if messages and messages[-1]["role"] == "assistant":
        add("user", _text(marker("go on")))
    system = "\n\n".join(step.text for step in steps[:first])
    return {"system": system, "messages": messages} if system else {"messages": messages}


def _text(text: str) -> Message:
    return {"type": "text", "text": text}


def _use(call: _ToolUse) -> Message:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": call.input}


def _result(call: _ToolUse) -> Message:
    failed = {"is_error": True} if call.failed else {}
    return {"type": "tool_result", "tool_use_id": call.id, "content": call.result, **failed}


# -- shared by both providers ------------------------------------------------------------------------------------------


class _ToolUse(msgspec.Struct):
    """A tool call with its result."""

    id: str
    name: str
    input: Any
    result: str = NO_RESULT
    failed: bool = True


class _Step(msgspec.Struct):
    """A message that is not blank, with the results of its calls."""

    role: str
    text: str
    injected: bool = False
    calls: list[_ToolUse] = msgspec.field(default_factory=list)


def _steps(history: Iterable[Mapping[str, Any]]) -> Iterator[_Step]:
    """Return the history with results at their calls, and without blank messages."""
    steps: list[_Step] = []
    unanswered: dict[str, _ToolUse] = {}
    for message in history:
        step = _step(message)
        given = message.get("tool_call_id") if step.role == "tool" else None
        if given is not None and (call := unanswered.pop(given, None)):
            call.result, call.failed = step.text or NO_OUTPUT, bool(message.get("is_error"))
            continue
        if step.role == "tool":
            step = _Step("user", f"{marker('tool result')}\n{step.text}" if step.text else "")
        unanswered.update(
            (str(said["id"]), call) for said, call in zip(_tool_calls_of(message), step.calls, strict=True)
        )
        steps.append(step)
    _name_calls([call for step in steps for call in step.calls])
    return (step for step in steps if step.text or step.calls)


def _step(message: Mapping[str, Any]) -> _Step:
    role, content = message.get("role"), message.get("content")
    if role not in ("system", "user", "assistant", "tool") or not isinstance(content, str):
        raise HookUsageError(
            f"a message with role {role!r} and content of type {type(content).__name__}; pass system, user, assistant "
            "or tool, and a str"
        )
    calls = [
        _ToolUse(str(said["id"]), str(said["name"]), _escape_surrogates_in(said["input"]))
        for said in _tool_calls_of(message)
    ]
    text = _escape_surrogates(content) if content.strip() else ""
    return _Step(role, text, is_injected(message.get("metadata")), calls)


def _tool_calls_of(message: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return message.get("tool_calls") or () if message.get("role") == "assistant" else ()


def _name_calls(calls: Sequence[_ToolUse]) -> None:
    """Set unique ids that both providers accept, and names that both providers accept."""
    wanted = {call.id for call in calls}
    used: set[str] = set()
    number = 0
    for call in calls:
        if call.id in used or not _ID.fullmatch(call.id):
            while (new := f"call_{number}") in used or new in wanted:
                number += 1
            call.id = new
        used.add(call.id)
        call.name = _NOT_IN_A_NAME.sub("_", call.name)[:_LONGEST_NAME] or "_"


def _escape_surrogates(text: str) -> str:
    return text if text.isascii() else _SURROGATE.sub(lambda found: f"\\u{{{ord(found[0]):02X}}}", text)


def _escape_surrogates_in(value: Any) -> Any:
    """Return a tool's input with the lone surrogates of every text escaped."""
    if isinstance(value, str):
        return _escape_surrogates(value)
    if isinstance(value, dict):
        return {_escape_surrogates_in(name): _escape_surrogates_in(part) for name, part in value.items()}
    return [_escape_surrogates_in(part) for part in value] if isinstance(value, list) else value
