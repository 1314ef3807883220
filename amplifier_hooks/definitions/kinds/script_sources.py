"""A script in JavaScript, Ruby, Perl, PHP or Lua comes in; the files that it loads by name go out, and nothing runs.

Only names that stand in the text as they are count. A name that the script computes, and a package, are reasons not to
know what it loads.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from attrs import frozen

from amplifier_hooks.definitions.files.plain_files import read_plainly

LONGEST: Final = 1_048_576
"""Bytes of a script that is read, at most."""

BUILT_IN: Final = frozenset(
    [
        "assert",
        "async_hooks",
        "buffer",
        "child_process",
        "cluster",
        "console",
        "constants",
        "crypto",
        "dgram",
        "diagnostics_channel",
        "dns",
        "domain",
        "events",
        "fs",
        "http",
        "http2",
        "https",
        "inspector",
        "module",
        "net",
        "os",
        "path",
        "perf_hooks",
        "process",
        "punycode",
        "querystring",
        "readline",
        "repl",
        "stream",
        "string_decoder",
        "sys",
        "timers",
        "tls",
        "trace_events",
        "tty",
        "url",
        "util",
        "v8",
        "vm",
        "wasi",
        "worker_threads",
        "zlib",
    ]
)
"""Modules of JavaScript that no folder can replace."""


@frozen(kw_only=True)
class Language:
    """The ways in which scripts of one language load other files."""

    programs: frozenset[str]
    """Names of its interpreters."""
    endings: tuple[str, ...]
    """Endings of scripts, which a name may leave out."""
    beside: re.Pattern[str] | None = None
    """Finds names that start at the folder of the script."""
    here: re.Pattern[str] | None = None
    """Finds names that start at the working folder."""
    packages: re.Pattern[str] | None = None
    """Matches a name that stands for a package, or for a place that no path tells."""
    computed: re.Pattern[str]
    """Finds code that loads what only a run can tell."""
    settings: tuple[str, ...] = ()
    """Files of the working folder that the interpreter reads unasked."""


QUOTED: Final = r"""\s*\(?\s*["']([^"']+)["']"""
PLACED: Final = r"""\s*\(?\s*["'](\.{1,2}/[^"']+)["']"""
"""Like `QUOTED`, for names with a folder: other names are those of installed modules."""

JAVASCRIPT: Final = Language(
    programs=frozenset({"node", "nodejs"}),
    endings=(".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".json", ".node"),
    beside=re.compile(
        r"""(?:\b(?:require|require\.resolve|import|Worker|fork)\s*\(|\bfrom\b|\bimport\b)\s*["'`]([^"'`]+)["'`]"""
    ),
    packages=re.compile(r"(?!\.{1,2}(?:/|$)|/)"),
    computed=re.compile(
        r"""\b(?:require(?:\.resolve)?|import)\s*\(\s*(?!["'`\s])|\bcreateRequire\b|\$\{.*\}.*\bimport"""
    ),
)
LANGUAGES: Final = (
    JAVASCRIPT,
    Language(
        programs=frozenset({"bun", "deno"}),
        endings=JAVASCRIPT.endings,
        beside=JAVASCRIPT.beside,
        packages=JAVASCRIPT.packages,
        computed=JAVASCRIPT.computed,
        settings=("bunfig.toml", ".env", ".env.local", ".env.development", "tsconfig.json", "deno.json", "deno.jsonc"),
    ),
    Language(
        programs=frozenset({"ruby"}),
        endings=(".rb",),
        beside=re.compile(rf"\brequire_relative{QUOTED}"),
        here=re.compile(rf"\b(?:require|load){PLACED}"),
        computed=re.compile(
            r"""\b(?:require_relative|load)\s*\(?\s*(?!["'\s(=])|\$:|\$LOAD_PATH|\bbundler/|\bautoload\b|__dir__|__FILE__"""
        ),
    ),
    Language(
        programs=frozenset({"perl"}),
        endings=(".pl", ".pm"),
        here=re.compile(rf"\b(?:require|do){PLACED}"),
        computed=re.compile(r"\buse\s+lib\b|@INC\b|\bFindBin\b|\b(?:require|do)\s+[$]"),
    ),
    Language(
        programs=frozenset({"php"}),
        endings=(".php",),
        here=re.compile(rf"\b(?:include|require)(?:_once)?{QUOTED}"),
        computed=re.compile(r"\b(?:include|require)(?:_once)?\s*\(?\s*[^\s(\"']|\bspl_autoload|\bset_include_path"),
    ),
    Language(
        programs=frozenset({"lua"}),
        endings=(".lua",),
        here=re.compile(rf"\b(?:dofile|loadfile|require){QUOTED}"),
        computed=re.compile(r"""\b(?:dofile|loadfile|require)\s*\(?\s*(?!["'\s(])|\bpackage\.c?path\b"""),
    ),
)


@frozen
class Loads:
    """The files that one script loads."""

    beside: tuple[str, ...] = ()
    """Absolute paths of files that start at the folder of the script, and so lie beside its copy, too."""
    here: tuple[str, ...] = ()
    """Absolute paths of files that start at the working folder, or at the root."""
    unread: str = ""
    """A reason why the script loads more than these; empty if there is none."""


def loads_of(path: str, cwd: Path, interpreters: frozenset[str]) -> Loads | None:
    """Return the files that a script names and loads; None for a script of another language.

    The ending of the file tells the language; without one that is known, the names of programs that start the script.
    """
    language = _language_of(path, interpreters)
    if language is None:
        return None
    try:
        text = read_plainly(path, LONGEST + 1).decode("utf-8", "replace")
    except OSError:
        return Loads()  # the list says that it is missing
    found: dict[bool, list[str]] = {True: [], False: []}
    unread = "" if len(text) <= LONGEST else "is too long to find the names of the files that it loads"
    folder = Path(os.path.realpath(path)).parent
    for beside, pattern, start in ((True, language.beside, folder), (False, language.here, cwd)):
        for name in () if pattern is None else pattern.findall(text):
            package = language.packages is not None and language.packages.match(name)
            target = _file_at(start, name, language.endings)
            if package and name.removeprefix("node:").partition("/")[0] in BUILT_IN:
                continue
            if package:
                unread = unread or f"loads the package {name!r:.80}, whose files no reading tells"
            elif target is None:
                unread = unread or f"loads {name!r:.80}, which is not there, or only a run tells"
            else:
                found[beside and not name.startswith("/")].append(target)
    if language.computed.search(text):
        unread = unread or "computes the names of files that it loads, or the folders of its modules"
    manifest = _manifest(folder) if language.packages is not None else ()
    settings = (os.path.normpath(cwd / name) for name in language.settings)
    return Loads((*found[True], *manifest), (*found[False], *settings), unread)


def _language_of(path: str, interpreters: frozenset[str]) -> Language | None:
    named = next((one for one in LANGUAGES if one.programs & interpreters), None)
    ending = os.path.splitext(path)[1]  # noqa: PTH122
    if not ending:
        return named
    if named is not None and ending in named.endings:
        return named
    return next((one for one in LANGUAGES if ending in one.endings[:6]), None)


def _file_at(start: Path, name: str, endings: tuple[str, ...]) -> str | None:
    """Return the file that a name stands for; None if there is none."""
    base = os.path.normpath(start / name)
    tried = (base, *(f"{base}{end}" for end in endings), *(os.path.join(base, f"index{end}") for end in endings))  # noqa: PTH118
    return next((one for one in tried if os.path.isfile(one)), None)  # noqa: PTH113


def _manifest(folder: Path) -> tuple[str, ...]:
    """Return the nearest `package.json`, which decides how JavaScript is read."""
    found = next((one / "package.json" for one in (folder, *folder.parents) if (one / "package.json").is_file()), None)
    return () if found is None else (str(found),)
