"""Change one module in small ways and show which changes no test notices.

    uv run --group mutants scripts/mutants.py amplifier_hooks/dispatch/merge.py [argument of pytest ...]

Arguments that begin with tests/ select the tests; without them nearly all run. mutmut changes what functions and
methods do. It leaves tables at the top of a module and decorated functions alone (except class and static methods): a
table needs a test that walks all of it. All happens in a temporary copy.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parent.parent
PACKAGES = ("amplifier_hooks", "approval_backends")
# Tests of the documents and of the distribution look at files, not at what a function does.
TESTS = ("tests/amplifier_hooks", "tests/approval_backends", "tests/conformance", "tests/properties")
PYTEST = [
    *("-m", "not agents and not chromium and not postgres and not slow"),
    *("-k", "not pure"),  # changed code imports mutmut, so what a module imports cannot be tested
]


def main() -> None:
    """Mutate, test, and show the changes that survived."""
    parser = argparse.ArgumentParser(description="Change one module in small ways; show what no test notices.")
    parser.add_argument("module", help="such as amplifier_hooks/dispatch/merge.py")
    module, arguments = parser.parse_known_args()
    name = Path(module.module).as_posix()
    if not name.startswith(PACKAGES) or not (ROOT / name).is_file():
        parser.error(f"{name} is no module of {' or '.join(PACKAGES)}")

    with TemporaryDirectory() as folder:
        copy = Path(folder)
        copy_checkout(copy)
        configure(copy, name, arguments)
        run = subprocess.run([sys.executable, "-m", "mutmut", "run"], cwd=copy, check=False)
        if run.returncode:
            sys.exit(run.returncode)
        for line in mutmut(copy, "results").splitlines():
            mutant, _, outcome = line.strip().partition(": ")
            if outcome == "timeout":
                continue  # a test that hangs has noticed
            print(f"\n{outcome}: {mutant}\n{mutmut(copy, 'show', mutant)}")


def copy_checkout(copy: Path) -> None:
    """Copy what git knows or would add, as it is now."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    for name in filter(None, listing.stdout.split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)


def configure(copy: Path, module: str, arguments: list[str]) -> None:
    """Tell mutmut, which reads only pyproject.toml, what to change and which tests to run."""
    tests = [argument for argument in arguments if argument.startswith("tests/")]
    settings = {
        "source_paths": PACKAGES,
        "only_mutate": [module],
        "also_copy": [path.name for path in copy.iterdir() if path.name not in {*PACKAGES, "tests"}],
        "pytest_add_cli_args_test_selection": tests or TESTS,
        "pytest_add_cli_args": [*PYTEST, *(argument for argument in arguments if argument not in tests)],
    }
    with (copy / "pyproject.toml").open("a", encoding="utf-8") as pyproject:
        # A JSON list of strings is a TOML array.
        pyproject.write("\n[tool.mutmut]\n")
        pyproject.writelines(f"{key} = {json.dumps(value)}\n" for key, value in settings.items())


def mutmut(copy: Path, *arguments: str) -> str:
    """Ask mutmut about the run, and hand back what it says."""
    command = [sys.executable, "-m", "mutmut", *arguments]
    return subprocess.run(command, cwd=copy, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    main()
