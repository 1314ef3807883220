"""Secrets are taken out of prompts, tool inputs, and the results and errors of tools; personal data, too, if set.

`amplifier_hooks.text.secrets` defines the shapes of secrets, and the record keeps them out by the same rules. The hook
is a net for the usual shapes, and no wall. The setting `personal` names personal data that is taken out in the same
way. Before a tool and at a prompt the hook fails closed; a result that cannot be searched is withheld. A loop without a
session can replace a result only at `tool:post`, which fails open.

```python
from amplifier_hooks import HookRegistry
from amplifier_hooks.library import RedactSecrets

registry = HookRegistry()
RedactSecrets().register(registry)
given = {"command": "curl https://robin:hunter22@example.org/"}
print((await registry.emit("tool:pre", {"tool_name": "Bash", "tool_input": given})).data["tool_input"]["command"])
```

```output
curl https://robin:[redacted: password in a URL]@example.org/
```
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, Literal

from attrs import define, field
from pydantic import Field, SecretStr

from amplifier_hooks.errors import HookAbortError
from amplifier_hooks.events import PROMPT_SUBMIT, TOOL_ERROR, TOOL_POST, TOOL_PRE
from amplifier_hooks.foreign_code import call_apart
from amplifier_hooks.library.parts.ready_made import HookSettings, Point, ReadyMade, ToolMatch
from amplifier_hooks.result import CONTINUE, HookResult
from amplifier_hooks.text.escape import for_log
from amplifier_hooks.text.secrets import Secrets, Span, is_secret_name, names_a_secret, replace_spans

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from amplifier_hooks.dispatch.middleware import ToolContext


PRIORITY: Final = 20

MARK: Final = "[redacted: "

DEEPEST: Final = 64
MOST_PARTS: Final = 100_000
"""Values inside one value that are searched.

A value that is deeper or wider is not searched, and so not let through.
"""


LONGEST_NUMBER: Final = 64
"""Bits of a number that may be a card number."""

ESCAPED: Final = re.compile(r"\\(?:x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}|.)")
"""Escapes that stand for one character in the `repr` of a text. They would seem to be part of the next word."""


# -- personal data -----------------------------------------------------------------------------------------------------
# Each pattern begins at the start of a word or number only, and its repetitions are bounded or give nothing back: the
# search takes time in proportion to the text.

PersonalKind = Literal["email", "card", "phone"]

# The login of a remote (`git@example.org:team/code`) has the form of an address, and is none.
EMAIL: Final = r"(?<![\w.%+'-])[\w.%+'-]++@(?:[\w-]++\.)+[^\W\d_]{2,63}+(?![\w-]|:[\w/~.])"
CARD: Final = (
    r"(?<![0-9])(?=[2-6])(?:[0-9]{13,19}"
    r"|[0-9]{4}(?P<by>[ \xa0-])[0-9]{4}(?P=by)[0-9]{4}(?P=by)(?:[0-9]{4}(?P=by)[0-9]{3}|[0-9]{1,4})"
    r"|[0-9]{4}(?P<with>[ \xa0-])[0-9]{6}(?P=with)[0-9]{4,5})(?![0-9])"
)
PHONE: Final = (
    r"(?<![\w+])\+[1-9](?:[ \xa0.\-/()]{0,2}[0-9]){6,14}(?![0-9])"
    r"|(?<![\w.+-])(?:\([2-9][0-9]{2}\)[ \xa0]?|[2-9][0-9]{2}[.-])[0-9]{3}[.-][0-9]{4}(?![\w-])"
)


def _has_checksum(number: str) -> bool:
    """Return True if the digits of a card number end in their check digit (Luhn)."""
    digits = [int(char) for char in reversed(number) if char.isdigit()]
    doubled = (2 * digit - 9 * (digit > 4) for digit in digits[1::2])  # noqa: PLR2004  # its digits, added
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0


KINDS: Final[dict[PersonalKind, tuple[str, re.Pattern[str], Callable[[str], bool]]]] = {
    "card": ("card number", re.compile(CARD), _has_checksum),
    "phone": ("phone number", re.compile(PHONE), bool),
    "email": ("e-mail address", re.compile(EMAIL), bool),
}
"""The name, the form and the check of each kind."""

NAMES: Final = frozenset(name for name, _, _ in KINDS.values())


def personal_spans(text: str, kind: PersonalKind) -> list[Span]:
    """Return the spans of personal data of one kind, in order and disjoint."""
    name, pattern, holds = KINDS[kind]
    spans: list[Span] = []
    found = pattern.search(text)
    while found is not None:
        real = holds(found.group())
        if real:
            spans.append((*found.span(), name))
        found = pattern.search(text, found.end() if real else found.start() + 1)
    return spans


# -- the hook ----------------------------------------------------------------------------------------------------------


class Unsearchable(Exception):
    """A value that is too deep, too wide or contains itself, or one with a secret that cannot be taken out."""


class RedactSecretsSettings(HookSettings):
    """The places that are searched, and the known secrets."""

    inputs: Literal["redact", "ask", "deny", "leave"] = Field(
        default="redact", description="what happens to secrets in what a tool is given"
    )
    prompts: Literal["redact", "deny", "leave"] = Field(
        default="redact", description="what happens to secrets in a user's prompt"
    )
    results: Literal["redact", "leave"] = Field(
        default="redact", description="what happens to secrets in what a tool returns or raises"
    )
    known: tuple[SecretStr, ...] = Field(
        default=(), description="secrets by their value, of eight characters or more, besides those of the environment"
    )
    personal: tuple[PersonalKind, ...] = Field(
        default=(), description="personal data that counts as secrets do: email, card (with its check digit), phone"
    )
    match: ToolMatch = Field(default="*", description="the tools whose inputs, results and errors are searched")


class RedactSecrets(ReadyMade[RedactSecretsSettings]):
    """Takes secrets out of prompts, tool inputs, results and errors; a result it cannot search is withheld."""

    name = "redact_secrets"
    replays = True
    Settings = RedactSecretsSettings

    def __init__(
        self, settings: RedactSecretsSettings | None = None, *, environment: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(settings)
        known = [secret.get_secret_value() for secret in self.settings.known]
        self._secrets = Secrets(secrets=known, environment=environment)

    def points(self) -> tuple[Point, ...]:
        """Return gates before tools and at prompts, and middleware and hooks for the results and errors of tools."""
        settings, at = self.settings, partial(Point, priority=PRIORITY)
        tools = partial(at, match=settings.match)
        found: list[Point] = []
        if settings.prompts != "leave":
            found.append(at(event=PROMPT_SUBMIT, call=self.on_prompt, intent="gate"))
        if settings.inputs != "leave":
            found.append(tools(event=TOOL_PRE, call=self.before, intent="gate"))
        if settings.results != "leave":
            # The timeout is None: the search is the only work here, and a timeout would let the result pass.
            found.append(tools(event="tool", call=self.around_tool, intent="around", timeout=None))
            after = partial(tools, call=self.after, intent="on", timeout=None)
            found += [after(event=event) for event in (TOOL_POST, TOOL_ERROR)]
        return tuple(found)

    async def on_prompt(self, event: str, data: Mapping[str, Any]) -> HookResult:  # a hook's
        """Take the secrets out of a prompt, or deny the prompt."""
        prompt, found = await self._redact(data.get("prompt"))
        if not found:
            return CONTINUE
        if self.settings.prompts == "deny":
            return HookResult.deny(f"the prompt holds {_counts_text(found)}; write it without")
        return HookResult.modify({"prompt": prompt}, user_message=f"{_counts_text(found)} taken out of the prompt")

    async def before(self, event: str, data: Mapping[str, Any]) -> HookResult:  # a hook's
        """Take the secrets out of a tool's input, or ask, or deny."""
        given, found = await self._redact(data.get("tool_input"))
        if not found:
            return CONTINUE
        tool, told = for_log(str(data.get("tool_name"))), _counts_text(found)
        if self.settings.inputs == "deny":
            return HookResult.deny(f"the input of {tool} holds {told}; use a variable of the environment instead")
        if self.settings.inputs == "ask":
            return HookResult.ask(f"The input of {tool} holds {told}. Pass it on?", scope="action")
        return HookResult.modify(
            {"tool_input": given},
            context_injection=f"{told} in the input of {tool}, taken out before it ran; use a variable instead.",
            user_message=f"{told} taken out of the input of {tool}",
        )

    async def around_tool(self, context: ToolContext, call_next: Callable[[], Awaitable[Any]]) -> Any:
        """Take the secrets out of a tool's result. Raise `HookAbortError` if the result cannot be searched."""
        result = await call_next()
        try:
            searched, found = await self._redact(result)
        except Exception as error:
            problem = f"the result of {for_log(context.tool_name)} cannot be searched for secrets"
            raise HookAbortError(f"{problem} ({type(error).__name__}), and is withheld") from error
        return searched if found else None

    async def after(self, event: str, data: Mapping[str, Any]) -> HookResult:  # a hook's
        """Take the secrets out of a tool's error, or of its result in a loop without middleware around tools."""
        part = "error" if event == TOOL_ERROR else "result"
        left, found = await self._redact(data.get(part))
        if not found:
            return CONTINUE
        tool = for_log(str(data.get("tool_name")))
        return HookResult.modify({part: left}, user_message=f"{_counts_text(found)} taken out of the {part} of {tool}")

    async def _redact(self, value: object) -> tuple[Any, Counter[str]]:
        """Return the value without its secrets, and the number of secrets of each kind. Raise `Unsearchable`."""
        search = _Redaction(self._secrets, self.settings.personal)
        return await call_apart(value, search.redact, value, 0), search.counts


@define
class _Redaction:
    """The redaction of one value."""

    secrets: Secrets
    personal: tuple[PersonalKind, ...] = ()
    counts: Counter[str] = field(factory=Counter)
    parts: int = 0

    def redact(self, value: Any, depth: int) -> Any:
        """Return the value itself if it holds no secret, otherwise a copy without its secrets."""
        self.parts += 1
        if self.parts > MOST_PARTS or depth > DEEPEST:
            raise Unsearchable
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, Mapping):
            named = names_a_secret(value)
            return {
                self._text(key): self._member(key, item, depth + 1, secret=named and key == "value")
                for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            inside = [self.redact(item, depth + 1) for item in value]
            return inside if isinstance(value, list) else tuple(inside)
        return self._check_opaque(value)

    def _check_opaque(self, value: Any) -> Any:
        """Return a value that cannot be rebuilt (bytes, sets, objects) if it shows no secret.

        Raise `Unsearchable` otherwise.
        """
        if type(value) is int and value.bit_length() <= LONGEST_NUMBER and "card" in self.personal:
            spans = personal_spans(text := str(value), "card")
            return self._replace(text, spans) if spans else value
        if value is None or isinstance(value, bool | int | float | complex):
            return value
        shown = (
            bytes(value).decode("latin-1") if isinstance(value, bytes | bytearray) else ESCAPED.sub(" ", repr(value))
        )
        if self.secrets.spans(shown) or any(personal_spans(shown, kind) for kind in self.personal):
            raise Unsearchable
        return value

    def _member(self, key: object, item: Any, depth: int, *, secret: bool) -> Any:
        if isinstance(item, str | list | tuple) and (secret or (isinstance(key, str) and is_secret_name(key))):
            return self._redact_named(item, depth)
        return self.redact(item, depth)

    def _redact_named(self, item: Any, depth: int) -> Any:
        """Redact the value under a secret's name, or a list under it: every text is a secret."""
        if isinstance(item, str):
            return item if not item or item.startswith(MARK) else self._replace_whole("value of a secret name")
        self.parts += 1
        if isinstance(item, list | tuple) and self.parts <= MOST_PARTS and depth <= DEEPEST:
            inside = [self._redact_named(each, depth + 1) for each in item]
            return inside if isinstance(item, list) else tuple(inside)
        return self.redact(item, depth)

    def _text(self, text: Any) -> Any:
        if not isinstance(text, str):
            return text
        text = self._replace(text, self.secrets.spans(text))
        for kind in self.personal:
            text = self._replace(text, personal_spans(text, kind))
        return text

    def _replace(self, text: str, spans: list[Span]) -> str:
        if not spans:
            return text
        kinds = [kind for _, _, kind in spans]
        self.counts.update(kinds)
        return replace_spans(text, spans, map(_mark, kinds))

    def _replace_whole(self, kind: str) -> str:
        self.counts[kind] += 1
        return _mark(kind)


@cache
def _mark(kind: str) -> str:
    return f"{MARK}{kind}]"


def _counts_text(counts: Counter[str]) -> str:
    """Return a count such as `2 secrets (password, token)`, or of secrets and personal data where both were found."""
    noun = "secret" if NAMES.isdisjoint(counts) else "personal detail" if NAMES.issuperset(counts) else "private part"
    count = counts.total()
    return f"{count:,} {noun}{'s' * (count > 1)} ({', '.join(sorted(counts))})"
