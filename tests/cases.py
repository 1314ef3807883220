"""Tests of pure functions over many cases, each of which costs less than an item of pytest does."""

from __future__ import annotations

from functools import wraps
from inspect import signature
from reprlib import Repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["each"]


def each(names: str | tuple[str, ...], cases: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test with each case as these arguments, as `pytest.mark.parametrize` does, but as one item of pytest.

    Its fixtures are those of all cases together, so they have to be values. The first case that fails is named.
    """
    given = (names,) if isinstance(names, str) else names
    rows = [dict(zip(given, (case,) if isinstance(names, str) else case, strict=True)) for case in cases]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def run(**fixtures: Any) -> None:
            assert rows, "there is no case"
            for row in rows:
                try:
                    test(**fixtures, **row)
                except BaseException as problem:
                    problem.add_note(f"with {Repr().repr(row)}")
                    raise

        shape = signature(test)
        left = [parameter for name, parameter in shape.parameters.items() if name not in given]
        setattr(run, "__signature__", shape.replace(parameters=left))  # noqa: B010  # functions have no such field
        return run

    return decorate
