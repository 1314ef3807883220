"""Readers of git, and of the command lines of code hosts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from amplifier_hooks.impact.places import show
from amplifier_hooks.impacts import GAP

if TYPE_CHECKING:
    from amplifier_hooks.impact.program_rows import ProgramRun

PROGRAMS: Final = re.compile(
    r"alias\.|core\.(?:sshcommand|pager|editor|hookspath|fsmonitor|gitproxy|askpass|attributesfile|worktree)|pager\.|"
    r".*\.(?:textconv|external|command|cmd|process|clean|smudge|driver|program|helper|uploadpack|receivepack|proxy|browser)$|"
    r"sequence\.editor|protocol\.|url\.|include|credential|filter\.|diff\..*\.|merge\..*\.|gpg\.|http\.proxy|"
    r"http\.sslverify|init\.templatedir|uploadpack\.|remote\.",
    re.IGNORECASE,
)
"""Settings of git that name a program, or decide which one runs."""
HARMLESS: Final = re.compile(
    r"user\.(?:name|email|signingkey)|core\.(?:autocrlf|ignorecase|filemode|quotepath|longpaths|eol|safecrlf)|"
    r"color\..*|init\.defaultbranch|push\.(?:default|autosetupremote)|pull\.(?:rebase|ff)|fetch\.prune|rerere\..*|"
    r"advice\..*|gc\..*|log\.date|column\.ui|commit\.gpgsign|tag\.gpgsign|http\.postbuffer|safe\.directory|"
    r"branch\..*|rebase\..*|merge\.(?:ff|conflictstyle)",
    re.IGNORECASE,
)
PLAIN_VALUES: Final = frozenset(("", "cat", "less", "false", "true", "auto", "never", "always"))
GLOBAL_VALUES: Final = frozenset(("-C", "--git-dir", "--work-tree", "--namespace", "-c", "--config-env", "--exec-path"))
CHANGES: Final = "--unset --unset-all --add --replace-all -e --edit --remove-section --rename-section"
LOOKS: Final = ("--get", "--get-all", "--get-regexp", "--list", "-l", "--get-urlmatch", "--get-color", "--name-only")
FORCES: Final = ["-f", "--force", "--force-with-lease", "--force-if-includes", "--mirror", "--delete", "-d", "--prune"]
MORE_REFS: Final = ("--all", "--branches", "--tags", "--follow-tags")
ADDRESS: Final = re.compile(r".*://|[\w.-]+@[\w.-]+:")
DISCARDS: Final = "-f --force --discard-changes -B -C --pathspec-from-file --ours --theirs -p --patch"
"""Options of `git checkout` and its kin that give up changes of files."""
UNCOMMITTED: Final = "changes that are not committed"


def read_git(run: ProgramRun, words: list[str]) -> None:
    """Read the options before a subcommand of git; some of them name programs."""
    rest = list(words)
    run.state = run.state.copy()
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        name, joined, value = word.partition("=")
        if word in GLOBAL_VALUES and rest and not joined:
            value = rest.pop(0)
        if name in ("-C", "--work-tree"):
            run.enter(value)
        elif name[:2] == "-c" or name == "--config-env":
            value = word[2:] if name[:2] == "-c" and word != "-c" else value
            setting, _, given = value.partition("=")
            if PROGRAMS.match(setting) and given not in PLAIN_VALUES:
                run.add("runs_unread", setting, "a setting that names a program")
        elif name == "--exec-path" and value:
            run.add("runs_unread", value, "another folder for git's programs")
        elif name in ("--version", "--help", "-v", "-h"):
            run.add("reads", "git")
            return
    before = set(run.walk.impacts)
    run.read(rest, ["git"])
    lost = [one for one in run.walk.impacts if one not in before and one.kind == "git_loses_work"]
    for folder in run.state.folders if lost else ():
        if not run.walk.places.is_own(folder):
            run.add("deletes_outside", folder, lost[0].reason or lost[0].place)


def read_config(run: ProgramRun, words: list[str]) -> None:
    """Read `git config`: only a name and a value change anything."""
    given = run.split(words, "--type --default -t -f --file --blob --comment")
    rest = given.operands
    files = given.all("-f", "--file")
    if rest[:1] in (["get"], ["list"]) or given.has(*LOOKS) or (len(rest) <= 1 and not given.has(*CHANGES.split())):
        for file in files:
            run.reads(file)
        name = rest[-1] if rest else ""
        run.add("reads_secret" if re.search(r"token|password|extraheader", name, re.IGNORECASE) else "reads", name)
        return
    rest = rest[1:] if rest[:1] == ["set"] else rest
    name = rest[0] if rest else "config"
    wide = given.has("--global", "--system")
    for file in files:
        run.writes(file)
    harmless = HARMLESS.fullmatch(name) and not wide
    more = f" {GAP}" if rest[1:] and not harmless else ""
    run.add("git_local" if harmless else "git_configures", f"{name}{more}", "every repository" if wide else "")


def read_push(run: ProgramRun, words: list[str]) -> None:
    """Read `git push`: what it sends where, and if it can lose work there."""
    given = run.split(words, "-o --push-option --receive-pack --exec --repo --recurse-submodules")
    more = [one for one in MORE_REFS if given.may_have(one)]
    target = " ".join([" ".join(given.operands) or given.one("--repo") or "its remote", *more])
    folders = [folder for folder in run.state.folders if folder != run.walk.places.policy.root]
    if given.has("--receive-pack", "--exec"):
        run.add("runs_unread", "--receive-pack", "a program on the other side")
    if given.has("-n", "--dry-run"):
        run.add("network_known", "git push --dry-run")
        return
    run.add("git_publishes", target, f"in {show(' or '.join(folders))}" if folders else "")
    if given.may_have(*FORCES) or any(one[:1] in ("+", ":") for one in given.operands[1:]):
        run.add("git_loses_work", target, "the other side can lose commits")
    remote = given.operands[0] if given.operands else given.one("--repo")
    if ADDRESS.match(remote):
        run.url(remote, sends=True)


def read_checkout(run: ProgramRun, words: list[str]) -> None:
    """Read `git checkout`, `switch` and `restore`: a branch changes nothing that git does not keep, a path may."""
    given = run.split(words, "-b -B -c -C --create --orphan -s --source --conflict -U --pathspec-from-file")
    rest, target = given.operands, " ".join(given.operands)
    creates = given.has("-b", "--orphan", "-c", "--create")
    loses = given.may_have(*DISCARDS.split())
    if run.row.reason == "restore":
        loses = loses or not given.has("--staged", "-S") or given.has("--worktree", "-W")
    elif not creates:
        loses = loses or "--" in words or len(rest) > 1 or any(_is_file(run, one) for one in rest)
    run.add("git_loses_work" if loses else "git_local", target, UNCOMMITTED if loses else "")
    for one in rest:
        run.apply("guarded", one)


def _is_file(run: ProgramRun, text: str) -> bool:
    return (
        text == "."
        or text.startswith("./")
        or any(run.walk.places.fact(path).kind == "file" for path in run.paths(text))
    )


def read_gh_api(run: ProgramRun, words: list[str]) -> None:
    """Read `gh api`: a request that changes something has a method or fields."""
    fields = ("-f", "--raw-field", "-F", "--field", "--input")
    given = run.split(words, f"-H --header -q --jq -t --template --hostname --cache -p -X --method {' '.join(fields)}")
    method = given.one("-X", "--method").upper() or ("POST" if given.has(*fields) else "GET")
    query = given.operands[:1] == ["graphql"] and not any("mutation" in value for _, value in given.found)
    looks = method in ("GET", "HEAD") or (query and method == "POST")
    run.add("service_reads" if looks else "service_writes", " ".join(given.operands[:1]))
