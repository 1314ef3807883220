"""What a hook may answer, and all answers to one event together.

`HookResult` is one hook's answer, `Answer` is that answer on record (who, how long, what went wrong), and `Outcome`
is everything the hooks of one event said. An Outcome reads like a HookResult, and loses nothing.

The records are frozen msgspec structs: a HookResult is built for every answer of every hook, and this was the
cheapest checked, immutable record measured (the comparison is in benchmarks/RESULTS.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from math import isfinite
from typing import Any, Final, Literal, get_args

import msgspec

from amplifier_hooks.errors import InvalidResult

__all__ = [
    "ACTIONS",
    "CONTINUE",
    "DEFAULT_OPTIONS",
    "DEFAULT_PROMPT",
    "Answer",
    "Ask",
    "Cause",
    "ContextInjection",
    "HookResult",
    "Outcome",
    "Status",
    "UserMessage",
    "as_result",
]

Action = Literal["continue", "deny", "modify", "inject_context", "ask_user"]
Role = Literal["system", "user", "assistant"]
Level = Literal["info", "warning", "error"]
Default = Literal["allow", "deny"]
Scope = Literal["prompt", "action"]
Status = Literal["ok", "error", "timeout", "invalid", "unavailable", "disabled"]
Cause = Literal[
    "denied_by_hook",
    "hook_error",
    "hook_timeout",
    "hook_invalid_output",
    "hook_unavailable",
    "no_policy",
    "emergency_stop",
    "denied_by_person",
    "approval_expired",
    "approval_unavailable",
]

ACTIONS: Final[frozenset[str]] = frozenset(get_args(Action))
ROLES: Final[frozenset[str]] = frozenset(get_args(Role))
LEVELS: Final[frozenset[str]] = frozenset(get_args(Level))
DEFAULTS: Final[frozenset[str]] = frozenset(get_args(Default))
SCOPES: Final[frozenset[str]] = frozenset(get_args(Scope))

DEFAULT_PROMPT: Final = "Allow this operation?"
DEFAULT_OPTIONS: Final = ("Allow", "Deny")
APPROVAL_TIMEOUT: Final = 300.0


class ContextInjection(msgspec.Struct, frozen=True, kw_only=True):
    """One text for the agent's context. `hook_name` and `event` are filled in by the registry, never by the hook."""

    content: str
    role: Role = "system"
    ephemeral: bool = False
    append_to_last_tool_result: bool = False
    hook_name: str = "unknown"
    event: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.content, str) or not self.content:
            raise _invalid("an injection without text", "pass content='…' with the text to inject")
        if self.role not in ROLES:
            raise _invalid(f"role {self.role!r}", f"use one of {_listed(ROLES)}")
        _check_flag("ephemeral", self.ephemeral)
        _check_flag("append_to_last_tool_result", self.append_to_last_tool_result)


class HookResult(msgspec.Struct, frozen=True, kw_only=True):
    """One hook's answer. Impossible answers are refused when they are built; nothing can be assigned afterwards.

    Field names and defaults are those of the upstream kernel's model, so hooks written for it run unchanged. An
    injection and a user message take effect with any action. `data` is read with `modify` (merged over the payload)
    and by `emit_and_collect`.

    Raises `InvalidResult` for a combination nobody could carry out, `TypeError` for a keyword that does not exist.
    """

    action: Action = "continue"
    data: Mapping[str, Any] | None = None
    reason: str | None = None
    context_injection: str | None = None
    context_injection_role: Role = "system"
    ephemeral: bool = False
    append_to_last_tool_result: bool = False
    context_injections: Sequence[ContextInjection] = ()
    approval_prompt: str | None = None
    approval_options: Sequence[str] | None = None
    approval_timeout: float = APPROVAL_TIMEOUT
    approval_default: Default = "deny"
    approval_scope: Scope = "prompt"
    approval_key: str | None = None
    suppress_output: bool = False
    user_message: str | None = None
    user_message_level: Level = "info"
    user_message_source: str | None = None

    def __post_init__(self) -> None:
        # Written out rather than looped over: a field left at its default costs one `is`, and most are.
        action = self.action
        if action != "continue":
            if action not in ACTIONS:
                raise _invalid(f"action {action!r}", f"use one of {_listed(ACTIONS)}")
            if action == "modify" and self.data is None:
                raise _invalid("modify without data", "pass data={…} with the fields to replace")
            if action == "inject_context" and not self.context_injection and not self.context_injections:
                raise _invalid("inject_context without text", "pass context_injection='…' or context_injections=[…]")
        if self.data is not None and not isinstance(self.data, Mapping):
            raise _invalid(f"data of type {type(self.data).__name__}", "pass a mapping of field to value")
        if self.reason is not None:
            _check_text("reason", self.reason)
        if self.context_injection is not None:
            _check_text("context_injection", self.context_injection)
        if self.context_injection_role != "system" and self.context_injection_role not in ROLES:
            raise _invalid(f"context_injection_role {self.context_injection_role!r}", f"use one of {_listed(ROLES)}")
        if self.context_injections:
            _check_injections(self.context_injections)
        if self.approval_prompt is not None:
            _check_text("approval_prompt", self.approval_prompt)
        if self.approval_options is not None:
            _check_options(self.approval_options)
        if self.approval_timeout is not APPROVAL_TIMEOUT:
            _check_timeout(self.approval_timeout)
        if self.approval_default != "deny" and self.approval_default not in DEFAULTS:
            raise _invalid(f"approval_default {self.approval_default!r}", f"use one of {_listed(DEFAULTS)}")
        if self.approval_scope != "prompt" and self.approval_scope not in SCOPES:
            raise _invalid(f"approval_scope {self.approval_scope!r}", f"use one of {_listed(SCOPES)}")
        if self.approval_key is not None:
            _check_text("approval_key", self.approval_key)
        if self.user_message is not None:
            _check_text("user_message", self.user_message)
        if self.user_message_level != "info" and self.user_message_level not in LEVELS:
            raise _invalid(f"user_message_level {self.user_message_level!r}", f"use one of {_listed(LEVELS)}")
        if self.user_message_source is not None:
            _check_text("user_message_source", self.user_message_source)
        if self.ephemeral is not False:
            _check_flag("ephemeral", self.ephemeral)
        if self.append_to_last_tool_result is not False:
            _check_flag("append_to_last_tool_result", self.append_to_last_tool_result)
        if self.suppress_output is not False:
            _check_flag("suppress_output", self.suppress_output)

    @classmethod
    def proceed(cls, *, user_message: str | None = None, user_message_level: Level = "info") -> HookResult:
        """Nothing stands against it. Without a message this is the shared `CONTINUE`, which costs nothing."""
        if user_message is None:
            return CONTINUE
        return cls(user_message=user_message, user_message_level=user_message_level)

    @classmethod
    def deny(cls, reason: str | None = None, **fields: Any) -> HookResult:
        """It must not happen. The reason is shown to the agent and to the user."""
        return cls(action="deny", reason=reason, **fields)

    @classmethod
    def modify(cls, data: Mapping[str, Any], *, reason: str | None = None, **fields: Any) -> HookResult:
        """Go on with these fields merged over the payload; the next hook sees them."""
        return cls(action="modify", data=data, reason=reason, **fields)

    @classmethod
    def inject(cls, text: str, *, role: Role = "system", **fields: Any) -> HookResult:
        """Put this text into the agent's context, within the budget of the turn."""
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
        **fields: Any,
    ) -> HookResult:
        """A person decides. Without a prompt they are asked `DEFAULT_PROMPT`; without an answer `default` holds."""
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
"""The answer of a hook that has nothing to say; shared, so that saying nothing costs nothing."""

FIELDS: Final = HookResult.__struct_fields__


def as_result(answer: object) -> HookResult:
    """The HookResult a hook's return value stands for: one of ours, None, a mapping, or the upstream kernel's own.

    Raises `InvalidResult` for everything else; nothing is guessed, because a guess could turn a denial into a permit.
    """
    if isinstance(answer, HookResult):
        return answer
    if answer is None:
        return CONTINUE
    if isinstance(answer, Mapping):
        return _from_mapping(answer)
    if any(kind.__name__ == "HookResult" and kind.__module__.startswith("amplifier_core.") for kind in type(answer).__mro__):
        return _from_upstream(answer)
    raise _invalid(
        f"a hook returned {type(answer).__name__}", "return HookResult(…), None, or a mapping of its fields"
    )


def _from_mapping(answer: Mapping[Any, Any]) -> HookResult:
    if not answer:
        raise _invalid("a hook returned an empty mapping", "return None to continue, or name an action")
    for key in answer:
        if key not in FIELDS:
            near = get_close_matches(str(key), FIELDS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"the fields are {', '.join(FIELDS)}"
            raise _invalid(f"unknown field {key!r}", hint)
    fields = dict(answer)
    injections = fields.get("context_injections")
    if isinstance(injections, Sequence) and not isinstance(injections, str):
        fields["context_injections"] = tuple(_as_injection(item) for item in injections)
    return HookResult(**fields)


def _as_injection(item: object) -> ContextInjection:
    if isinstance(item, ContextInjection):
        return item
    if isinstance(item, Mapping):
        fields = item
    else:
        fields = {name: getattr(item, name) for name in ContextInjection.__struct_fields__ if hasattr(item, name)}
    try:
        return ContextInjection(**fields)
    except TypeError as error:
        raise _invalid(f"an injection with wrong fields ({error})", "give content, role and the flags") from None


def _from_upstream(answer: object) -> HookResult:
    """Read the fields one by one: the upstream class gains fields over time, and drops none."""
    fields = {name: getattr(answer, name) for name in FIELDS if hasattr(answer, name)}
    fields["context_injections"] = tuple(_as_injection(item) for item in fields.get("context_injections") or ())
    return HookResult(**fields)


class UserMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One text for the person at the screen; never for the agent."""

    text: str
    level: Level
    hook_name: str
    source: str


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One hook's question to a person."""

    hook_name: str
    prompt: str
    options: tuple[str, ...]
    timeout: float
    default: Default
    scope: Scope
    key: str | None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One hook's answer on record.

    `status` tells answers from failures: `error` (it raised), `timeout`, `invalid` (it returned something that is
    no answer), `unavailable` (it could not be run), `disabled`. `denies` says that the failure counts as a denial,
    because the hook gates. `recheck` marks the second look of a gate at data that was changed after its first.
    """

    hook_name: str
    result: HookResult = CONTINUE
    status: Status = "ok"
    error: str | None = None
    duration_ms: float | None = None
    denies: bool = False
    recheck: bool = False

    @property
    def success(self) -> bool:
        """Whether the hook ran to an answer, whatever the answer was."""
        return self.status == "ok"

    @property
    def action(self) -> Action:
        """What this answer amounts to: its own action, or `deny` for a failed gate."""
        return "deny" if self.denies else self.result.action

    @property
    def data(self) -> Mapping[str, Any] | None:
        """The data the hook answered with."""
        return self.result.data


class Outcome(msgspec.Struct, frozen=True, kw_only=False):
    """All answers to one event together. It reads like a HookResult and keeps what each hook said.

    `action` is the strictest answer; `data` is the payload after every modification (the very object that was
    emitted, when nobody changed it). `injections`, `asks` and `messages` are complete whatever `action` says.
    `answers` holds the hooks that had something to say, failed or had to wait; `hook_results` has every hook.
    """

    event: str
    data: Mapping[str, Any]
    action: Action = "continue"
    reason: str | None = None
    denied_by: str | None = None
    cause: Cause | None = None
    modified: bool = False
    injections: tuple[ContextInjection, ...] = ()
    asks: tuple[Ask, ...] = ()
    messages: tuple[UserMessage, ...] = ()
    answers: tuple[Answer, ...] = ()
    ran: tuple[str, ...] = ()
    total_duration_ms: float = 0.0

    @property
    def denied(self) -> bool:
        """Whether a hook, or the lack of a required one, stopped it."""
        return self.action == "deny"

    @property
    def event_type(self) -> str:
        """The event's canonical name."""
        return self.event

    @property
    def aborted(self) -> bool:
        """The same as `denied`, for those who think in chains."""
        return self.action == "deny"

    @property
    def abort_reason(self) -> str | None:
        """Why it was denied."""
        return self.reason if self.action == "deny" else None

    @property
    def hook_results(self) -> tuple[Answer, ...]:
        """One record for every hook that was reached, in the order they ran; second looks last."""
        if not self.answers:
            return tuple(Answer(hook_name=name) for name in self.ran)
        said = {answer.hook_name: answer for answer in self.answers if not answer.recheck}
        first = tuple(said.get(name) or Answer(hook_name=name) for name in self.ran)
        return first + tuple(answer for answer in self.answers if answer.recheck)

    @property
    def hook_count(self) -> int:
        """How many hooks were reached."""
        return len(self.ran)

    @property
    def all_succeeded(self) -> bool:
        """Whether every hook that was reached ran to an answer."""
        return all(answer.success for answer in self.answers)

    @property
    def failures(self) -> tuple[Answer, ...]:
        """The answers that are none: errors, timeouts, invalid results, hooks that could not run."""
        return tuple(answer for answer in self.answers if not answer.success)

    @property
    def context_injection(self) -> str | None:
        """Every injected text, a blank line between them."""
        return "\n\n".join(item.content for item in self.injections) or None

    @property
    def context_injections(self) -> tuple[ContextInjection, ...]:
        """Every injection with the hook it came from."""
        return self.injections

    @property
    def context_injection_role(self) -> Role:
        """The first injection's role."""
        return self.injections[0].role if self.injections else "system"

    @property
    def ephemeral(self) -> bool:
        """Whether all injected text is for the next model call only."""
        return bool(self.injections) and all(item.ephemeral for item in self.injections)

    @property
    def append_to_last_tool_result(self) -> bool:
        """Whether all injected text belongs at the last tool result."""
        return bool(self.injections) and all(item.append_to_last_tool_result for item in self.injections)

    @property
    def approval_prompt(self) -> str | None:
        """Every question, one a line."""
        return "\n".join(ask.prompt for ask in self.asks) or None

    @property
    def approval_options(self) -> tuple[str, ...] | None:
        """The options every asking hook offers, in the first one's order."""
        if not self.asks:
            return None
        first, *rest = self.asks
        return tuple(label for label in first.options if all(label in ask.options for ask in rest))

    @property
    def approval_timeout(self) -> float:
        """The shortest time any asking hook gives."""
        return min((ask.timeout for ask in self.asks), default=APPROVAL_TIMEOUT)

    @property
    def approval_default(self) -> Default:
        """`allow` only if every asking hook says so."""
        return "allow" if self.asks and all(ask.default == "allow" for ask in self.asks) else "deny"

    @property
    def suppress_output(self) -> bool:
        """Whether any hook asked for its own output to be hidden."""
        return any(answer.result.suppress_output for answer in self.answers)

    @property
    def user_message(self) -> str | None:
        """Every message for the user, one a line."""
        return "\n".join(message.text for message in self.messages) or None

    @property
    def user_message_level(self) -> Level:
        """The most serious level among the messages."""
        levels = {message.level for message in self.messages}
        return "error" if "error" in levels else "warning" if "warning" in levels else "info"

    @property
    def user_message_source(self) -> str | None:
        """The first message's source."""
        return self.messages[0].source if self.messages else None


def _invalid(what: str, remedy: str) -> InvalidResult:
    return InvalidResult(f"{what}: {remedy}")


def _listed(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))


def _check_text(field: str, value: object) -> None:
    if not isinstance(value, str):
        raise _invalid(f"{field} of type {type(value).__name__}", "pass a str")


def _check_flag(field: str, value: object) -> None:
    if not isinstance(value, bool):
        raise _invalid(f"{field} of type {type(value).__name__}", "pass True or False")


def _check_timeout(value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _invalid(f"approval_timeout of type {type(value).__name__}", "pass seconds as a number")
    if not isfinite(value) or value < 0:
        raise _invalid(f"approval_timeout {value}", "pass a finite number of seconds, 0 or more")


def _check_options(value: object) -> None:
    if isinstance(value, str) or not isinstance(value, Sequence) or not value:
        raise _invalid(f"approval_options {value!r}", "pass a list with at least one label")
    if not all(isinstance(label, str) and label.strip() for label in value):
        raise _invalid(f"approval_options {value!r}", "every label is a str that is not blank")
    if len(set(value)) != len(value):
        raise _invalid(f"approval_options {value!r}", "no label may stand there twice")


def _check_injections(value: object) -> None:
    if not isinstance(value, Sequence) or not all(isinstance(item, ContextInjection) for item in value):
        raise _invalid("context_injections", "pass a list of ContextInjection")
