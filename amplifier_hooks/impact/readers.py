"""Readers of the programs whose arguments no row of a table can describe."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from attrs import evolve

from amplifier_hooks.impact.network import url_impact
from amplifier_hooks.impact.places import ANY, NAME, UNKNOWN, tells_outward
from amplifier_hooks.impact.inline_code import read_code, read_sql
from amplifier_hooks.impact.kinds import Impact
from amplifier_hooks.impact.programs import Row, _apply, _read, program_rows, split_words
from amplifier_hooks.impact.shell_words import SPLIT

if TYPE_CHECKING:
    from collections.abc import Callable

    from amplifier_hooks.impact.programs import ProgramRun

FIND_VALUES: Final = frozenset(
    "-name -iname -path -ipath -wholename -regex -iregex -type -xtype -size -mtime -mmin -atime -amin -ctime -cmin -newer -maxdepth -mindepth -perm -user -group -uid -gid -links -inum -samefile -lname -ilname -fstype -printf -regextype -newermt -used -E -D -context".split()
)
FIND_FILES: Final = frozenset(("-fprint", "-fprint0", "-fls", "-fprintf"))
LONGEST_SCRIPT: Final = 16_384
GIT_PROGRAMS: Final = re.compile(r"alias\.|core\.(?:sshcommand|pager|editor|hookspath|fsmonitor|gitproxy|askpass|attributesfile|worktree)|.*\.(?:textconv|command|cmd|process|clean|smudge|driver|program|helper|uploadpack|receivepack|proxy|browser)$|pager\.|sequence\.editor|protocol\.|url\.|include|credential|filter\.|diff\..*\.|merge\..*\.|gpg\.|http\.proxy|http\.sslverify|init\.templatedir|uploadpack\.|remote\.", re.IGNORECASE)
CURL_VALUES: Final = frozenset(
    "-A --user-agent -e --referer -m --max-time --connect-timeout --retry --retry-delay --retry-max-time -w --write-out -x --proxy -u --user -H --header -b --cookie -r --range -z --time-cond -E --cert --key --cacert --capath --ciphers --interface --limit-rate -y -Y --max-redirs --resolve --connect-to --dns-servers -C --continue-at --max-filesize --proto --stderr --noproxy --oauth2-bearer --tlsv --url-query -X --request".split()
)
CURL_DATA: Final = frozenset("-d --data --data-raw --data-binary --data-ascii --data-urlencode --json -F --form --form-string -T --upload-file".split())


def _find(run: ProgramRun, words: list[str]) -> None:
    """Read `find`: folders, tests, and actions that delete, write or run a program for every file."""
    place = 0
    while place < len(words) and words[place] in ("-L", "-H", "-P"):
        place += 1
    folders = []
    while place < len(words) and not (words[place].startswith(("-", "(", "!")) and len(words[place]) > 0):
        folders.append(words[place])
        place += 1
    folders = folders or ["."]
    names = [words[at + 1] for at in range(len(words) - 1) if words[at] in ("-name", "-iname", "-path", "-ipath", "-wholename")]
    found = [f"{folder.rstrip('/')}/{_last(names)}" for folder in folders]
    run.output = "\n".join(found)
    for folder in folders:
        for path in run.paths(folder):
            run.add("reads", path)
    while place < len(words):
        word = words[place]
        place += 1
        if word in FIND_VALUES:
            place += 1
        elif word in FIND_FILES:
            for path in run.paths(words[place] if place < len(words) else UNKNOWN):
                run.walk.note(*run.walk.places.writes(path))
            place += 1
        elif word == "-files0-from":
            run.add("unreadable", word, "a list of folders in a file")
        elif word == "-delete":
            for one in found:
                for path in run.paths(one):
                    run.walk.note(*run.walk.places.deletes(path))
        elif word in ("-exec", "-execdir", "-ok", "-okdir"):
            end = next((at for at in range(place, len(words)) if words[at] in (";", "+")), len(words))
            inner = words[place:end]
            for one in found:
                # A program that a file's own name chooses stays unreadable.
                run.walk.command([part.replace("{}", one) for part in inner], run.state.copy(), UNKNOWN)
            place = end + 1


def _last(names: list[str]) -> str:
    """Return the last part of the paths that find prints; a test by name narrows it."""
    if len(names) == 1:
        return names[0].replace("*", ANY).lstrip("./") or ANY
    return ANY


def _xargs(run: ProgramRun, words: list[str]) -> None:
    """Run a program with words from the standard input behind its own, or in the place of a mark."""
    row = Row(values=frozenset("-I -J -n -P -L -s -d -E -a --arg-file --max-args --max-procs --delimiter --replace --max-lines --max-chars".split()))
    row = evolve(row, values=row.values - {"--replace"})
    inner, found = split_words(row, words, stop=True)
    mark = next((value for name, value in found if name in ("-I", "-J")), "{}" if any(name in ("-i", "--replace") for name, _ in found) else "")
    stdin = run.stdin
    given = stdin.split() if stdin != UNKNOWN and any(name in ("-a", "--arg-file") for name, _ in found) is False else [UNKNOWN]
    given = given if 0 < len(given) <= 64 else [UNKNOWN]
    if not inner:
        return
    if mark:
        for word in given:
            run.output = run.walk.command([part.replace(mark, word) for part in inner], run.state, UNKNOWN)
    else:
        run.output = run.walk.command([*inner, *given], run.state, UNKNOWN)


def _env(run: ProgramRun, words: list[str]) -> None:
    """Read `env`: assignments, then a program; alone it prints the whole environment."""
    row = Row(values=frozenset(("-u", "--unset", "-C", "--chdir", "-P")), options={"-S": "", "--split-string": ""})
    rest, found = split_words(row, words, stop=True)
    state = run.state.copy()
    for name, value in found:
        if name in ("-S", "--split-string"):
            run.output = run.walk.script(value + " " + " ".join(rest), state, run.stdin)
            return
        if name in ("-C", "--chdir"):
            state.folders = tuple(run.paths(value))
    while rest and re.match(r"[A-Za-z_]\w*=", rest[0]):
        name, _, value = rest.pop(0).partition("=")
        run.walk.assign(name, value, state, exported=True)
    if rest:
        run.output = run.walk.command(rest, state, run.stdin)
    else:
        run.add("reads_secret", "environment", "the whole environment")


def _parallel(run: ProgramRun, words: list[str]) -> None:
    """Read GNU parallel: a program, then `:::` and words for it."""
    row = Row(values=frozenset("-j --jobs -n -N -a --arg-file --colsep -S --sshlogin --joblog --results --timeout --retries --delay -I".split()))
    rest, found = split_words(row, words, stop=True)
    if any(name in ("-S", "--sshlogin") for name, _ in found):
        run.add("network_sends", "other machines", "runs on other machines")
    place = next((at for at, word in enumerate(rest) if word.startswith(":::")), len(rest))
    inner, given = rest[:place], rest[place + 1 :] or [UNKNOWN]
    for word in given[:32]:
        if inner:
            words = [part.replace("{}", word) for part in inner]
            run.walk.command(words if words != inner else [*inner, word], run.state.copy(), UNKNOWN)
        else:
            run.walk.script(word, run.state.copy(), UNKNOWN)


def _git_config(run: ProgramRun, words: list[str]) -> None:
    """Read `git config`: only a name and a value change anything."""
    row = Row(values=frozenset(("--type", "--default", "-t")), options={"-f": "", "--file": "", "--blob": "", "--comment": ""})
    rest, found = split_words(row, words)
    flags = {name for name, _ in found}
    reading = {"--get", "--get-all", "--get-regexp", "--list", "-l", "--get-urlmatch", "--get-color", "--name-only"}
    if rest[:1] in (["get"], ["list"]) or flags & reading or (len(rest) < 2 and not flags & {"--unset", "--unset-all", "--add", "--replace-all", "-e", "--edit", "--remove-section", "--rename-section"}):
        name = rest[-1] if rest else ""
        run.add("reads_secret" if re.search(r"token|password|extraheader", name, re.IGNORECASE) else "reads", name)
        return
    rest = rest[1:] if rest[:1] == ["set"] else rest
    wide = flags & {"--global", "--system"}
    name = rest[0] if rest else "config"
    harmless = re.fullmatch(r"(?:user\.(?:name|email|signingkey)|core\.(?:autocrlf|ignorecase|filemode|quotepath|longpaths|eol|safecrlf)|color\..*|init\.defaultbranch|push\.(?:default|autosetupremote)|pull\.(?:rebase|ff)|fetch\.prune|rerere\..*|advice\..*|gc\..*|log\.date|column\.ui|commit\.gpgsign|tag\.gpgsign|http\.postbuffer|safe\.directory|branch\..*|rebase\..*|merge\.(?:ff|conflictstyle))", name, re.IGNORECASE)
    run.add("git_configures" if not harmless or wide else "git_local", name, "every repository" if wide else "")


def _git(run: ProgramRun, words: list[str]) -> None:
    """Read the options before a subcommand of git; some of them name programs."""
    row = run.row
    rest = list(words)
    state = run.state
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        name, joined, value = word.partition("=")
        if word in ("-C", "--git-dir", "--work-tree", "--namespace", "--super-prefix", "-c", "--config-env", "--exec-path") and rest and not joined:
            value = rest.pop(0)
        if name == "-C":
            state = state.copy()
            state.folders = tuple(path for folder in state.folders for path in [run.walk.places.absolute(value, folder)])
        elif name in ("-c", "--config-env"):
            setting, _, given = value.partition("=")
            if GIT_PROGRAMS.match(setting) and given not in ("", "cat", "less", "false", "true", "auto", "never", "always"):
                run.add("runs_unread", setting, "a setting that names a program")
        elif name == "--exec-path" and value:
            run.add("runs_unread", value, "another folder for git's programs")
        elif name in ("--version", "--help", "-v", "-h"):
            run.add("reads", "git")
            return
    outside = [folder for folder in state.folders if not run.walk.places._is_own(folder)]
    run.state = state
    kinds = set(run.walk.impacts)
    run.row = evolve(row, by="")
    _read(run, rest, ["git"])
    for impact in [one for one in run.walk.impacts if one not in kinds and one.kind == "git_loses_work"]:
        for folder in outside:
            run.add("deletes_outside", folder, impact.reason or impact.place)


def _git_push(run: ProgramRun, words: list[str]) -> None:
    """Read `git push`: what it sends where, and if it can lose work there."""
    row = Row(values=frozenset(("-o", "--push-option", "--receive-pack", "--exec", "--repo", "--recurse-submodules")))
    rest, found = split_words(row, words)
    flags = {name.partition("=")[0] for name, _ in found}
    if flags & {"--receive-pack", "--exec"}:
        run.add("runs_unread", "--receive-pack", "a program on the other side")
    if flags & {"-n", "--dry-run"}:
        run.add("network_known", "git push --dry-run")
        return
    run.add("git_publishes", " ".join(rest) or "push")
    if flags & {"-f", "--force", "--force-with-lease", "--force-if-includes", "--mirror", "--delete", "-d", "--prune"} or any(one.startswith(("+", ":")) for one in rest[1:]):
        run.add("git_loses_work", " ".join(rest) or "push", "the other side can lose commits")
    if rest and ("://" in rest[0] or re.match(r"[\w.-]+@[\w.-]+:", rest[0])):
        run.walk.note(url_impact(rest[0], run.walk.places.policy, sends=True))


def _git_restore(run: ProgramRun, words: list[str]) -> None:
    """Read `git checkout` and `git restore`: a branch changes nothing that git does not keep, a path may."""
    row = Row(values=frozenset(("-b", "-B", "--orphan", "-s", "--source", "--conflict", "-U", "--pathspec-from-file", "-t")))
    row = evolve(row, values=row.values - {"-t"})
    rest, found = split_words(row, words)
    flags = {name.partition("=")[0] for name, _ in found}
    creates = flags & {"-b", "--orphan", "-c", "--create"}
    if flags & {"-f", "--force", "--discard-changes", "-B", "-C", "--pathspec-from-file", "--ours", "--theirs", "-p", "--patch"}:
        run.add("git_loses_work", " ".join(rest), "changes that are not committed")
    elif run.row.reason == "restore":
        kept = flags & {"--staged", "-S"} and not flags & {"--worktree", "-W"}
        run.add("git_local" if kept else "git_loses_work", " ".join(rest), "" if kept else "changes that are not committed")
    elif "--" in words or (len(rest) > 1 and not creates) or any(one == "." or one.startswith("./") for one in rest):
        run.add("git_loses_work", " ".join(rest), "changes that are not committed")
    else:
        looks_like_file = [one for one in rest if not creates and any(run.walk.places.fact(path).kind == "file" for path in run.paths(one))]
        run.add("git_loses_work" if looks_like_file else "git_local", " ".join(rest), "changes that are not committed" if looks_like_file else "")


def _curl(run: ProgramRun, words: list[str]) -> None:
    """Read `curl`: where it connects to, what it sends, and which file it writes."""
    options = {"-o": "writes", "--output": "writes", "--output-dir": "", "-D": "writes", "--dump-header": "writes", "-c": "writes", "--cookie-jar": "writes", "--trace": "writes", "--trace-ascii": "writes", "-K": "", "--config": "", "--url": ""}
    row = Row(values=CURL_VALUES, options=options | dict.fromkeys(CURL_DATA, ""))
    urls, found = split_words(row, words)
    run.roles = ()
    method = next((value.upper() for name, value in found if name in ("-X", "--request")), "GET")
    names = {name.partition("=")[0] for name, _ in found}
    body = names & CURL_DATA and not names & {"-G", "--get"}
    sends = bool(body) or method not in ("GET", "HEAD", "OPTIONS")
    urls += [value for name, value in found if name == "--url"]
    if "-K" in names or "--config" in names:
        run.add("unreadable", "--config", "the file of settings is not read")
        run.add("network_sends", "--config", "the file of settings is not read")
    for name, value in found:
        if name in options and options[name] == "writes" and value not in ("-", "/dev/null"):
            for path in run.paths(value):
                run.walk.note(*run.walk.places.writes(path))
        elif name in ("-b", "--cookie", "--cacert", "--cert", "-E", "--key") and "=" not in value:
            continue
        elif name in CURL_DATA and (value.startswith("@") or "=@" in value or name in ("-T", "--upload-file")) and value not in ("@-", "-"):
            for path in run.paths(value.rpartition("@")[2]):
                run.walk.note(run.walk.places.reads(path))
    if "-O" in names or "--remote-name" in names or "-J" in names:
        for url in urls:
            for path in run.paths(url.rpartition("/")[2] or "index"):
                run.walk.note(*run.walk.places.writes(path))
    for url in urls:
        run.walk.note(url_impact(url, run.walk.places.policy, sends=sends))
        if url.lower().startswith("file:"):
            for path in run.paths(url):
                run.walk.note(run.walk.places.reads(path))
    if any(name in ("-H", "--header") and value.startswith("@") for name, value in found):
        run.add("unreadable", "--header", "headers in a file")


def _wget(run: ProgramRun, words: list[str]) -> None:
    """Read `wget`: it writes a file unless its output is the terminal."""
    options = dict.fromkeys(("-O", "--output-document", "-o", "--output-file", "-a", "--append-output", "-P", "--directory-prefix", "--post-file", "--body-file", "--post-data", "--body-data", "--method", "-i", "--input-file", "-e", "--execute", "--use-askpass"), "")
    row = Row(values=frozenset("-t --tries -T --timeout -U --user-agent --header -w --wait -l --level -A -R -D --limit-rate --user --password -Q".split()), options=options)
    urls, found = split_words(row, words)
    named = {name: value for name, value in found}
    sends = bool(named.keys() & {"--post-file", "--body-file", "--post-data", "--body-data"}) or named.get("--method", "GET").upper() not in ("GET", "HEAD")
    for name in ("--post-file", "--body-file"):
        if name in named:
            for path in run.paths(named[name]):
                run.walk.note(run.walk.places.reads(path))
    if named.keys() & {"-e", "--execute", "--use-askpass"}:
        run.add("runs_unread", "wget", "a setting that names a program")
    if named.keys() & {"-i", "--input-file"}:
        run.add("unreadable", "wget", "the list of addresses is not read")
    target = named.get("-O", named.get("--output-document", ""))
    if target != "-" and not named.keys() & {"--spider"}:
        folder = named.get("-P", named.get("--directory-prefix", "."))
        for url in urls if not target else [target]:
            for path in run.paths(target or f"{folder}/{url.rpartition('/')[2] or 'index.html'}"):
                run.walk.note(*run.walk.places.writes(path))
    for url in urls:
        run.walk.note(url_impact(url, run.walk.places.policy, sends=sends))


def _sed(run: ProgramRun, words: list[str]) -> None:
    """Read `sed`: its script may write files and run commands; `-i` changes the files that it reads."""
    row = Row(values=frozenset(("-l", "--line-length")), options=dict.fromkeys(("-e", "--expression", "-f", "--file"), ""))
    in_place = [word for word in words if re.match(r"--in-place|-[nErsuz]*i", word)]
    plain = [word for word in words if word not in in_place]
    if in_place and plain[:1] == [""]:
        plain = plain[1:]
    files, found = split_words(row, plain)
    scripts = [value for name, value in found if name in ("-e", "--expression")]
    named = [value for name, value in found if name in ("-f", "--file")]
    if not scripts and not named and files:
        scripts, files = [files[0]], files[1:]
    for script in scripts:
        _sed_script(run, script)
    for script in named:
        run.add("unreadable", script, "a script of sed in a file")
    for file in files:
        for path in run.paths(file):
            run.walk.note(run.walk.places.reads(path))
            if in_place:
                run.walk.note(*run.walk.places.writes(path, None, hint=" ".join(scripts)))
    run.output = run.stdin if ANY in run.stdin and not files else UNKNOWN


def _sed_script(run: ProgramRun, script: str) -> None:
    """Find the commands of a script that write, read or run something."""
    if len(script) > LONGEST_SCRIPT:
        run.add("unreadable", "sed", "a script that is too long to be read")
        return
    text = script.translate({ord(UNKNOWN): "x", ord(NAME): "x", ord(ANY): "*"})
    place = 0
    while place < len(text):
        sign = text[place]
        if sign in " \t\n;{}!,0123456789$~+":
            place += 1
        elif sign in "/\\":
            stop = sign if sign == "/" else text[place + 1 : place + 2]
            place = _skip_to(text, place + (1 if sign == "/" else 2), stop)
            while text[place : place + 1] in ("I", "M"):
                place += 1
        elif sign in "sy":
            stop = text[place + 1 : place + 2]
            place = _skip_to(text, _skip_to(text, place + 2, stop), stop)
            flags = re.compile(r"[gpiImM0-9]*(e?)[gpiImM0-9]*(?:w\s*([^\n;}]+))?").match(text, place)
            if flags is not None:
                if flags[1] and sign == "s":
                    run.add("runs_unread", "sed", "the flag e of s runs its result")
                if flags[2]:
                    for path in run.paths(flags[2].strip()):
                        run.walk.note(*run.walk.places.writes(path))
                place = max(flags.end(), place)
        elif sign in "wWrR":
            end = min((at for at in (text.find("\n", place), text.find("}", place)) if at >= 0), default=len(text))
            for path in run.paths(text[place + 1 : end].strip().rstrip(";")):
                run.walk.note(*(run.walk.places.writes(path) if sign in "wW" else [run.walk.places.reads(path)]))
            place = end
        elif sign == "e":
            run.add("runs_unread", "sed", "the command e of sed")
            place += 1
        elif sign in "aic":
            end = text.find("\n", place)
            while end > 0 and text[end - 1] == "\\":
                end = text.find("\n", end + 1)
            place = len(text) if end < 0 else end
        elif sign in ":btT#":
            end = min((at for at in (text.find("\n", place), text.find(";", place)) if at >= 0), default=len(text))
            place = max(end, place + 1)
        else:
            place += 1


def _skip_to(text: str, place: int, stop: str) -> int:
    """Return the place behind the next `stop` that no backslash and no bracket keeps."""
    bracket = False
    while place < len(text):
        sign = text[place]
        if sign == "\\":
            place += 2
            continue
        if sign == "[" and stop != "[" and not bracket:
            bracket = "]" in text[place + 2 :]
            place += 2 if text[place + 1 : place + 2] in ("]", "^") else 1
            continue
        if sign == "]":
            bracket = False
        elif sign == stop and not bracket:
            return place + 1
        place += 1
    return place


def _tar(run: ProgramRun, words: list[str]) -> None:
    """Read `tar`: an archive that is unpacked writes into a folder, and some options run programs."""
    if words and not words[0].startswith("-"):
        words = [f"-{words[0]}", *words[1:]]
    valued = dict.fromkeys(("-f", "--file", "-C", "--directory", "-I", "--use-compress-program", "--to-command", "--checkpoint-action", "-F", "--info-script", "--new-volume-script", "--rsh-command", "-T", "--files-from"), "")
    row = Row(values=frozenset("-b --exclude --transform --xform -X --exclude-from --strip-components --owner --group --mode --mtime -N -g --checkpoint -H --format -s --anchored -K".split()), options=valued)
    row = evolve(row, values=row.values - {"--checkpoint", "--anchored"})
    files, found = split_words(row, words)
    named: dict[str, str] = dict(found)
    programs = ("-I", "--use-compress-program", "--to-command", "--checkpoint-action", "-F", "--info-script", "--new-volume-script", "--rsh-command")
    for name in programs:
        if name in named and named[name].split(" ")[0] not in ("zstd", "gzip", "pigz", "xz", "bzip2", "lz4", "brotli", "pbzip2", "pixz", "dot", "echo"):
            run.add("runs_unread", f"tar {name}", "an option that names a program")
    archive = named.get("-f", named.get("--file", "-"))
    folder = named.get("-C", named.get("--directory", "."))
    if named.keys() & {"-x", "--extract", "--get"}:
        for path in run.paths(archive) if archive != "-" else ():
            run.walk.note(run.walk.places.reads(path))
        if not named.keys() & {"-O", "--to-stdout"}:
            for path in run.paths(folder):
                run.walk.note(*run.walk.places.writes(f"{path}/{NAME}"))
    elif named.keys() & {"-c", "--create", "-r", "--append", "-u", "--update", "-A"}:
        for path in run.paths(archive) if archive != "-" else ():
            run.walk.note(*run.walk.places.writes(path))
        for file in files:
            for base in run.paths(folder):
                path = run.walk.places.absolute(file, base)
                run.walk.note(run.walk.places.reads(path, recursive=True))
                if "--remove-files" in named:
                    run.walk.note(*run.walk.places.deletes(path, recursive=True))
    else:
        run.add("reads", archive)


def _ssh(run: ProgramRun, words: list[str]) -> None:
    """Read `ssh`: a command on another machine; some options run programs on this one."""
    row = Row(values=frozenset("-p -i -l -F -L -R -D -b -c -E -e -I -J -m -O -o -Q -S -W -w -B".split()), options={})
    rest, found = split_words(row, words, stop=True)
    for name, value in found:
        if name == "-o" and re.match(r"(?:ProxyCommand|LocalCommand|PermitLocalCommand|KnownHostsCommand)\b", value, re.IGNORECASE):
            run.add("runs_unread", value, "an option that names a program")
        elif name == "-F":
            run.add("unreadable", value, "the file of settings is not read")
        elif name in ("-R", "-D", "-L", "-w"):
            run.add("network_sends", value, "a tunnel")
    if rest:
        host = rest[0].rpartition("@")[2]
        run.walk.note(url_impact(host, run.walk.places.policy))
        if rest[1:]:
            run.add("service_writes", host, "a command on another machine")


def _docker_run(run: ProgramRun, words: list[str]) -> None:
    """Read `docker run`: the image, the folders of this machine that it gets, and its rights."""
    valued = frozenset("-p --publish -e --env --env-file --name --network --net -w --workdir -u --user --entrypoint --platform --memory -m --cpus --hostname -h --restart --label -l --add-host --shm-size --gpus --ulimit --log-driver --log-opt --tmpfs --health-cmd --pull --link --expose --dns --group-add --ipc --cgroupns --stop-signal".split())
    options = dict.fromkeys(("-v", "--volume", "--mount", "--pid", "--cap-add", "--device", "--security-opt", "--userns", "--uts", "--volumes-from"), "")
    row = Row(values=valued, options=options)
    rest, found = split_words(row, words, stop=True)
    for name, value in found:
        if name in ("--privileged", "--cap-add", "--device", "--security-opt", "--userns", "--pid", "--uts"):
            run.add("system", f"{name} {value}".strip(), "rights outside the container")
        elif name in ("-v", "--volume", "--mount"):
            source = re.sub(r".*(?:source|src)=([^,]*).*", r"\1", value) if "=" in value else value.split(":")[0]
            if source.startswith(("/", ".", "~")) or UNKNOWN in source:
                for path in run.paths(source):
                    impact = run.walk.places.reads(path, recursive=True)
                    run.walk.note(impact)
                    if "docker.sock" in path or "containerd" in path:
                        run.add("system", path, "the socket of the container engine")
                    elif not value.endswith(":ro"):
                        run.walk.note(*run.walk.places.writes(f"{path}/{NAME}"))
    run.add("runs_unread", rest[0] if rest else "", "an image")


def _make(run: ProgramRun, words: list[str]) -> None:
    """Read `make`: its targets are code of the project, unless the file of rules comes from elsewhere."""
    row = Row(values=frozenset(("-I", "-l", "-o", "-W", "--eval")), options={"-f": "", "--file": "", "--makefile": "", "-C": "", "--directory": "", "-E": ""})
    row = evolve(row, values=row.values | {"-j"}) if any(word == "-j" for word in words) and _number_follows(words) else row
    targets, found = split_words(row, words)
    folders = run.state.folders
    for name, value in found:
        if name in ("--eval", "-E"):
            run.add("runs_unread", value, "rules in the command")
        elif name in ("-C", "--directory"):
            folders = tuple(run.paths(value))
    for folder in folders:
        for file in [value for name, value in found if name in ("-f", "--file", "--makefile")] or ["Makefile", "makefile", "GNUmakefile"]:
            path = run.walk.places.absolute(file, folder)
            if path in run.walk.places.written or file == "-":
                run.add("runs_unread", path, "rules that the command itself writes")
            elif file not in ("makefile", "GNUmakefile"):
                run.walk.note(run.walk.places.runs(path))
    for word in targets:
        if re.match(r"(?:SHELL|MAKEFLAGS|MAKE|CC|CXX|LD)=", word):
            run.add("runs_unread", word, "a variable that names a program")
        elif "=" not in word and tells_outward(word):
            run.add("service_writes", word, "the name of the target")


def _number_follows(words: list[str]) -> bool:
    place = words.index("-j")
    return place + 1 < len(words) and words[place + 1].isdigit()


def _rsync(run: ProgramRun, words: list[str]) -> None:
    """Read `rsync`: a copy that may delete, between folders or machines."""
    row = Row(values=frozenset("--exclude --include --exclude-from --include-from -f --filter --bwlimit --timeout --port --chmod --chown --out-format --log-file --backup-dir --suffix -B --partial-dir --info --compress-level --max-size --min-size --files-from".split()), options={"-e": "", "--rsh": "", "--rsync-path": ""})
    files, found = split_words(row, words)
    for name, value in found:
        if name in ("-e", "--rsh", "--rsync-path") and not re.fullmatch(r"ssh(?: -[piqC46] ?\S*)*", value):
            run.add("runs_unread", value, "an option that names a program")
    deleting = any(name.startswith(("--delete", "--del")) for name, _ in found)
    for source in files[:-1]:
        if re.match(r"[\w.@-]+:", source):
            run.walk.note(url_impact(source.partition(":")[0].rpartition("@")[2], run.walk.places.policy))
        else:
            for path in run.paths(source):
                run.walk.note(run.walk.places.reads(path, recursive=True))
                if any(name == "--remove-source-files" for name, _ in found):
                    run.walk.note(*run.walk.places.deletes(path, recursive=True))
    for target in files[-1:] if len(files) > 1 else []:
        if re.match(r"[\w.@-]+:", target):
            run.add("network_sends", target)
            continue
        for path in run.paths(target):
            run.walk.note(*run.walk.places.writes(path))
            if deleting:
                run.walk.note(*run.walk.places.deletes(path, recursive=True))


def _scp(run: ProgramRun, words: list[str]) -> None:
    """Read `scp` and `sftp`: a copy from or to another machine."""
    row = Row(values=frozenset("-P -i -F -l -c -o -S -J -D".split()))
    files, found = split_words(row, words)
    if any(name == "-S" or name == "-o" and "Command" in value for name, value in found):
        run.add("runs_unread", run.name, "an option that names a program")
    for file in files[:-1]:
        if ":" in file:
            run.walk.note(url_impact(file.partition(":")[0].rpartition("@")[2], run.walk.places.policy))
        else:
            for path in run.paths(file):
                run.walk.note(run.walk.places.reads(path, recursive=True))
    for target in files[-1:]:
        if ":" in target or run.name == "sftp":
            run.add("network_sends", target)
        else:
            for path in run.paths(target):
                run.walk.note(*run.walk.places.writes(path))


def _gh_api(run: ProgramRun, words: list[str]) -> None:
    """Read `gh api`: a request that changes something has a method or fields."""
    row = Row(values=frozenset("-H --header -q --jq -t --template --hostname --cache -p --preview".split()), options=dict.fromkeys(("-X", "--method", "-f", "--raw-field", "-F", "--field", "--input"), ""))
    rest, found = split_words(row, words)
    method = next((value.upper() for name, value in found if name in ("-X", "--method")), "")
    fields = any(name in ("-f", "--raw-field", "-F", "--field", "--input") for name, _ in found)
    query = rest[:1] == ["graphql"] and not any("mutation" in value for _, value in found)
    changes = method not in ("", "GET", "HEAD") or fields and not method and not query
    run.add("service_writes" if changes and not (query and method in ("", "POST")) else "service_reads", " ".join(rest[:1]))


def _sudo(run: ProgramRun, words: list[str]) -> None:
    """Read `sudo`: a program with the highest rights."""
    row = Row(values=frozenset("-u --user -g --group -h --host -p --prompt -C -r -t -T -U -D --chdir -R".split()))
    rest, found = split_words(row, words, stop=True)
    flags = {name for name, _ in found}
    if flags & {"-l", "--list", "-v", "-k", "-K"} and not rest:
        run.add("reads", "sudo")
        return
    run.add("system", " ".join(rest[:2]), "the highest rights")
    state = run.state.copy()
    while rest and re.match(r"[A-Za-z_]\w*=", rest[0]):
        name, _, value = rest.pop(0).partition("=")
        run.walk.assign(name, value, state, exported=True)
    if rest:
        run.output = run.walk.command(rest, state, run.stdin)


def _awk(run: ProgramRun, words: list[str]) -> None:
    """Read `awk`: a program in a language that can write files and run commands."""
    row = Row(values=frozenset(("-F", "-v", "--field-separator", "--assign")), options=dict.fromkeys(("-f", "--file", "-e", "--source", "-i", "--include", "-l", "--load", "-E", "--exec"), ""))
    rest, found = split_words(row, words)
    codes = [value for name, value in found if name in ("-e", "--source")]
    if any(name in ("-f", "--file", "-i", "--include", "-l", "--load", "-E", "--exec") for name, _ in found):
        for name, value in found:
            if name in ("-f", "--file", "-E", "--exec"):
                run.walk.run_file(value, run.state, "awk", [], run.stdin)
            elif name in ("-i", "--include", "-l", "--load"):
                run.add("runs_unread", value, "a library of awk")
    elif not codes and rest:
        codes, rest = [rest[0]], rest[1:]
    for code in codes:
        code = code.translate({ord(NAME): "x", ord(ANY): "*"})
        impacts = list(read_code(code.replace(UNKNOWN, "x"), "awk", run.walk.places, run.state.folders[0]))
        # Only what awk does besides its own text matters: the language is made for one line.
        run.walk.note(*(impact for impact in impacts if impact.kind != "inline_code"))
        if UNKNOWN in code:
            run.add("unreadable", "awk", "only a run tells the code")
    for file in rest:
        if "=" not in file:
            for path in run.paths(file):
                run.walk.note(run.walk.places.reads(path))


def _npx(run: ProgramRun, words: list[str]) -> None:
    """Read `npx` and its kin: a tool that a table names counts as the project's, any other is fetched and run."""
    row = Row(values=frozenset(("-w", "--workspace", "--python", "--index-url", "--with-editable", "--prefix", "-C", "--dir")), options=dict.fromkeys(("-p", "--package", "--from", "--spec", "--with", "-c", "--call"), ""))
    rest, found = split_words(row, words, stop=True)
    for name, value in found:
        if name in ("-c", "--call"):
            run.walk.script(value, run.state.copy(), UNKNOWN)
        elif name in ("-p", "--package", "--from", "--spec", "--with"):
            run.add("installs_new", value)
    if rest[:1] in (["run"], ["install", "inject"]) and run.name == "pipx":
        rest = rest[1:]
    elif run.name == "pipx" and rest and rest[0] in ("list", "environment"):
        run.add("reads", "pipx")
        return
    if not rest:
        return
    tool = re.sub(r"(?<=.)@[^/]*$", "", rest[0])
    known = program_rows().get(tool)
    if known is not None and not known.by and "runs_project" in known.kinds:
        run.output = run.walk.command([tool, *rest[1:]], run.state, run.stdin)
        return
    if known is not None and known.verbs and tool not in ("npm", "pip"):
        run.output = run.walk.command([tool, *rest[1:]], run.state, run.stdin)
        return
    run.add("installs_new", rest[0], "a tool that no table names")
    run.add("runs_unread", rest[0], "a tool that no table names")


def _interpreter(run: ProgramRun, words: list[str]) -> None:
    """Read an interpreter: the code in an option, a module, a script, or the standard input."""
    stop = bool(run.row.operands)
    rest, found = split_words(run.row, words, stop=True) if stop else ([], [])
    cut = next((place for place, (name, _) in enumerate(found) if name in run.row.instead), None)
    if run.name.startswith(("python", "pypy")) and cut is not None:
        # Everything behind -c and -m belongs to the code or the module.
        name, value = found[cut]
        place = words.index(value) if value in words else len(words) - len(rest)
        run.operands = words[place + 1 :]
        _apply(run, run.row.options[name], value)
        return
    for name, value in found:
        if role := run.row.options.get(name):
            _apply(run, role, value)
    if run.name == "perl" and any(re.match(r"-\w*i", word) for word in words):
        for file in rest:
            for path in run.paths(file):
                run.walk.note(*run.walk.places.writes(path))
    if cut is not None:
        for file in rest if run.name in ("perl", "ruby") else ():
            for path in run.paths(file):
                run.walk.note(run.walk.places.reads(path))
    elif rest and rest[0] != "-":
        run.operands = rest
        _apply(run, run.row.operands[0], rest[0])
    elif {name for name, _ in found} & {"--version", "-V", "-v", "-h", "--help", "--test", "--check"}:
        run.add("runs_project" if any(name in ("--test", "--check") for name, _ in found) else "reads", run.name)
    elif run.stdin == UNKNOWN and not words:
        run.add("runs_unread", run.name, "code from the standard input")
    else:
        _apply(run, run.row.stdin, run.stdin)


def _shell(run: ProgramRun, words: list[str]) -> None:
    """Read a shell: the commands of `-c`, a script, or the standard input."""
    if run.name == "busybox" and words:
        run.output = run.walk.command(words, run.state, run.stdin)
        return
    place, command = 0, False
    while place < len(words) and words[place][:1] in ("-", "+") and len(words[place]) > 1:
        word = words[place]
        place += 1
        if word in ("-o", "+o", "-O", "+O"):
            place += 1
        elif word in ("--rcfile", "--init-file"):
            run.walk.run_file(words[place] if place < len(words) else UNKNOWN, run.state, "shell", [], UNKNOWN)
            place += 1
        elif word == "--version":
            return
        elif not word.startswith("--"):
            command = command or "c" in word
    rest = words[place:]
    if command:
        state = run.state.copy()
        state.variables |= {str(at): value for at, value in enumerate(rest[2:11], start=1)}
        state.variables["@"], state.variables["0"] = SPLIT.join(rest[2:]), "".join(rest[1:2])
        run.output = run.walk.script(rest[0] if rest else UNKNOWN, state, run.stdin)
    elif rest and rest[0] not in ("-s", "-"):
        run.walk.run_file(rest[0], run.state, "shell", rest[1:], run.stdin)
    else:
        run.output = run.walk.script(run.stdin, run.state.copy(), UNKNOWN)


def _timeout(run: ProgramRun, words: list[str]) -> None:
    """Read `timeout`, `flock` and `watch`: a duration or file, then a program."""
    row = Row(values=frozenset("-k -s --kill-after --signal -n --interval -w -E --timeout".split()), options={"-c": ""} if run.name == "flock" else {})
    rest, found = split_words(row, words, stop=True)
    if run.name in ("timeout", "gtimeout", "flock"):
        rest = rest[1:]
    if rest[:1] == ["-c"]:
        rest = ["sh", *rest]
    if run.name == "watch":
        run.walk.script(" ".join(rest), run.state.copy(), UNKNOWN)
    elif rest:
        run.output = run.walk.command(rest, run.state, run.stdin)


def _sql(run: ProgramRun, words: list[str]) -> None:
    """Read the program of a database: statements in options, in operands, or on the standard input."""
    row = run.row
    if run.name in ("sqlite3", "sqlite", "duckdb", "psql"):
        row = evolve(row, single=run.name != "psql")
    rest, found = split_words(row, words)
    statements = [value for name, value in found if row.options.get(name) == "sql"]
    for name, value in found:
        if (role := row.options.get(name)) and role != "sql":
            _apply(run, role, value)
    if run.name in ("sqlite3", "sqlite", "duckdb"):
        for file in rest[:1]:
            for path in run.paths(file):
                run.walk.note(run.walk.places.reads(path))
        statements += rest[1:]
    if not statements and run.stdin != UNKNOWN:
        statements = [run.stdin]
    run.walk.impacts.pop(Impact("service_reads", run.name, ""), None)
    for statement in statements:
        run.walk.note(*read_sql(statement, run.name))
    if {name for name, _ in found} & {"-l", "--list", "--version", "-V", "-version"} or not statements and rest and not words[-1].startswith("-f"):
        run.add("service_reads", run.name)
    elif not statements:
        run.add("unreadable", run.name, "statements that only a run can tell")


def _redis(run: ProgramRun, words: list[str]) -> None:
    """Read `redis-cli`: its operands are one command."""
    rest, _ = split_words(run.row, words, stop=True)
    if rest:
        run.walk.note(*read_sql(" ".join(rest), run.name))
    elif run.stdin != UNKNOWN:
        for line in run.stdin.splitlines():
            run.walk.note(*read_sql(line, run.name))
    else:
        run.add("service_reads", run.name)


def _cloud(run: ProgramRun, words: list[str]) -> None:
    """Read the command line of a cloud: one of its first words is a verb."""
    names = [word for word in words if re.fullmatch(r"[a-z][a-z0-9-]*", word)][:5]
    verbs = [part for name in names for part in (name.split("-")[0], name)]
    if any(name in ("secretsmanager", "get-secret-value", "get-login-password", "print-access-token", "print-identity-token", "get-access-token", "get-session-token", "keyvault", "assume-role", "get-parameters-by-path", "get-parameter", "credentials", "secrets", "sts-token") for name in names):
        run.add("reads_secret", " ".join(names[:3]))
        return
    looks = {"list", "ls", "describe", "get", "show", "help", "version", "info", "view", "read", "tail", "query", "search", "head", "lookup", "whoami", "get-caller-identity", "cat", "du", "stat", "status", "logs", "wait"}
    writes = {"delete", "rm", "rb", "mb", "cp", "mv", "sync", "create", "put", "update", "terminate", "stop", "start", "run", "deploy", "set", "add", "remove", "attach", "detach", "invoke", "send", "publish", "reboot", "destroy", "import", "purge", "apply", "configure", "login", "ssh"}
    if any(verb in writes for verb in verbs) or not any(verb in looks for verb in verbs):
        run.add("service_writes", " ".join(names[:3]))
    else:
        run.add("service_reads", " ".join(names[:3]))


READERS: Final[dict[str, Callable[[ProgramRun, list[str]], None]]] = {
    "find": _find,
    "xargs": _xargs,
    "env": _env,
    "parallel": _parallel,
    "git": _git,
    "git_config": _git_config,
    "git_push": _git_push,
    "git_restore": _git_restore,
    "curl": _curl,
    "wget": _wget,
    "sed": _sed,
    "tar": _tar,
    "ssh": _ssh,
    "docker_run": _docker_run,
    "make": _make,
    "rsync": _rsync,
    "scp": _scp,
    "gh_api": _gh_api,
    "sudo": _sudo,
    "awk": _awk,
    "npx": _npx,
    "interpreter": _interpreter,
    "shell": _shell,
    "timeout": _timeout,
    "sql": _sql,
    "redis": _redis,
    "cloud": _cloud,
}
