"""A tool call comes in; what it would do goes out.

One table holds the names of tools and of their arguments, over all agent programs and SDKs. A tool of a server that no
table names is judged by the words in its name, and by the arguments that name a path, an address, a statement or an
action. Annotations of a server may raise the impact of its tools and never lower it. The last predictions are kept: a
call that several look at, such as self-protection and a guard, has one.
"""

from __future__ import annotations

import marshal
import posixpath
import re
import threading
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from attrs import define, field
from msgspec.structs import replace

from amplifier_hooks.impact.inline_code import read_code, read_sql
from amplifier_hooks.impact.places import SECRET, UNKNOWN, Places, show, url_impact
from amplifier_hooks.impact.shell import SHELLS, ShellState, ShellWalk
from amplifier_hooks.impact.tables import load_table
from amplifier_hooks.impacts import CallImpact, Impact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from amplifier_hooks.impacts import CommandRun, ImpactKind, ImpactPolicy, Stat


MOST_KEPT: Final = 16
LONGEST_KEPT: Final = 1 << 15
"""Most bytes of a call that is kept."""
EXACT: Final = 2
"""Version of `marshal` that gives the same bytes to the same values, and other bytes to values of another type."""

Key = tuple[bytes, str]


@define(eq=False)
class SharedPredictions:
    """The last predictions by their calls.

    A prediction serves again if every question that it asked has the same answer: the analysis would then ask the same
    questions and come to the same end. One in which nothing takes a guard away also serves a policy without guards.
    """

    _known: dict[Key, tuple[ImpactPolicy, CallImpact]] = field(factory=dict, init=False)
    _changing: threading.Lock = field(factory=threading.Lock, init=False)

    def find(self, key: Key, policy: ImpactPolicy, stat: Stat) -> CallImpact | None:
        """Return the prediction of a call under a policy, if the answers of `stat` are those of then."""
        known = self._known.get(key)
        if known is None:
            return None
        of_then, impact = known
        if policy != of_then and (
            policy != replace(of_then, guarded=(), guarded_ports=()) or any(one.unguards for one in impact.impacts)
        ):
            return None
        return impact if all(stat(path) == fact for path, fact in impact.answers) else None

    def keep(self, key: Key, policy: ImpactPolicy, impact: CallImpact) -> None:
        """Keep a prediction, and drop the oldest one of too many."""
        with self._changing:
            self._known.pop(key, None)
            self._known[key] = policy, impact
            if len(self._known) > MOST_KEPT:
                del self._known[next(iter(self._known))]


@cache
def shared_predictions() -> SharedPredictions:
    """Return the predictions of this process."""
    return SharedPredictions()


def key_of(tool: str, arguments: Mapping[str, Any], annotations: Mapping[str, Any] | None, folder: str) -> Key | None:
    """Return the key of a call, or None for a call that is too long or holds a value that is no plain data."""
    try:
        data = marshal.dumps([tool, dict(arguments), None if annotations is None else dict(annotations)], EXACT)
    except (ValueError, TypeError):
        return None
    return (data, folder) if len(data) <= LONGEST_KEPT else None


SERVER_TOOL: Final = re.compile(r"(?:mcp__|mcp_|mcp\.)?(.+?)(?:__|\.|/|:)(.+)", re.DOTALL)
JOINED_TOOL: Final = re.compile(r"mcp_([^_]+)_(.+)", re.DOTALL)
"""The name of a server and that of its tool where one sign stands between them and in both."""
PATCHED: Final = re.compile(r"^\s*\*\*\*\s+(Add|Update|Delete|Move to)(?: File)?: (.+)$", re.MULTILINE)
DIFFED: Final = re.compile(r"^(?:\+\+\+|(?:rename|copy) to|rename from) \"?(?:b/)?([^\t\n\"]+)", re.MULTILINE)
REMOVED: Final = re.compile(r"^--- (?:a/)?([^\t\n]+)\n\+\+\+ /dev/null", re.MULTILINE)
DRIVE: Final = re.compile(r"^[A-Za-z]:/(?!/)")
MAGIC: Final = re.compile(r"^\s*[!%]", re.MULTILINE)
"""A line of a notebook that runs a command."""
LONGEST_PATH: Final = 4096
"""Most characters of a text that is taken for a path."""
LONGEST_ACTION: Final = 60
"""Most characters of an argument that names an action."""
DEEPEST: Final = 8
"""Deepest nesting of an argument whose texts are read."""


NAMED_KINDS: Final = frozenset(("shell", "fetch", "code"))
"""Kinds that the name of a server's tool shows by itself."""
OWN_KINDS: Final = frozenset(("agent", "websearch", "input"))
"""Kinds that only a tool of the agent program itself has."""
SETTLED: Final = frozenset(
    (
        "writes_tree",
        "writes_temporary",
        "writes_guarded",
        "writes_outside",
        "service_writes",
        "service_updates",
        "service_reads",
    )
)
"""Kinds that say what a tool writes, so that its name says nothing more."""


@cache
def _kinds_of_tools() -> dict[str, str]:
    return {_plain(name): kind for kind, names in load_table("tools")["kinds"].items() for name in names}


@cache
def _verbs(kind: str) -> frozenset[str]:
    return frozenset(load_table("tools")["verbs"][kind])


@cache
def _arguments(kind: str) -> tuple[str, ...]:
    return tuple(load_table("tools")["arguments"][kind])


@cache
def argument_names() -> frozenset[str]:
    """Return the names of all arguments that the analysis reads."""
    return frozenset(name for names in load_table("tools")["arguments"].values() for name in names)


@lru_cache(maxsize=1024)
def _plain(name: str) -> str:
    return re.sub(r"[\W_]", "", name).casefold()


def tool_kind(tool: str) -> str:
    """Return the kind of a tool by its name: `shell`, `read`, `write`, …, or `server` if no table names the tool."""
    return _kinds_of_tools().get(_plain(tool), "server")


@lru_cache(maxsize=1024)
def matched_kind(tool: str) -> str:
    """Return the kind of a tool for a matcher: a server's tool has the kind of its name behind the server."""
    kind = tool_kind(tool)
    return tool_kind(_server_and_name(tool)[1]) if kind == "server" else kind


@cache
def kind_names() -> frozenset[str]:
    """Return the names of all kinds of tools."""
    return frozenset((*load_table("tools")["kinds"], "server"))


def predict_impact(
    tool: str,
    arguments: Mapping[str, Any],
    policy: ImpactPolicy,
    stat: Stat,
    *,
    folder: str | None = None,
    annotations: Mapping[str, Any] | None = None,
) -> CallImpact:
    """Return what a tool call would do, without doing any of it.

    The result depends on the arguments of this function and on the answers of `stat` alone.

    Args:
        tool: Name of the tool, as the caller spells it.
        arguments: Arguments of the call.
        policy: The folders and hosts that the session trusts.
        stat: Answers questions about absolute paths. `CallImpact.answers` has every question with its answer.
        folder: Folder in which the call starts; by default the project folder.
        annotations: Annotations of the tool by its server, with the names of the Model Context Protocol.
    """
    folder = folder or policy.root
    key = key_of(tool, arguments, annotations, folder)
    if key is not None and (known := shared_predictions().find(key, policy, stat)) is not None:
        return known
    look = _Look(Places(policy, stat), folder)
    impacts = dict.fromkeys(_impacts(look, tool, arguments))
    if annotations and annotations.get("destructiveHint") is True:
        impacts[Impact("service_writes", show(tool), "the server says that the tool destroys")] = None
    predicted = CallImpact(
        tuple(impacts),
        tuple(look.places.answers.items()),
        tuple(look.commands),
        tuple(look.places.touched),
        frozenset(look.loose),
    )
    if key is not None:
        shared_predictions().keep(key, policy, predicted)
    return predicted


@define
class _Look:
    places: Places
    folder: str
    commands: list[CommandRun] = field(factory=list)
    loose: set[ImpactKind] = field(factory=set)

    def end(self, walk: ShellWalk) -> Iterator[Impact]:
        """Keep the commands of a walk, and yield its impacts."""
        first = len(self.commands)
        self.commands += (
            [replace(one, outer=one.outer + first if one.outer >= 0 else -1) for one in walk.commands]
            if first
            else walk.commands
        )
        self.loose |= walk.kinds
        yield from walk.impacts

    def path(self, text: str) -> str:
        """Return an absolute path, whichever system it is written for."""
        text = text.replace("\\", "/")
        return UNKNOWN if "\0" in text else self.places.absolute(DRIVE.sub(r"/\g<0>", text), self.folder)


def _impacts(look: _Look, tool: str, arguments: Mapping[str, Any]) -> Iterator[Impact]:
    reader = READERS.get(tool_kind(tool))
    return reader(look, arguments) if reader is not None else _server(look, tool, arguments)


def named_texts(arguments: Mapping[str, Any], kind: str) -> list[str]:
    """Return the texts of every argument that a table names, those in lists and in other arguments too."""
    names = _plain_names(kind)
    return [text for name, value in _named(arguments) if _plain(name) in names for text in _strings(value)]


@cache
def _plain_names(kind: str) -> frozenset[str]:
    return frozenset(_plain(name) for name in _arguments(kind))


def _named(value: Any, depth: int = 0, *, whole: bool = False) -> Iterator[tuple[str, Any]]:
    """Yield every argument with its name, and those inside it unless it is only texts.

    An object has its arguments as its value if `whole` says so, and otherwise none.
    """
    if depth > DEEPEST or isinstance(value, str):
        return
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield str(name), () if isinstance(item, Mapping) and not whole else item
            yield from _named(item, depth + 1, whole=whole)
    elif isinstance(value, Sequence):
        for item in value:
            yield from _named(item, depth + 1, whole=whole)


def _strings(value: Any, depth: int = 0) -> list[str]:
    if isinstance(value, str):
        return [value]
    if value is None or depth > DEEPEST:
        return []
    if isinstance(value, Mapping):
        return [text for item in value.values() for text in _strings(item, depth + 1)]
    if isinstance(value, Sequence):
        return [text for item in value for text in _strings(item, depth + 1)]
    return []


def _shell(look: _Look, arguments: Mapping[str, Any]) -> Iterator[Impact]:
    names = _plain_names("command")
    commands = [value for name, value in arguments.items() if _plain(name) in names]
    folder = next((text for name in _arguments("folder") for text in _strings(arguments.get(name)) if text), "")
    start = look.path(folder) if folder else look.folder
    if not commands:
        yield Impact("unreadable", "", "a shell tool without a command")
    for command in commands:
        walk = ShellWalk(look.places)
        for name, value in _named(arguments.get("env") or arguments.get("environment")):
            walk.assign(name, str(value), ShellState((start,), {}))
        words = _strings(arguments.get("args"))
        if isinstance(command, str) and words:
            walk.follow_words([command, *words], start)
        elif isinstance(command, str):
            walk.follow(command, start)
        elif isinstance(command, list | tuple) and command and all(isinstance(word, str) for word in command):
            walk.follow_words(list(command), start)
        else:
            yield Impact("unreadable", "", "a command that is neither a text nor a list of words")
        yield from look.end(walk)


def _input(look: _Look, arguments: Mapping[str, Any]) -> Iterator[Impact]:
    del look
    if any(text.strip("\x03\x04\r\n") for text in _strings(arguments)):
        yield Impact("runs_unread", "", "input of a program that runs")
    else:
        yield Impact("process")


def _read(look: _Look, arguments: Mapping[str, Any]) -> Iterator[Impact]:
    for text in named_texts(arguments, "path") or ["."]:
        yield look.places.reads(look.path(text))


def _search(look: _Look, arguments: Mapping[str, Any]) -> Iterator[Impact]:
    for text in named_texts(arguments, "path") or ["."]:
        yield look.places.reads(look.path(text), recursive=True)
    for text in _strings([arguments.get("glob"), arguments.get("include")]):
        if (read := look.places.reads(look.path(text.replace("*", "")))).kind == "reads_secret":
            yield read


def _write(look: _Look, arguments: Mapping[str, Any]) -> Iterator[Impact]:
    content = "\n".join(named_texts(arguments, "text"))
    paths = named_texts(arguments, "path")
    patches = [
        text for text in _strings(arguments) if "*** Begin Patch" in text or text.startswith(("--- ", "diff --git"))
    ]
    for patch in patches:
        for verb, name in PATCHED.findall(patch):
            path = look.path(name)
            yield from look.places.deletes(path) if verb == "Delete" else look.places.writes(path, patch)
        for name in DIFFED.findall(patch):
            if name != "/dev/null":
                yield from look.places.writes(look.path(name), patch)
        for name in REMOVED.findall(patch):
            yield from look.places.deletes(look.path(name))
        if not any(expression.search(patch) for expression in (PATCHED, DIFFED)):
            yield Impact("unreadable", "", "a patch without the name of a file")
    for text in paths:
        yield from look.places.writes(look.path(text), content)
    if not paths and not patches:
        yield Impact("unreadable", "", "a tool that writes, without a path")


def _delete(look: _Look, arguments: Mapping[str, Any]) -> Iterator[Impact]:
    for text in named_texts(arguments, "path") or [UNKNOWN]:
        yield from look.places.deletes(look.path(text), recursive=True)


def _fetch(look: _Look, arguments: Mapping[str, Any]) -> Iterator[Impact]:
    method = str(arguments.get("method", "GET")).upper()
    sends = method not in ("GET", "HEAD") or any(arguments.get(name) for name in ("body", "data", "json"))
    urls = named_texts(arguments, "url") or re.findall(r"https?://[^\s'\"<>)]+", str(arguments.get("prompt", "")))
    for url in urls:
        is_file = url.strip().lower().startswith("file:")
        yield look.places.reads(look.path(url)) if is_file else url_impact(url, look.places.policy, sends=sends)
    if not urls:
        yield Impact("unreadable", "", "a tool that fetches, without an address")


def _websearch(look: _Look, arguments: Mapping[str, Any]) -> Iterator[Impact]:
    del look
    secret = any(SECRET.search(text) for text in _strings(arguments))
    yield Impact("network_sends" if secret else "network_known", "a search engine")


def _code(look: _Look, arguments: Mapping[str, Any]) -> Iterator[Impact]:
    languages = {text.lower() for name in ("language", "lang") for text in _strings(arguments.get(name))}
    for text in named_texts(arguments, "code") or _strings(arguments):
        if languages & SHELLS:
            walk = ShellWalk(look.places)
            walk.follow(text, look.folder)
            yield from look.end(walk)
        elif MAGIC.search(text):
            yield Impact("runs_unread", "", "a line of a notebook that runs a command")
        yield from read_code(text, "python", look.places, look.folder)


def _agent(look: _Look, arguments: Mapping[str, Any]) -> Iterator[Impact]:
    del look, arguments
    yield Impact("reads", "", "a tool of the agent program itself")


def _server(look: _Look, tool: str, arguments: Mapping[str, Any]) -> Iterator[Impact]:
    """Judge a tool that no table names, by the words in its name and by its arguments."""
    server, name = _server_and_name(tool)
    kind, paths = _kinds_of_tools().get(_plain(name), ""), named_texts(arguments, "path")
    remote = _targets(arguments, "remote")
    if kind in NAMED_KINDS or (kind in READERS and paths and kind not in OWN_KINDS and not remote):
        yield from READERS[kind](look, arguments)
        return
    words = _words(name)
    actions = [
        word for text in named_texts(arguments, "action") if len(text) <= LONGEST_ACTION for word in _words(text)
    ]
    joined = {word for before, word in pairwise(words) if before in ("and", "or", "then")}
    writing = _verbs("writes") & {*words[:2], *actions[:1], *joined} | _verbs("destroys") & {*words}
    saves = bool(_verbs("saves") & {*words, *actions[:1]})
    sends = bool(_verbs("exports") & {*words, *actions[:1]}) and bool(_targets(arguments, "outward"))
    grave = bool(writing or saves) and (sends or not name.isascii() or _is_grave(server, [*words, *actions], arguments))
    reads = (saves and not grave) or bool(_verbs("reads") & {*words, *actions[:1]})
    found = list(_arguments_of(look, tool, arguments, writes=saves or bool(writing)))
    yield from found
    if writing or saves or not reads:
        yield from _unguarding(look, arguments)
    elsewhere = remote or bool(_verbs("sends") & writing)
    if writing and (elsewhere or not any(impact.kind in SETTLED for impact in found)):
        updates = writing <= _verbs("updates") and not grave
        place = " ".join((tool, *_targets(arguments, "names")))
        yield Impact("service_updates" if updates else "service_writes", show(place), "the name of the tool")
    elif reads and not writing:
        yield Impact("service_reads", show(tool), "the name of the tool")
    elif not writing and not found:
        yield Impact("unknown_program", show(tool), "no table names the tool")


def _server_and_name(tool: str) -> tuple[str, str]:
    """Return the name of a tool's server, if it has one, and its own."""
    match = SERVER_TOOL.fullmatch(tool) or JOINED_TOOL.fullmatch(tool)
    return (match[1], match[2]) if match else ("", tool)


def _targets(arguments: Mapping[str, Any], kind: str) -> list[str]:
    """Return the places of a service that arguments name, each with the name of its argument."""
    names = _target_names(kind)
    return sorted({f"{name}={value}" for name, value in _named(arguments, whole=True) if _plain(name) in names})


@cache
def _target_names(kind: str) -> frozenset[str]:
    return frozenset(map(_plain, load_table("tools")["targets"][kind]))


def _is_grave(server: str, words: Sequence[str], arguments: Mapping[str, Any]) -> bool:
    """Return True if a tool that creates or changes things reaches people, money, rights, or what runs for them."""
    given = {word for name, value in _named(arguments) if value not in (None, False) for word in _words(name)}
    return bool(
        _verbs("grave_servers") & {*(_words(server) or words)}
        or (_verbs("grave") | _verbs("destroys") | (_verbs("writes") - _verbs("updates"))) & _singular(words)
        or _verbs("grave_arguments") & _singular(given)
    )


def _singular(words: Iterable[str]) -> set[str]:
    """Return words, and each plural also without its `s`."""
    return {*words, *(word.removesuffix("s") for word in words)}


def _unguarding(look: _Look, arguments: Mapping[str, Any]) -> Iterator[Impact]:
    """Yield the guarded paths among all texts of a tool that may write: its arguments may have any names."""
    for text in _strings(arguments):
        if len(text) <= LONGEST_PATH and text.strip("./") and "\n" not in text and "://" not in text:
            path = look.path(text)
            if reason := look.places.unguards(path, whole=True):
                yield Impact("writes_guarded", show(path), reason, unguards=True)


def _arguments_of(look: _Look, tool: str, arguments: Mapping[str, Any], *, writes: bool) -> Iterator[Impact]:
    """Yield the impacts that the arguments of a tool show: statements, addresses, code, paths."""
    for text in named_texts(arguments, "sql"):
        if _is_sql(text):
            yield from read_sql(text, show(tool))
    for url in named_texts(arguments, "url"):
        if "." in url or "://" in url:
            yield url_impact(url, look.places.policy)
    for text in _strings([arguments.get("command"), arguments.get("cmd"), arguments.get("script")]):
        walk = ShellWalk(look.places)
        walk.follow(text, look.folder)
        yield from (one for one in look.end(walk) if one.kind not in ("unknown_program", "unreadable", "reads"))
    for text in named_texts(arguments, "code"):
        yield from read_code(text, "javascript", look.places, look.folder)
    whole = bool(_verbs("takes_places") & {*_words(tool)})
    texts = [text for text in named_texts(arguments, "path") if "://" not in text or text.lower().startswith("file:")]
    for path in map(look.path, texts):
        if writes and not _is_here(look, path):
            continue
        if writes:
            yield from look.places.writes(path, "\n".join(named_texts(arguments, "text")), whole=whole)
        else:
            yield look.places.reads(path)


def _is_here(look: _Look, path: str) -> bool:
    """Return False for a path whose first folder this machine does not have: it is a name of the server's own."""
    places = look.places
    first = posixpath.join("/", *path.split("/", 2)[1:2])
    ours = (places.policy.root, places.policy.home, *places.policy.temporary)
    if UNKNOWN in first or any(f"{one}/".startswith(f"{first}/") for one in ours):
        return True
    return places.fact(first).kind != "missing" or bool(places.unguards(path, whole=True))


def _is_sql(text: str) -> bool:
    """Return True if a text begins with a word of SQL that more words follow."""
    table = load_table("inline_code")["sql"]
    first = re.sub(r"^\s*(?:--.*\n\s*|/\*.*?\*/\s*)*\(?", "", text).split(None, 1)
    return bool(first) and first[0].upper() in {*table["reading"], *table["changing"]} and len(text.split()) > 1


def _words(name: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


READERS: Final[dict[str, Callable[[_Look, Mapping[str, Any]], Iterator[Impact]]]] = {
    "shell": _shell,
    "input": _input,
    "read": _read,
    "search": _search,
    "write": _write,
    "edit": _write,
    "delete": _delete,
    "fetch": _fetch,
    "websearch": _websearch,
    "code": _code,
    "agent": _agent,
}
