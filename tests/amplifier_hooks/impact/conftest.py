"""A project folder that lies nowhere, with three links, and a function that predicts a shell command in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from amplifier_hooks.impact.tools import predict_impact
from amplifier_hooks.impacts import CallImpact, FileFact, ImpactPolicy

HOME: Final = "/home/dev"
ROOT: Final = f"{HOME}/shop"
LINKS: Final = {f"{ROOT}/notes": f"{HOME}/.ssh", f"{ROOT}/data": HOME, f"{ROOT}/out": "/etc"}
FOLDERS: Final = frozenset((HOME, ROOT, f"{ROOT}/src", f"{HOME}/.ssh", "/tmp", "/etc", "/"))
POLICY: Final = ImpactPolicy(ROOT, HOME)

Predict = Callable[[str], CallImpact]


def stat(path: str) -> FileFact:
    """Answer about a made-up file system: three links in the project, a few folders, and nothing else."""
    assert path[:1] == "/", "a question about a path that depends on the folder of this process"
    for link, target in LINKS.items():
        if path == link or path.startswith(f"{link}/"):
            path = target + path[len(link) :]
    return FileFact(path, "folder" if path in FOLDERS else "missing")


@pytest.fixture
def predict() -> Predict:
    """A function that predicts a shell command."""
    return lambda command: predict_impact("Bash", {"command": command}, POLICY, stat)
