"""A shell command comes in; its likely effects on files go out, from a table of programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Literal

from attrs import define, field, frozen

from amplifier_hooks.impact.shell_parser import Word

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from amplifier_hooks.impact.shell_parser import ShellReader, ShellReading


DEEPEST: Final = 4
"""Deepest nesting of commands in the arguments of others."""
MOST_UNSEEN: Final = 12
LONGEST_NAME: Final = 120
DEVICE: Final = "/dev/null"

ImpactKind = Literal["creates", "changes", "deletes"]

IMPACT_KINDS: Final[tuple[ImpactKind, ...]] = ("creates", "changes", "deletes")


@frozen
class PathImpact:
    """One effect on a file. `known` is False if only running the command tells which file it is."""

    what: ImpactKind
    path: str
    known: bool = True


@define
class ShellImpact:
    """The effects of a command on files, as far as the reader understands the command."""

    impacts: list[PathImpact] = field(factory=list)
    unseen: list[str] = field(factory=list)
    """Programs of unknown effect, and parts of the command that could not be read."""
    moves: bool = False
    """True if the command changes its folder, so that its relative paths are uncertain."""

    def add(self, what: ImpactKind, *words: Word) -> None:
        """Add an effect on each of these words."""
        self.impacts += [
            PathImpact(what, word.text or word.source, word.text is not None) for word in words if word.text != DEVICE
        ]

    def paths_of(self, what: ImpactKind) -> list[str]:
        """Return the paths of one kind of effect, each once."""
        return list(dict.fromkeys(effect.path for effect in self.impacts if effect.what == what))


Reads = Callable[[ShellImpact, Sequence[Word]], None]
"""A function that adds the effects of a program with these arguments."""


def predict_impact(reader: ShellReader, command: str, depth: int = 0) -> ShellImpact:
    """Return the effects of a command on files, as far as the reader understands the command."""
    foreseen = ShellImpact()
    _follow(foreseen, reader.read(command), reader, depth)
    return foreseen


def _follow(foreseen: ShellImpact, reading: ShellReading, reader: ShellReader, depth: int) -> None:
    for one in reading.commands:
        _note_program(foreseen, one.words, reader, depth)
    for redirect in reading.redirects:
        foreseen.add("changes" if redirect.operator in (">>", "&>>", "<>") else "creates", redirect.target)
    if not reading.whole:
        _note_unseen(foreseen, "a part that could not be read")


def _note_program(foreseen: ShellImpact, words: Sequence[Word], reader: ShellReader, depth: int) -> None:
    """Add the effects of one simple command."""
    name = words[0].text
    if name is None:
        _note_unseen(foreseen, f"what {words[0].source} does")
        return
    name = name.rpartition("/")[2]
    inner = _inner_command(name, words)
    if inner and depth < DEEPEST:
        _note_program(foreseen, inner, reader, depth + 1)
    elif name in SHELLS and (script := _script(words)) is not None and depth < DEEPEST:
        _follow(foreseen, reader.read(script), reader, depth + 1)
    elif name in TABLE:
        TABLE[name](foreseen, words[1:])
        if name == "find":
            for one in _executed_commands(words):
                _note_program(foreseen, one, reader, depth + 1)
    elif name in ("cd", "pushd", "popd"):
        foreseen.moves = True
    elif name not in HARMLESS:
        _note_unseen(foreseen, f"what {name} does")


def _note_unseen(foreseen: ShellImpact, what: str) -> None:
    what = what[:LONGEST_NAME]
    if what not in foreseen.unseen and len(foreseen.unseen) < MOST_UNSEEN:
        foreseen.unseen.append(what)


# -- programs ----------------------------------------------------------------------------------------------------------


def _operands(words: Sequence[Word], value_options: Iterable[str] = ()) -> list[Word]:
    """Return the words that are neither options nor values of the `valued` options."""
    found: list[Word] = []
    rest = iter(words)
    for word in rest:
        text = word.source if word.text is None else word.text
        if text == "--":
            found += rest
        elif text in value_options:
            next(rest, None)
        elif not text.startswith("-") or text == "-":
            found.append(word)
    return found


def _option(words: Sequence[Word], *names: str) -> Word | None:
    """Return the value of an option, either after it (`-o a`, `-so a`) or in it (`--output=a`, `-oa`)."""
    letters = tuple(name[1] for name in names if not name.startswith("--"))
    for place, word in enumerate(words):
        text = word.text or ""
        bundled = text.startswith("-") and not text.startswith("--") and text.endswith(letters)
        if text in names or bundled:
            return words[place + 1] if place + 1 < len(words) else None
        for name in names:
            joined = f"{name}=" if name.startswith("--") else name
            if text.startswith(joined) and len(text) > len(joined):
                return Word(text[len(joined) :], text[len(joined) :])
    return None


def _has(words: Sequence[Word], short: str, *long: str) -> bool:
    """Return True if an option is given, alone or among other letters."""
    texts = [word.text or "" for word in words]
    return any(
        text in long or (text.startswith("-") and not text.startswith("--") and short in text[1:]) for text in texts
    )


def _all_operands(what: ImpactKind, *value_options: str, skip: int = 0) -> Reads:
    """Return a function that adds an effect on every operand but the first `skip`."""

    def reads(foreseen: ShellImpact, words: Sequence[Word]) -> None:
        foreseen.add(what, *_operands(words, value_options)[skip:])

    return reads


def _note_copy(foreseen: ShellImpact, words: Sequence[Word]) -> None:
    target = _option(words, "-t", "--target-directory")
    operands = _operands(words, ("-t", "--target-directory", "-m", "-o", "-g", "-S"))
    if target is not None:
        foreseen.add("creates", target)
    elif len(operands) > 1:
        foreseen.add("creates", operands[-1])


def _note_move(foreseen: ShellImpact, words: Sequence[Word]) -> None:
    operands = _operands(words, ("-t", "--target-directory", "-S"))
    sources = operands if _option(words, "-t", "--target-directory") is not None else operands[:-1]
    _note_copy(foreseen, words)
    foreseen.add("deletes", *sources)


def _note_link(foreseen: ShellImpact, words: Sequence[Word]) -> None:
    operands = _operands(words)
    if len(operands) == 1:
        shown = operands[0].source.rstrip("/").rpartition("/")[2]
        foreseen.add("creates", Word(shown, shown if operands[0].text is not None else None))
    else:
        _note_copy(foreseen, words)


def _note_tee(foreseen: ShellImpact, words: Sequence[Word]) -> None:
    foreseen.add("changes" if _has(words, "a", "--append") else "creates", *_operands(words))


def _note_in_place(foreseen: ShellImpact, words: Sequence[Word]) -> None:
    if _has(words, "i", "--in-place") or any((word.text or "").startswith("--in-place=") for word in words):
        scripted = _has(words, "e", "--expression") or _has(words, "f", "--file")
        foreseen.add("changes", *_operands(words, ("-e", "-f", "--expression", "--file"))[0 if scripted else 1 :])


def _note_dump(foreseen: ShellImpact, words: Sequence[Word]) -> None:
    for word in words:
        if word.source.startswith("of="):
            foreseen.add("creates", Word(word.source[3:], None if word.text is None else word.text[3:]))


def _note_fetch(foreseen: ShellImpact, words: Sequence[Word]) -> None:
    output = _option(words, "-o", "--output")
    if output is not None:
        foreseen.add("creates", output)
    elif _has(words, "O", "--remote-name"):
        foreseen.add("creates", Word("a file named by the address", None))


def _note_download(foreseen: ShellImpact, words: Sequence[Word]) -> None:
    output = _option(words, "-O", "--output-document", "-P", "--directory-prefix")
    foreseen.add("creates", output or Word("a file named by the address", None))


def _note_archive(foreseen: ShellImpact, words: Sequence[Word]) -> None:
    letters = (words[0].text or "").lstrip("-") if words else ""
    archive = _option(words, "-f", "--file")
    if archive is None and "f" in letters and len(words) > 1:
        archive = words[1]
    if "x" in letters or _has(words, "x", "--extract", "--get"):
        foreseen.add("creates", Word("what the archive holds", None))
    elif archive is not None and ("c" in letters or "r" in letters or "u" in letters):
        foreseen.add("creates", archive)


def _note_unpack(foreseen: ShellImpact, words: Sequence[Word]) -> None:
    if not _has(words, "l") and not _has(words, "t"):
        foreseen.add("creates", Word("what the archive holds", None))


def _note_pack(foreseen: ShellImpact, words: Sequence[Word]) -> None:
    foreseen.add("creates", *_operands(words)[:1])


def _note_sort(foreseen: ShellImpact, words: Sequence[Word]) -> None:
    output = _option(words, "-o", "--output")
    if output is not None:
        foreseen.add("changes", output)


def _note_search(foreseen: ShellImpact, words: Sequence[Word]) -> None:
    if any(word.text == "-delete" for word in words):
        foreseen.add("deletes", Word("the files it finds", None))


def _note_git(foreseen: ShellImpact, words: Sequence[Word]) -> None:
    operands = _operands(
        words, ("-C", "-c", "--git-dir", "--work-tree", "-b", "--branch", "--depth", "-m", "--message")
    )
    verb = operands[0].text if operands else None
    given = words[words.index(operands[0]) + 1 :] if operands else []
    if any((word.text or "") in ("-C", "--git-dir", "--work-tree") for word in words[: len(words) - len(given)]):
        foreseen.moves = True
    if verb == "clone" and len(operands) > 1:
        last = operands[-1]
        name = last.source.rstrip("/").rpartition("/")[2].removesuffix(".git")
        foreseen.add("creates", last if len(operands) > 2 else Word(name, name if last.text is not None else None))  # noqa: PLR2004  # the verb, the address, and the folder
    elif verb in ("rm", "mv"):
        if not any(word.text == "--cached" for word in given):
            (_all_operands("deletes") if verb == "rm" else _note_move)(foreseen, given)
    elif verb == "worktree":
        if len(operands) > 2 and operands[1].text == "add":  # noqa: PLR2004  # the verb, what it does, and the folder
            foreseen.add("creates", operands[2])
    elif verb == "init":
        foreseen.add("creates", *operands[-1:] if len(operands) > 1 else [Word(".git", ".git")])
    elif verb in GIT_CHANGES:
        foreseen.add("changes", Word("files of the repository", None))
    elif verb not in GIT_READS:
        _note_unseen(foreseen, f"what git {verb or ''} does".replace("  ", " "))


GIT_CHANGES: Final = frozenset((
    "am", "apply", "checkout", "cherry-pick", "clean", "merge", "pull", "rebase", "reset", "restore", "revert",
    "stash", "switch",
))  # fmt: skip
GIT_READS: Final = frozenset((
    "add", "blame", "branch", "commit", "config", "describe", "diff", "fetch", "grep", "log", "ls-files",
    "ls-remote", "push", "remote", "rev-parse", "show", "status", "tag",
))  # fmt: skip

TABLE: Final[dict[str, Reads]] = {
    "touch": _all_operands("creates", "-d", "-t", "-r", "--date", "--reference"),
    "mkdir": _all_operands("creates", "-m", "--mode"),
    "mkfifo": _all_operands("creates", "-m", "--mode"),
    "rm": _all_operands("deletes"),
    "rmdir": _all_operands("deletes"),
    "unlink": _all_operands("deletes"),
    "shred": _all_operands("changes", "-n", "-s"),
    "truncate": _all_operands("changes", "-s", "-r", "--size", "--reference"),
    "chmod": _all_operands("changes", skip=1),
    "chown": _all_operands("changes", skip=1),
    "chgrp": _all_operands("changes", skip=1),
    "patch": lambda foreseen, _: foreseen.add("changes", Word("files that the patch names", None)),
    "gzip": _all_operands("changes"),
    "gunzip": _all_operands("changes"),
    "cp": _note_copy,
    "install": _note_copy,
    "rsync": _note_copy,
    "scp": _note_copy,
    "mv": _note_move,
    "ln": _note_link,
    "tee": _note_tee,
    "sed": _note_in_place,
    "perl": _note_in_place,
    "dd": _note_dump,
    "curl": _note_fetch,
    "wget": _note_download,
    "tar": _note_archive,
    "unzip": _note_unpack,
    "zip": _note_pack,
    "sort": _note_sort,
    "find": _note_search,
    "git": _note_git,
}
"""Functions by program, for programs whose arguments determine their effects on files."""

HARMLESS: Final = frozenset((
    "[", ":", "basename", "cat", "cmp", "column", "comm", "cut", "date", "df", "diff", "dirname", "du", "echo",
    "exit", "export", "expr", "false", "file", "fold", "grep", "egrep", "fgrep", "head", "hostname", "id", "jq",
    "less", "local", "ls", "md5sum", "more", "nl", "od", "paste", "pgrep", "printenv", "printf", "ps", "pwd",
    "read", "readlink", "realpath", "return", "rg", "seq", "set", "sha1sum", "sha256sum", "shift", "sleep", "stat",
    "strings", "tac", "tail", "test", "tr", "tree", "true", "type", "uname", "uniq", "unset", "wait", "wc", "which",
    "whoami",
))  # fmt: skip
"""Programs without effects on files, except through redirects."""

SHELLS: Final = frozenset(("sh", "bash", "dash", "zsh", "ksh"))

WRAPPERS: Final[dict[str, tuple[str, ...]]] = {
    "sudo": ("-u", "-g", "-h", "-p", "-C"),
    "doas": ("-u",),
    "env": ("-u", "-C"),
    "nohup": (),
    "nice": ("-n",),
    "ionice": ("-c", "-n"),
    "time": (),
    "timeout": ("-k", "-s"),
    "stdbuf": ("-i", "-o", "-e"),
    "command": (),
    "builtin": (),
    "exec": ("-a",),
    "xargs": ("-I", "-n", "-P", "-d", "-L", "-s"),
}
"""Programs that run another program, with their options that take a value."""


def _inner_command(name: str, words: Sequence[Word]) -> list[Word]:
    """Return the command that another program runs, or no words if there is none."""
    if name not in WRAPPERS:
        return []
    rest = list(words[1:])
    while rest and (text := rest[0].text) is not None and (text.startswith("-") or (name == "env" and "=" in text)):
        del rest[: 2 if text in WRAPPERS[name] else 1]
    if name == "timeout":
        del rest[:1]
    if name == "xargs" and rest:
        rest.append(Word("what it is given", None))
    return rest


def _script(words: Sequence[Word]) -> str | None:
    """Return the script that `sh -c` would run, or None."""
    for place, word in enumerate(words[1:-1], 1):
        if (word.text or "").startswith("-") and (word.text or "").endswith("c"):
            return words[place + 1].text
    return None


def _executed_commands(words: Sequence[Word]) -> Iterator[list[Word]]:
    """Yield the commands that `find` would run."""
    one: list[Word] | None = None
    for word in words:
        if one is None:
            one = [] if word.text in ("-exec", "-execdir", "-ok", "-okdir") else None
        elif word.text in (";", "+"):
            if one:
                yield one
            one = None
        else:
            one.append(Word("the files it finds", None) if word.source == "{}" else word)
