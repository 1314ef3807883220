"""Readers of programs that reach other machines and services: `curl`, `ssh`, clouds, databases, containers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from amplifier_hooks.impact.inline_code import read_sql
from amplifier_hooks.impact.places import NAME, UNKNOWN, is_remote, remote_host
from amplifier_hooks.impact.tables import load_table

if TYPE_CHECKING:
    from amplifier_hooks.impact.program_rows import ProgramRun, SplitWords


CURL_DATA: Final = (
    "-d --data --data-raw --data-binary --data-ascii --data-urlencode --json -F --form --form-string -T --upload-file"
)
CURL_FILES: Final = "-o --output -D --dump-header -c --cookie-jar --trace --trace-ascii --stderr"
CURL_VALUES: Final = (
    "-A --user-agent -e --referer -m --max-time --connect-timeout --retry --retry-delay --retry-max-time -w "
    "--write-out -x --proxy -u --user -H --header -b --cookie -r --range -z --time-cond -E --cert --key --cacert "
    "--capath --ciphers --interface --limit-rate -y -Y --max-redirs --resolve --connect-to --dns-servers -C "
    "--continue-at --max-filesize --proto --preproxy --socks5 --unix-socket --abstract-unix-socket "
    "--doh-url --noproxy --oauth2-bearer --url-query -X --request --output-dir "
    "-K --config --url"
)
WGET_BODY: Final = ("--post-file", "--body-file", "--post-data", "--body-data")
WGET_VALUES: Final = (
    "-O --output-document -o --output-file -a --append-output -P --directory-prefix --method -i --input-file -e "
    "--execute --use-askpass -t --tries -T --timeout -U --user-agent --header -w --wait -l --level -A -R -D "
    "--limit-rate --user --password -Q"
)
SOCKET: Final = "a socket of another program"
SSH_PROGRAM: Final = re.compile(r"(?:Proxy|Local|PermitLocal|KnownHosts)Command\b", re.IGNORECASE)


def read_curl(run: ProgramRun, words: list[str]) -> None:
    """Read `curl`: where it connects to, what it sends, and which file it writes."""
    given = run.split(words, f"{CURL_DATA} {CURL_FILES} {CURL_VALUES}")
    urls = [*given.operands, *given.all("--url")]
    body = given.has(*CURL_DATA.split()) and not given.has("-G", "--get")
    method = given.one("-X", "--request").upper() or ("POST" if body else "GET")
    if given.has("-K", "--config"):
        run.add("network_sends", "--config", "the file of settings is not read")
    for value in given.all(*CURL_FILES.split()):
        run.writes(value)
    _read_curl_way(run, given)
    folder = given.one("--output-dir") or "."
    for name, value in given.found:
        upload = name in ("-T", "--upload-file")
        if name in CURL_DATA.split() and (upload or value.startswith("@") or "=@" in value):
            run.reads(value.rpartition("@")[2])
        elif name in ("-H", "--header") and value.startswith("@"):
            run.add("unreadable", "--header", "headers in a file")
    for url in urls:
        if given.has("-O", "--remote-name", "-J", "--remote-name-all"):
            run.writes(f"{folder}/{url.rpartition('/')[2] or 'index'}")
        run.url(url, sends=method not in ("GET", "HEAD", "OPTIONS"))
        if url.lower().startswith("file:"):
            run.reads(url)


def _read_curl_way(run: ProgramRun, given: SplitWords) -> None:
    """Read the options of `curl` that lead around the host of the address, or read files."""
    for value in given.all("-x", "--proxy", "--preproxy", "--socks5", "--connect-to", "--resolve", "--doh-url"):
        run.add("network_new", value, "another way to the host")
    for value in given.all("--unix-socket"):
        run.unguards(value)
        if not all(run.walk.places.is_own(run.walk.places.fact(path).path) for path in run.paths(value)):
            run.add("service_writes", value, SOCKET)
    for value in given.all("--abstract-unix-socket"):
        run.add("service_writes", value, SOCKET)
    for value in given.all("-b", "--cookie", "-E", "--cert", "--key"):
        if "=" not in value:
            run.reads(value)
    for value in given.all("-w", "--write-out"):
        run.reads(value[1:] if value.startswith("@") else "")
        for name in re.findall(r"%output\{(?:>>)?([^}]*)", value):
            run.writes(name)


def read_wget(run: ProgramRun, words: list[str]) -> None:
    """Read `wget`: it writes a file unless its output is the terminal."""
    given = run.split(words, f"{' '.join(WGET_BODY)} {WGET_VALUES}")
    method = given.one("--method").upper() or ("POST" if given.has(*WGET_BODY) else "GET")
    for value in given.all("--post-file", "--body-file"):
        run.reads(value)
    if given.has("-e", "--execute", "--use-askpass"):
        run.add("runs_unread", "wget", "a setting that names a program")
    if given.has("-i", "--input-file"):
        run.add("unreadable", "wget", "the list of addresses is not read")
    for value in given.all("-o", "--output-file", "-a", "--append-output"):
        run.writes(value)
    target = given.one("-O", "--output-document")
    folder = given.one("-P", "--directory-prefix") or "."
    for url in given.operands:
        if not given.has("--spider"):
            run.writes(target or f"{folder}/{url.rpartition('/')[2] or 'index.html'}")
        run.url(url, sends=method not in ("GET", "HEAD"))


def read_ssh(run: ProgramRun, words: list[str]) -> None:
    """Read `ssh`: a command on another machine; some options run programs on this one."""
    given = run.split(words, "-p -i -l -F -L -R -D -b -c -E -e -I -J -m -O -o -Q -S -W -w -B", stop=True)
    for value in given.all("-E"):
        run.writes(value)
    for value in given.all("-o"):
        if SSH_PROGRAM.match(value):
            run.add("runs_unread", value, "an option that names a program")
    for value in given.all("-F"):
        run.add("unreadable", value, "the file of settings is not read")
    for value in given.all("-R", "-D", "-L", "-w"):
        run.add("network_sends", value, "a tunnel")
    if given.operands:
        host = given.operands[0].rpartition("@")[2]
        run.url(host)
        if given.operands[1:]:
            run.add("service_writes", host, "a command on another machine")


def read_scp(run: ProgramRun, words: list[str]) -> None:
    """Read `scp` and `sftp`: a copy from or to another machine."""
    given = run.split(words, "-P -i -F -l -c -o -S -J -D")
    if given.has("-S") or any("Command" in value for value in given.all("-o")):
        run.add("runs_unread", run.name, "an option that names a program")
    *sources, target = given.operands or [""]
    for source in sources:
        if is_remote(source):
            run.url(remote_host(source))
        else:
            run.reads(source, recursive=True)
    if is_remote(target) or run.name == "sftp":
        run.add("network_sends", target)
    else:
        run.writes(target)


def read_cloud(run: ProgramRun, words: list[str]) -> None:
    """Read the command line of a cloud: one of its first words is a verb."""
    table = load_table("cloud_verbs")
    names = [word for word in words if re.fullmatch(r"[a-z][a-z0-9-]*", word)]
    verbs = {part for name in names for part in (name.split("-")[0], name)}
    place = " ".join(names[:3])
    if any(word.startswith("--endpoint") for word in words):
        run.add("network_sends", place, "another host")
    for word in words:
        if word[:1] in ("/", "~") and any(run.walk.places.is_elsewhere(path) for path in run.paths(word)):
            run.writes(word)
        elif run.name == "bq" and " " in word:
            run.walk.note(*read_sql(word, "bq"))
    if verbs & {*table["secrets"]}:
        run.add("reads_secret", place)
    elif verbs & {*table["writes"]} or not verbs & {*table["reads"]}:
        run.add("service_writes", place)
    else:
        run.add("service_reads", place)


# -- services ---------------------------------------------------------------------------------------------------------

FILE_DATABASES: Final = ("sqlite3", "sqlite", "duckdb", "litecli")
REDIS_LOOKS: Final = ("--scan", "--bigkeys", "--memkeys", "--hotkeys", "--stat", "--latency", "--version", "--help")
UNREAD: Final = "statements that only a run can tell"
RIGHTS: Final = ("--privileged", "--cap-add", "--device", "--security-opt", "--userns", "--pid", "--uts")
RUN_VALUES: Final = (
    "-p --publish -e --env --env-file --name --network --net -w --workdir -u --user --entrypoint --platform --memory "
    "-m --cpus --hostname -h --restart --label -l --add-host --shm-size --gpus --ulimit --log-driver --log-opt --tmpfs "
    "--health-cmd --pull --link --expose --dns --group-add --ipc --cgroupns --stop-signal -v --volume --mount --pid "
    "--cap-add --device --security-opt --userns --uts --volumes-from"
)


def read_database(run: ProgramRun, words: list[str]) -> None:
    """Read the program of a database: statements in options, in operands, or on the standard input."""
    given = run.split(words, single=run.name in FILE_DATABASES)
    statements: list[str] = []
    for name, value in given.found:
        role = run.row.options.get(name)
        if role == "sql":
            statements.append(value)
        elif role:
            run.apply(role, value)
    if run.name in FILE_DATABASES and given.operands:
        run.reads(given.operands[0])
        statements += given.operands[1:]
        if given.has("-A", "-Ax", "-Axf"):
            run.add("unreadable", run.name, "an archive in a database")
    if not statements and run.stdin != UNKNOWN:
        statements = [run.stdin]
    _note_statements(run, statements, "".join(given.operands[:1]))
    looks = given.has("-l", "--list", "--version", "-V", "-version", "--help")
    if not statements:
        run.add("service_reads" if looks else "unreadable", run.name, "" if looks else UNREAD)


def _note_statements(run: ProgramRun, statements: list[str], file: str) -> None:
    """Add the impacts of statements; a database in a temporary file is only a file."""
    scratch = run.name in FILE_DATABASES and run.is_scratch(file)
    for statement in statements:
        found = read_sql(statement, run.name)
        run.walk.note(*(one for one in found if not (scratch and one.kind == "service_writes")))
        if scratch:
            run.writes(file)


def read_redis(run: ProgramRun, words: list[str]) -> None:
    """Read `redis-cli`: its operands are one command."""
    given = run.split(words, stop=True)
    operands, looks = given.operands, given.has(*REDIS_LOOKS)
    lines = [" ".join(operands)] if operands else [] if run.stdin == UNKNOWN else run.stdin.splitlines()
    for line in lines:
        run.walk.note(*read_sql(line, run.name))
    if not lines:
        run.add("service_reads" if looks else "unreadable", run.name, "" if looks else UNREAD)


def read_docker_run(run: ProgramRun, words: list[str]) -> None:
    """Read `docker run`: the image, the folders of this machine that it gets, and its rights."""
    given = run.split(words, RUN_VALUES, stop=True)
    for name, value in given.found:
        if name in RIGHTS:
            run.add("system", f"{name} {value}".strip(), "rights outside the container")
        elif name in ("-v", "--volume", "--mount"):
            _read_volume(run, value)
    run.add("runs_unread", "".join(given.operands[:1]), "an image")


def _read_volume(run: ProgramRun, value: str) -> None:
    source = re.sub(r".*(?:source|src)=([^,]*).*", r"\1", value) if "=" in value else value.split(":", maxsplit=1)[0]
    if not (source.startswith(("/", ".", "~")) or UNKNOWN in source):
        return
    run.reads(source, recursive=True)
    if "docker.sock" in source or "containerd" in source:
        run.add("system", source, "the socket of the container engine")
    elif not value.endswith(":ro"):
        run.writes(f"{source}/{NAME}")
