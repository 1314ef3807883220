"""Runs over HTTP: for whoever wants one, whoever looks at them, and the runners.

view      a run as others see it: its timeline, what its hooks changed, its children. Pure
bodies    what goes in, and what comes out
stream    its events, as they happen
routes    `/runs` and `/runner/runs`
"""
