"""Injection: a hook's text becomes a message in the agent's context, within limits, with its provenance."""

from __future__ import annotations

import hashlib
import inspect
from typing import TYPE_CHECKING, Any

from amplifier_hooks.budget import MAX_INJECTION_SIZE
from amplifier_hooks.errors import InjectionTooLarge
from amplifier_hooks.escape import for_model, marker
from amplifier_hooks.provenance import Provenance

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_hooks.effects.audit import Recorder
    from amplifier_hooks.ports import Clock, ContextManager
    from amplifier_hooks.result import ContextInjection, Role

__all__ = ["InMemoryContext", "Injector"]


class InMemoryContext:
    """Messages in a list; the context of a session that was given none."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []

    def add_message(self, role: Role, content: str, metadata: Mapping[str, Any] | None = None) -> None:
        """Append one message."""
        self.messages.append({"role": role, "content": content, "metadata": dict(metadata or {})})

    def get_messages(self) -> list[dict[str, Any]]:
        """Every message, in order. The list is a copy, the messages are not."""
        return list(self.messages)


class Injector:
    """Puts injections where one session's model reads them: into the context, or into a denial."""

    def __init__(self, context: ContextManager, recorder: Recorder, clock: Clock, tenant: str) -> None:
        self._context = context
        self._recorder = recorder
        self._clock = clock
        self._tenant = tenant

    async def inject(self, item: ContextInjection) -> None:
        """Write the text as a message of its role, under a heading that names its hook.

        Raises `InjectionTooLarge` before anything is written, and what the context raises.
        """
        size = checked(item)
        tag = self._tag(item)
        added = self._context.add_message(item.role, as_read(item), tag)
        if inspect.isawaitable(added):
            await added
        await self._recorder.note("injection", {**tag, "role": item.role, "size": size, "within": "context"})

    async def quote(self, item: ContextInjection) -> str:
        """The text as it stands inside a denial; the context does not get it.

        Raises `InjectionTooLarge`.
        """
        size = checked(item)
        facts = {**self._tag(item), "role": item.role, "size": size, "within": "denial"}
        await self._recorder.note("injection", facts)
        return as_read(item)

    def _tag(self, item: ContextInjection) -> dict[str, Any]:
        return Provenance(
            hook=item.hook_name,
            event=item.event,
            timestamp=self._clock.now().isoformat(),
            tenant=self._tenant,
            digest=hashlib.sha256(utf8(item.content)).hexdigest(),
        ).metadata()


def as_read(item: ContextInjection) -> str:
    """A text as the model reads it: whose it is, then what it says."""
    return f"{marker('hook ' + item.hook_name)}\n{for_model(item.content)}"


def checked(item: ContextInjection) -> int:
    """The size in bytes.

    Raises `InjectionTooLarge` when it is over the limit.
    """
    size = len(utf8(item.content))
    if size > MAX_INJECTION_SIZE:
        raise InjectionTooLarge(size, MAX_INJECTION_SIZE, item.hook_name)
    return size


def utf8(text: str) -> bytes:
    """The text's bytes; a lone surrogate has some, too."""
    return text.encode("utf-8", "surrogatepass")
