"""Pin the whole dependency tree in pyproject.toml.

    uv run scripts/pin.py            add what is new, keep what is pinned
    uv run scripts/pin.py --upgrade  forget the pins and take the newest versions that fit together

A lock file records where each file was downloaded from, so it stays out of the repository. The list
`[tool.uv] constraint-dependencies` says the same without addresses: with it, every resolution gives one answer.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PINS = re.compile(r"^constraint-dependencies = \[.*?\]$", re.DOTALL | re.MULTILINE)


def main() -> None:
    """Rewrite the list in place."""
    parser = argparse.ArgumentParser(description="Pin the whole dependency tree in pyproject.toml.")
    parser.add_argument("--upgrade", action="store_true", help="forget the pins first")
    upgrade = parser.parse_args().upgrade

    pyproject = ROOT / "pyproject.toml"
    before = pyproject.read_text(encoding="utf-8")
    if upgrade:
        pyproject.write_text(with_pins(before, []), encoding="utf-8")
    try:
        uv("lock", *(["--upgrade"] if upgrade else []))
        pins = resolved()
    except subprocess.CalledProcessError as error:
        pyproject.write_text(before, encoding="utf-8")
        sys.exit(error.returncode)
    pyproject.write_text(with_pins(before, pins), encoding="utf-8")
    uv("lock")  # the pins alone give the same tree
    sys.stdout.write(f"{len(pins)} packages pinned\n")


def resolved() -> list[str]:
    """Name every package of every extra and group, with its version.

    Markers are dropped unless one name has two versions: a pin says which version, never whether.
    """
    plain = ("--no-annotate", "--no-emit-project", "--no-hashes", "--no-header")
    requirements = uv("export", "--all-extras", "--all-groups", *plain).splitlines()
    versions: dict[str, set[str]] = {}
    for requirement in requirements:
        pin = requirement.partition(" ;")[0]
        versions.setdefault(pin.partition("==")[0], set()).add(pin)
    return sorted(
        requirement if len(versions[requirement.partition("==")[0]]) > 1 else requirement.partition(" ;")[0]
        for requirement in requirements
    )


def with_pins(text: str, pins: list[str]) -> str:
    """Replace the list in the text of pyproject.toml."""
    lines = "".join(f'    "{pin}",\n' for pin in pins)
    replacement = f"constraint-dependencies = [\n{lines}]" if pins else "constraint-dependencies = []"
    replaced, found = PINS.subn(lambda _: replacement, text)
    if found != 1:
        sys.exit("pyproject.toml has no list of constraint-dependencies to rewrite")
    return replaced


def uv(*arguments: str) -> str:
    """Run uv on the project and hand back what it printed."""
    # Inside `uv run` the path of uv is in UV.
    command = os.environ.get("UV") or shutil.which("uv") or sys.exit("uv is not on PATH")
    return subprocess.run([command, *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    main()
