"""Trust in the hooks of a project: a hook and the files it runs come in; its digest, trusted or not, goes out.

The list of trusted digests is stored outside of the project, so a project cannot trust itself.

Trust applies to content: the digest of a hook covers the project, the hook's definition, and every file of the project
or the home that the definition names. A change of any of them gives another digest, which is not trusted.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from attrs import field, frozen

from amplifier_hooks.act import freeze
from amplifier_hooks.errors import HookUnavailable
from amplifier_hooks.storage.state_folder import StateFolder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


DOMAIN: Final = b"amplifier-hooks/trusted-hook/1\n"
LARGEST: Final = 16 * 1024 * 1024
"""Bytes of a file that are hashed, at most. A larger file is refused as a script."""


def files_of(words: Iterable[str], project: Path) -> Iterator[Path]:
    """Yield the files of the project or the home that the words of a command name, and no programs of the system."""
    homes = (project.resolve(), Path.home().resolve())
    for word in words:
        with contextlib.suppress(OSError, ValueError):
            path = (project / word).resolve()
            if path.is_file() and any(path.is_relative_to(home) for home in homes):
                yield path


def digest_of(definition: Mapping[str, Any], words: Iterable[str], project: Path) -> str:
    """Return the digest of a project, a definition, and the current content of the files that its words name.

    Raises `HookUnavailable` for a file that is too large, and `OSError` for one that cannot be read.
    """
    hashed = hashlib.sha256(DOMAIN)
    for part in (os.fsencode(project.resolve()), freeze(dict(definition))):
        hashed.update(len(part).to_bytes(8, "big") + part)
    for path in sorted(set(files_of(words, project))):
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise HookUnavailable(
                f"{os.fspath(path)!r} is too large to be read before it runs ({LARGEST:,} bytes at most)"
            )
        for part in (os.fsencode(path), content):
            hashed.update(len(part).to_bytes(8, "big") + part)
    return hashed.hexdigest()


def words_of(command: str) -> list[str]:
    """Return the words of a line of shell, without quotes; a line with an open quote is split at blanks."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        return list(lexer)
    except ValueError:  # an open quote: the shell will complain, not we
        return command.split()


@frozen
class TrustStore:
    """The trusted digests, in one file that only its owner can read, outside of every project."""

    path: Path = field(factory=lambda: StateFolder().trust)

    def trusts(self, digest: str) -> bool:
        """Return True if a digest is trusted. A file that others own or can write trusts nothing."""
        return digest in self._read()

    def add(self, digests: Mapping[str, str]) -> None:
        """Trust digests. Each maps to a description for readers of the file.

        Raises `OSError` if the file cannot be written.
        """
        self._write({**self._read(), **digests})

    def remove(self, digests: Iterable[str]) -> None:
        """Remove digests from the trusted ones."""
        gone = set(digests)
        self._write({digest: what for digest, what in self._read().items() if digest not in gone})

    def _read(self) -> dict[str, str]:
        try:
            status = self.path.stat()
            if hasattr(os, "getuid") and (status.st_uid != os.getuid() or status.st_mode & 0o022):
                return {}
            value = json.loads(self.path.read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        return {str(digest): str(what) for digest, what in value.items()} if isinstance(value, dict) else {}

    def _write(self, digests: Mapping[str, str]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, name = tempfile.mkstemp(dir=self.path.parent, prefix=".trust-")  # owner-only, as it is made
        try:
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                json.dump(dict(digests), file, indent=1, sort_keys=True)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(self.path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
