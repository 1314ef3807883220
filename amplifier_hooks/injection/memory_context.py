"""The messages an agent's model reads, kept in memory; the default context of a session.

    context.add_message("user", "Mend the build")
    context.add_tool_calls([{"id": "c1", "name": "Bash", "input": {"command": "make"}}])
    context.add_tool_result("c1", "error: …", is_error=True)
    client.messages.create(**context.to_anthropic(), …)

While tool calls are open, the context holds back texts that hooks inject; they follow once all results are in. Any
other message added meanwhile means that the host continues without the results: each call without a result gets one
that says so, and a result that arrives later replaces it.
"""

from __future__ import annotations

from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final

from amplifier_hooks.act import freeze, thaw
from amplifier_hooks.errors import HookUsageError
from amplifier_hooks.injection.provider_messages import NO_RESULT, to_anthropic, to_openai
from amplifier_hooks.provenance import is_injected

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from amplifier_hooks.injection.provider_messages import Message
    from amplifier_hooks.result import Role


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
        self.mark = mark or token_hex(4)
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

    def compact(self, keep: int, summary: str) -> int:
        """Replace all but the last messages by a summary. Return the number of replaced messages.

        At least `keep` messages stay; more, if a call would be separated from its results. The system messages at the
        beginning stay as well.
        """
        _check_text(summary)
        roles = [message["role"] for message in self.messages]
        first = next((place for place, role in enumerate(roles) if role != "system"), len(roles))
        last = max(first, len(roles) - max(keep, 0))
        if self._open:
            last = min(last, self._open_calls_index())
        while first < last < len(roles) and roles[last] == "tool":
            last -= 1
        if last == first:
            return 0
        self.messages[first:last] = [self._make_message("user", summary, {"source": "summary"})]
        return last - first

    def to_openai(self, *, ephemeral: bool = False) -> list[Message]:
        """Return the history for OpenAI's chat completions; with `ephemeral`, also the next call's messages."""
        return to_openai(self._history(ephemeral=ephemeral))

    def to_anthropic(self, *, ephemeral: bool = False) -> dict[str, Any]:
        """Return the arguments `messages`, and `system` if there is one, for Anthropic's messages.

        With `ephemeral`, the history includes the messages for the next call.
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
