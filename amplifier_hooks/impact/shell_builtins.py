"""The commands that a shell carries out itself, such as `cd`, `eval`, `source` and `echo`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from attrs import evolve, frozen

from amplifier_hooks.impact.places import ANY, NAME, UNKNOWN, names_of
from amplifier_hooks.impact.shell_words import SPLIT, decode_escapes

if TYPE_CHECKING:
    from collections.abc import Callable

    from amplifier_hooks.impact.shell import ShellState, ShellWalk

ECHO_OPTION: Final = re.compile(r"-[neE]+")
MOST_TURNS: Final = 32
"""Most turns of the format of `printf` that are followed."""


@frozen
class BuiltinCall:
    """One builtin with its arguments, at the place in a command where it runs."""

    walk: ShellWalk
    words: list[str]
    state: ShellState
    stdin: str


def _cd(call: BuiltinCall) -> str:
    target = next((word for word in call.words if word == "-" or not word.startswith("-")), "~")
    if target == "-":
        target = call.state.variables.get("OLDPWD", UNKNOWN)
    old = call.state.folders
    new = tuple(dict.fromkeys(call.walk.places.absolute(target, folder, logical=True) for folder in old))
    sure = all(call.walk.places.is_folder(folder) for folder in new if UNKNOWN not in folder)
    call.state.enter(new if sure else (*new, *old))
    call.state.variables["OLDPWD"], call.state.variables["PWD"] = old[0], call.state.folders[0]
    return ""


def _eval(call: BuiltinCall) -> str:
    return call.walk.script(" ".join(call.words), call.state, call.stdin)


def _source(call: BuiltinCall) -> str:
    if not call.words:
        return ""
    for folder in call.state.folders:
        path = call.walk.places.absolute(call.words[0], folder)
        if (content := call.walk.places.written.get(path)) is not None:
            call.walk.script(content, call.state, call.stdin)
            return UNKNOWN
        read = call.walk.places.reads(path)
        if read.kind == "reads_secret":
            call.walk.note(read)
        call.walk.note(call.walk.places.runs(path))
    kept = ("HOME", "PWD", "TMPDIR", "PATH")
    call.state.variables |= {name: UNKNOWN for name in call.state.variables if name.isidentifier() and name not in kept}
    return UNKNOWN


def _exec(call: BuiltinCall) -> str:
    rest = call.words
    while rest and rest[0].startswith("-"):
        rest = rest[2:] if rest[0].endswith("a") else rest[1:]
    return call.walk.command(rest, call.state, call.stdin) if rest else ""


def _run_plain(call: BuiltinCall) -> str:
    """Follow `command`, `builtin` and `time`; `command -v` only looks."""
    if call.words[:1] in (["-v"], ["-V"]):
        return NAME
    rest = call.words
    while rest and rest[0].startswith("-"):
        rest = rest[1:]
    return call.walk.command(rest, call.state, call.stdin) if rest else ""


def _echo(call: BuiltinCall) -> str:
    words, escapes = call.words, False
    while words and words[0][:1] == "-" and ECHO_OPTION.fullmatch(words[0]):
        escapes = escapes or "e" in words[0]
        words = words[1:]
    text = " ".join(words)
    return (decode_escapes(text) if escapes else text) + "\n"


def _printf(call: BuiltinCall) -> str:
    if call.words[:1] == ["-v"]:
        value = _printf(evolve(call, words=call.words[2:]))
        call.walk.assign("".join(call.words[1:2]), value, call.state)
        return ""
    form, *values = call.words or [""]
    text = decode_escapes(form)
    if "%" not in text.replace("%%", ""):
        return text.replace("%%", "%")
    if re.sub(r"%[sb]|%%", "", text).count("%"):
        return UNKNOWN
    waiting = list(values)
    turns = [re.sub(r"%[sb]", lambda _: waiting.pop(0) if waiting else "", text)]
    while waiting and len(turns) < MOST_TURNS:
        turns.append(re.sub(r"%[sb]", lambda _: waiting.pop(0) if waiting else "", text))
    return "".join(turns).replace("%%", "%") if not waiting else UNKNOWN


def _read(call: BuiltinCall) -> str:
    value = call.stdin.strip() if ANY in call.stdin and "\n" not in call.stdin.strip() else UNKNOWN
    for word in call.words:
        if not word.startswith("-"):
            call.walk.assign(word, value, call.state)
    return ""


def _map(call: BuiltinCall) -> str:
    """Follow `mapfile`, whose option `-C` runs a command for every line."""
    for word, value in zip(call.words, call.words[1:], strict=False):
        if re.fullmatch(r"-\w*C", word):
            call.walk.script(value, call.state, UNKNOWN)
    return _read(call)


def _trap(call: BuiltinCall) -> str:
    if call.words and call.words[0] not in ("-", "-p", "-l", ""):
        words = call.words[1:] if call.words[0] == "--" else call.words
        later = call.state.copy()
        call.walk.script("".join(words[:1]), later, call.stdin)
        call.state.join(later)
    return ""


def _alias(call: BuiltinCall) -> str:
    for word in call.words:
        name, joined, body = word.partition("=")
        if joined:
            call.state.functions[name] = body
    return ""


def _unset(call: BuiltinCall) -> str:
    for word in call.words:
        call.state.variables.pop(word, None)
        call.state.functions.pop(word, None)
    return ""


def _set(call: BuiltinCall) -> str:
    if not call.words:
        call.walk.add("reads_secret", "environment", "the whole environment")
    start = next((at for at, word in enumerate(call.words) if word[:1] not in ("-", "+") or word == "--"), None)
    if start is not None and call.words[start - 1 : start] != ["-o"]:
        values = call.words[start + (call.words[start] == "--") :]
        call.state.give(values)
    return ""


def _shift(call: BuiltinCall) -> str:
    values = call.state.variables.get("@", UNKNOWN).split(SPLIT)
    count = "".join(call.words[:1]) or "1"
    known = count.isdigit() and not any(UNKNOWN in value for value in values)
    call.state.give(values[int(count) :] if known else [UNKNOWN] * 9)
    return ""


def _pwd(call: BuiltinCall) -> str:
    return call.state.folders[0] if len(call.state.folders) == 1 else UNKNOWN


def _unknown(_call: BuiltinCall) -> str:
    return UNKNOWN


def _quiet(_call: BuiltinCall) -> str:
    return ""


def find_builtin(name: str) -> Callable[[BuiltinCall], str] | None:
    """Return the function that follows a builtin, or None if the shell has none of this name."""
    return BUILTINS.get(name) or (_quiet if name in names_of("quiet_builtins") else None)


BUILTINS: Final[dict[str, Callable[[BuiltinCall], str]]] = {
    "cd": _cd,
    "pushd": _cd,
    "chdir": _cd,
    "eval": _eval,
    "source": _source,
    ".": _source,
    "exec": _exec,
    "command": _run_plain,
    "builtin": _run_plain,
    "time": _run_plain,
    "echo": _echo,
    "printf": _printf,
    "read": _read,
    "mapfile": _map,
    "readarray": _map,
    "getopts": lambda call: _read(evolve(call, words=call.words[1:2])),
    "trap": _trap,
    "alias": _alias,
    "unset": _unset,
    "unalias": _unset,
    "set": _set,
    "shift": _shift,
    "pwd": _pwd,
    "popd": lambda call: _cd(evolve(call, words=["-"])),
    **dict.fromkeys(("type", "dirs", "jobs", "times", "ulimit", "umask"), _unknown),
}
