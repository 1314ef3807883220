"""A hook's answer, and all answers to one event together.

`HookResult` is one hook's answer, `Answer` is that answer on record with its hook, duration and failure, and `Outcome`
holds the answers of all hooks of one event. An Outcome reads like a HookResult, and loses nothing.

The records are frozen msgspec structs: a HookResult is built for every answer of every hook, and of the records that
are checked and cannot be assigned to, this is the cheapest to make (benchmarks/models.py measures it).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from reprlib import repr as shortened
from typing import Any, Final, Literal, TypedDict, Unpack, get_args

import msgspec
from msgspec.structs import force_setattr, replace

from amplifier_hooks.errors import InvalidResult

__all__ = [
    "ACTIONS",
    "CONTINUE",
    "Answer",
    "Ask",
    "Assessment",
    "Cause",
    "ContextInjection",
    "HookResult",
    "Outcome",
    "Risk",
    "Status",
    "UserMessage",
    "highest",
]

Action = Literal["continue", "deny", "modify", "inject_context", "ask_user"]
Role = Literal["system", "user", "assistant"]
Level = Literal["info", "warning", "error"]
Default = Literal["allow", "deny"]
Scope = Literal["prompt", "action"]
Risk = Literal["low", "medium", "high"]
Status = Literal["ok", "error", "timeout", "invalid", "unavailable", "disabled", "conflict"]
Cause = Literal[
    "denied_by_hook",
    "hook_error",
    "hook_timeout",
    "hook_invalid_output",
    "hook_unavailable",
    "conflict",
    "no_policy",
    "emergency_stop",
    "denied_by_rule",
    "denied_by_person",
    "approval_expired",
    "approval_unavailable",
    "approval_mismatch",
    "audit_unavailable",
    "session_cancelled",
]

ACTIONS: Final[tuple[Action, ...]] = get_args(Action)
ROLES: Final[tuple[Role, ...]] = get_args(Role)
LEVELS: Final[tuple[Level, ...]] = get_args(Level)
DEFAULTS: Final[tuple[Default, ...]] = get_args(Default)
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
RISKS: Final[tuple[Risk, ...]] = get_args(Risk)
"""The risks, from the lowest to the highest."""

DEFAULT_PROMPT: Final = "Allow this operation?"
DEFAULT_OPTIONS: Final = ("Allow", "Deny")
APPROVAL_TIMEOUT: Final = 300.0
"""Seconds after which a request for approval expires, unless its hook names others."""
LONGEST_RISK_REASON: Final = 2_048
"""Most bytes of a reason for a risk."""
LONGEST: Final = 1e10
"""Most seconds of a timeout, some three hundred years; a longer one would leave the calendar when added to a date."""
WORD: Final = 64
"""Bits of the largest number that an error writes out; Python refuses to write out the largest numbers."""

# `HookResult.__post_init__` compares with these by `is`, so that no other value can pass for a default.
_ACTION: Final = "continue"
_ROLE: Final = "system"
_DEFAULT: Final = "deny"
_SCOPE: Final = "prompt"
_LEVEL: Final = "info"
_NONE: Final = ()


class ContextInjection(msgspec.Struct, frozen=True, kw_only=True):
    """One text for the agent's context."""

    content: str
    """The text; an empty one is refused."""
    role: Role = "system"
    """The role in which the model reads the text."""
    ephemeral: bool = False
    """True if only the next model call reads the text, and no history keeps it."""
    append_to_last_tool_result: bool = False
    """True if the text follows the last tool result, in the same message."""
    hook_name: str = "unknown"
    """The name of the hook. The registry, never the hook, fills it in."""
    event: str = ""
    """The event of the hook. The registry, never the hook, fills it in."""

    def __post_init__(self) -> None:
        _check_text("content", self.content)
        if not self.content:
            raise _invalid_result("an injection without text", "pass content='…' with the text to inject")
        if self.role is not _ROLE:
            _check_word("role", self.role, ROLES)
        if self.ephemeral is not False:
            _check_flag("ephemeral", self.ephemeral)
        if self.append_to_last_tool_result is not False:
            _check_flag("append_to_last_tool_result", self.append_to_last_tool_result)
        _check_text("hook_name", self.hook_name)
        _check_text("event", self.event)


# The keywords of the short forms, so that a type checker refuses a misspelt one. No keyword repeats an argument.


class AnswerFields(TypedDict, total=False):
    """The fields that every answer may have."""

    ephemeral: bool
    append_to_last_tool_result: bool
    context_injections: Sequence[ContextInjection]
    suppress_output: bool
    user_message: str | None
    user_message_level: Level
    user_message_source: str | None
    risk: Risk | None
    risk_reason: str | None


class InjectFields(AnswerFields, total=False):
    """The keywords of `HookResult.inject`."""

    data: Mapping[str, Any] | None
    reason: str | None


class ModifyFields(AnswerFields, total=False):
    """The keywords of `HookResult.modify`."""

    context_injection: str | None
    context_injection_role: Role


class DenyFields(ModifyFields, total=False):
    """The keywords of `HookResult.deny`."""

    data: Mapping[str, Any] | None


class ProceedFields(DenyFields, total=False):
    """The keywords of `HookResult.proceed`."""

    reason: str | None


class AskFields(ProceedFields, total=False):
    """The keywords of `HookResult.ask`."""

    approval_key: str | None


class HookResult(msgspec.Struct, frozen=True, kw_only=True):
    """One hook's answer. Impossible answers are refused when they are built; no field can be assigned afterwards.

    Field names and defaults are those of the upstream kernel's model, so hooks written for it run unchanged. An
    injection, a user message and a risk take effect with any action; the risk is shown if anything is asked about the
    action. `data` is read with `modify` and `ask_user` (merged over the payload; a person is then asked about the
    merged one) and by `emit_and_collect`. Mappings and lists are copied, so changing them later changes nothing here.

    Raises `InvalidResult` for an answer that cannot be carried out, `TypeError` for a keyword that does not exist.
    """

    action: Action = "continue"
    """The answer; the other fields give its details."""
    data: Mapping[str, Any] | None = None
    """Fields that replace those of the payload."""
    reason: str | None = None
    """The reason of a denial, which the model reads."""
    context_injection: str | None = None
    """A text for the model."""
    context_injection_role: Role = "system"
    """The role of that text among the messages."""
    ephemeral: bool = False
    """True shows that text to the next model call only."""
    append_to_last_tool_result: bool = False
    """True puts that text behind the result of the last tool call."""
    context_injections: Sequence[ContextInjection] = ()
    """Further texts for the model."""
    approval_prompt: str | None = None
    """The question to the approver."""
    approval_options: Sequence[str] | None = None
    """The labels of its answers; by default, "Allow" and "Deny"."""
    approval_timeout: float = APPROVAL_TIMEOUT
    """Seconds until the question expires."""
    approval_default: Default = "deny"
    """The answer that counts when the question expires."""
    approval_scope: Scope = "prompt"
    """The reach of an "always": calls with the same question and tool, or exactly this action."""
    approval_key: str | None = None
    """A stable name of the question, in place of its words."""
    suppress_output: bool = False
    """True hides the text that the hook prints."""
    user_message: str | None = None
    """A text for the person at the screen, never for the model."""
    user_message_level: Level = "info"
    """The importance of that text."""
    user_message_source: str | None = None
    """The source that the screen names; by default, the hook."""
    risk: Risk | None = None
    """The risk of the action, as the hook assesses it."""
    risk_reason: str | None = None
    """The reason for that risk, which the card shows."""

    def __post_init__(self) -> None:  # noqa: C901, PLR0912  # one line a field; a loop over a table takes three times as long
        if self.data is not None:
            force_setattr(self, "data", _data_of(self.data))
        if self.reason is not None:
            _check_text("reason", self.reason)
        if self.context_injection is not None:
            _check_text("context_injection", self.context_injection)
        if self.context_injection_role is not _ROLE:
            _check_word("context_injection_role", self.context_injection_role, ROLES)
        if self.ephemeral is not False:
            _check_flag("ephemeral", self.ephemeral)
        if self.append_to_last_tool_result is not False:
            _check_flag("append_to_last_tool_result", self.append_to_last_tool_result)
        if self.context_injections is not _NONE:
            force_setattr(self, "context_injections", _injections_of(self.context_injections))
        if self.approval_prompt is not None:
            _check_text("approval_prompt", self.approval_prompt)
        if self.approval_options is not None:
            force_setattr(self, "approval_options", _options_of(self.approval_options))
        if self.approval_timeout is not APPROVAL_TIMEOUT:
            _check_timeout(self.approval_timeout)
        if self.approval_default is not _DEFAULT:
            _check_word("approval_default", self.approval_default, DEFAULTS)
        if self.approval_scope is not _SCOPE:
            _check_word("approval_scope", self.approval_scope, SCOPES)
        if self.approval_key is not None:
            _check_text("approval_key", self.approval_key)
        if self.suppress_output is not False:
            _check_flag("suppress_output", self.suppress_output)
        if self.user_message is not None:
            _check_text("user_message", self.user_message)
        if self.user_message_level is not _LEVEL:
            _check_word("user_message_level", self.user_message_level, LEVELS)
        if self.user_message_source is not None:
            _check_text("user_message_source", self.user_message_source)
        if self.risk is not None:
            _check_word("risk", self.risk, RISKS)
        if self.risk_reason is not None:
            _check_risk_reason(self.risk_reason, self.risk)
        if self.action is not _ACTION:  # last, when the other fields are checked
            _check_word("action", self.action, ACTIONS)
            if self.action == "modify" and self.data is None:
                raise _invalid_result("modify without data", "pass data={…} with the fields to replace")
            if self.action == "inject_context" and not (self.context_injection or self.context_injections):
                raise _invalid_result(
                    "inject_context without text", "pass context_injection='…' or context_injections=[…]"
                )

    # The short forms. Handing on empty `**fields` would double the cost of a call, so they leave it out.

    @classmethod
    def proceed(cls, **fields: Unpack[ProceedFields]) -> HookResult:
        """Return an answer without objection. Without a field it is the shared `CONTINUE`, which costs nothing."""
        return cls(**fields) if fields else CONTINUE

    @classmethod
    def deny(cls, reason: str | None = None, **fields: Unpack[DenyFields]) -> HookResult:
        """Return a denial. The agent and the user are shown the reason."""
        if not fields:
            return cls(action="deny", reason=reason)
        return cls(action="deny", reason=reason, **fields)

    @classmethod
    def modify(
        cls, data: Mapping[str, Any], *, reason: str | None = None, **fields: Unpack[ModifyFields]
    ) -> HookResult:
        """Return an answer that merges these fields over the payload; the next hook sees them."""
        if not fields:
            return cls(action="modify", data=data, reason=reason)
        return cls(action="modify", data=data, reason=reason, **fields)

    @classmethod
    def inject(cls, text: str, *, role: Role = "system", **fields: Unpack[InjectFields]) -> HookResult:
        """Return an answer that puts this text into the agent's context, within the budget of the turn.

        Args:
            text: Text that the model reads.
            role: Role in which the model reads it.
        """
        if not fields:
            return cls(action="inject_context", context_injection=text, context_injection_role=role)
        return cls(action="inject_context", context_injection=text, context_injection_role=role, **fields)

    @classmethod
    def ask(
        cls,
        prompt: str | None = None,
        *,
        options: Sequence[str] | None = None,
        timeout: float = APPROVAL_TIMEOUT,
        default: Default = "deny",
        scope: Scope = "prompt",
        **fields: Unpack[AskFields],
    ) -> HookResult:
        """Return an answer that lets a person decide.

        Without a prompt the person is asked `DEFAULT_PROMPT`; without an answer `default` decides. The person is shown
        `risk` and `risk_reason` first: how much is at stake, and why.

        Args:
            prompt: Question that the person reads.
            options: Labels of the answers that the person may give; Allow and Deny if None.
            timeout: Seconds that the person has.
            default: Answer that counts when the time is over.
            scope: Subject of an "always": this prompt of the hook, or this very action.
        """
        return cls(
            action="ask_user",
            approval_prompt=prompt,
            approval_options=options,
            approval_timeout=timeout,
            approval_default=default,
            approval_scope=scope,
            **fields,
        )

    @property
    def injects(self) -> bool:
        """True if this answer carries any text for the context."""
        return bool(self.context_injection or self.context_injections)

    @property
    def injections(self) -> tuple[ContextInjection, ...]:
        """Every text of this answer, the single one first."""
        if not self.context_injection:
            return tuple(self.context_injections)
        single = ContextInjection(
            content=self.context_injection,
            role=self.context_injection_role,
            ephemeral=self.ephemeral,
            append_to_last_tool_result=self.append_to_last_tool_result,
        )
        return (single, *self.context_injections)


CONTINUE: Final = HookResult()
"""The answer of a hook that has nothing to say; shared, so that it costs nothing."""


def injections_of(result: HookResult, hook: str, event: str) -> list[ContextInjection]:
    """Return every text of an answer with the name of its hook. A name that the hook wrote there is overwritten."""
    return [replace(item, hook_name=hook, event=event) for item in result.injections]


def as_result(answer: object) -> HookResult:
    """Return the HookResult for a hook's return value: a HookResult, None, a mapping, or an upstream HookResult.

    Raises `InvalidResult` for everything else; nothing is guessed, because a guess could turn a denial into a permit.
    """
    if type(answer) is HookResult:
        return answer
    if answer is None:
        return CONTINUE
    if isinstance(answer, Mapping):
        fields = _fields_of(answer, HookResult)
        if not fields:
            raise _invalid_result("a hook returned an empty mapping", "return None to continue, or name an action")
        return HookResult(**fields)
    if issubclass(type(answer), HookResult) or _is_upstream(answer, "HookResult"):
        return HookResult(**_attributes_of(answer, HookResult))  # a subclass may have switched the checks off
    raise _invalid_result(
        f"a hook returned {type(answer).__name__}", "return HookResult(…), None, or a mapping of its fields"
    )


def _as_injection(item: object) -> ContextInjection:
    if type(item) is ContextInjection:
        return item
    if isinstance(item, Mapping):
        fields = _fields_of(item, ContextInjection)
    elif isinstance(item, ContextInjection) or _is_upstream(item, "ContextInjection"):
        fields = _attributes_of(item, ContextInjection)
    else:
        raise _invalid_result(
            f"context_injections with an item of type {type(item).__name__}", "pass ContextInjection(…)"
        )
    return ContextInjection(**{"content": "", **fields})


def _is_upstream(value: object, name: str) -> bool:
    """Return True if `value` is of the upstream kernel's class of that name, which is recognised, never imported."""
    return any(kind.__name__ == name and kind.__module__.startswith("amplifier_core.") for kind in type(value).__mro__)


def _attributes_of(value: object, kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the fields that an object has, read one by one: the upstream classes gain fields over time."""
    return {name: getattr(value, name) for name in kind.__struct_fields__ if hasattr(value, name)}


def _fields_of(mapping: Mapping[Any, Any], kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return a mapping as keyword arguments. An unknown field is refused: a misspelt one must not be lost."""
    fields, known = _mapping_of("a mapping", mapping), kind.__struct_fields__
    for name in fields:
        if name not in known:
            raise _invalid_result(f"{kind.__name__} has no field {_short_repr(name)}", _suggestion(name, known))
    return fields


class UserMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One text for the person at the screen, never for the agent."""

    text: str
    """The text."""
    level: Level
    """The level: info, warning or error."""
    hook_name: str
    """The name of the hook."""
    source: str
    """The source as the user reads it, such as `hook:lint`."""


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One hook's question to a person."""

    hook_name: str
    """The name of the hook."""
    prompt: str
    """The words that the person reads."""
    options: tuple[str, ...]
    """The labels of the answers."""
    timeout: float
    """Seconds that the person has."""
    default: Default
    """The answer that counts when the time is over."""
    scope: Scope
    """The subject of an "always": the prompt of the hook, or this very action."""
    key: str | None
    """The hook's own key, which an "always" is limited to; None uses the scope."""


class Assessment(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The risk of an action as one hook, one rule or the host assesses it."""

    by: str
    """The hook or rule; `host` for the host."""
    risk: Risk
    """The risk: low, medium or high."""
    reason: str = ""
    """The reason; empty if none is given."""


def highest(assessments: Iterable[Assessment]) -> Risk | None:
    """Return the highest risk among these assessments; None if there are none.

    Args:
        assessments: Assessments of one act.
    """
    return max((one.risk for one in assessments), key=RISKS.index, default=None)


STOPS_NOTHING: Final = "report-only: it stops nothing"
"""Words about a report-only hook, or report-only rules, wherever they are shown."""


class Unenforced(msgspec.Struct, frozen=True, gc=False):
    """The answer of a report-only hook or of report-only rules. It had no effect.

    `action` is an action of a hook, or "allow" for rules that would have answered questions.
    """

    action: Action | Literal["allow"]
    reason: str | None = None


class Answer(msgspec.Struct, frozen=True):
    """One hook's answer on record."""

    hook_name: str
    """The name of the hook."""
    result: HookResult = CONTINUE
    """The result of the hook; empty if the hook failed or is report-only."""
    status: Status = "ok"
    """The end of the hook: `ok`, or a failure.

    A failure is `error` (the hook raised), `timeout`, `invalid` (it returned something that is no answer),
    `unavailable` (it could not be run), `disabled`, or `conflict` (it wanted another change at its second look).
    """
    error: str | None = None
    """The message of a failure."""
    duration_ms: float | None = None
    """Milliseconds of the hook, where they are measured."""
    denies: bool = False
    """True if the failure counts as a denial, because the hook gates."""
    recheck: bool = False
    """True for the second look of a gate, at data that was changed after its first."""
    output: str | None = None
    """The text that the hook printed, if it was captured; a program that shows it escapes it for its place."""
    registered: Assessment | None = None
    """The risk that the hook's registration gives to its questions."""
    would: Unenforced | None = None
    """The answer of a report-only hook; None if the hook is in force or had nothing to say."""

    @property
    def success(self) -> bool:
        """True if the hook ran to an answer, whatever the answer was."""
        return self.status == "ok"

    @property
    def effective_result(self) -> HookResult:
        """The result that counts: the hook's own, or an empty one if the hook failed."""
        return self.result if self.status == "ok" else CONTINUE

    @property
    def action(self) -> Action:
        """The effective action: the hook's own, or `deny` for a failed gate."""
        return "deny" if self.denies else self.result.action if self.status == "ok" else "continue"

    @property
    def data(self) -> Mapping[str, Any] | None:
        """The data the hook answered with."""
        return self.effective_result.data

    @property
    def assessments(self) -> tuple[Assessment, ...]:
        """The risk that the hook's registration gives, and the one in the answer itself."""
        said = self.effective_result
        registered = () if self.registered is None else (self.registered,)
        if said.risk is None:
            return registered
        return (*registered, Assessment(by=self.hook_name, risk=said.risk, reason=said.risk_reason or ""))


CHANGING: Final = ("modify", "ask_user")
"""Actions whose data changes the payload; an approver is asked about the changed payload."""


class Outcome(msgspec.Struct, frozen=True, kw_only=False):
    """All answers to one event together. It reads like a HookResult and keeps every hook's answer.

    Injections, questions, messages and assessments are complete whatever `action` says.
    """

    event: str
    """The canonical name of the event."""
    data: Mapping[str, Any]
    """The payload after every modification; the very object that was emitted, if no hook changed it."""
    ran: tuple[str, ...] = ()
    """The names of the hooks that were called, in order."""
    total_duration_ms: float = 0.0
    """Milliseconds from the first hook to the last one."""
    action: Action = "continue"
    """The strictest answer."""
    reason: str | None = None
    """The reason for a denial."""
    denied_by: str | None = None
    """The hook or rule that denied; None if none did."""
    cause: Cause | None = None
    """The kind of a denial; None without one."""
    modified: bool = False
    """True if a hook has changed the payload."""
    injections: tuple[ContextInjection, ...] = ()
    """Every text for the model."""
    asks: tuple[Ask, ...] = ()
    """Every question for a person."""
    messages: tuple[UserMessage, ...] = ()
    """Every text for the user."""
    answers: tuple[Answer, ...] = ()
    """The hooks that had something to say, failed or had to wait; `hook_results` has every hook."""
    assessments: tuple[Assessment, ...] = ()
    """Every assessment of the risk."""

    def changed_by(self, fields: Collection[str]) -> str:
        """Return the name of the hook that last changed one of these fields; empty if no hook changed one.

        Args:
            fields: Names of fields of the payload.
        """
        changes = (one for one in reversed(self.answers) if one.success and one.action in CHANGING and not one.recheck)
        return next((one.hook_name for one in changes if any(name in (one.data or ()) for name in fields)), "")

    @property
    def denied(self) -> bool:
        """True if a hook, or the lack of a required one, stopped the act."""
        return self.action == "deny"

    @property
    def event_type(self) -> str:
        """The event's canonical name, under its name in chains."""
        return self.event

    @property
    def aborted(self) -> bool:
        """True if the outcome is denied, under its name in chains."""
        return self.action == "deny"

    @property
    def abort_reason(self) -> str | None:
        """The reason for the denial, under its name in chains."""
        return self.reason if self.action == "deny" else None

    @property
    def hook_results(self) -> tuple[Answer, ...]:
        """One record for every hook that was reached, in the order they ran; second looks last."""
        spoke = {answer.hook_name for answer in self.answers if not answer.recheck}
        silent = (Answer(hook_name=name) for name in self.ran if name not in spoke)
        place = {name: number for number, name in enumerate(self.ran)}
        last = len(place)
        return tuple(
            sorted(
                (*self.answers, *silent),
                key=lambda answer: (answer.recheck, last if answer.recheck else place.get(answer.hook_name, last)),
            )
        )

    @property
    def hook_count(self) -> int:
        """The number of hooks that were reached."""
        return len(self.ran)

    @property
    def all_succeeded(self) -> bool:
        """True if every hook that was reached ran to an answer."""
        return all(answer.success for answer in self.answers)

    @property
    def failures(self) -> tuple[Answer, ...]:
        """The records of failures: errors, timeouts, invalid results, hooks that could not run."""
        return tuple(answer for answer in self.answers if not answer.success)

    @property
    def context_injection(self) -> str | None:
        """Every injected text, a blank line between them."""
        return "\n\n".join(item.content for item in self.injections) or None

    @property
    def context_injections(self) -> tuple[ContextInjection, ...]:
        """Every injection with its hook."""
        return self.injections

    @property
    def context_injection_role(self) -> Role:
        """The first injection's role."""
        return self.injections[0].role if self.injections else "system"

    @property
    def ephemeral(self) -> bool:
        """True if all injected text is for the next model call only."""
        return bool(self.injections) and all(item.ephemeral for item in self.injections)

    @property
    def append_to_last_tool_result(self) -> bool:
        """True if all injected text belongs at the last tool result."""
        return bool(self.injections) and all(item.append_to_last_tool_result for item in self.injections)

    @property
    def approval_prompt(self) -> str | None:
        """Every question, one a line."""
        return "\n".join(ask.prompt for ask in self.asks) or None

    @property
    def approval_options(self) -> tuple[str, ...] | None:
        """The options that every asking hook offers, in the order of the first hook."""
        if not self.asks:
            return None
        first, *rest = self.asks
        return tuple(label for label in first.options if all(label in ask.options for ask in rest))

    @property
    def approval_timeout(self) -> float:
        """The shortest time that any asking hook gives."""
        return min((ask.timeout for ask in self.asks), default=APPROVAL_TIMEOUT)

    @property
    def approval_default(self) -> Default:
        """`allow` only if every asking hook says so."""
        return "allow" if self.asks and all(ask.default == "allow" for ask in self.asks) else "deny"

    @property
    def approval_scope(self) -> Scope:
        """`action` as soon as one asking hook says so."""
        return "action" if any(ask.scope == "action" for ask in self.asks) else "prompt"

    @property
    def approval_key(self) -> str | None:
        """The key, if all asking hooks give an equal one."""
        keys = {ask.key for ask in self.asks}
        return keys.pop() if len(keys) == 1 else None

    @property
    def risk(self) -> Risk | None:
        """The highest risk that any hook or rule gave."""
        return highest(self.assessments)

    @property
    def risk_reason(self) -> str | None:
        """Every reason for the highest risk, one a line."""
        risk = self.risk
        return "\n".join(one.reason for one in self.assessments if one.risk == risk and one.reason) or None

    @property
    def suppress_output(self) -> bool:
        """True if any hook asked for its own output to be hidden."""
        return any(answer.effective_result.suppress_output for answer in self.answers)

    @property
    def user_message(self) -> str | None:
        """Every message for the user, one a line."""
        return "\n".join(message.text for message in self.messages) or None

    @property
    def user_message_level(self) -> Level:
        """The most serious level among the messages."""
        return max((message.level for message in self.messages), key=LEVELS.index, default="info")

    @property
    def user_message_source(self) -> str | None:
        """The first message's source, as a HookResult has it."""
        return self.messages[0].source.removeprefix("hook:") if self.messages else None


# -- the checks; each raises InvalidResult ---------------------------------------------------------------------------


def _check_text(field: str, value: object) -> None:
    if not isinstance(value, str):
        raise _invalid_result(f"{field} {_short_repr(value)}", "pass a str")


def _check_flag(field: str, value: object) -> None:
    if not isinstance(value, bool):
        raise _invalid_result(f"{field} {_short_repr(value)}", "pass True or False")


def _check_word(field: str, value: object, words: Sequence[str]) -> None:
    if not isinstance(value, str) or value not in words:
        raise _invalid_result(f"{field} {_short_repr(value)}", _suggestion(value, words))


def _check_risk_reason(value: object, risk: Risk | None) -> None:
    _check_text("risk_reason", value)
    if risk is None:
        raise _invalid_result("risk_reason without risk", f"name the risk it is for, one of {', '.join(RISKS)}")
    size = len(str(value).encode("utf-8", "surrogatepass"))
    if size > LONGEST_RISK_REASON:
        raise _invalid_result(f"risk_reason of {size:,} bytes", f"say it in {LONGEST_RISK_REASON:,}")


def _check_timeout(value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _invalid_result(f"approval_timeout {_short_repr(value)}", "pass seconds as a number")
    if not 0 <= value <= LONGEST:  # NaN fails this check, too
        raise _invalid_result(f"approval_timeout {_short_repr(value)}", f"pass seconds from 0 to {LONGEST:.0f}")


def _injections_of(value: object) -> tuple[ContextInjection, ...]:
    return tuple(_as_injection(item) for item in _tuple_of("context_injections", value))


def _options_of(value: object) -> tuple[str, ...]:
    labels = _tuple_of("approval_options", value)
    if not labels:
        raise _invalid_result("approval_options without a label", "name at least one, or leave them out")
    for label in labels:
        if not isinstance(label, str) or not label.strip():
            raise _invalid_result(
                f"approval_options with the label {_short_repr(label)}", "every label is a str and not blank"
            )
    if len(set(labels)) != len(labels):
        raise _invalid_result("approval_options with the same label twice", "give every option its own")
    return labels


def _data_of(value: object) -> dict[str, Any]:
    data = value.copy() if type(value) is dict else _mapping_of("data", value)
    for name in data:
        if not isinstance(name, str):
            raise _invalid_result(f"data with a field {_short_repr(name)}", "fields are named by a str")
    return data


def _tuple_of(field: str, value: object) -> tuple[Any, ...]:
    """Return a list as a tuple, so that reading it later cannot fail or change."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise _invalid_result(f"{field} {_short_repr(value)}", "pass a list")
    try:
        return tuple(value)
    except Exception as error:
        raise _invalid_result(f"{field} that cannot be read ({type(error).__name__})", "pass a plain list") from error


def _mapping_of(what: str, value: object) -> dict[Any, Any]:
    """Return a mapping as a dict, so that reading it later cannot fail or change."""
    if not isinstance(value, Mapping):
        raise _invalid_result(f"{what} {_short_repr(value)}", "pass a mapping of field to value")
    try:
        return dict(value)
    except Exception as error:
        raise _invalid_result(f"{what} that cannot be read ({type(error).__name__})", "pass a plain dict") from error


def _short_repr(value: object) -> str:
    """Return a value for an error's sentence: short, and without asking a strange object to describe itself."""
    plain = isinstance(value, (str, float)) or (isinstance(value, int) and value.bit_length() <= WORD)
    return shortened(value) if plain else f"of type {type(value).__name__}"


def _suggestion(word: object, words: Sequence[str]) -> str:
    from difflib import get_close_matches  # for a mistake only

    near = get_close_matches(word[:40], words, n=1, cutoff=0.75) if isinstance(word, str) else ()
    return f"did you mean {near[0]!r}?" if near else f"use one of {', '.join(words)}"


def _invalid_result(what: str, remedy: str) -> InvalidResult:
    return InvalidResult(f"{what}: {remedy}")
