"""The options every benchmark takes."""

from __future__ import annotations

from argparse import ArgumentParser

__all__ = ["parser"]


def parser(name: str, doc: str | None) -> ArgumentParser:
    """Return a parser with these options, to which a benchmark adds its own."""
    made = ArgumentParser(prog=f"python -m benchmarks {name}", description=(doc or "").partition("\n")[0])
    made.add_argument(
        "--quick", action="store_true", help="a few tiny samples, to see that it runs; the figures mean nothing"
    )
    made.add_argument("--write", action="store_true", help="keep the tables in RESULTS.md")
    return made
