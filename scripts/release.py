"""Build the release and check it in empty environments. Nothing is uploaded: the last lines say what is left to do.

    uv run --group release scripts/release.py    the committed state, into dist/

The page of a package index resolves no relative link. The build therefore takes a copy of the README: its links and
pictures lead to the tag of this version at `Source` in `[project.urls]`; without that address they become plain text.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"
RELATIVE = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?!\w+:|#)(?P<path>[^)\s]+)\)")
CALLS = ("--version", "demo --no-input --fast", "doctor")
"""Calls of the command that need no extra."""


def main() -> None:
    """Build, check, and print the files and what is left to do."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    source, version = project.get("urls", {}).get("Source", ""), project["version"]
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "copy")
        copy.mkdir()
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
        subprocess.run(["tar", "--extract"], cwd=copy, check=True, input=archive)
        readme = copy / "README.md"
        readme.write_text(long_description(readme.read_text(encoding="utf-8"), source, version), encoding="utf-8")
        uv("build", "--quiet", "--out-dir", DIST, folder=copy)
        (DIST / ".gitignore").unlink(missing_ok=True)
        files = sorted(DIST.iterdir())
        subprocess.run([Path(sys.executable).parent / "twine", "check", "--strict", *files], check=True)
        for file in files:
            check_install(file, Path(folder, file.name))
    for file in files:
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        sys.stdout.write(f"dist/{file.name}: {file.stat().st_size:,} bytes, sha256 {digest}\n")
    steps = left_to_do(source, version, (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    sys.stdout.write("Nothing was uploaded. Left to do:\n" + "".join(f"- {step}\n" for step in steps))


def long_description(readme: str, source: str, version: str) -> str:
    """Return the README for the page of a package index: relative links absolute, plain text without `source`."""

    def absolute(found: re.Match[str]) -> str:
        if not source:
            return "" if found["picture"] else found["text"]
        kind = "raw" if found["picture"] else "blob"
        return f"{found['picture']}[{found['text']}]({source.rstrip('/')}/{kind}/v{version}/{found['path']})"

    return RELATIVE.sub(absolute, readme)


def check_install(file: Path, folder: Path) -> None:
    """Install a file into an empty environment, and call its command in an empty home, there and through `uvx`."""
    home = folder / "home"
    home.mkdir(parents=True)
    uv("venv", "--quiet", "--no-project", "--python", sys.executable, "env", folder=folder)
    uv("pip", "install", "--quiet", "--python", "env", file, folder=folder)
    environment = {"HOME": str(home), "PATH": os.defpath}
    for call in CALLS:
        command = [str(folder / "env" / "bin" / "amplifier-hooks"), *call.split()]
        subprocess.run(command, cwd=home, env=environment, check=True, stdout=subprocess.DEVNULL)
    uv("tool", "run", "--python", sys.executable, "--from", file, "amplifier-hooks", *CALLS[1].split(), folder=home)
    sys.stdout.write(f"{file.name}: installed, and called with {', '.join(CALLS)}; {CALLS[1]} through uvx\n")


def left_to_do(source: str, version: str, changes: str) -> list[str]:
    """Return the steps up to the upload."""
    steps = [] if source else ["name the repository as Source in [project.urls]: the page has no links without it"]
    if not re.search(rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)$", changes, re.MULTILINE):
        steps.append(f"date {version} in CHANGELOG.md")
    return [*steps, f"git tag v{version} && git push origin v{version}", "uv publish dist/*"]


def uv(*words: str | Path, folder: Path) -> None:
    """Run uv in a folder, without its output."""
    # Inside `uv run` the path of uv is in UV.
    command = os.environ.get("UV") or shutil.which("uv") or sys.exit("uv is not on PATH")
    subprocess.run([command, *words], cwd=folder, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
