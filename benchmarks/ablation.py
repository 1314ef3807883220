"""The cost of each ingredient of an emit: the same registry with one ingredient left out at a time.

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

ROOMS: Final = tuple(
    f"amplifier_hooks.{name}" for name in ("dispatch.chain", "dispatch.run_hooks", "registry.registry")
)
"""The modules that may be edited, lowest first: each is compiled anew with those before it in place."""


class Ingredient(NamedTuple):
    """One thing an emit does, with its words in the source and the words that replace them without it."""

    name: str
    edits: Mapping[str, str]
    waits: bool = True
    """Hooks may suspend without it; where not, the watchdog would be misled."""


NOWHERE: Final = "class Nowhere:\n    run = staticmethod(lambda how, *given: how(*given))\n\n\n"
NOT_COMPARED: Final = {"same = context == clean": "same = True"}

INGREDIENTS: Final = (
    Ingredient("comparing contexts after each hook", NOT_COMPARED),
    Ingredient(
        "contexts: copied, entered, told who runs, compared",
        {
            **NOT_COMPARED,
            "CURRENT: ContextVar": f"{NOWHERE}CURRENT: ContextVar",
            "context, todo = copy_context(), iter": "context, todo = Nowhere, iter",
            "context.run(next, walking, THROUGH)": "next(walking, THROUGH)",
            "clean = context.copy()": "clean = None",
            "    CURRENT.set(run)\n": "",
        },
        waits=False,
    ),
    Ingredient(
        "a context for each emit: one for all of them, in which no run is named",
        {
            "CURRENT: ContextVar": "ONE = copy_context()\nCLEAN = ONE.copy()\nCURRENT: ContextVar",
            "context, todo = copy_context(), iter": "context, todo = ONE, iter",
            "clean = context.copy()": "clean = CLEAN",
            "    CURRENT.set(run)\n": "",
        },
        waits=False,
    ),
    Ingredient(
        "a run for each emit: one for all of them",
        {
            "class HookRegistry(Registrar):": "POOL: Any = Run(None, {})\n\n\nclass HookRegistry(Registrar):",
            "            run = Run(chain.everybody or chain.pick(data), data, exact=exact)\n": (
                "            run = POOL\n"
                "            run.selection, run.data, run.exact = chain.everybody or chain.pick(data), data, exact\n"
                "            run.answers = run.modifier = run.denied = run.wait = run.output = None\n"
                "            run.torn = run.attend = run.paused = False\n"
            ),
        },
        waits=False,
    ),
    Ingredient("telling who runs: CURRENT.set", {"    CURRENT.set(run)\n": ""}),
    Ingredient("asking who runs: CURRENT.get", {" and CURRENT.get() is None:": ":"}),
    Ingredient(
        "asking whether a hook has cancelled the task", {"if chain.stoppable and has_cancelled_itself():": "if False:"}
    ),
    Ingredient("the read-only view", {"DataView(fields)": "fields"}),
    Ingredient("copies of the containers in the data", {"copiers = copiers_of(data)": "copiers = ()"}),
    Ingredient(
        "reading the clock",
        {
            "self.started = self.mark = clock()": "self.started = self.mark = 0.0",
            "now, picked, answers = clock(),": "now, picked, answers = 0.0,",
            "now = clock()\n        duration = now - self.mark\n        limit": "now = duration = 0.0; limit",
        },
        waits=False,
    ),
    Ingredient("asking whether to look closely", {" and not run.attend": ""}, waits=False),
    Ingredient("asking whether the hook is plain", {"if hook.plain:": "if True:"}),
    Ingredient(
        "putting the answers on record",
        {
            "            self._record(self._withhold(record) if hook.report_only else record)\n        if result": (
                "            pass\n        if result"
            )
        },
    ),
    Ingredient("merging the answers", {"return merge(": "return (lambda e, d, *_, **__: Outcome(e, d))("}),
)


def variants(*, waits: bool) -> dict[str, Any]:
    """Return the registry class as it is and without each ingredient, all compiled from the current source.

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
        return vars(sys.modules["amplifier_hooks.registry.registry"])["HookRegistry"]


@contextmanager
def _restored() -> Iterator[None]:
    kept = {room: sys.modules[room] for room in ROOMS}
    try:
        yield
    finally:
        sys.modules.update(kept)
