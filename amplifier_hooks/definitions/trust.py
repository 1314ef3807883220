"""Whether somebody has read what a project's files would run.

That is kept outside of the project, or else opening one would be running it.

Trust is in content: the digest of a hook covers its definition and every file of the project or the home it names, and
the project it was found in. Whatever changes, the digest does, and nobody has trusted that.
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

from attrs import frozen

from amplifier_hooks.act import freeze
from amplifier_hooks.errors import HookUnavailable
from amplifier_hooks.storage.state_folder import state_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


DOMAIN: Final = b"amplifier-hooks/trusted-hook/1\n"
LARGEST: Final = 16 * 1024 * 1024
"""Bytes of a file that are hashed. One that is larger is no script."""


def files_of(words: Iterable[str], project: Path) -> Iterator[Path]:
    """The files of the project or the home that the words of a command name, and no programs of the system."""
    homes = (project.resolve(), Path.home().resolve())
    for word in words:
        with contextlib.suppress(OSError, ValueError):
            path = (project / word).resolve()
            if path.is_file() and any(path.is_relative_to(home) for home in homes):
                yield path


def digest_of(definition: Mapping[str, Any], words: Iterable[str], project: Path) -> str:
    """What trust is in: the project, the definition, and the content of the files it names as they are now."""
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
    """The words of a line of shell, as far as they can be told; quotes and operators are none."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        return list(lexer)
    except ValueError:  # an open quote: the shell will complain, not we
        return command.split()


@frozen
class TrustStore:
    """The digests somebody has trusted: one owner-only file, outside of every project."""

    path: Path

    @classmethod
    def default(cls) -> TrustStore:
        """Where the desktop keeps such things, `AMPLIFIER_HOOKS_TRUST` if that is set."""
        named = os.environ.get("AMPLIFIER_HOOKS_TRUST")
        return cls(Path(named) if named else state_folder() / "trust.json")

    def trusts(self, digest: str) -> bool:
        """Whether this very content was trusted. A file of others, or one others can write, trusts nothing."""
        return digest in self._read()

    def add(self, digests: Mapping[str, str]) -> None:
        """Trust these; each with what it is, for whoever reads the file.

        Raises `OSError` when it cannot be kept.
        """
        self._write({**self._read(), **digests})

    def remove(self, digests: Iterable[str]) -> None:
        """Trust these no longer."""
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
