"""A path or an address as a call writes it comes in; the impact of reading, writing or reaching it goes out.

The module looks at nothing. A function that answers questions about paths is passed in, and `Places` keeps its answers.
A text may hold marks, characters that stand for what only a run can tell.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
import unicodedata
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from attrs import define, field, frozen
from msgspec.structs import replace

from amplifier_hooks.impact.tables import load_table
from amplifier_hooks.impacts import FileFact, Impact, ImpactPolicy
from amplifier_hooks.text.matching import SURROGATES, compile_linear, escape_literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from amplifier_hooks.impacts import ImpactKind, Stat


UNKNOWN: Final = "\ue000"
"""Any text at all."""
ANY: Final = "\ue001"
"""A `*` of the shell, or names that a program lists: text within one path."""
ONE: Final = "\ue002"
"""A `?` of the shell."""
BUILT: Final = "\ue009"
"""The content of a file that a compiler builds from the project."""
NAME: Final = "\ue003"
"""A word without a slash and without a blank, as `date` prints it."""

MARKS: Final = {UNKNOWN: "…", ANY: "*", ONE: "?", NAME: "…"}
SHOWN: Final = str.maketrans(MARKS)
MARKED: Final = re.compile(f"[{''.join(MARKS)}]")
PARENT: Final = re.compile(r"(?<=[^/.])/\.\.(?=/|$)")
VARIABLE: Final = re.compile(r"\$(?:HOME\b|\{HOME\})|%USERPROFILE%|%HOME%", re.IGNORECASE)
SUFFIX: Final = re.compile(r"\.[A-Za-z]\w{0,8}$")
LIVE: Final = re.compile(r"[*?\[\]]")
"""A sign of a glob."""
WORD: Final = re.compile("[a-z]+")
HUMP: Final = re.compile("([a-z])([A-Z])")
"""A place inside a name at which a word begins with a capital letter."""
INVISIBLE: Final = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]")
"""Characters that some file systems leave out of a name."""
SOCKETS: Final = ("/dev/tcp/", "/dev/udp/")
CONNECTION: Final = "a connection of the shell"
LONGEST_PLACE: Final = 300
GUARD: Final = "guards of this session depend on it"


def holds_glob(text: str) -> bool:
    """Return True if a text holds a live glob of the shell."""
    return ANY in text or ONE in text


def show(text: str) -> str:
    """Return a text with every mark as a reader would write it, cut to the length of a place."""
    text = text if text.isascii() else text.translate(SHOWN)
    return text if len(text) <= LONGEST_PLACE else f"{text[:LONGEST_PLACE]}…"


@frozen
class _SensitivePath:
    """A path of a row. The anchor `""` stands for every folder, `~` for the home folder, `/` for the root."""

    anchor: str
    parts: tuple[str, ...]
    below: bool
    """True if everything below the path is meant, too."""

    def expression(self, home: str) -> str:
        """Return an expression for the absolute paths that are meant, in the spelling of `path_parts`."""
        begin = {"": "", "/": "^", "~": f"^{escape_literal(_joined(home))}"}[self.anchor]
        names = ("[^/]*".join(map(escape_literal, part.split("*"))) for part in self.parts)
        return f"{begin}/{'/'.join(names)}{'(?:/|$)' if self.below else '$'}"


@frozen
class SensitiveRow:
    """One row of the table of sensitive files."""

    reason: str
    secret: bool
    guarded: bool
    hook: bool
    history: bool
    exceptions: tuple[str, ...]
    content: tuple[str, ...]
    names: tuple[str, ...]
    paths: tuple[_SensitivePath, ...]


@cache
def _sensitive() -> tuple[SensitiveRow, ...]:
    return tuple(
        SensitiveRow(
            entry["reason"],
            entry.get("secret", False),
            entry.get("guarded", False),
            entry.get("hook", False),
            entry.get("history", False),
            tuple(name.casefold() for name in entry.get("except", ())),
            tuple(entry.get("content", ())),
            tuple(name.casefold() for name in entry["names"]),
            tuple(
                _SensitivePath(path[0] if path[0] in "~/" else "", path_parts(path.removeprefix("~")), path[-1] == "/")
                for path in entry["paths"]
            ),
        )
        for entry in load_table("sensitive_files")["file"]
    )


@cache
def _sensitive_names() -> frozenset[str]:
    return frozenset(name for row in _sensitive() for name in row.names)


@lru_cache(maxsize=16)
def _sensitive_tests(home: str) -> tuple[Callable[[str], bool], tuple[tuple[SensitiveRow, Callable[[str], bool]], ...]]:
    """Return a test of paths for all rows together, and one for each row."""
    written = {row: "|".join(one.expression(home) for one in row.paths) for row in _sensitive()}
    tests = tuple((row, compile_linear(expression)) for row, expression in written.items())
    return compile_linear("|".join(written.values())), tests


@lru_cache(maxsize=4096)
def sensitive_rows(path: str, home: str) -> tuple[SensitiveRow, ...]:
    """Return the rows of the table that an absolute path matches, whatever the case of its letters."""
    text, (may_match, tests) = _joined(path), _sensitive_tests(home)
    found = [row for row, test in tests if test(text)] if may_match(text) else []
    parts = path_parts(path)
    for part in parts if holds_glob(path) else ():
        if holds_glob(part) and part.strip(ANY) and (reached := _names_reached(part, _sensitive_names())):
            found += [row for row in _sensitive() if not reached.isdisjoint(row.names)]
    return tuple(
        row
        for row in dict.fromkeys(found)
        if not any(fnmatch.fnmatchcase(parts[-1], exception) for exception in row.exceptions)
    )


def _names_reached(glob: str, names: Iterable[str]) -> frozenset[str]:
    """Return the names that a glob of the shell reaches; `*` reaches no name that begins with a dot."""
    shown = glob.translate(SHOWN)
    head, tail = LIVE.split(shown)[0], LIVE.split(shown)[-1]
    hidden = "." if glob[0] in (ANY, ONE) else "/"
    near = [name for name in names if name.startswith(head) and name.endswith(tail) and name[0] != hidden]
    return frozenset(filter(re.compile(fnmatch.translate(shown)).match, near)) if near else frozenset()


@lru_cache(maxsize=4096)
def path_parts(path: str) -> tuple[str, ...]:
    """Return the names in a path, each in the one spelling that file systems may take for it."""
    if not path.isascii():
        path = INVISIBLE.sub("", unicodedata.normalize("NFKC", path.translate(SURROGATES)))
    return tuple(part for part in path.casefold().split("/") if part)


def _joined(path: str) -> str:
    return "".join(f"/{part}" for part in path_parts(path))


@define(eq=False)
class _GuardTree:
    """Guarded paths by their parts, and the reasons why they are guarded."""

    children: dict[str, _GuardTree] = field(factory=dict)
    globs: dict[str, _GuardTree] = field(factory=dict)
    """The children whose names have a glob."""
    reason: str = ""
    below: bool = False
    """True if everything below this path is guarded, too."""

    def add(self, parts: tuple[str, ...], reason: str, *, below: bool) -> None:
        """Add a guarded path."""
        node = self
        for part in parts:
            parent, node = node, node.children.setdefault(part, _GuardTree())
            if "*" in part:
                parent.globs[part] = node
        node.reason, node.below = reason, below

    def find(self, parts: tuple[str, ...], *, whole: bool, free: int) -> str:
        """Return why a change of a path changes a guarded one; an empty text if it does not.

        With `whole`, everything below the path changes. A part that is nothing but a glob counts from part `free` on.
        """
        if self.reason and (not parts or self.below):
            return self.reason
        if not parts:
            return (
                next(filter(None, (one.find((), whole=True, free=0) for one in self.children.values())), "")
                if whole
                else ""
            )
        part = parts[0]
        found = [self.children[part]] if part in self.children else []
        if holds_glob(part) or part == NAME:
            if free <= 0 or part.strip(ANY + NAME):
                reached = self.children if part == NAME else _names_reached(part, self.children)
                found = [one for name, one in self.children.items() if name in reached]
        else:
            found += [one for name, one in self.globs.items() if fnmatch.fnmatchcase(part, name)]
        if not found:
            return ""
        return next(filter(None, (one.find(parts[1:], whole=whole, free=free - 1) for one in found)), "")


@lru_cache(maxsize=16)
def _guard_trees(guarded: tuple[str, ...], home: str) -> tuple[_GuardTree, _GuardTree]:
    """Return the guarded paths that begin at the root, and those that begin in any folder."""
    absolute, anywhere = _GuardTree(), _GuardTree()
    for row in _sensitive():
        for one in row.paths if row.hook else ():
            tree = absolute if one.anchor else anywhere
            tree.add((*(path_parts(home) if one.anchor == "~" else ()), *one.parts), row.reason, below=one.below)
    for path in guarded:
        absolute.add(path_parts(path), GUARD, below=True)
    return absolute, anywhere


@cache
def _names(key: str) -> tuple[str, ...]:
    return tuple(load_table("places")[key])


@cache
def names_of(key: str) -> frozenset[str]:
    """Return one list of the table of places."""
    return frozenset(_names(key))


def written_language(path: str) -> str:
    """Return the language of a file by its name, `settings` for settings that name programs, or an empty text."""
    name = path.rpartition("/")[2]
    return (
        "settings"
        if name in names_of("running_settings")
        else load_table("places")["code"].get(name.rpartition(".")[2], "")
    )


@lru_cache(maxsize=4096)
def decides_loading(name: str) -> bool:
    """Return True if a variable decides which programs or libraries a later command loads."""
    return _loading().match(name) is not None


@cache
def _loading() -> re.Pattern[str]:
    return re.compile("|".join(map(fnmatch.translate, (*_names("loading"), *_names("loading_paths")))))


def _name_words(name: str) -> list[str]:
    return WORD.findall(HUMP.sub(r"\1 \2", name).lower())


def tells_outward(*texts: str) -> bool:
    """Return True if the names of a task or target say that it changes something outside this machine."""
    words = {word for text in texts for word in _name_words(text)}
    return bool(words & names_of("outward")) and not words & names_of("inward")


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Return True if the name of a variable says that its value is a secret."""
    if name in names_of("public_names"):
        return False
    words = _name_words(name)
    return name in names_of("secret_whole") or (
        bool(words)
        and (words[-1] in names_of("secret_names") or bool({"secret", "password", "token", "apikey"} & set(words)))
    )


@define
class Places:
    """The meaning of paths under one policy, with the answers that were needed to know it."""

    policy: ImpactPolicy
    stat: Stat
    answers: dict[str, FileFact] = field(factory=dict)
    links: dict[str, str] = field(factory=dict)
    """Links that the call itself makes, each with its target."""
    written: dict[str, str] = field(factory=dict)
    """Files that the call itself writes, each with its content; an unknown content is the mark UNKNOWN."""
    coded: set[str] = field(factory=set)
    """Written files whose text code in the call makes; the code is judged itself."""
    touched: dict[str, None] = field(factory=dict)
    """The absolute paths that the call reads, writes, deletes or runs, with their marks."""
    _tree: tuple[str, ...] = field(init=False)
    _temporary: tuple[str, ...] = field(init=False)

    def __attrs_post_init__(self) -> None:
        policy = self.policy
        self._tree = _prefixes((policy.root, *policy.trusted_folders))
        self._temporary = _prefixes(policy.temporary)

    def absolute(self, text: str, folder: str, *, logical: bool = False) -> str:
        """Return a path as the system reads it, without `.` and `..`; marks stay in it.

        Behind a link, `..` leads to the parent of its target, unless `logical`, as for `cd`.
        """
        path = text.strip()
        if path[:1] in ("f", "F") and path[:5].lower() == "file:":
            path = unquote(re.sub(r"^file:(//(localhost)?(?=/))?", "", path, flags=re.IGNORECASE))
        if "$" in path or "%" in path:
            path = VARIABLE.sub(lambda _: self.policy.home, path)
        if path[:1] == "~":
            known = path == "~" or path[1] == "/"
            path = (
                self.policy.home + path[1:] if known else posixpath.join(posixpath.dirname(self.policy.home), path[1:])
            )
        if path[:1] != "/":
            path = f"{folder}/{path}"
        if "/.." in path and not logical:
            for parent in PARENT.finditer(path):
                beginning = posixpath.normpath(path[: parent.start()])
                if (real := self.fact(beginning).path) != beginning:
                    return self.absolute(f"{real}{path[parent.start() :]}", "/")
        if path[:1] != "/" or path[-1:] == "/" or "/." in path or "//" in path:
            path = posixpath.normpath(path)
        return path[1:] if path[:2] == "//" else path

    def fact(self, path: str) -> FileFact:
        """Return what lies at an absolute path, and the path behind its links. A glob is asked about up to its mark."""
        known = path or "/"  # the folder of a path that is nothing but a mark
        if not path.isascii() and (mark := MARKED.search(path)):
            known = path[: mark.start()].rpartition("/")[0] or "/"
        for link, target in self.links.items():
            if _is_below(known, link):
                known, path = f"{target}{known[len(link) :]}", f"{target}{path[len(link) :]}"
        answer = self.answers.get(known)
        if answer is None:
            answer = self.answers[known] = self.stat(known) if "\0" not in known else FileFact(known)
        return answer if known == path else FileFact(posixpath.join(answer.path, path[len(known) :].lstrip("/")))

    def _spellings(self, path: str) -> tuple[str, ...]:
        real = self.fact(path).path
        return (path,) if real == path else (path, real)

    def reads(self, path: str, *, recursive: bool = False) -> Impact:
        """Return the impact of reading an absolute path."""
        self.touched[path] = None
        place = show(path)
        if path.startswith("/dev/fd/"):
            return Impact("reads", place)  # its file counts where it is opened; the path behind it names a process
        for spelling in self._spellings(path):
            for row in sensitive_rows(spelling, self.policy.home):
                if row.secret:
                    return Impact("reads_secret", place, row.reason, unguards=row.hook)
            if recursive and _is_below(self.policy.home, spelling) and spelling != self.policy.root:
                return Impact("reads_secret", place, "a whole home folder")
        if UNKNOWN in path:
            last = posixpath.basename(path)
            if any(row.secret and last.casefold() in row.names for row in _sensitive()):
                return Impact("reads_secret", place, "a name that holds secrets")
            if UNKNOWN in last and not SUFFIX.search(last):
                return Impact("unreadable", place, "only a run tells which file is read")
        return Impact("reads", place)

    def writes(
        self, path: str, content: str | None = UNKNOWN, *, hint: str = "", whole: bool = False
    ) -> Iterator[Impact]:
        """Yield the impacts of writing an absolute path.

        `content` is the text, as far as the call tells, or None if the text stays as it is; `hint` is a text that an
        unknown content may come from. `whole` says that a folder or a link may take the place of the path.
        """
        self.touched[path] = None
        place = show(path)
        if path in names_of("devices") or path.startswith("/dev/fd/"):
            return
        if path.startswith(SOCKETS):
            yield Impact("network_sends", place, CONNECTION)
            return
        if content is not None:
            self.written[path] = content
            self.coded.discard(path)
        spellings = self._spellings(path)
        guards = self._guards(spellings, content, hint)
        unguarding = self.unguards(path, whole=whole)
        if unguarding:
            guards = tuple(dict.fromkeys((unguarding, *guards)))
        yield from (Impact("writes_guarded", place, reason, unguards=reason == unguarding) for reason in guards)
        kind = self._where(path, spellings)
        if kind != "writes_tree" or not guards:
            yield Impact(kind, place, "only a run tells which file is written" if kind == "unreadable" else "")

    def _guards(self, spellings: tuple[str, ...], content: str | None, hint: str) -> tuple[str, ...]:
        """Return why a path is guarded against a text that may be written to it."""
        rows = [row for spelling in spellings for row in sensitive_rows(spelling, self.policy.home)]
        if not rows:
            return ()
        text = f"{content}{hint}"
        written = [
            row for row in rows if row.guarded and (not row.content or any(word in text for word in row.content))
        ]
        return tuple(dict.fromkeys(row.reason for row in written))

    def unguards(self, path: str, *, whole: bool = False) -> str:
        """Return why a change of an absolute path can take a guard away; an empty text if it cannot.

        `whole` says that everything below the path changes, too.
        """
        absolute, anywhere = _guard_trees(self.policy.guarded, self.policy.home)
        marked = not path.isascii()
        common = [path_parts(folder) for folder in (self.policy.root, self.policy.home)] if marked and not whole else ()
        folder, _, name = path.rpartition("/")
        beside = f"{self.fact(folder or '/').path}/{name}"
        for parts in dict.fromkeys(map(path_parts, (*self._spellings(path), beside))):
            # `*` in a folder with so many files is too common to count for each; deleting all of them is not.
            free = len(parts) if parts[:-1] in common else 0
            if reason := absolute.find(parts, whole=whole, free=free):
                return reason
            if not marked and anywhere.children.keys().isdisjoint(parts):
                continue
            for start, part in enumerate(parts):
                begins = part in anywhere.children or (marked and holds_glob(part))
                if begins and (reason := anywhere.find(parts[start:], whole=whole, free=1)):
                    return reason
        return ""

    def _where(self, path: str, spellings: tuple[str, ...]) -> ImpactKind:
        """Return the kind of writing a path that nothing guards."""
        if UNKNOWN in path:
            return "unreadable"
        if all(self._is_tree(spelling) for spelling in spellings):
            return "writes_tree"
        return "writes_temporary" if all(self.is_own(spelling) for spelling in spellings) else "writes_outside"

    def deletes(self, path: str, *, recursive: bool = False) -> Iterator[Impact]:
        """Yield the impacts of deleting an absolute path, or of moving it away."""
        self.touched[path] = None
        place = show(path)
        rows = sensitive_rows(path, self.policy.home)
        for row in rows:
            if row.guarded and not row.content:
                yield Impact("writes_guarded", place, row.reason, unguards=row.hook)
            if row.history:
                yield Impact("git_loses_work", place, row.reason)
        if UNKNOWN in path:
            yield Impact("unreadable", place, "only a run tells what is deleted")
        lost = self._lost(path, place, recursive=recursive)
        unguarding = "" if any(row.hook for row in rows) else self.unguards(path, whole=True)
        yield replace(lost, reason=unguarding, unguards=True) if unguarding else lost

    def _lost(self, path: str, place: str, *, recursive: bool) -> Impact:
        """Return what deleting a path loses: the first line that holds decides."""
        fact = self.fact(path)
        # A link is deleted as such, unless more of the path follows it.
        spellings = (path,) if fact.path == path else (path, self.fact(posixpath.dirname(path)).path)
        whole = any(path in (folder, f"{folder}/{ANY}") for folder in self.policy.temporary)
        lines: tuple[tuple[bool, ImpactKind, str], ...] = (
            (UNKNOWN in path, "deletes_outside", "only a run tells what is deleted"),
            (_is_below(self.policy.root, path, strict=True), "deletes_outside", "a folder above the project"),
            (not all(self.is_own(one) for one in spellings), "deletes_outside", ""),
            (path == self.policy.root, "deletes_many", "the project folder"),
            (whole, "deletes_many", "a whole temporary folder"),
            (not self._is_tree(path), "deletes_generated", "a temporary place"),
            (path in self.written and fact.kind == "missing", "deletes_generated", "the call itself made it"),
            (self._is_generated(path), "deletes_generated", "programs can generate it again"),
            (holds_glob(path) or (recursive and fact.kind != "file"), "deletes_many", ""),
        )
        return next(
            (Impact(kind, place, reason) for holds, kind, reason in lines if holds), Impact("deletes_one", place)
        )

    def runs(self, path: str) -> Impact:
        """Return the impact of running the file at an absolute path."""
        self.touched[path] = None
        place = show(path)
        if UNKNOWN in path:
            return Impact("unreadable", place, "only a run tells which file runs")
        if all(self._is_tree(spelling) for spelling in self._spellings(path)) and path not in self.written:
            return Impact("runs_project", place)
        return Impact("runs_unread", place, "a file that is no part of the project")

    def is_foreign(self, folders: tuple[str, ...]) -> bool:
        """Return True if one of these folders is no part of the project, or if only a run tells it."""
        return any(UNKNOWN in path for path in folders) or not all(
            self._is_tree(spelling) for path in folders for spelling in self._spellings(path)
        )

    def is_elsewhere(self, path: str) -> bool:
        """Return True if a path is neither own nor part of the system."""
        system = ("/dev", "/proc", "/sys", *_names("programs"))
        return not self.is_own(path) and not any(_is_below(path, folder) for folder in system)

    def content(self, path: str) -> str:
        """Return what a copy of a file holds: the text that the call wrote, or code of the project."""
        return self.written.get(path, BUILT if self._is_tree(path) else UNKNOWN)

    def is_folder(self, path: str) -> bool:
        """Return True if a folder lies at an absolute path."""
        return self.fact(path).kind == "folder"

    def is_own(self, path: str) -> bool:
        """Return True if an absolute path lies in the project, in a trusted folder or in a temporary one."""
        return self._is_tree(path) or self._is_temporary(path)

    def _is_tree(self, path: str) -> bool:
        return f"{path}/".startswith(self._tree)

    def _is_temporary(self, path: str) -> bool:
        if not f"{path}/".startswith(self._temporary):
            return False
        home = self.policy.home
        return any(
            _is_below(path, folder)
            and not (_is_below(home, folder) and _is_below(path, home))  # a home is no such place
            for folder in self.policy.temporary
        )

    def _is_generated(self, path: str) -> bool:
        below = path[len(self.policy.root) :].translate(SHOWN)
        return any(map(_generated().match, filter(None, below.split("/"))))


@cache
def _generated() -> re.Pattern[str]:
    """Return an expression for the names of folders and files that programs can generate again."""
    return re.compile("|".join(map(fnmatch.translate, _names("generated"))))


def _is_below(path: str, folder: str, *, strict: bool = False) -> bool:
    """Return True if an absolute path lies in a folder; the folder itself counts unless `strict`."""
    return (path == folder and not strict) or path.startswith(_prefix(folder))


def _prefix(folder: str) -> str:
    return folder.rstrip("/") + "/"


@lru_cache(maxsize=64)
def _prefixes(folders: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(_prefix, folders))


# -- hosts ------------------------------------------------------------------------------------------------------------

HOST: Final = re.compile(r"^(?:[a-z][a-z0-9+.-]*://)?(?:[^@/]*@)?(\[[^\]]+\]|[^:/?#]*)(?::(\d+))?", re.IGNORECASE)
LOCAL: Final = re.compile(r"localhost|.*\.localhost|127(\.\d+){3}|0\.0\.0\.0|\[::1?\]|::1|host\.docker\.internal")
ENGINES: Final = {
    "2375": "the port of a container engine",
    "2376": "the port of a container engine",
    "6443": "the port of a cluster",
    "10250": "the port of a cluster",
}
SECRET: Final = re.compile(
    r"AKIA[0-9A-Z]{16}|gh[pousr]_\w{20,}|sk-[\w-]{20,}|xox[abpr]-[\w-]{10,}|eyJ[\w-]{20,}\.|-----BEGIN|"
    r"AIza[\w-]{30,}|glpat-[\w-]{15,}"
)


def url_impact(url: str, policy: ImpactPolicy, *, sends: bool = False) -> Impact:
    """Return the impact of a connection.

    Data in a request counts as sent, and so does text in the name of a host that only a run can tell. Such text in the
    rest of the address is the reason, so that an "always" for the host does not cover it.
    """
    match = HOST.match(url.strip().replace("\\", "/"))
    host, port = (match[1].lower(), match[2]) if match else ("", None)
    place = show(host or url)
    if "\\" in url:
        return Impact(
            "network_sends" if sends else "network_new", show(url), "programs read its host in different ways"
        )
    if url.lower().startswith("file:"):
        return Impact("reads", place)
    if LOCAL.fullmatch(host) or (set(host) & set(MARKS) and _is_guarded(port, policy)):
        return _local_impact(host, port, place, policy)
    if UNKNOWN in host or NAME in host:
        exact = host in (UNKNOWN, NAME)
        return Impact("network_sends" if sends or not exact else "network_new", place, "only a run tells the host")
    if sends or SECRET.search(url):
        return Impact("network_sends", place, "data in the request")
    known = any(host == one or (one.startswith(".") and host.endswith(one)) for one in policy.trusted_hosts)
    untold = UNKNOWN in url and not known
    return Impact(
        "network_known" if known else "network_new", place, "only a run tells a part of the address" if untold else ""
    )


def _local_impact(host: str, port: str | None, place: str, policy: ImpactPolicy) -> Impact:
    """Return the impact of a connection to this machine."""
    reason = GUARD if _is_guarded(port, policy) else ENGINES.get(port or "")
    if reason is None:
        return Impact("network_local", place)
    return Impact("service_writes", show(f"{host}:{port}"), reason, unguards=reason == GUARD)


def _is_guarded(port: str | None, policy: ImpactPolicy) -> bool:
    return any(str(one) == port for one in policy.guarded_ports)


def is_remote(text: str) -> bool:
    """Return True if a text names a file on another machine, as in `host:path`."""
    return bool(re.match(r"[\w.@-]+:", text))


def remote_host(text: str) -> str:
    """Return the host of a text like `user@host:path`."""
    return text.partition(":")[0].rpartition("@")[2]
