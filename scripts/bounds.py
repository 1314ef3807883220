"""Test the ends of the supported range: each extra with the oldest releases that pyproject.toml allows, or the newest.

    uv run --no-project scripts/bounds.py oldest                     every suite
    uv run --no-project scripts/bounds.py newest langchain chat      some of them

Each suite has an environment of its own in a temporary folder, without the pins of the tree: SDKs exclude each other's
newest releases. `oldest` lowers every direct requirement at once, those of the base included.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = PYPROJECT["project"]["optional-dependencies"]
RESOLUTIONS = {"oldest": "lowest-direct", "newest": "highest"}
TOOLS = ("hypothesis", "pytest", "pytest-asyncio", "pytest-timeout")
"""The tools of the tests, which keep their pins."""
ADAPTER = "tests/amplifier_hooks/adapters/test_{0}.py tests/end_to_end/adapters/test_story.py -k {0}"
SUITES = {
    "agent-hooks": (("agent-hooks",), ADAPTER.format("agent_hooks")),
    "chat": (("chat", "server"), "tests/amplifier_hooks/cli/chat/test_models.py"),
    "claude-agent-sdk": (("claude-agent-sdk", "server"), ADAPTER.format("claude_agent_sdk")),
    "langchain": (("langchain",), ADAPTER.format("langchain")),
    "openai-agents": (("openai-agents",), ADAPTER.format("openai_agents")),
    "pydantic-ai": (("pydantic-ai",), ADAPTER.format("pydantic_ai")),
}
"""Extras to install, and arguments of pytest, by the name of the suite."""


def main() -> None:
    """Run the suites one after the other. Exits with 1 if one fails."""
    parser = argparse.ArgumentParser(description="Test the oldest or the newest releases that pyproject.toml allows.")
    parser.add_argument("end", choices=RESOLUTIONS)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=", ".join(SUITES))
    chosen = parser.parse_args()
    if unknown := sorted(set(chosen.suites) - set(SUITES)):
        parser.error(f"there is no suite {unknown[0]!r}; there are {', '.join(SUITES)}")
    failed = [name for name in chosen.suites or SUITES if not passes(name, RESOLUTIONS[chosen.end])]
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


def passes(name: str, resolution: str) -> bool:
    """Install the extras of a suite into a new environment, print the releases, and run the tests there."""
    extras, tests = SUITES[name]
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:  # uv finds no pins there
        wanted = ("--editable", f"{ROOT}[{','.join(extras)}]", *pins(TOOLS))
        uv(folder, "venv", "--quiet", "--no-project", "--python", sys.executable, "env")
        uv(folder, "pip", "install", "--quiet", "--python", "env", "--resolution", resolution, *wanted)
        listed = uv(folder, "pip", "freeze", "--python", "env").splitlines()
        brought = {name_of(requirement) for extra in extras for requirement in EXTRAS[extra]}
        releases = " ".join(one for one in listed if name_of(one) in brought)
        sys.stdout.write(f"{name}, with {releases}\n")
        sys.stdout.flush()
        pytest = (Path(folder, "env", "bin", "python"), "-m", "pytest", "-q", "-m", "", "-p", "no:cacheprovider")
        status = subprocess.run((*pytest, *tests.split()), cwd=ROOT, check=False).returncode
    sys.stdout.write(f"{name}: {'failed' if status else 'passed'} after {time.monotonic() - begin:.0f} s\n")
    return status == 0


def pins(names: tuple[str, ...]) -> list[str]:
    """Return the pins of packages."""
    return [pin for pin in PYPROJECT["tool"]["uv"]["constraint-dependencies"] if name_of(pin) in names]


def name_of(requirement: str) -> str:
    """Return the name of the package that is required."""
    return re.split(r"[^\w-]", requirement, maxsplit=1)[0]


def uv(folder: str, *arguments: str) -> str:
    """Run uv in a folder and return its output."""
    # Inside `uv run` the path of uv is in UV.
    command = os.environ.get("UV") or shutil.which("uv") or sys.exit("uv is not on PATH")
    return subprocess.run([command, *arguments], cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    main()
