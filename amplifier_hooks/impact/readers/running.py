"""Readers of programs that start other programs, or run code: `xargs`, `env`, `sudo`, shells, interpreters, `make`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from amplifier_hooks.impact.places import UNKNOWN, tells_outward

if TYPE_CHECKING:
    from amplifier_hooks.impact.program_rows import ProgramRun, SplitWords
    from amplifier_hooks.impact.shell import ShellState

ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*=")
MOST_GIVEN: Final = 64
"""Most words that `xargs` and `parallel` are followed with, one by one."""
NPX_PACKAGES: Final = ("-p", "--package", "--from", "--spec", "--with")
TOOL_VERSION: Final = re.compile(r"(?<=.)(?:\[[^\]]*\])?(?:@[^/]*)?$")
MAKE_FILES: Final = ("Makefile", "makefile", "GNUmakefile")
MAKE_PROGRAMS: Final = re.compile(r"(?:SHELL|\.SHELLFLAGS|MAKEFLAGS|MAKE|CC|CXX|LD|\w*CMD)=")


def read_xargs(run: ProgramRun, words: list[str]) -> None:
    """Run a program with words from the standard input behind its own, or in the place of a mark."""
    given = run.split(
        words,
        "-I -J -n -P -L -s -d -E -a --arg-file --max-args --max-procs --delimiter --max-lines --max-chars",
        stop=True,
    )
    inner = given.operands
    mark = given.one("-I", "-J") or ("{}" if given.has("-i", "--replace") else "")
    for value in given.all("-a", "--arg-file"):
        run.reads(value)
    # A mark takes a whole line, and so do some options; quotes keep blanks together.
    lines = bool(mark) or given.has("-0", "--null", "-d", "--delimiter", "-L", "--max-lines")
    known = not given.has("-a", "--arg-file") and (lines or not set("'\"\\") & set(run.stdin))
    words = (run.stdin.splitlines() if lines else run.stdin.split()) if known and run.stdin != UNKNOWN else []
    words = words if 0 < len(words) <= MOST_GIVEN else [UNKNOWN]
    if not inner:
        return
    for line in [[part.replace(mark, word) for part in inner] for word in words] if mark else [[*inner, *words]]:
        run.output = run.walk.command(line, run.state, UNKNOWN)


def read_parallel(run: ProgramRun, words: list[str]) -> None:
    """Read GNU parallel: a program, then `:::` and words for it."""
    given = run.split(
        words,
        "-j --jobs -n -N -a --arg-file --colsep -S --sshlogin --joblog --results --timeout --retries --delay -I",
        stop=True,
    )
    rest = given.operands
    if given.has("-S", "--sshlogin"):
        run.add("network_sends", "other machines", "runs on other machines")
    place = next((at for at, word in enumerate(rest) if word.startswith(":::")), len(rest))
    inner, words = rest[:place], rest[place + 1 :] or [UNKNOWN]
    for word in words if len(words) <= MOST_GIVEN else [UNKNOWN]:
        line = [part.replace("{}", word) for part in inner]
        if not inner:
            run.walk.script(word, run.state.copy(), UNKNOWN)
        else:
            run.walk.command(line if line != inner else [*inner, word], run.state.copy(), UNKNOWN)


def read_env(run: ProgramRun, words: list[str]) -> None:
    """Read `env`: assignments, then a program; alone it prints the whole environment."""
    given = run.split(words, "-u --unset -C --chdir -P -S --split-string", stop=True)
    for folder in given.all("-C", "--chdir"):
        run.enter(folder)
    state = run.state.copy()
    if given.has("-S", "--split-string"):
        text = " ".join((given.one("-S", "--split-string"), *given.operands))
        run.add("unreadable", "env -S", "env splits this text by rules that no shell has")
        run.output = run.walk.script(text, state, run.stdin)
        return
    rest = _assign(run, given.operands, state)
    if rest:
        run.output = run.walk.command(rest, state, run.stdin)
    else:
        run.add("reads_secret", "environment", "the whole environment")


def read_sudo(run: ProgramRun, words: list[str]) -> None:
    """Read `sudo`: a program with the highest rights."""
    given = run.split(words, "-u --user -g --group -h --host -p --prompt -C -r -t -T -U -D --chdir -R", stop=True)
    if not given.operands and given.has("-l", "--list", "-v", "-k", "-K"):
        run.add("reads", "sudo")
        return
    run.add("system", " ".join(given.operands[:2]), "the highest rights")
    state = run.state.copy()
    if rest := _assign(run, given.operands, state):
        run.output = run.walk.command(rest, state, run.stdin)


def _assign(run: ProgramRun, words: list[str], state: ShellState) -> list[str]:
    """Give the variables in front of a program their values, and return the program with its arguments."""
    rest = list(words)
    while rest and ASSIGNMENT.match(rest[0]):
        name, _, value = rest.pop(0).partition("=")
        run.walk.assign(name, value, state)
    return rest


def read_timeout(run: ProgramRun, words: list[str]) -> None:
    """Read `timeout`, `flock` and `watch`: a duration or a file, then a program."""
    rest = run.split(words, stop=True).operands
    if run.name in ("watch", "entr", "watchexec"):
        run.walk.script(" ".join(rest) or UNKNOWN, run.state.copy(), UNKNOWN)
        return
    rest = rest[1:] if run.name in ("timeout", "gtimeout", "flock") else rest
    rest = ["sh", *rest] if rest[:1] == ["-c"] else rest
    if rest:
        run.output = run.walk.command(rest, run.state, run.stdin)


def read_shell(run: ProgramRun, words: list[str]) -> None:
    """Read a shell: the commands of `-c`, a script, or the standard input."""
    if run.name == "busybox" and words:
        run.output = run.walk.command(words, run.state, run.stdin)
        return
    words = [f"-{word[1:]}" if re.fullmatch(r"\+[A-Za-z]+", word) else word for word in words]
    given = run.split(
        words, "-o -O --rcfile --init-file" + " -C --init-command --command" * (run.name == "fish"), stop=True
    )
    for text in given.all("-C", "--init-command", "--command"):
        run.walk.script(text, run.state.copy(), UNKNOWN)
    rest, state = given.operands, run.state.copy()
    for file in given.all("--rcfile", "--init-file"):
        run.walk.run_file(file, state, "shell", [], UNKNOWN)
    if given.has("-c"):
        state.give(rest[2:])
        state.variables["0"] = "".join(rest[1:2])
        run.output = run.walk.script(rest[0] if rest else UNKNOWN, state, run.stdin)
    elif rest and not given.has("-s") and rest[0] != "-":
        run.walk.run_file(rest[0], run.state, "shell", rest[1:], run.stdin)
    elif not given.has("--version"):
        state.give(rest)
        run.output = run.walk.script(run.stdin, state, UNKNOWN)


def read_interpreter(run: ProgramRun, words: list[str]) -> None:
    """Read an interpreter: the code in an option, a module, a script, or the standard input."""
    given = run.split(words, stop=True)
    rest = given.operands
    code = next(
        ((name, value) for name, value in given.found if name in run.row.instead and name in run.row.options), None
    )
    if code and run.name.startswith(("python", "pypy")):
        # Everything behind -c and -m belongs to the code or the module.
        run.operands = words[words.index(code[1]) + 1 :] if code[1] in words else rest
        run.apply(run.row.options[code[0]], code[1])
        return
    for name, value in given.found:
        if role := run.row.options.get(name):
            run.apply(role, value)
    if run.name in ("perl", "ruby") and any(re.match(r"-\w*i", word) for word in words):
        for file in rest:
            run.writes(file, None)
    if code:
        for file in rest if run.name in ("perl", "ruby") else ():
            run.reads(file)
            if "|" in file:
                run.add("runs_unread", file, "a pipe to a program")
    elif rest and rest[0] != "-":
        run.operands = rest
        run.apply(run.row.operands[0], rest[0])
    else:
        _run_input(run, words)


def _run_input(run: ProgramRun, words: list[str]) -> None:
    """Read an interpreter without code and without a script."""
    if words and words[-1] in ("--version", "-V", "-v", "-h", "--help"):
        run.add("reads", run.name)
    elif "--test" in words or "--check" in words:
        run.add("runs_project", run.name)
    elif run.stdin == UNKNOWN:
        run.add("runs_unread", run.name, "code from the standard input")
    else:
        run.apply(run.row.stdin, run.stdin)


def read_npx(run: ProgramRun, words: list[str]) -> None:
    """Read `npx` and its kin: a tool that a table names counts as the project's, any other is fetched and run."""
    packages = " ".join(NPX_PACKAGES)
    given = run.split(
        words, f"{packages} -c --call -w --workspace --python --index-url --with-editable --prefix -C --dir", stop=True
    )
    rest = given.operands
    for value in given.all("-c", "--call"):
        run.walk.script(value, run.state.copy(), UNKNOWN)
    if any(name.startswith(("--registry", "--index", "--script-shell", "--node-options")) for name, _ in given.found):
        run.add("installs_new", run.name, "another source of packages, or a program in an option")
    for value in given.all(*NPX_PACKAGES):
        run.add("installs_new", value)
    if run.name == "pipx" and rest and rest[0] in ("run", "install", "inject", "list"):
        rest = rest[1:]
        if not rest:
            run.add("reads", "pipx")
    if not rest:
        return
    tool = TOOL_VERSION.sub("", rest[0])
    if run.is_known_tool(tool):
        run.output = run.walk.command([tool, *rest[1:]], run.state, run.stdin)
        return
    run.add("installs_new", rest[0], "a tool that no table names")
    run.add("runs_unread", rest[0], "a tool that no table names")


def _read_make_options(run: ProgramRun, given: SplitWords) -> None:
    for value in given.all("--eval", "-E"):
        run.add("runs_unread", value, "rules in the command")
    for folder in given.all("-C", "--directory"):
        run.enter(folder)
    for folder in given.all("-I", "--include-dir"):
        if run.walk.places.is_foreign(tuple(run.paths(folder))):
            run.add("runs_unread", folder, "rules in a folder outside the project")


def read_make(run: ProgramRun, words: list[str]) -> None:
    """Read `make`: its targets are code of the project, unless the file of rules comes from elsewhere."""
    words = [word for at, word in enumerate(words) if not (word.isdigit() and words[at - 1 : at] == ["-j"])]
    given = run.split(words, "-I --include-dir -l -o -W --eval -f --file --makefile -C --directory -E")
    _read_make_options(run, given)
    files = given.all("-f", "--file", "--makefile")
    written = run.walk.places.written
    for file in files or MAKE_FILES:
        for path in run.paths(file):
            if path in written or file == "-":
                run.add("runs_unread", path, "rules that the command itself writes")
            elif files or file == MAKE_FILES[0]:
                run.walk.note(run.walk.places.runs(path))
    for word in given.operands:
        if MAKE_PROGRAMS.match(word) or "$" in word or "`" in word:
            run.add("runs_unread", word, "a variable that names a program")
        elif "=" not in word and tells_outward(word):
            run.add("service_writes", word, "the name of the target")
