"""Benchmarks compare our costs with those of the alternatives: `python -m benchmarks` lists them.

Machines are noisy and shared, so no figure here is a time alone. All subjects of a comparison run in one process, in
interleaved rounds, and each figure is the median of the ratios within a round (`rounds.py`).

    uv run --all-extras just bench dispatch                                              asyncio's loop
    uv run --all-extras --group benchmarks just bench dispatch --uvloop                  uvloop's
    uv run --isolated --python 3.13 --all-extras python -m benchmarks dispatch --write   another Python
"""
