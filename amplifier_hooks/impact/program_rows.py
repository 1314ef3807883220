"""A program and its arguments come in; its impacts go out, by the row that a table has for the program.

A row is data. It says which options take values, and which role every operand and every value has. A role is one
function of this module: `reads`, `writes`, `deletes`, `shell`, … A program that no row can describe names a reader, a
function in `readers`.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from attrs import define, field, fields_dict, frozen

from amplifier_hooks.impact.inline_code import read_code, read_sql
from amplifier_hooks.impact.places import (
    ANY,
    BUILT,
    GUARD,
    NAME,
    UNKNOWN,
    is_remote,
    is_secret_name,
    names_of,
    remote_host,
    show,
    tells_outward,
    url_impact,
)
from amplifier_hooks.impact.tables import load_table
from amplifier_hooks.impacts import GAP, Impact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from amplifier_hooks.impact.shell import ShellState, ShellWalk
    from amplifier_hooks.impacts import ImpactKind

FAMILIES: Final = (
    "files",
    "text",
    "git",
    "network",
    "packages",
    "languages",
    "services",
    "containers",
    "cloud",
    "machine",
    "shells",
)
LOADING_OPTIONS: Final = frozenset(("-c", "-f", "-r", "-C", "-t", "-I", "-P", "-S", "-b", "-s", "-Xclang", "run"))
"""Options and verbs of programs with code of the project whose value is code or settings."""
SKIPPED: Final = ("skip*",)
"""The roles of operands without an impact."""
LINKING: Final = re.compile(r"-extld(?!flags)|-fplugin|-specs|-wrapper")
"""Options of linkers that name a program."""
STARTING: Final = frozenset(("command", "tail"))
"""Roles of the first word of another program, behind which all options belong to that program."""
OPTION: Final = re.compile(r"--?[A-Za-z]")
HELP: Final = frozenset(("--help", "--version", "-V", "version", "help", "-version"))


@frozen
class Row:
    """One row of a table of programs.

    Args:
        operands: Roles of the words that are no options, in their order; `role*` repeats.
        values: Options whose value has no role.
        options: Roles of the values of options.
        flags: Kinds that options without a value add; also `recursive`, or `operands: …` to replace the roles.
        pairs: Options that take a name besides their value.
        joined: Options of one letter whose value, if they have one, stands in the same word.
        instead: Options whose value stands for the first operand.
        assignments: Roles of operands of the form `name=value`.
        plus: Role of operands that begin with `+`.
        single: True if long options have one dash, so that letters are not bundled.
        verbs: Rows of subcommands.
        otherwise: Kinds of a subcommand that no row names, and of none at all.
        kinds: Kinds that the program always has.
        reason: Reason for these kinds.
        recursive: True if the program always goes into folders.
        stdin: Role of the standard input of a program without operands.
        prints: `name`, `listed`, `stdin`, or `arguments`: what is known of the output.
        listing: Options that make the output a list of paths below the last operands.
        looks: Options with which the program only says what it would do.
        unguards: True if the kind `system` of the program and its subcommands means that it takes a guard away.
        by: Module and name of a function in `readers` that reads the arguments instead.
        examples: Commands, each with all its kinds. A test reads them.
    """

    operands: tuple[str, ...] = ("skip*",)
    values: frozenset[str] = frozenset()
    options: dict[str, str] = field(factory=dict)
    flags: dict[str, str] = field(factory=dict)
    pairs: frozenset[str] = frozenset()
    joined: frozenset[str] = frozenset()
    instead: frozenset[str] = frozenset()
    assignments: dict[str, str] = field(factory=dict)
    plus: str = ""
    single: bool = False
    verbs: dict[str, Row] = field(factory=dict)
    otherwise: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    reason: str = ""
    recursive: bool = False
    stdin: str = ""
    prints: str = ""
    listing: frozenset[str] = frozenset()
    looks: frozenset[str] = frozenset()
    unguards: bool = False
    by: str = ""
    examples: dict[str, str] = field(factory=dict)
    valued: frozenset[str] = field(init=False)
    """All options that take a value."""
    starts: bool = field(init=False)
    """True if an operand is the first word of another program."""

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "valued", self.values | self.options.keys())
        object.__setattr__(self, "starts", not STARTING.isdisjoint(self.operands))


def read_row(entry: dict[str, Any], parent: Row | None = None) -> Row:
    """Return a row from its data. A subcommand knows the options of its program, too."""
    if unknown := entry.keys() - {name for name, one in fields_dict(Row).items() if one.init}:
        raise ValueError(f"a row of a table of programs has no key {min(unknown)!r}")
    given = {key: READ[key](value) if key in READ else value for key, value in entry.items() if key != "verbs"}
    if parent is not None:
        given["values"] = given.get("values", frozenset()) | parent.values
        given["options"] = parent.options | given.get("options", {})
        given["flags"] = parent.flags | given.get("flags", {})
        given = {"single": parent.single, "unguards": parent.unguards} | given
    row = Row(**given)
    row.verbs.update(_split_keys({names: read_row(verb, row) for names, verb in entry.get("verbs", {}).items()}))
    return row


def _split_keys(table: dict[str, Any]) -> dict[str, Any]:
    return {name: value for names, value in table.items() for name in names.split()}


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


READ: Final[dict[str, Callable[[Any], Any]]] = {
    **dict.fromkeys(("operands", "otherwise", "kinds"), _words),
    **dict.fromkeys(("values", "pairs", "joined", "instead", "listing", "looks"), _names),
    **dict.fromkeys(("options", "flags"), _split_keys),
}
"""The keys of a row that hold several words, each with the function that reads them."""


_known_names = lru_cache(maxsize=256)(_names)


@cache
def program_rows() -> dict[str, Row]:
    """Return the rows of all families by the names of their programs."""
    rows: dict[str, Row] = {}
    for family in FAMILIES:
        rows |= _split_keys({names: read_row(entry) for names, entry in load_table(family).items()})
    return rows


def program_name(word: str) -> str:
    """Return the name of a program without its folder and without `.exe`."""
    base = word.rpartition("/")[2]
    return base[:-4].lower() if base[-4:].lower() == ".exe" else base


@frozen
class SplitWords:
    """The arguments of a program, split into operands and options; an option without a value has an empty one."""

    operands: list[str]
    found: list[tuple[str, str]]

    def has(self, *names: str) -> bool:
        """Return True if one of these options was found, with or without a value behind `=`."""
        return any(name in names or name.partition("=")[0] in names for name, _ in self.found)

    def may_have(self, *names: str) -> bool:
        """Return True if one of these options was found, perhaps abbreviated."""
        short = tuple(name for name, _ in self.found if name[:2] == "--" and name[3:])
        return self.has(*names) or any(full.startswith(name) for full in names for name in short)

    def all(self, *names: str) -> list[str]:
        """Return the values of these options."""
        return [value for name, value in self.found if name in names]

    def one(self, *names: str) -> str:
        """Return the value of the first of these options, or an empty text."""
        return next(iter(self.all(*names)), "")


@define
class ProgramRun:
    """One program with its arguments, at the place in a command where it runs."""

    walk: ShellWalk
    state: ShellState
    name: str
    words: list[str]
    """The arguments, without the program."""
    stdin: str
    row: Row
    recursive: bool = False
    operands: list[str] = field(factory=list)
    output: str | None = None
    """The output, as far as a role knows it."""
    roles: tuple[str, ...] = ()
    settings: list[tuple[str, str]] = field(factory=list)
    """The options that were found, each with its value or an empty text."""

    def add(self, kind: ImpactKind, place: str = "", reason: str = "") -> None:
        """Add an impact. Code in a folder outside the project is no code of the project."""
        if kind in ("runs_project", "installs_manifest"):
            if self.walk.places.is_foreign(self.state.folders):
                self.walk.add("runs_unread", show(self.state.folders[0]), "a folder outside the project")
            self.walk.load_written(self.state)
        self.walk.add(kind, show(place), reason)

    def refuse_outside(self, words: Sequence[str]) -> None:
        """Add `runs_unread` for every place outside the project that a program with code of the project is told."""
        for before, word in zip(["", *words], words, strict=False):
            joined = word[:1] == "-" and word[2:3] in ("/", "~")
            text = word[2:] if joined else word.rpartition("=")[2].removeprefix("@")
            if "://" in text:
                self.url(text)
            loads = before in LOADING_OPTIONS or word[:1] == "@" or (joined and word[:2] in LOADING_OPTIONS)
            for path in self.paths(text) if text[:1] in ("/", "~") or text[:2] == ".." else ():
                if any(one.place == show(path) for one in self.walk.impacts):
                    continue
                if self.walk.places.is_elsewhere(path) or (loads and self.walk.places.is_foreign((path,))):
                    self.add("runs_unread", path, "a place outside the project")

    def split(self, words: Sequence[str], values: str = "", *, stop: bool = False, single: bool = False) -> SplitWords:
        """Return the arguments, split by the options of the row and by more options that take `values`."""
        return SplitWords(*split_words(self.row, words, more=_known_names(values), stop=stop, single=single))

    def paths(self, text: str) -> list[str]:
        """Return the absolute paths that a text may mean; a command may not know its folder for sure."""
        return [self.walk.places.absolute(text, folder) for folder in self.state.folders]

    def enter(self, text: str) -> None:
        """Go to a folder for the rest of this program."""
        self.state = self.state.copy()
        self.state.folders = tuple(self.paths(text))
        self.walk.entered += self.state.folders

    def reads(self, text: str, *, recursive: bool = False) -> None:
        """Read a file or folder; `-` is the standard input."""
        for path in self.paths(text) if text not in ("", "-") else ():
            self.walk.note(self.walk.places.reads(path, recursive=recursive))

    def writes(self, text: str, content: str | None = UNKNOWN, *, hint: str = "", whole: bool = False) -> None:
        """Write a file; `-` is the standard output. `Places.writes` says what the other arguments mean."""
        for path in self.paths(text) if text not in ("", "-") else ():
            self.walk.note(*self.walk.places.writes(path, content, hint=hint, whole=whole))

    def unguards(self, text: str, *, whole: bool = False) -> None:
        """Link to a file, connect to a socket, or open an editor. That is a change if a guard depends on the file."""
        for path in self.paths(text):
            if reason := self.walk.places.unguards(path, whole=whole):
                self.walk.note(Impact("writes_guarded", show(path), reason, unguards=True))

    def deletes(self, text: str, *, recursive: bool = False) -> None:
        """Delete a file or folder."""
        for path in self.paths(text) if text else ():
            self.walk.note(*self.walk.places.deletes(path, recursive=recursive))

    def is_scratch(self, text: str) -> bool:
        """Return True if a file lies in a temporary folder and nowhere else."""
        places = self.walk.places
        return all(places.is_own(path) and places.is_foreign((path,)) for path in self.paths(text))

    def url(self, text: str, *, sends: bool = False) -> None:
        """Connect to an address."""
        self.walk.note(url_impact(text, self.walk.places.policy, sends=sends))

    def apply(self, role: str, text: str) -> None:
        """Add the impacts of a word with a role."""
        function, argument = _function_of(role)
        function(self, text, argument)

    def read(self, words: Sequence[str], path: list[str]) -> None:
        """Add the impacts of arguments by the row, whose program or subcommand `path` names; its reader calls this."""
        _read_by_row(self, words, path)

    def is_known_tool(self, name: str) -> bool:
        """Return True if a table names a program, and the program runs code of the project or has subcommands."""
        row = program_rows().get(name)
        if row is None or row.by not in ("", "running.interpreter"):
            return False
        return "runs_project" in row.kinds or bool(row.verbs)


@cache
def _function_of(role: str) -> tuple[Callable[[ProgramRun, str, str], None], str]:
    """Return the function of a role, and the argument behind its colon."""
    name, _, argument = role.partition(":")
    return ROLES[name], argument


@cache
def _reader(name: str) -> Callable[[ProgramRun, list[str]], None]:
    """Return a function of `readers` by its module and its name: `files.find` is `read_find` in `files`."""
    module, _, function = name.partition(".")
    found: Callable[[ProgramRun, list[str]], None] = getattr(
        import_module(f"{__package__}.readers.{module}"), f"read_{function}"
    )
    return found


def run_program(run: ProgramRun) -> str:
    """Add the impacts of a program by its row, and return what is known of its output."""
    words = run.words
    if words and words[-1] in HELP and not words[2:] and not run.row.by:
        return NAME
    path = [run.name]
    if not run.row.kinds or "system" not in run.row.kinds:
        _read_named(run, words)
    _read(run, words, path)
    return run.output if run.output is not None else _output(run)


@lru_cache(maxsize=1024)
def _meaning(option: str) -> str:
    """Return what the name of an option says of its value: `writes`, `loads`, or nothing."""
    parts = frozenset(option.lstrip("-").replace("_", "-").split("-"))
    if parts & names_of("options_that_write"):
        return "writes"
    return "loads" if parts & names_of("options_that_load") else ""


def _read_named(run: ProgramRun, words: Sequence[str]) -> None:
    """Judge what the names of options say of their values, for options that no row knows; this only raises."""
    for place, word in enumerate(words, start=1):
        if word[:1] != "-":
            continue
        name, joined, value = word.partition("=")
        if not (meaning := _meaning(name)) or name in run.row.options:
            continue
        value = value if joined else "".join(words[place : place + 1])
        if meaning == "writes" and value[:1] != "-":
            kept = [
                one
                for path in run.paths(value)
                for one in run.walk.places.writes(path, None)
                if value and one.kind in ("writes_outside", "writes_guarded")
            ]
            run.walk.note(*kept)
        elif meaning == "loads" and value[:1] in ("/", "~", "."):
            run.walk.note(
                *(one for path in run.paths(value) if (one := run.walk.places.runs(path)).kind != "runs_project")
            )


def _read(run: ProgramRun, words: Sequence[str], path: list[str]) -> None:
    row = run.row
    if row.by:
        _add_kinds(run, row.kinds, row.reason, path)
        _reader(row.by)(run, list(words))
    else:
        _read_by_row(run, words, path)


def _read_by_row(run: ProgramRun, words: Sequence[str], path: list[str]) -> None:
    row = run.row
    run.recursive = run.recursive or row.recursive
    run.roles = row.operands
    run.operands, found = split_words(row, words, single=row.single, stop=row.starts or bool(row.verbs))
    run.settings += found
    if row.looks and any(name in row.looks for name, _ in found):
        run.add("reads", " ".join(path))
        return
    _apply_options(run, found)
    if row.verbs:
        _read_verb(run, path)
        return
    _add_kinds(run, row.kinds, row.reason, path)
    if "runs_project" in row.kinds:
        run.refuse_outside(words)
    if row.stdin and not [word for word in run.operands if word != "-"]:
        run.apply(row.stdin, run.stdin)
    if run.roles != SKIPPED or row.assignments or row.plus:
        _apply_roles(run)


def _apply_options(run: ProgramRun, found: Sequence[tuple[str, str]]) -> None:
    """Add the impacts of options by the row."""
    row = run.row
    for name, value in found:
        if flag := row.flags.get(name):
            _apply_flag(run, flag)
        elif role := row.options.get(name):
            run.apply(role, value)
        elif value and "reads*" in row.operands:
            _object(run, value, "")


def _read_verb(run: ProgramRun, path: list[str]) -> None:
    """Go on with the row of the subcommand, which is the first operand."""
    row = run.row
    verb = run.operands[0] if run.operands else ""
    child = row.verbs.get(verb)
    if child is not None:
        run.row = child
        _read(run, run.operands[1:], [*path, verb])
    elif not verb or verb in HELP:
        _add_kinds(run, row.kinds or row.otherwise if not verb else (), row.reason, path)
    elif row.otherwise:
        _add_kinds(run, row.otherwise, row.reason, [*path, verb])
        rest, found = split_words(row, run.operands[1:], single=row.single)
        run.operands = [verb, *rest]
        run.settings += found
        _apply_options(run, found)
        if "/" in verb and "runs_project" in row.otherwise:
            run.walk.note(*map(run.walk.places.runs, run.paths(verb)))
        _apply_roles(run)
    elif UNKNOWN in verb:
        run.add("unreadable", " ".join([*path, verb]), "only a run tells the subcommand")
    else:
        run.add("unknown_program", " ".join([*path, verb]), "a subcommand that no table names")


def split_words(
    row: Row, words: Sequence[str], *, more: frozenset[str] = frozenset(), stop: bool = False, single: bool = False
) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the operands, and the options with their values.

    `more` are options that take values besides those of the row; `stop` ends the options at the first operand; `single`
    says that long options have one dash.
    """
    operands: list[str] = []
    found: list[tuple[str, str]] = []
    place = 0
    while place < len(words):
        word = words[place]
        place += 1
        if word[:1] != "-" or word == "-":
            operands.append(word)
            if stop:
                return [*operands, *words[place:]], found
            continue
        if word == "--" and not single:
            return [*operands, *words[place:]], found
        following = words[place] if place < len(words) else ""
        for name, value, used in _options_of(row, word, following, more, single=single):
            found.append((name, value))
            place += used + (used and name in row.pairs)
            if used and OPTION.match(value):  # Where the option takes no value after all, its value is an option.
                found += [(one, "") for one, _, _ in _options_of(row, value, "", more, single=single)]
    return operands, found


def _options_of(
    row: Row, word: str, following: str, more: frozenset[str], *, single: bool
) -> list[tuple[str, str, bool]]:
    """Return the options in one word: their names, their values, and if the following word is the value."""
    valued = row.valued | more if more else row.valued
    if word.startswith("--") or single:
        name, joined, value = word.partition("=")
        if single and name[1:] in valued:
            name = name[1:]
        elif name[:2] == "--" and name[3:] and name not in valued and name not in row.flags:
            known = (*row.options, *row.flags, *sorted(row.values | more))
            name = next((full for full in known if full.startswith(name)), name)
        if joined or name not in valued:
            short = name[:2] if single and word[1:2].isupper() and name[:2] in valued else ""
            return [(short, word[2:], False)] if short else [(name, value, False)]
        return [(name, following, True)]
    options: list[tuple[str, str, bool]] = []
    for place in range(1, len(word)):
        name = f"-{word[place]}"
        if name in valued:
            rest = word[place + 1 :]
            return [*options, (name, rest or following, not rest)]
        if name in row.joined:
            return [*options, (name, word[place + 1 :], False)]
        options.append((name, "", False))
    return options


def _apply_flag(run: ProgramRun, flag: str) -> None:
    if flag == "recursive":
        run.recursive = True
    elif flag.startswith("operands: "):
        run.roles = tuple(flag.removeprefix("operands: ").split())
    else:
        _add_kinds(run, flag.split(), "", [run.name])


TOLD_BY_WORDS: Final = frozenset(("reads_secret", "git_configures", "network_new", "installs_new", "process"))
"""Kinds whose harm the name of a program does not tell: an "always" for `pass show a` is none for `pass show b`."""


def _add_kinds(run: ProgramRun, kinds: Iterable[str], reason: str, path: Sequence[str]) -> None:
    for kind in kinds:
        if kind == "system" and run.row.unguards:
            run.walk.note(Impact("system", show(" ".join(path)), reason, unguards=True))
        else:
            more = [GAP] if kind in TOLD_BY_WORDS and [run.name, *run.words] != [*path] else []
            run.add(kind, " ".join([*path, *more]), reason)  # type: ignore[arg-type]


def _apply_roles(run: ProgramRun) -> None:
    """Give every operand its role: those before the repeated role, those after it, and the rest between."""
    operands, row, roles = run.operands, run.row, run.roles
    if row.instead and any(name in row.instead for name, _ in run.settings):
        roles = roles[1:]
    if row.assignments:
        for word in [word for word in operands if "=" in word]:
            name, _, value = word.partition("=")
            run.apply(row.assignments.get(name, row.assignments.get("*", "skip")), value)
        operands = [word for word in operands if "=" not in word]
    if row.plus:
        for word in [word for word in operands if word.startswith("+")]:
            run.apply(row.plus, word[1:])
        operands = [word for word in operands if not word.startswith("+")]
    if "command" in roles:
        before = roles.index("command")
        for role, word in zip(roles[:before], operands[:before], strict=False):
            run.apply(role, word)
        if operands[before:]:
            run.output = run.walk.command(operands[before:], run.state, run.stdin)
        return
    for role, word in _paired(roles, operands):
        run.apply(role, word)


@lru_cache(maxsize=1024)
def _parted(roles: tuple[str, ...]) -> tuple[tuple[str, ...], str, tuple[str, ...]]:
    """Return the roles before the repeated one, that one, and the roles behind it."""
    repeated = next((place for place, role in enumerate(roles) if role.endswith("*")), len(roles))
    return roles[:repeated], "".join(roles[repeated : repeated + 1]).rstrip("*"), roles[repeated + 1 :]


def _paired(roles: tuple[str, ...], operands: Sequence[str]) -> list[tuple[str, str]]:
    before, repeated, after = _parted(roles)
    if not repeated:
        return list(zip(before, operands, strict=False))
    if not (before or after):
        return [(repeated, word) for word in operands]
    ending = min(len(after), max(0, len(operands) - len(before)))
    middle = operands[len(before) : len(operands) - ending]
    return [
        *zip(before, operands, strict=False),
        *((repeated, word) for word in middle),
        *zip(after, operands[len(operands) - ending :] if ending else (), strict=False),
    ]


def _output(run: ProgramRun) -> str:
    prints = run.row.prints
    if prints == "name":
        return NAME
    listing = run.row.listing and any(name in run.row.listing for name, _ in run.settings)
    if prints == "listed" or listing:
        operands = run.operands[1:] if listing else run.operands
        folders = [word.rstrip("/") for word in operands] or ["."]
        return "\n".join(f"{folder}/{ANY}" if folder else f"/{ANY}" for folder in folders)
    if prints == "stdin":
        return run.stdin if ANY in run.stdin or run.name in ("cat", "tee") else UNKNOWN
    return UNKNOWN


# -- roles -------------------------------------------------------------------------------------------------------------


def _reads(run: ProgramRun, text: str, _argument: str) -> None:
    run.reads(text, recursive=run.recursive)
    if run.name == "cat":
        run.output = next(
            (run.walk.places.written[path] for path in run.paths(text) if path in run.walk.places.written), None
        )


def _lists(run: ProgramRun, text: str, _argument: str) -> None:
    run.walk.places.touched.update(dict.fromkeys(run.paths(text)))
    run.add("reads", text)


def _writes(run: ProgramRun, text: str, _argument: str) -> None:
    run.writes(text, run.stdin if run.name == "tee" else UNKNOWN, hint=run.walk.whole)


def _creates(run: ProgramRun, text: str, _argument: str) -> None:
    """Make a folder, in which only what lies outside of the project matters."""
    for path in run.paths(text):
        if run.walk.places.is_foreign((path,)):
            run.walk.note(*run.walk.places.writes(path, None))


def _linker(run: ProgramRun, text: str, _argument: str) -> None:
    """Give a linker its options, some of which name the program that links."""
    if LINKING.search(text):
        run.add("runs_unread", text, "an option that names a program")


def _converts(run: ProgramRun, text: str, _argument: str) -> None:
    """Read a source; the last operand may be the target, and both may be addresses."""
    last = text == "".join(run.operands[-1:])
    if "://" in text:
        run.url(text, sends=last and any(name == "-i" for name, _ in run.settings))
        return
    run.reads(text)
    if last and any(not run.walk.places.is_own(path) for path in run.paths(text)):
        run.writes(text)


def _target(run: ProgramRun, text: str, _argument: str) -> None:
    """Write into a folder that an option names; then every operand is a source."""
    run.roles = run.roles[:-1]
    for source in run.operands:
        run.writes(f"{text}/{source.rstrip('/').rpartition('/')[2]}", whole=True)


def _copies(run: ProgramRun, text: str, _argument: str) -> None:
    """Write a target that may be a folder: then the sources keep their names in it."""
    places, sources = run.walk.places, run.operands[:-1]
    folder = text.endswith(("/", ".")) or len(sources) > 1 or any(places.is_folder(path) for path in run.paths(text))
    for source in sources:
        content = next(places.content(path) for path in run.paths(source))
        target = f"{text}/{source.rstrip('/').rpartition('/')[2]}" if folder else text
        linked = run.name in ("ln", "link") or any(
            name in ("-l", "--link", "-s", "--symbolic-link") for name, _ in run.settings
        )
        run.writes(target, content, whole=linked or any(places.fact(path).kind != "file" for path in run.paths(source)))
        if linked:
            run.unguards(source)
            for path in run.paths(target):
                places.links[path] = places.absolute(source, path.rpartition("/")[0] or "/")


def _moves(run: ProgramRun, text: str, _argument: str) -> None:
    """Read a file, and take it away from its place. Inside the project nothing is lost by it."""
    run.reads(text)
    gone = run.operands[-1:] == ["/dev/null"]
    for path in run.paths(text):
        root = path == run.walk.places.policy.root
        lost = run.walk.places.deletes(path)
        run.walk.note(
            *(
                one
                for one in lost
                if gone or root or one.unguards or one.kind not in ("deletes_one", "deletes_many", "deletes_generated")
            )
        )


def _runs(run: ProgramRun, text: str, argument: str) -> None:
    """Run a file: `runs:shell` or `runs:python` names its language, as far as the program fixes it."""
    if "://" in text or text.startswith("data:") or text == "-":
        run.add("runs_unread", text, "code that is no file of the project")
        return
    if argument == "java" and text[:1] == "@":
        _arguments(run, text, "")
    else:
        run.walk.run_file(text, run.state, argument, run.operands[1:], run.stdin)


def _arguments(run: ProgramRun, text: str, _argument: str) -> None:
    """Read a file of arguments, as `@file` names it: it may name any code."""
    if text[:1] == "@":
        run.walk.note(*map(run.walk.places.runs, run.paths(text[1:])))


def _plugin(run: ProgramRun, text: str, argument: str) -> None:
    """Run a task, or a plugin that its coordinates name: one that is fetched if need be."""
    if text.count(":") > 1:
        run.add("installs_new", text, "a plugin by its coordinates")
        run.add("runs_unread", text, "a plugin by its coordinates")
    else:
        _task(run, text, argument)


def _search(run: ProgramRun, text: str, _argument: str) -> None:
    """Look for code in the folders and files of a search path."""
    for part in filter(None, re.split("[:;]", text)):
        _runs(run, part, "")


def _loads(run: ProgramRun, text: str, _argument: str) -> None:
    """Load a file that a setting names, as `-D NAME=file` does; one of the system is as good as the project's."""
    value = text.rpartition("=")[2]
    for path in run.paths(value) if value[:1] in ("/", "~") or value[:2] == ".." else ():
        if run.walk.places.is_elsewhere(path) or run.is_scratch(value):
            run.walk.note(run.walk.places.runs(path))


def _setup(run: ProgramRun, text: str, argument: str) -> None:
    """Set an option of a program by name, as `-o name=value` does; the value may name folders of code."""
    for word in text.partition("=")[2].split():
        _runs(run, word, argument)


def _shell(run: ProgramRun, text: str, _argument: str) -> None:
    run.output = run.walk.script(text, run.state, run.stdin)


def _code(run: ProgramRun, text: str, argument: str) -> None:
    run.walk.note(*read_code(text, argument, run.walk.places, run.state.folders[0]))


def _task(run: ProgramRun, text: str, _argument: str) -> None:
    if "/" in text:
        run.walk.note(*map(run.walk.places.runs, run.paths(text)))
    else:
        run.add("runs_project", text)
    if text in names_of("running_tasks"):
        run.add("runs_unread", text, "a task that runs any program")
    if tells_outward(text):
        run.add("service_writes", text, "the name of the task")


def _remote(run: ProgramRun, text: str, _argument: str) -> None:
    """Fetch from a remote of git: a name, or an address that the command itself holds."""
    if text.startswith("ext::"):
        run.add("runs_unread", text, "an address that runs a program")
    elif "://" in text or is_remote(text):
        run.url(text if "://" in text else remote_host(text))


def _package(run: ProgramRun, text: str, _argument: str) -> None:
    local = (text.startswith((".", "/")) or text.endswith(".go")) and all(
        run.walk.places.runs(path).kind == "runs_project" for path in run.paths(text)
    )
    run.add("installs_manifest" if local else "installs_new", text)


def _resource(run: ProgramRun, text: str, _argument: str) -> None:
    if any(re.split(r"[/.]", name)[0] in ("secret", "secrets") for name in text.lower().split(",")):
        run.add("reads_secret", text, "secrets of a cluster")


def _object(run: ProgramRun, text: str, _argument: str) -> None:
    """Read a file, or one as git keeps it: `HEAD:.env` holds what `.env` holds. A glob of visible files is none."""
    if text.rpartition("/")[2][:1] == ANY:
        return
    run.walk.note(
        *(
            read
            for path in run.paths(text.rpartition(":")[2])
            if (read := run.walk.places.reads(path)).kind == "reads_secret"
        )
    )


def _glob(run: ProgramRun, text: str, _argument: str) -> None:
    """Search the files that a pattern names: a pattern may choose the files that hold secrets."""
    for path in run.paths(text.replace("*", "")):
        if (read := run.walk.places.reads(path)).kind == "reads_secret" and text[:1] != "!":
            run.walk.note(read)


def _pair(run: ProgramRun, text: str, _argument: str) -> None:
    """Read the file behind an option that takes a name and a file."""
    at = run.words.index(text) if text in run.words else len(run.words)
    run.reads("".join(run.words[at + 1 : at + 2]))


def _manifest(run: ProgramRun, text: str, _argument: str) -> None:
    """Install what a file names: one of the project, or one from elsewhere."""
    known = "://" not in text and all(run.walk.places.runs(path).kind == "runs_project" for path in run.paths(text))
    run.add("installs_manifest" if known else "installs_new", text)


def _tail(run: ProgramRun, _text: str, _argument: str) -> None:
    """Run the words behind the program of a version manager, whose own words come first."""
    words = run.operands
    start = next((at for at, word in enumerate(words) if word in program_rows()), 0)
    run.output = run.walk.command(words[start:], run.state, run.stdin)


def _variable(run: ProgramRun, text: str, _argument: str) -> None:
    secret = is_secret_name(text) or UNKNOWN in text
    run.add("reads_secret" if secret else "reads", f"${text}", "a variable with a secret's name" if secret else "")


def _module(run: ProgramRun, text: str, _argument: str) -> None:
    """Run a module of Python: one that a table names as a program, or else code of the project."""
    words = run.operands
    text = text if text in program_rows() else text.partition(".")[0] if text.startswith("amplifier_hooks.") else text
    if text in program_rows():
        run.output = run.walk.command([text, *words], run.state, run.stdin)
    else:
        run.add("runs_project" if UNKNOWN not in text else "unreadable", text)
    if text in ("timeit", "pdb"):
        for word in words:
            _code(run, word, "python")
    if text not in program_rows():
        run.refuse_outside(words)
    run.operands = []


def _letter(run: ProgramRun, text: str, argument: str) -> None:
    """Read a bundle of letters without a dash, one of which shows the environment of processes."""
    if argument in text and text.isalpha():
        run.add("reads_secret", text, "the environment of processes")


def _guarded(run: ProgramRun, text: str, _argument: str) -> None:
    """Change a file that only counts if a guard depends on it."""
    if text.strip("./"):
        run.unguards(text, whole=True)


def _ended(run: ProgramRun, text: str, _argument: str) -> None:
    """End processes by a name or a pattern."""
    if "amplifier" in text.lower():
        run.walk.note(Impact("process", show(text), GUARD, unguards=True))


def _port(run: ProgramRun, text: str, _argument: str) -> None:
    """Connect to a port that stands among other words."""
    for port in run.walk.places.policy.guarded_ports:
        if re.search(rf"\b{port}\b", text):
            run.walk.note(Impact("service_writes", show(text), GUARD, unguards=True))


def _setting(run: ProgramRun, text: str, _argument: str) -> None:
    """Set a variable for a program: some decide which programs or libraries it loads."""
    name, _, value = text.partition("=")
    run.walk.assign(name, value, run.state)


ROLES: Final[dict[str, Callable[[ProgramRun, str, str], None]]] = {
    "skip": lambda *_: None,
    "reads": _reads,
    "lists": _lists,
    "writes": _writes,
    "copies": _copies,
    # a file, without changing its text
    "changes": lambda run, text, _: run.writes(text, None, hint=run.walk.whole),
    "creates": _creates,
    # a report to the place behind its format, as in `html:folder`
    "report": lambda run, text, _: run.writes(text.partition(":")[2]),
    "linker": _linker,
    "converts": _converts,
    "builds": lambda run, text, _: run.writes(text, BUILT),
    "target": _target,
    "deletes": lambda run, text, _: run.deletes(text, recursive=run.recursive),
    "moves": _moves,
    "runs": _runs,
    "setup": _setup,
    "search": _search,
    "loads": _loads,
    "shell": _shell,
    "code": _code,
    "sql": lambda run, text, _: run.walk.note(*read_sql(text, run.name)),
    "task": _task,
    "plugin": _plugin,
    "arguments": _arguments,
    "url": lambda run, text, _: run.url(text),
    "remote": _remote,
    "package": _package,
    "resource": _resource,
    "object": _object,
    "glob": _glob,
    "pair": _pair,
    "manifest": _manifest,
    "tail": _tail,
    "folder": lambda run, text, _: run.enter(text),
    "kind": lambda run, text, kinds: _add_kinds(run, kinds.split("+"), "", [run.name, text]),
    "module": _module,
    "variable": _variable,
    "setting": _setting,
    "guarded": _guarded,
    # files, whose names only a run can tell, into a folder
    "into": lambda run, text, _: run.writes(f"{text}/{NAME}"),
    "ended": _ended,
    "port": _port,
    "letter": _letter,
}
