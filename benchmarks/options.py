"""The options every benchmark takes."""

from __future__ import annotations

from argparse import ArgumentParser

__all__ = ["parser"]


def parser(name: str, doc: str | None) -> ArgumentParser:
    """A parser with them, to add a benchmark's own to."""
    made = ArgumentParser(prog=f"python -m benchmarks {name}", description=(doc or "").partition("\n")[0])
    made.add_argument(
        "--quick", action="store_true", help="a few tiny samples, to see that it runs; the figures mean nothing"
    )
    made.add_argument("--write", action="store_true", help="keep the tables in RESULTS.md")
    return made
