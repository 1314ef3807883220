"""The messages an agent's model reads, kept in memory; the default context of a session.

    context.add_message("user", "Mend the build")
    context.add_tool_calls([{"id": "c1", "name": "Bash", "input": {"command": "make"}}])
    context.add_tool_result("c1", "error: …", is_error=True)
    client.messages.create(**context.to_anthropic(), …)

While tool calls are open, the context holds back texts that hooks inject; they follow once all results are in. Any
other message added meanwhile means that the host continues without the results: each call without a result gets one
that says so, and a result that arrives later replaces it.

`to_openai` and `to_anthropic` convert any history to messages that are valid for these providers, whatever it contains:

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
from os import urandom
from typing import TYPE_CHECKING, Any, Final

import msgspec

from amplifier_hooks.act import freeze, thaw
from amplifier_hooks.errors import HookUsageError
from amplifier_hooks.provenance import is_injected
from amplifier_hooks.text.escape import marker

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from amplifier_hooks.result import Role


Message = dict[str, Any]

NO_RESULT: Final = marker("no result")
NO_OUTPUT: Final = marker("no output")
ERROR: Final = marker("error")

_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,40}")  # OpenAI takes no longer ones, Anthropic no other characters
_NOT_IN_A_NAME: Final = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_NAME: Final = 64
_SURROGATE: Final = re.compile("[\ud800-\udfff]")

WAITING: Final = 64
"""Number of messages that may wait for a model call."""


class InMemoryContext:
    """Messages in a list: dicts with `id`, `role`, `content` and `metadata`.

    A message of the assistant may have `tool_calls`; one with the role `tool` has `tool_call_id` and `is_error`. An
    `id` is never used again, even after messages are removed. A message that was given out is never changed; if a text
    joins it, a new message replaces it.

    Args:
        mark: The mark in the headings of hooks' texts, for tests. The default is 32 random bits.
    """

    def __init__(self, mark: str | None = None) -> None:
        self.mark = mark or urandom(4).hex()
        self.messages: list[Message] = []
        self._number = 0
        self._open: set[str] = set()
        self._missing: dict[str, str] = {}
        """Calls without a result that were closed, with the id of the message that substitutes the result."""
        self._queue: list[tuple[Role | None, str, dict[str, Any]]] = []
        """Texts to inject when all results are in; a text without a role joins the last result."""
        self._ephemeral: list[Message] = []

    @property
    def open_calls(self) -> frozenset[str]:
        """The ids of the tool calls that wait for their results."""
        return frozenset(self._open)

    def add_message(self, role: Role, content: str, metadata: Mapping[str, Any] | None = None) -> None:
        """Append one message. An injected message is held back while tool calls are open.

        Raises `HookUsageError` for an invalid role or content.
        """
        if role not in ("system", "user", "assistant"):
            raise HookUsageError(f"no message has the role {role!r}; pass system, user or assistant")
        _check_text(content)
        if self._open and is_injected(metadata):
            self._queue.append((role, content, dict(metadata or {})))
            return
        self._give_up()
        self._append(role, content, metadata)

    def add_tool_calls(
        self, calls: Sequence[Mapping[str, Any]], content: str = "", metadata: Mapping[str, Any] | None = None
    ) -> None:
        """Append the model's text and the tools it calls, each with `id`, `name` and `input`.

        Args:
            calls: Calls of the model, each with `id`, `name` and `input`.
            content: Text of the model beside the calls.

        Raises `HookUsageError` for calls without these fields or with equal ids, `InputNotFreezable` for an input that
        JSON cannot represent.
        """
        _check_text(content)
        own = [_copy_call(call) for call in calls]
        ids = {call["id"] for call in own}
        if not own or len(ids) < len(own):
            raise HookUsageError(f"{len(own)} calls with {len(ids)} ids; pass at least one, each with its own")
        self._give_up()
        self._append("assistant", content, metadata, tool_calls=own)
        self._open = ids
        for one in ids:
            self._missing.pop(one, None)  # the id now stands for the new call

    def add_tool_result(
        self,
        call_id: str,
        content: str,
        is_error: bool = False,  # noqa: FBT001, FBT002  # as providers have it
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Append the result of an open call; after the last one, append the texts held back meanwhile.

        Args:
            call_id: Id of the open call.
            content: Result of the tool, as the model reads it.
            is_error: True if the tool failed.

        Raises `HookUsageError` for a call that is unknown or has its result.
        """
        _check_text(content)
        if call_id in self._missing:
            place = self._index_of(self._missing.pop(call_id))
            if place is not None:
                given_up = self.messages[place]
                behind = given_up["content"].removeprefix(NO_RESULT)  # text that a hook has added meanwhile
                about = {name: value for name, value in given_up["metadata"].items() if name == "injections"}
                replaced = {
                    "content": f"{content}{behind}" if content else behind.lstrip("\n"),
                    "is_error": is_error,
                    "metadata": {**(metadata or {}), **about},
                }
                self.messages[place] = {**given_up, **replaced}
            return
        if call_id not in self._open:
            raise HookUsageError(f"no tool call {call_id!r} waits for a result; add it with add_tool_calls first")
        self._open.remove(call_id)
        self._append("tool", content, metadata, tool_call_id=call_id, is_error=is_error)
        if not self._open:
            self._append_held_back()

    def append_to_last_tool_result(self, content: str, metadata: Mapping[str, Any] | None = None) -> bool:
        """Append the text to the result of the last tool call; with open calls, to the last of their results.

        Returns False and changes nothing if there is no result, or if the model has already answered it.

        Args:
            content: Text that follows the result.
        """
        _check_text(content)
        if self._open:
            self._queue.append((None, content, dict(metadata or {})))
            return True
        place = self._last_result_index()
        if place is not None:
            self._join(place, content, dict(metadata or {}))
        return place is not None

    def add_ephemeral(self, role: Role, content: str, metadata: Mapping[str, Any] | None = None) -> bool:
        """Keep a message for the next model call only. Return False and drop it if 64 messages wait already."""
        _check_text(content)
        if len(self._ephemeral) >= WAITING:
            return False
        self._ephemeral.append({"role": role, "content": content, "metadata": dict(metadata or {})})
        return True

    def take_ephemeral(self) -> list[Message]:
        """Remove and return the messages for the next model call."""
        taken, self._ephemeral = self._ephemeral, []
        return taken

    def get_messages(self) -> list[Message]:
        """Return every message, in order. The list is a copy, the messages are not."""
        return list(self.messages)

    def to_openai(self, *, ephemeral: bool = False) -> list[Message]:
        """Return the history for OpenAI's chat completions; with `ephemeral`, also the next call's messages.

        Args:
            ephemeral: True adds the messages for the next call only.
        """
        return to_openai(self._history(ephemeral=ephemeral))

    def to_anthropic(self, *, ephemeral: bool = False) -> dict[str, Any]:
        """Return the arguments `messages`, and `system` if there is one, for Anthropic's messages.

        With `ephemeral`, the history includes the messages for the next call.

        Args:
            ephemeral: True adds the messages for the next call only.
        """
        return to_anthropic(self._history(ephemeral=ephemeral), self.mark)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _history(self, *, ephemeral: bool) -> list[Message]:
        """Return the history; texts held back come last, after the results that are still to come."""
        held = [{"role": role or "user", "content": text, "metadata": about} for role, text, about in self._queue]
        return [*self.messages, *held, *(self._ephemeral if ephemeral else ())]

    def _make_message(self, role: str, content: str, metadata: Mapping[str, Any] | None, **fields: Any) -> Message:
        self._number += 1
        return {"id": f"m{self._number}", "role": role, "content": content, "metadata": dict(metadata or {}), **fields}

    def _append(self, role: str, content: str, metadata: Mapping[str, Any] | None, **fields: Any) -> None:
        self.messages.append(self._make_message(role, content, metadata, **fields))

    def _give_up(self) -> None:
        """Close the open calls: the host continues without the missing results."""
        if not self._open:
            return
        calls = self.messages[self._open_calls_index()]["tool_calls"]
        for one in [call["id"] for call in calls if call["id"] in self._open]:
            self._append("tool", NO_RESULT, {"source": "session"}, tool_call_id=one, is_error=True)
            self._missing[one] = self.messages[-1]["id"]
        self._open = set()
        self._append_held_back()

    def _append_held_back(self) -> None:
        """Append the texts held back, after the results."""
        held, self._queue = self._queue, []
        place = len(self.messages) - 1
        for role, content, metadata in held:
            if role is None:
                self._join(place, content, metadata)
            else:
                self._append(role, content, metadata)

    def _join(self, index: int, content: str, metadata: dict[str, Any]) -> None:
        """Append the text, with its provenance, to the message at this index."""
        message = self.messages[index]
        about = message["metadata"]
        text = f"{message['content']}\n\n{content}" if message["content"] else content
        about = {**about, "injections": [*about.get("injections", ()), metadata]}
        self.messages[index] = {**message, "content": text, "metadata": about}

    def _last_result_index(self) -> int | None:
        """Return the index of the last result, or None if the model has answered it."""
        for place in range(len(self.messages) - 1, -1, -1):
            role = self.messages[place]["role"]
            if role in ("assistant", "tool"):
                return place if role == "tool" else None
        return None

    def _open_calls_index(self) -> int:
        """Return the index of the message with the open calls, the assistant's last one."""
        return max(place for place, message in enumerate(self.messages) if message["role"] == "assistant")

    def _index_of(self, message_id: str) -> int | None:
        return next((place for place, message in enumerate(self.messages) if message["id"] == message_id), None)


def _check_text(content: object) -> None:
    if not isinstance(content, str):
        raise HookUsageError(f"a message with content of type {type(content).__name__}; pass a str")


def _copy_call(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a tool call that the caller cannot change."""
    one, name, given = call.get("id"), call.get("name"), call.get("input")
    if not (isinstance(one, str) and one and isinstance(name, str) and name and isinstance(given, dict)):
        raise HookUsageError(f"a tool call {one!r} of {name!r}; pass its id and name as a str, its input as a dict")
    return {"id": one, "name": name, "input": thaw(freeze(given))}


# -- the messages of providers -----------------------------------------------------------------------------------------


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
