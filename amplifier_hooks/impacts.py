"""The kinds of impact, and the values that say what a call would do."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable
from typing import Final, Literal, get_args

import msgspec

ImpactKind = Literal[
    "reads",
    "reads_secret",
    "writes_tree",
    "writes_temporary",
    "writes_guarded",
    "writes_outside",
    "deletes_one",
    "deletes_generated",
    "deletes_many",
    "deletes_outside",
    "runs_project",
    "runs_unread",
    "inline_code",
    "git_local",
    "git_loses_work",
    "git_publishes",
    "git_configures",
    "network_local",
    "network_known",
    "network_new",
    "network_sends",
    "installs_manifest",
    "installs_new",
    "process",
    "service_reads",
    "service_updates",
    "service_writes",
    "system",
    "environment",
    "unknown_program",
    "unreadable",
]

KINDS: Final[tuple[ImpactKind, ...]] = get_args(ImpactKind)

MEANINGS: Final[dict[ImpactKind, str]] = {
    "reads": "reads files, or the state of this machine",
    "reads_secret": "reads a secret",
    "writes_tree": "writes below the project folder",
    "writes_temporary": "writes to a temporary place",
    "writes_guarded": "writes a file that configures or starts programs",
    "writes_outside": "writes outside the project folder",
    "deletes_one": "deletes single files of the project",
    "deletes_generated": "deletes files that programs can generate again",
    "deletes_many": "deletes many files of the project",
    "deletes_outside": "deletes outside the project folder",
    "runs_project": "runs code of the project",
    "runs_unread": "runs code that is not read",
    "inline_code": "runs code that the command itself contains",
    "git_local": "changes the local git repository",
    "git_loses_work": "can lose work that git keeps",
    "git_publishes": "publishes with git",
    "git_configures": "configures git",
    "network_local": "connects to this machine",
    "network_known": "connects to a host that the policy trusts",
    "network_new": "connects to a host that the policy does not name",
    "network_sends": "sends data to another machine",
    "installs_manifest": "installs what the project's manifest names",
    "installs_new": "installs something new",
    "process": "ends or changes other processes",
    "service_reads": "reads from a service",
    "service_updates": "creates or changes things in a service",
    "service_writes": "changes a service",
    "system": "changes this machine, or uses its highest rights",
    "environment": "changes which programs or libraries later commands load",
    "unknown_program": "runs a program that no table names",
    "unreadable": "has a part that only a run can tell",
}


class Impact(msgspec.Struct, frozen=True, gc=False):
    """One thing that a call would do. `place` is a path, a host or a name; `reason` says what shows the impact."""

    kind: ImpactKind
    place: str = ""
    reason: str = ""
    unguards: bool = False
    """True if the impact can switch a hook off, or decides in a person's place."""

    @property
    def is_told(self) -> bool:
        """True if kind and place tell the harm; False where only a run can: a place with a gap, code without a file."""
        if self.kind in BOUNDED:
            return True
        if GAP in self.place or self.reason.startswith(UNTOLD):
            return False
        is_file = posixpath.isabs(self.place) and not self.place.startswith(("/dev/", "/proc/"))
        return is_file or self.kind not in ("runs_unread", "unreadable")

    def is_within(self, named: Impact) -> bool:
        """Return True if a card that names an impact names this one, too.

        The name of a kind in `BOUNDED` covers every place; a file that is written outside covers its folder. An
        impact that can switch a hook off is named by itself alone, and so is a place with a gap.
        """
        if self == named:
            return True
        if self.kind != named.kind or self.unguards:
            return False
        if self.kind in BOUNDED:
            return True
        folder = posixpath.dirname(named.place)
        files = self.kind == "writes_outside" and folder not in ("", "/") and self.is_told and named.is_told
        return files and posixpath.dirname(self.place) == folder


GAP: Final = "…"
"""The mark in a place for a part that only a run can tell, or that the place leaves out."""
UNTOLD: Final = "only a run tells"
"""The beginning of a reason for what only a run can tell."""

BOUNDED: Final[frozenset[ImpactKind]] = frozenset(
    (
        "reads",
        "writes_tree",
        "writes_temporary",
        "deletes_one",
        "deletes_generated",
        "inline_code",
        "git_local",
        "network_local",
        "network_known",
        "installs_manifest",
    )
)
"""Kinds whose meaning bounds the harm of every place."""


def covers(named: Iterable[Impact], impacts: Iterable[Impact]) -> bool:
    """Return True if every one of the impacts is within one that is named."""
    known = tuple(named)
    return all(any(one.is_within(other) for other in known) for one in impacts)


FileKind = Literal["missing", "file", "folder", "other", "unknown"]


class FileFact(msgspec.Struct, frozen=True, gc=False):
    """An answer to a question about a path: the path behind every link, and what lies there."""

    path: str
    kind: FileKind = "unknown"


Stat = Callable[[str], FileFact]
"""A function that answers a question about an absolute path."""


class CommandRun(msgspec.Struct, frozen=True, gc=False):
    """One command of a call, as the shell would start it: behind `&&`, in a pipe, or as an argument of another one.

    Args:
        words: The program and its arguments, expanded; assignments in front of the program come first.
        folders: The folder that it starts in, or the folders that this may be.
        kinds: The kinds of its own impacts, without those of commands that it starts.
        outer: Place of the command that starts it among the commands of the call, or -1.
        entered: The folders that it goes to by itself, as `git -C` does.

    `MARKS` of `places` stand for what only a run can tell.
    """

    words: tuple[str, ...]
    folders: tuple[str, ...]
    kinds: frozenset[ImpactKind]
    outer: int = -1
    entered: tuple[str, ...] = ()


class CallImpact(msgspec.Struct, frozen=True, gc=False):
    """The impacts of a call, the answers that the analysis used, and the commands and paths that it found."""

    impacts: tuple[Impact, ...]
    answers: tuple[tuple[str, FileFact], ...] = ()
    commands: tuple[CommandRun, ...] = ()
    paths: tuple[str, ...] = ()
    """The absolute paths that the call touches; `MARKS` of `places` stand for what only a run can tell."""
    loose: frozenset[ImpactKind] = frozenset()
    """The kinds of impacts outside of every command: those of redirects and assignments."""

    @property
    def kinds(self) -> frozenset[ImpactKind]:
        """The kinds of all impacts."""
        return frozenset(impact.kind for impact in self.impacts)


class ImpactPolicy(msgspec.Struct, frozen=True, gc=False):
    """The facts about a session that impact depends on; none of them is looked up.

    Args:
        root: The project folder. Relative paths of a call start here unless the call names a folder.
        home: The home folder of the user.
        temporary: Folders for temporary files.
        trusted_hosts: Host names that count as known; a leading dot covers every name below.
        trusted_folders: Folders outside the project that a call may write as it may write the project.
        trusted_programs: Names of programs that no table has, and that count as code of the project.
        guarded: Absolute paths of files and folders that guards depend on; a change of one takes a guard away.
        guarded_ports: Ports of this machine at which guards decide.
    """

    root: str
    home: str
    temporary: tuple[str, ...] = ("/tmp", "/var/tmp", "/private/tmp", "/dev/shm", "/var/folders")  # noqa: S108
    trusted_hosts: tuple[str, ...] = ()
    trusted_folders: tuple[str, ...] = ()
    trusted_programs: tuple[str, ...] = ()
    guarded: tuple[str, ...] = ()
    guarded_ports: tuple[int, ...] = ()
