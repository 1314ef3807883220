"""What it costs, beside what one would use instead: `python -m benchmarks` lists what is measured.

Machines are noisy and shared, so no figure here is a time alone. All subjects of a comparison run in one process, in
interleaved rounds, and what is stated is the median of the ratios within a round (`rounds.py`).
"""
