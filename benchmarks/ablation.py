"""Why an emit costs what it does: the same registry with one ingredient left out at a time.

Each variant is the dispatcher's own source with a few words replaced, compiled beside the original and measured in the
same rounds, so its figure is what the ingredient costs where it stands, and not what it costs alone. A variant does
not keep our promises; it shows what a promise costs. Costs overlap and need not add up. An ingredient whose words are
no longer in the source is left out: correct the table then.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["INGREDIENTS", "AsItIs", "Ingredient", "variants"]

AsItIs: Final = "as it is"

ROOMS: Final = tuple(f"amplifier_hooks.{name}" for name in ("view", "dispatch", "registry"))
"""What may be edited, lowest first: each is compiled anew with those before it in place."""


class Ingredient(NamedTuple):
    """Something an emit does, and the words of the source that do it with what stands there without it."""

    name: str
    edits: Mapping[str, str]
    waits: bool = True
    """Hooks may suspend without it; where not, the watchdog would be misled."""


NOWHERE: Final = "class Nowhere:\n    run = staticmethod(lambda how, *given: how(*given))\n\n\n"
NOT_COMPARED: Final = {" and context == clean:": ":", "        if context != clean:": "        if False:"}

INGREDIENTS: Final = (
    Ingredient("comparing contexts after each hook", NOT_COMPARED),
    Ingredient(
        "contexts: copied, entered, told who runs, compared",
        {
            **NOT_COMPARED,
            "CURRENT: ContextVar": f"{NOWHERE}CURRENT: ContextVar",
            "context = copy_context()": "context = Nowhere",
            "context.run(next, walking, THROUGH)": "next(walking, THROUGH)",
            "clean = run.clean = context.copy()": "clean = None",
            "    CURRENT.set(run)\n": "",
        },
    ),
    Ingredient("telling who runs: CURRENT.set", {"    CURRENT.set(run)\n": ""}),
    Ingredient("asking who runs: CURRENT.get", {"outer = CURRENT.get()": "outer = None"}),
    Ingredient("the read-only view", {"DataView(data)": "data"}),
    Ingredient("a new view for every change", {"changed = DataView(view)": "changed = view"}),
    Ingredient(
        "reading the clock",
        {
            "from time import monotonic as clock": "clock = float",
            "self.started = self.mark = clock()": "pass",
            "clock() - self.started": "0.0",
        },
        waits=False,
    ),
    Ingredient("writing down whose turn it is", {"        run.hook = hook\n": ""}, waits=False),
    Ingredient("asking whether to look closely", {" and not run.attend": ""}),
    Ingredient("asking whether the hook is plain", {"if hook.plain:": "if True:"}),
    Ingredient("putting the answers on record", {"self._record(hook, result": "(lambda *_, **__: None)(hook, result"}),
    Ingredient("merging the answers", {"return merge(": "return (lambda e, d, *_, **__: Outcome(e, d))("}),
)


def variants(*, waits: bool) -> dict[str, Any]:
    """The registry class as it is and without each ingredient, all compiled from the source as it reads now.

    Args:
        waits: Only those that can be emitted to hooks that suspend.
    """
    sources = {room: Path(import_module(room).__file__ or "").read_text(encoding="utf-8") for room in ROOMS}
    made = {AsItIs: _compiled(sources)}
    for name, edits, may_wait in INGREDIENTS:
        if waits and not may_wait:
            continue
        edited = dict(sources)
        for words, others in edits.items():
            for room, source in edited.items():
                edited[room] = source.replace(words, others)
        if all(any(words in source for source in sources.values()) for words in edits):
            made[name] = _compiled(edited)
    return made


def _compiled(sources: Mapping[str, str]) -> Any:
    with _restored():
        for room, source in sources.items():
            module = sys.modules[room] = ModuleType(room)
            exec(compile(source, room, "exec"), vars(module))  # noqa: S102  # the source is our own
        return vars(sys.modules["amplifier_hooks.registry"])["HookRegistry"]


@contextmanager
def _restored() -> Iterator[None]:
    kept = {room: sys.modules[room] for room in ROOMS}
    try:
        yield
    finally:
        sys.modules.update(kept)
