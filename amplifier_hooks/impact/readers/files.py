"""Readers of programs that work on files: `find`, `sed`, `awk`, `tar`, `rsync`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from amplifier_hooks.impact.inline_code import read_code
from amplifier_hooks.impact.places import ANY, NAME, UNKNOWN, is_remote, names_of, remote_host

if TYPE_CHECKING:
    from amplifier_hooks.impact.program_rows import ProgramRun, SplitWords

FIND_FILES: Final = frozenset(("-fprint", "-fprint0", "-fls", "-fprintf"))
FIND_RUNS: Final = frozenset(("-exec", "-execdir", "-ok", "-okdir"))
IN_PLACE: Final = re.compile(r"--i|-[nErsuz]*i")
LONGEST_SCRIPT: Final = 16_384
BRACKET: Final = r"\[\^?\]?(?:\[[:.=][^\]\n]{0,32}[:.=]\]|[^\]\\\n]|\\[^\]\n])*+\]"
"""A bracket in an expression of sed. One with a backslash before its end is read in two ways, so it is none."""


def _expression_of_sed(stop: str) -> str:
    return rf"(?:\\.|{BRACKET}|(?!{stop})[^\\\[\n])*+"


def _text_of_sed(stop: str) -> str:
    return rf"(?:\\.|(?!{stop})[^\\\n])*+"


def _address_of_sed(name: str) -> str:
    stop = f"(?P={name})"
    return (
        rf"(?:[0-9~{UNKNOWN}{NAME}]++|\$|/{_expression_of_sed('/')}/[IM]*"
        rf"|\\(?P<{name}>[^\\\n]){_expression_of_sed(stop)}{stop}[IM]*)"
    )


SED_COMMAND: Final = re.compile(
    rf"[\s;{{}}]++|(?:{_address_of_sed('one')}(?:\s*,\s*(?:[+~][0-9]+|{_address_of_sed('two')}))?\s*)?(?:!\s*)*"
    rf"(?:\{{|[=dDgGhHlnNpPqQxzF][ \t]*[0-9]*|[btT:][ \t]*[^\s;}}]*|#[^\n]*|[aic](?:\\.|[^\\\n])*+\\?"
    rf"|s(?P<s>[^\\\n]){_expression_of_sed('(?P=s)')}(?P=s){_text_of_sed('(?P=s)')}(?P=s)"
    r"(?:[gpiImM0-9 \t]|(?P<run>e))*+(?:w(?P<out>[^\n]*))?"
    rf"|y(?P<y>[^\\\n]){_text_of_sed('(?P=y)')}(?P=y){_text_of_sed('(?P=y)')}(?P=y)"
    r"|(?P<execute>e)[^\n]*|[wW](?P<write>[^\n]*)|[rR](?P<read>[^\n]*))",
    re.DOTALL,
)
"""One command of sed, with the names of the files that it reads or writes, or a separator."""
TAR_PROGRAMS: Final = (
    "-I --use-compress-program --to-command --checkpoint-action -F --info-script --new-volume-script --rsh-command"
)
TAR_VALUES: Final = "fCTbXNgHKFI"
"""Letters of options of `tar` that take a value."""
COMPRESSORS: Final = frozenset(
    ["zstd", "gzip", "pigz", "xz", "bzip2", "lz4", "brotli", "pbzip2", "pixz", "dot", "echo"]
)
RSH: Final = re.compile(r"ssh(?: -[piqC46] ?\S*)*")


def read_find(run: ProgramRun, words: list[str]) -> None:
    """Read `find`: folders, tests, and actions that delete, write or run a program for every file."""
    start = next(
        (at for at, word in enumerate(words) if word[:1] in ("-", "(", "!") and word not in "-L-H-P"), len(words)
    )
    folders = [word for word in words[:start] if not word.startswith("-")] or ["."]
    names = [words[at + 1] for at in range(start, len(words) - 1) if words[at] in ("-name", "-iname")]
    last = names[0].replace("*", ANY) if len(names) == 1 else ANY
    found = [f"{folder.rstrip('/')}/{last}" for folder in folders]
    run.output = "\n".join(found)
    run.walk.places.touched.update(dict.fromkeys(path for one in found for path in run.paths(one) if names))
    for folder in folders:
        run.add("reads", folder)
    place = start
    while place < len(words):
        place = _find_action(run, words, place, found)


def _find_action(run: ProgramRun, words: list[str], place: int, found: list[str]) -> int:
    """Read one test or action of `find`, and return the place behind it."""
    word, value = words[place], words[place + 1] if place + 1 < len(words) else UNKNOWN
    if word in names_of("tests_of_find"):
        return place + 2
    if word in FIND_FILES:
        run.writes(value)
        return place + 2
    if word == "-files0-from":
        run.add("unreadable", word, "a list of folders in a file")
    elif word == "-delete":
        for one in found:
            run.deletes(one)
    elif word in FIND_RUNS:
        end = next((at for at in range(place + 1, len(words)) if words[at] in (";", "+")), len(words))
        for one in found if end > place + 1 else ():
            run.walk.command([part.replace("{}", one) for part in words[place + 1 : end]], run.state.copy(), UNKNOWN)
        return end + 1
    return place + 1


def read_sed(run: ProgramRun, words: list[str]) -> None:
    """Read `sed`: its script may write files and run commands; `-i` changes the files that it reads."""
    in_place = [word for word in words if word[:1] == "-" and IN_PLACE.match(word)]
    plain = [word for word in words if word not in in_place]
    given = run.split(
        plain[1:] if in_place and plain[:1] == [""] else plain, "-l --line-length -e --expression -f --file"
    )
    scripts, files = given.all("-e", "--expression"), given.operands
    if not scripts and not given.has("-f", "--file") and files:
        scripts, files = [files[0]], files[1:]
    for script in scripts:
        _read_script(run, script)
    for script in given.all("-f", "--file"):
        run.add("unreadable", script, "a script of sed in a file")
    for file in files:
        run.reads(file)
        if in_place:
            run.writes(file, None, hint=" ".join(scripts))
    run.output = run.stdin if ANY in run.stdin and not files else UNKNOWN


def _read_script(run: ProgramRun, script: str) -> None:
    """Find the commands of a script that write, read or run something."""
    text, place = script.replace(ANY, "*"), 0
    while place < len(text):
        command = SED_COMMAND.match(text, place) if len(text) <= LONGEST_SCRIPT else None
        if command is None:
            run.walk.script(UNKNOWN, run.state.copy(), UNKNOWN)
            return
        place = command.end()
        for name in filter(None, (command["out"], command["write"])):
            run.writes(name.strip())
        if command["read"]:
            run.reads(command["read"].strip())
        if command["run"] or command["execute"]:
            run.add("runs_unread", "sed", "a command of sed that runs a program")


def read_awk(run: ProgramRun, words: list[str]) -> None:
    """Read `awk`: a program in a language that can write files and run commands."""
    given = run.split(words, "-F -v --field-separator --assign -f --file -e --source -i --include -l --load -E --exec")
    codes, files = given.all("-e", "--source"), given.operands
    for word in words:
        if match := re.match(r"(?:-[odp]|--(?:profile|pretty-print|dump-variables)=)(.+)", word):
            run.writes(match[1])
    for value in given.all("-f", "--file", "-E", "--exec"):
        run.walk.run_file(value, run.state, "awk", [], run.stdin)
    for value in given.all("-i", "--include", "-l", "--load"):
        run.add("runs_unread", value, "a library of awk")
    if not codes and not given.has("-f", "--file", "-E", "--exec"):
        codes, files = files[:1], files[1:]
    for code in codes:
        text = code.translate({ord(NAME): "x", ord(ANY): "*", ord(UNKNOWN): "x"})
        run.walk.note(*read_code(text, "awk", run.walk.places, run.state.folders[0]))
        if UNKNOWN in code:
            run.add("unreadable", "awk", "only a run tells the code")
    for file in files:
        if "=" not in file:
            run.reads(file)


def read_tar(run: ProgramRun, words: list[str]) -> None:
    """Read `tar`: an archive that is unpacked writes into a folder, and some options run programs."""
    if words and not words[0].startswith("-"):
        words = _old_words(words[0], words[1:])
    given = run.split(
        words,
        f"{TAR_PROGRAMS} -f --file -C --directory -T --files-from -b --exclude --transform --xform -X --exclude-from "
        "--index-file --listed-incremental --volno-file --one-top-level "
        "--strip-components --owner --group --mode --mtime -N -g -H --format -s -K",
    )
    for value in given.all(*TAR_PROGRAMS.split()):
        if value and value.split(" ")[0] not in COMPRESSORS:
            run.add("runs_unread", f"tar {value}", "an option that names a program")
    archive, folder = given.one("-f", "--file") or "-", given.one("-C", "--directory", "--one-top-level") or "."
    _read_tar_files(run, given, archive)
    if given.has("-x", "--extract", "--get"):
        run.reads(archive)
        if not given.has("-O", "--to-stdout"):
            run.writes(f"{folder}/{NAME}")
    elif given.has("-c", "--create", "-r", "--append", "-u", "--update", "-A"):
        run.writes(archive)
        for file in given.operands:
            path = file if file[:1] in ("/", "~") else f"{folder}/{file}"
            run.reads(path, recursive=True)
            if given.has("--remove-files"):
                run.deletes(path, recursive=True)
    else:
        run.add("reads", archive)


def _old_words(letters: str, words: list[str]) -> list[str]:
    """Return the words behind `tar` with a dash for each letter. The values of letters stand behind all letters."""
    waiting = list(words)
    found = []
    for letter in letters:
        found.append(f"-{letter}")
        if letter in TAR_VALUES and waiting:
            found.append(waiting.pop(0))
    return [*found, *waiting]


def _read_tar_files(run: ProgramRun, given: SplitWords, archive: str) -> None:
    """Read the options of `tar` that name more files, or leave the folder."""
    for value in given.all("--index-file", "--listed-incremental", "-g", "--volno-file"):
        run.writes(value)
    for value in given.all("-T", "--files-from"):
        run.reads(value)
    if given.has("-P", "--absolute-names", "--recursive-unlink") and given.has("-x", "--extract", "--get"):
        run.add("writes_outside", "tar", "paths of the archive, wherever they lie")
    if is_remote(archive) and not given.has("--force-local"):
        run.add("network_sends", archive)


def _read_rsync_files(run: ProgramRun, given: SplitWords) -> None:
    for value in given.all("--log-file", "--backup-dir", "--write-batch", "--temp-dir", "-T"):
        run.writes(value)
    for value in given.all("--files-from", "--password-file"):
        run.reads(value)


def read_rsync(run: ProgramRun, words: list[str]) -> None:
    """Read `rsync`: a copy that may delete, between folders or machines."""
    given = run.split(
        words,
        "--exclude --include --exclude-from --include-from -f --filter --bwlimit --timeout --port --chmod --chown "
        "--out-format --log-file --backup-dir --suffix -B --partial-dir --info --compress-level --max-size --min-size "
        "--files-from -e --rsh --rsync-path --write-batch --temp-dir -T --password-file -M --remote-option",
    )
    _read_rsync_files(run, given)
    for value in given.all("-e", "--rsh", "--rsync-path", "-M", "--remote-option"):
        if not RSH.fullmatch(value):
            run.add("runs_unread", value, "an option that names a program")
    for source in given.operands[:-1]:
        if is_remote(source):
            run.url(remote_host(source))
            continue
        run.reads(source, recursive=True)
        if given.has("--remove-source-files"):
            run.deletes(source, recursive=True)
    for target in given.operands[1:][-1:]:
        if is_remote(target):
            run.add("network_sends", target)
            continue
        run.writes(target)
        if any(name.startswith("--del") for name, _ in given.found):
            run.deletes(target, recursive=True)
