"""Another program's settings come in; hooks that can be registered here go out.

Reading runs nothing. The returned `ImportedSettings` has every hook, its command and event, the policy for its failure,
and all parts that are not supported; the importing command shows them to the operator, and asks. Before each run a
registered hook checks that the operator trusts its current content.
"""

from __future__ import annotations

import json
import os
import re
from itertools import dropwhile
from typing import TYPE_CHECKING, Any, Final, cast

from attrs import define, evolve, field, frozen

from amplifier_hooks import errors, events
from amplifier_hooks.act import digest_of, freeze
from amplifier_hooks.definitions.kinds import event_codec
from amplifier_hooks.definitions.kinds.command import CommandHook, Programs
from amplifier_hooks.definitions.kinds.webhook import WebhookHook
from amplifier_hooks.definitions.list_files import FileDigests, FilesNotListed, list_command
from amplifier_hooks.definitions.trust import SETS_OWN, FileList, ListedFile
from amplifier_hooks.impact.places import UNKNOWN
from amplifier_hooks.logs import get_logger
from amplifier_hooks.programs.dialects import ABSENT, Verdict
from amplifier_hooks.programs.install_hook import is_ours
from amplifier_hooks.result import CONTINUE, HookResult
from amplifier_hooks.text.matching import ANY, Matcher, compile_matcher
from amplifier_hooks.text.strict_parsing import load_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from amplifier_hooks.definitions.trust import TrustStore
    from amplifier_hooks.dispatch.chain import OnError
    from amplifier_hooks.programs.dialects import Dialect, Spelling
    from amplifier_hooks.registry.decorators import Registrar
    from amplifier_hooks.result import Action


log = get_logger(__name__)

DECISION: Final = re.compile(
    rb'"(?:hookSpecificOutput|permissionDecision|stopReason)"\s*:|"continue"\s*:\s*false'
    rb'|"(?:decision|behavior)"\s*:\s*"(?:allow|approve|ask|block|defer|deny)"'
)
"""Pattern of a program's decision within other text."""


@frozen(kw_only=True)
class DialectCodec:
    """A codec that speaks a dialect to commands and services, as the program would."""

    dialect: Dialect
    cwd: str

    def question(self, event: str, data: Mapping[str, Any], request_id: str | None = None) -> bytes:  # noqa: ARG002  # dialects have no request ids
        """Return the payload in the program's spelling. Raises `HookUnavailable` for an event that it does not have."""
        return event_codec.encode_message(self.dialect.describe(self._spelling(event), data, self.cwd))

    def answer(self, event: str, data: Mapping[str, Any], ended: event_codec.ProgramExit) -> HookResult:
        """Return the result that the program would read from a command's output and exit status.

        Raises `InvalidResult` or `HookFailed` if the program counts the hook as failed. The registration fixed the
        consequence of a failure, by the program's policy.
        """
        dialect, spelling = self.dialect, self._spelling(event)
        said = event_codec.as_reason(ended.errors)
        if ended.code == event_codec.BLOCKED and (said or dialect.silent_block):
            return as_hook_result(spelling, Verdict(decision="deny", reason=said))
        if ended.code in dialect.warns:
            return HookResult.proceed(user_message=said, user_message_level="warning") if said else CONTINUE
        if ended.code != 0:
            problem = f"the command {ended.in_words}"
            if dialect.failures == "closed":
                return as_hook_result(spelling, Verdict(decision="deny", reason=said or problem))
            raise errors.HookFailed(f"{problem}: {said}" if said else problem)
        output = ended.output.strip()
        if output.startswith(b"{"):
            return self._read(spelling, data, event_codec.decode_answer(output))
        if event_codec.hides(output, DECISION):
            if dialect.failures == "closed":
                return as_hook_result(spelling, Verdict(decision="deny", reason=event_codec.STRAY))
            raise errors.InvalidResult(event_codec.STRAY)
        text = output.decode("utf-8", "backslashreplace")
        return as_hook_result(spelling, Verdict(context=text)) if text and spelling.text_counts else CONTINUE

    def reply(self, event: str, data: Mapping[str, Any], body: bytes, request_id: str) -> HookResult:  # noqa: ARG002  # dialects have no request ids
        """Return the result that the program would read from a service's answer. An empty body changes nothing."""
        return self._read(self._spelling(event), data, event_codec.decode_answer(body)) if body.strip() else CONTINUE

    def _spelling(self, event: str) -> Spelling:
        spelling = self.dialect.spelling(event)
        if spelling is None:
            raise errors.HookUnavailable(
                f"{self.dialect.title} has no event like {event!r}; register the hook where it has"
            )
        return spelling

    def _read(self, spelling: Spelling, data: Mapping[str, Any], answer: dict[str, Any]) -> HookResult:
        verdict = self.dialect.read(spelling, answer)
        before = data.get(spelling.changes)
        if self.dialect.merges and isinstance(verdict.update, dict) and isinstance(before, dict):
            verdict = evolve(verdict, update={**before, **verdict.update})
        if verdict.unknown:
            log.warning("hook_answer_has_unknown_keys", dialect=self.dialect.name, keys=sorted(verdict.unknown))
        return as_hook_result(spelling, verdict)


def as_hook_result(spelling: Spelling, verdict: Verdict) -> HookResult:
    """Return a program's verdict as a `HookResult`.

    A hook can refuse and ask, never grant: a program's permit is no objection here. Where the act is over, the model
    reads the refusal.
    """
    refused = verdict.decision == "deny" or verdict.stop
    texts = [verdict.context] if verdict.context else []
    if refused and spelling.blocks == "inject" and not verdict.stop:
        texts.insert(0, verdict.reason or "a hook objects to this, without a reason")
        refused = False
    denies = refused and spelling.blocks != "nothing"
    asks = verdict.decision in ("ask", "defer") and not denies
    changes = verdict.update is not ABSENT and spelling.changes != "" and not denies
    otherwise: Action = "modify" if changes else "inject_context" if texts else "continue"
    return HookResult(
        action="deny" if denies else "ask_user" if asks else otherwise,
        reason=verdict.reason or None if denies else None,
        approval_prompt=verdict.reason or None if asks else None,
        data={spelling.changes: verdict.update} if changes else None,
        context_injection="\n\n".join(texts) or None,
        append_to_last_tool_result=bool(texts) and spelling.ours in (events.TOOL_POST, events.TOOL_ERROR),
        user_message=verdict.message or None,
        suppress_output=verdict.quiet,
    )


BOTH: Final = frozenset({"type", "timeout", "once", "if", "onFailure", "statusMessage"})
KNOWN: Final[Mapping[str, frozenset[str]]] = {
    "command": BOTH | {"command", "args", "shell", "async", "asyncRewake", "commandWindows", "name", "description"},
    "http": BOTH | {"url", "headers", "allowedEnvVars"},
}
"""Known keys of a hook, by its type. Keys that only decorate change nothing."""

OVERREACHING: Final = ("permission", "approv", "trust", "audit", "record", "limit", "budget", "sandbox", "hook", "env")
"""Words in the names of settings that a project must not decide for itself."""

GROUP: Final = frozenset({"matcher", "hooks", "sequential", "description"})


@frozen(kw_only=True)
class ImportedHook:
    """One hook of another program. `runs` is its command, as its author wrote it; `files` is the content to trust."""

    dialect: Dialect
    spelling: Spelling
    where: str
    runs: str
    definition: Mapping[str, Any] = field(repr=False)
    listed: tuple[ListedFile, ...] = field(repr=False)
    digests: FileDigests = field(repr=False)
    project: Path
    matcher: Matcher
    timeout: float
    on_error: OnError
    once: bool
    background: bool
    condition: Callable[[Mapping[str, Any]], bool] = field(repr=False)
    handler: Callable[[str, Mapping[str, Any]], Any] = field(repr=False)

    @property
    def files(self) -> FileList:
        """The hook and the files that it runs and reads, as they are now."""
        fresh = ((one, self.digests.of(one.path, afresh=one.role != "installed")) for one in self.listed)
        now = tuple(evolve(one, digest=digest) for one, digest in fresh)
        about = digest_of(freeze(dict(self.definition)))
        return FileList(folder=os.fspath(self.project.resolve()), about=about, groups={SETS_OWN: now})

    @property
    def when_it_fails(self) -> str:
        """Effect of a failure, shown at import: the other program's policy, which is milder than that of gates."""
        if self.on_error == "deny":
            return "blocks"
        return "blocks" if self.dialect.failures == "closed" else "goes on, and is recorded"


@frozen
class Skipped:
    """A part of the settings that does not run here, or not as written."""

    where: str
    why: str


@define(kw_only=True)
class ImportedSettings:
    """The hooks of one settings file, and the parts of it that do not run here."""

    path: Path
    dialect: Dialect
    project: Path
    codec: DialectCodec = field(repr=False)
    hooks: list[ImportedHook] = field(factory=list)
    skipped: list[Skipped] = field(factory=list)
    ours: int = 0
    """Number of entries with which the program asks this system; no hook is made of them."""
    _programs: Programs = field(factory=Programs)
    _digests: FileDigests = field(factory=FileDigests)

    def register(self, registry: Registrar, trust: TrustStore, **options: Any) -> Callable[[], None]:
        """Register every hook of the file, and return the undo. Each runs only while its content is trusted."""
        undos = [register(registry, hook, trust, **options) for hook in self.hooks]

        def undo() -> None:
            for one in undos:
                one()

        return undo

    def skip_others(self, keys: Iterable[str]) -> None:
        """Skip settings about approvals, trust, the record or limits: a file may only name hooks."""
        for key in sorted(keys):
            if any(word in key.casefold() for word in OVERREACHING):
                self.skipped.append(Skipped(key, "is not for a project to settle, and changes nothing here"))

    def read_event(self, name: str, groups: Any) -> None:
        """Read the groups of hooks of one event of the program."""
        spelling = next((row for row in self.dialect.spellings if row.theirs == name), None)
        if spelling is None:
            self.skipped.append(Skipped(name, "never happens here"))
            return
        for number, group in enumerate(groups if isinstance(groups, list) else [groups]):
            where = f"{name}[{number}]"
            if not isinstance(group, dict) or not isinstance(group.get("hooks"), list):
                self.skipped.append(Skipped(where, "is no group: an object with a list of hooks"))
                continue
            self._skip_unknown(where, group, GROUP)
            for place, definition in enumerate(group["hooks"]):
                self._read_hook(f"{where}.hooks[{place}]", spelling, group.get("matcher"), definition)

    def _skip_unknown(self, where: str, value: Mapping[str, Any], keys: frozenset[str]) -> None:
        for key in value.keys() - keys:
            self.skipped.append(Skipped(f"{where}.{key}", "is not known, and changes nothing"))

    def _read_hook(self, where: str, spelling: Spelling, matcher: Any, definition: Any) -> None:
        kind = definition.get("type") if isinstance(definition, dict) else None
        if is_ours(definition):
            self.ours += 1
            return
        if not isinstance(kind, str) or kind not in KNOWN:
            self.skipped.append(Skipped(where, f"is of type {kind!r:.40}, which is not run here"))
            return
        self._skip_unknown(where, definition, KNOWN[kind])
        try:
            runs, listed, handler = self._command(definition) if kind == "command" else self._service(definition)
            seconds = definition.get("timeout")
            self.hooks.append(
                ImportedHook(
                    dialect=self.dialect,
                    spelling=spelling,
                    where=where,
                    runs=runs,
                    definition={"event": spelling.theirs, "matcher": matcher, "hook": definition},
                    listed=listed,
                    digests=self._digests,
                    project=self.project,
                    matcher=compile_their_matcher(matcher, self.dialect),
                    timeout=self._seconds(spelling, seconds),
                    on_error="deny" if definition.get("onFailure") == "block" else "continue",
                    once=definition.get("once") is True,
                    background=definition.get("async") is True,
                    condition=_condition(definition.get("if")),
                    handler=handler,
                )
            )
        except (errors.HookUsageError, FilesNotListed) as error:
            self.skipped.append(Skipped(where, str(error)))

    def _seconds(self, spelling: Spelling, value: Any) -> float:
        if value is None:
            return self.dialect.timeouts.get(spelling.theirs, self.dialect.timeout)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
            raise errors.InvalidRegistration(f"its timeout {value!r:.40} is no positive number")
        return float(value) / self.dialect.second

    def _command(self, definition: Mapping[str, Any]) -> tuple[str, tuple[ListedFile, ...], CommandHook]:
        command, arguments = definition.get("command"), definition.get("args")
        if not isinstance(command, str) or not command.strip():
            raise errors.InvalidRegistration("its command is no text")
        variables = dict.fromkeys(filter(None, [self.dialect.variable]), os.fspath(self.project))
        shell = definition.get("shell") or "sh"
        if arguments is not None:
            if not isinstance(arguments, list) or not all(isinstance(part, str) for part in arguments):
                raise errors.InvalidRegistration("its args are no list of strings")
            argv = [_expand_variables(part, variables) for part in (command, *arguments)]
            told, runs = argv, json.dumps(argv)
        elif shell in ("sh", "bash"):
            argv, runs = [shell, "-c", command], command
            told = [shell, "-c", _expand_variables(command, variables)]
        else:
            raise errors.InvalidRegistration(f"its shell {shell!r:.40} is not run here")
        hook = CommandHook(
            argv=argv, cwd=os.fspath(self.project), env=variables, codec=self.codec, programs=self._programs
        )
        return runs, list_command(told, self.project, self._digests, variables), hook

    def _service(self, definition: Mapping[str, Any]) -> tuple[str, tuple[ListedFile, ...], WebhookHook]:
        url, headers = definition.get("url"), definition.get("headers") or {}
        allowed = definition.get("allowedEnvVars") or []
        if not isinstance(url, str) or not isinstance(headers, dict) or not isinstance(allowed, list):
            raise errors.InvalidRegistration("its url is no text, its headers no object or its allowedEnvVars no list")
        values = {name: os.environ.get(name, "") for name in allowed if isinstance(name, str)}
        filled = {str(name): _expand_variables(str(value), values) for name, value in headers.items()}
        return url, (), WebhookHook(url=url, headers=filled, codec=self.codec)


def read_settings(path: Path, dialect: Dialect, *, project: Path) -> ImportedSettings:
    """Read one settings file. Raises `SettingsError` if it is not a settings file at all.

    Args:
        path: Path of the program's settings.
        dialect: Dialect of the program.
        project: Folder in which the program works.
    """
    codec = DialectCodec(dialect=dialect, cwd=os.fspath(project))
    settings = ImportedSettings(path=path, dialect=dialect, project=project, codec=codec)
    try:
        whole = load_json(path.read_text("utf-8"))
    except OSError as error:
        raise errors.SettingsError(path, f"it cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise errors.SettingsError(path, f"it is no JSON: {error}") from error
    if not isinstance(whole, dict):
        raise errors.SettingsError(path, "it is no JSON object")
    table = whole.pop("hooks", {})
    if not isinstance(table, dict):
        raise errors.SettingsError(path, "hooks is no object; it names events, each with a list of groups")
    settings.skip_others(whole)
    for name, groups in table.items():
        settings.read_event(str(name), groups)
    return settings


def _expand_variables(text: str, values: Mapping[str, str]) -> str:
    """Return a text with the known variables expanded; others stay unchanged."""
    return re.sub(r"\$(?:\{(\w+)\}|(\w+))", lambda found: values.get(found[1] or found[2], found[0]), text)


LIST: Final = re.compile(r"[A-Za-z0-9_\- ,|]+")


def compile_their_matcher(spec: Any, dialect: Dialect) -> Matcher:
    """Return the matcher for a program's spelling: everything, exact names, or a regular expression found anywhere.

    Raises `InvalidRegistration` for a matcher that is not a text, or not an expression.
    """
    if spec is None or spec in ("", "*"):
        return ANY
    if not isinstance(spec, str):
        raise errors.InvalidRegistration(f"its matcher {spec!r:.60} is no text")
    if LIST.fullmatch(spec) and dialect.failures == "open":
        names = {name.strip() for name in re.split(r"[|,]", spec)}
        if dialect.name == "codex" and names & {"Write", "Edit"}:
            names |= {"apply_patch"}
        return Matcher(spec, names.__contains__)
    found = compile_matcher(f"re:(?s:.*?(?:{spec}).*)")
    return Matcher(spec, found.matches)


RULE: Final = re.compile(r"(?P<tool>[\w.*-]+)(?:\((?P<pattern>.*)\))?", re.DOTALL)
TESTED: Final = ("command", "file_path", "path", "url", "pattern")
"""Fields of an input to which the pattern of a rule applies."""
ASSIGNED: Final = re.compile(r"[A-Za-z_]\w*=")


def _condition(rule: Any) -> Callable[[Mapping[str, Any]], bool]:
    """Return the test for an `if` such as `Bash(git push *)`. The hook always runs if its `if` cannot be read.

    A pattern counts if it matches a field, or one of the commands that a shell command consists of. The hook also runs
    if some of these cannot be read.
    """
    parts = RULE.fullmatch(rule.strip()) if isinstance(rule, str) else None
    if parts is None:
        return lambda _: True
    tool = compile_matcher(parts["tool"])
    about = _compile_pattern(parts["pattern"] or "*")

    def applies(data: Mapping[str, Any]) -> bool:
        if not tool.matches(str(data.get("tool_name", ""))):
            return False
        given = data.get("tool_input")
        values = [given[name] for name in TESTED if name in given] if isinstance(given, dict) else []
        texts = [str(value) for value in values]
        commands = _commands_of(data, given) if isinstance(given, dict) and "command" in given else []
        return not values or any(UNKNOWN in text or about.matches(text) for text in (*texts, *commands))

    return applies


def _compile_pattern(text: str) -> Matcher:
    """Return the test for the pattern of a rule. `push *` covers `push` alone, too, and `push:*` all that begins so."""
    endings = ((":*", ".*"), (" *", "(?: .*)?"), ("", ""))
    ending, expression = next(one for one in endings if text.endswith(one[0]))
    start = re.escape(text.removesuffix(ending)).replace(re.escape("*"), ".*")
    return compile_matcher(f"re:(?s:{start}{expression})")


def _commands_of(data: Mapping[str, Any], given: Mapping[str, Any]) -> Iterator[str]:
    """Yield the commands that a shell command consists of, with one blank between words; `UNKNOWN` if unread."""
    from amplifier_hooks.impact.tools import predict_impact
    from amplifier_hooks.impacts import FileFact, ImpactPolicy

    folder = str(data.get("cwd") or "/")
    policy = ImpactPolicy(folder, os.path.expanduser("~"))  # noqa: PTH111  # a text is needed
    for one in predict_impact("shell", {"command": given["command"]}, policy, FileFact).commands:
        words = [*dropwhile(ASSIGNED.match, one.words)]
        yield " ".join(words)
        yield " ".join([word.rpartition("/")[2] for word in words[:1]] + words[1:])


def register(registry: Registrar, hook: ImportedHook, trust: TrustStore, **options: Any) -> Callable[[], None]:
    """Register one hook, and return the undo. It runs only while its content is trusted; a gate refuses otherwise."""
    spelling, asked = hook.spelling, set[str]()

    def applies(data: Mapping[str, Any]) -> bool:
        tested = data.get(spelling.matcher_field) if spelling.matcher_field not in ("", "tool_name") else None
        if isinstance(tested, str) and not hook.matcher.matches(tested):
            return False
        if not hook.condition(data):
            return False
        session = str(data.get("session_id", ""))
        if hook.once and session in asked:
            return False
        asked.add(session)
        return True

    async def run(event: str, data: Mapping[str, Any]) -> HookResult:
        if not applies(data):
            return CONTINUE
        if not trust.trusts(hook.files):
            return _untrusted_answer(hook)
        return cast("HookResult", await hook.handler(event, data))

    async def tell(event: str, data: Mapping[str, Any], _outcome: object) -> None:
        await run(event, data)

    name = f"{hook.dialect.name}:{hook.where}"
    match = hook.matcher if spelling.matcher_field == "tool_name" else None
    if hook.background:
        return registry.observe(spelling.ours, tell, name=name, match=match, timeout=hook.timeout, **options)
    return registry.on(
        spelling.ours, run, name=name, match=match, timeout=hook.timeout, on_error=hook.on_error, **options
    )


def _untrusted_answer(hook: ImportedHook) -> HookResult:
    """Return the answer of an untrusted hook. A gate refuses, because the agent that it guards may have changed it."""
    said = f"the hook {hook.runs!r:.120} is not trusted, or has changed since; run: amplifier-hooks import"
    row = events.find(hook.spelling.ours)
    if hook.spelling.blocks == "deny" and row is not None and row.gate:
        return HookResult.deny(said)
    return HookResult.proceed(user_message=said, user_message_level="warning")
