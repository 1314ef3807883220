"""The messages an agent's model reads, kept in memory; the context of a session that was given none.

    context.add_message("user", "Mend the build")
    context.add_tool_calls([{"id": "c1", "name": "Bash", "input": {"command": "make"}}])
    context.add_tool_result("c1", "error: …", is_error=True)
    client.messages.create(**context.to_anthropic(), …)

While tool calls are open, what hooks inject is held back and follows once all results are in. Whatever else is added
meanwhile means that the host goes on without them: calls without a result get one that says so, and a result that comes
after all takes its place.
"""

from __future__ import annotations

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
"""Messages that may wait for a model call."""


class InMemoryContext:
    """Messages in a list: dicts with `id`, `role`, `content` and `metadata`.

    One of the assistant may have `tool_calls`; one with the role `tool` has `tool_call_id` and `is_error`. An `id` is
    never used again, also when messages are taken out. A message that was given out is never changed; where a text
    joins it, another takes its place.
    """

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._number = 0
        self._open: set[str] = set()
        self._missing: dict[str, str] = {}
        """Calls that were given up, with the id of the message that stands for their result."""
        self._held: list[tuple[Role | None, str, dict[str, Any]]] = []
        """What is injected when all results are in; without a role, at the last of them."""
        self._ephemeral: list[Message] = []

    @property
    def open_calls(self) -> frozenset[str]:
        """The ids of the tool calls that wait for their results."""
        return frozenset(self._open)

    def add_message(self, role: Role, content: str, metadata: Mapping[str, Any] | None = None) -> None:
        """Append one message; one that is injected while tool calls are open, once their results are in.

        Raises `HookUsageError` for a role or a content that is none.
        """
        if role not in ("system", "user", "assistant"):
            raise HookUsageError(f"no message has the role {role!r}; pass system, user or assistant")
        _check_text(content)
        if self._open and is_injected(metadata):
            self._held.append((role, content, dict(metadata or {})))
            return
        self._give_up()
        self._append(role, content, metadata)

    def add_tool_calls(
        self, calls: Sequence[Mapping[str, Any]], content: str = "", metadata: Mapping[str, Any] | None = None
    ) -> None:
        """Append what the model said and the tools it calls, each with `id`, `name` and `input`.

        Raises `HookUsageError` for calls without these or with the same id, `InputNotFreezable` for an input that JSON
        cannot hold.
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
        """Append the result of an open call; with the last one, what hooks injected meanwhile.

        Raises `HookUsageError` for a call that is unknown or has its result.
        """
        _check_text(content)
        if call_id in self._missing:
            place = self._index_of(self._missing.pop(call_id))
            if place is not None:
                given_up = self.messages[place]
                behind = given_up["content"].removeprefix(NO_RESULT)  # what a hook has put there meanwhile
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
        """Put the text behind the result of the last tool call; while calls are open, of the last of these.

        False, and nothing is changed, where there is none, or the model has answered to it already.
        """
        _check_text(content)
        if self._open:
            self._held.append((None, content, dict(metadata or {})))
            return True
        place = self._last_result_index()
        if place is not None:
            self._join(place, content, dict(metadata or {}))
        return place is not None

    def add_ephemeral(self, role: Role, content: str, metadata: Mapping[str, Any] | None = None) -> bool:
        """Keep a message for the next model call only. False, and it is not kept, where 64 wait already."""
        _check_text(content)
        if len(self._ephemeral) >= WAITING:
            return False
        self._ephemeral.append({"role": role, "content": content, "metadata": dict(metadata or {})})
        return True

    def take_ephemeral(self) -> list[Message]:
        """The messages for the next model call. They are gone then."""
        taken, self._ephemeral = self._ephemeral, []
        return taken

    def get_messages(self) -> list[Message]:
        """Every message, in order. The list is a copy, the messages are not."""
        return list(self.messages)

    def compact(self, keep: int, summary: str) -> int:
        """Let a summary stand for all but the last messages, and say how many went.

        At least `keep` stay; more, where a call would be parted from its results. The system messages at the
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
        """The history for OpenAI's chat completions; with what is for the next call only, if wanted."""
        return to_openai(self._history(ephemeral=ephemeral))

    def to_anthropic(self, *, ephemeral: bool = False) -> dict[str, Any]:
        """The same for Anthropic's messages: `messages`, and `system` if there is one."""
        return to_anthropic(self._history(ephemeral=ephemeral))

    # -- inside --------------------------------------------------------------------------------------------------------

    def _history(self, *, ephemeral: bool) -> list[Message]:
        """What there is now; what is held back comes last, after the results that are still to come."""
        held = [{"role": role or "user", "content": text, "metadata": about} for role, text, about in self._held]
        return [*self.messages, *held, *(self._ephemeral if ephemeral else ())]

    def _make_message(self, role: str, content: str, metadata: Mapping[str, Any] | None, **fields: Any) -> Message:
        self._number += 1
        return {"id": f"m{self._number}", "role": role, "content": content, "metadata": dict(metadata or {}), **fields}

    def _append(self, role: str, content: str, metadata: Mapping[str, Any] | None, **fields: Any) -> None:
        self.messages.append(self._make_message(role, content, metadata, **fields))

    def _give_up(self) -> None:
        """The host goes on without the results that are missing."""
        if not self._open:
            return
        calls = self.messages[self._open_calls_index()]["tool_calls"]
        for one in [call["id"] for call in calls if call["id"] in self._open]:
            self._append("tool", NO_RESULT, {"source": "session"}, tool_call_id=one, is_error=True)
            self._missing[one] = self.messages[-1]["id"]
        self._open = set()
        self._append_held_back()

    def _append_held_back(self) -> None:
        """What was held back, behind the results."""
        held, self._held = self._held, []
        place = len(self.messages) - 1
        for role, content, metadata in held:
            if role is None:
                self._join(place, content, metadata)
            else:
                self._append(role, content, metadata)

    def _join(self, place: int, content: str, metadata: dict[str, Any]) -> None:
        """Put the text behind the one at this place; its provenance goes with it."""
        message = self.messages[place]
        about = message["metadata"]
        text = f"{message['content']}\n\n{content}" if message["content"] else content
        about = {**about, "injections": [*about.get("injections", ()), metadata]}
        self.messages[place] = {**message, "content": text, "metadata": about}

    def _last_result_index(self) -> int | None:
        """Where the last result is, unless the model has said something since."""
        for place in range(len(self.messages) - 1, -1, -1):
            role = self.messages[place]["role"]
            if role in ("assistant", "tool"):
                return place if role == "tool" else None
        return None

    def _open_calls_index(self) -> int:
        """Where the open calls are. The assistant has said nothing since."""
        return max(place for place, message in enumerate(self.messages) if message["role"] == "assistant")

    def _index_of(self, message_id: str) -> int | None:
        return next((place for place, message in enumerate(self.messages) if message["id"] == message_id), None)


def _check_text(content: object) -> None:
    if not isinstance(content, str):
        raise HookUsageError(f"a message with content of type {type(content).__name__}; pass a str")


def _copy_call(call: Mapping[str, Any]) -> dict[str, Any]:
    """A tool call that nobody else can change."""
    one, name, given = call.get("id"), call.get("name"), call.get("input")
    if not (isinstance(one, str) and one and isinstance(name, str) and name and isinstance(given, dict)):
        raise HookUsageError(f"a tool call {one!r} of {name!r}; pass its id and name as a str, its input as a dict")
    return {"id": one, "name": name, "input": thaw(freeze(given))}
