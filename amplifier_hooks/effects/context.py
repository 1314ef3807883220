"""Injection: a hook's text becomes a message in the agent's context, within limits, with its provenance."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Final

from amplifier_hooks.effects.audit import Recorder
from amplifier_hooks.errors import InjectionTooLarge
from amplifier_hooks.escape import for_model, marker
from amplifier_hooks.ports import Clock, ContextManager
from amplifier_hooks.provenance import Provenance
from amplifier_hooks.result import ContextInjection, Role

__all__ = ["MAX_INJECTION_SIZE", "InMemoryContext", "Injector"]

MAX_INJECTION_SIZE: Final = 10_240
"""Bytes of UTF-8 one injection may have, inclusive."""


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
    """Puts injections into one session's context."""

    def __init__(self, context: ContextManager, recorder: Recorder, clock: Clock, tenant: str) -> None:
        self._context = context
        self._recorder = recorder
        self._clock = clock
        self._tenant = tenant

    async def inject(self, injections: Sequence[ContextInjection]) -> None:
        """Write each text as a message of its role, under a heading that names its hook.

        Raises `InjectionTooLarge` for the first that is over the limit, before any is written.
        """
        for item in injections:
            size = len(item.content.encode("utf-8", "surrogatepass"))
            if size > MAX_INJECTION_SIZE:
                raise InjectionTooLarge(size, MAX_INJECTION_SIZE, item.hook_name)
        for item in injections:
            await self._write(item)

    async def _write(self, item: ContextInjection) -> None:
        raw = item.content.encode("utf-8", "surrogatepass")
        tag = Provenance(
            hook=item.hook_name,
            event=item.event,
            timestamp=self._clock.now().isoformat(),
            tenant=self._tenant,
            digest=hashlib.sha256(raw).hexdigest(),
        )
        text = f"{marker('hook ' + item.hook_name)}\n{for_model(item.content)}"
        added = self._context.add_message(item.role, text, tag.metadata())
        if inspect.isawaitable(added):
            await added
        await self._recorder.write("injection", {**tag.metadata(), "role": item.role, "size": len(raw)})
