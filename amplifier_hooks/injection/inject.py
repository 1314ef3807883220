"""Injection: a hook's text becomes a message in the agent's context, within limits, with its provenance.

The texts of one emit pass these steps: escape → size limit → right to inject at this event → number of texts → one
message for each role and target → count of its tokens in the final form → reservation in the budget → trimmed, left
out, or injected in spite of the limit → written with its provenance → recorded. The user gets a message about every
text that is cut, refused or fails.

A context needs `add_message`. It may also have a `mark` for the headings of its messages,
`append_to_last_tool_result(content, metadata)` and `add_ephemeral(role, content, metadata)` with `take_ephemeral()`;
the first two, plain or async, return True if they have taken the text. Otherwise the text gets a message of its own, or
waits here for the next model call.

One text stands under the name of its hook:

    ⟦hook lint · 5f3c9e21⟧
    app.py, line 2: missing colon

Several texts stand under a heading, each with its size as the hook wrote it; a cut text is marked:

    ⟦2 texts of hooks · tool:post · 5f3c9e21⟧

    ⟦hook lint · 29 bytes · 5f3c9e21⟧
    app.py, line 2: missing colon

    ⟦hook types · 4,096 bytes · 5f3c9e21⟧
    app.py, line 7: incompatible types
    ⟦trimmed · kept 12 of 900 tokens · 5f3c9e21⟧

The heading of a hook that speaks for an outside party names it: `⟦hook review · external ·
https://hooks.example/review · 5f3c9e21⟧`. The last part is the session's mark, which no other text can know.

Tokens are always counted in the finished message: the tokens of its parts do not add up to those of the whole.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

import msgspec

from amplifier_hooks.dispatch.run_hooks import describe
from amplifier_hooks.errors import InjectionTooLarge
from amplifier_hooks.foreign_code import within
from amplifier_hooks.injection.tokens.counter import TokenCount
from amplifier_hooks.logs import get_logger
from amplifier_hooks.provenance import Provenance, SourceTrust, tag
from amplifier_hooks.result import ContextInjection, Role, UserMessage
from amplifier_hooks.text.escape import for_model, marker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Mapping

    from amplifier_hooks.injection.budget import Budget
    from amplifier_hooks.ports import Clock, ContextManager
    from amplifier_hooks.record.recorder import Recorder


InjectionTarget = Literal["context", "tool result", "next call", "denial"]
SkipReason = Literal["size", "standing", "items", "budget"]

CONTEXT_TIMEOUT: Final = 5.0
"""Timeout, in seconds, for a context to take one message."""

INJECTIONS_KEPT: Final = 1_000
"""Number of injections that a session keeps for review; older ones are in the record."""

DIGESTS: Final = 64
"""Number of digests in a record about several texts that did not reach the model."""

WAITING: Final = 64
"""Number of texts that may wait for a model call."""

log = get_logger(__name__)


# -- a message of several texts ----------------------------------------------------------------------------------------


HOST: Final = SourceTrust()

TRIES: Final = 4
"""Number of attempts to cut a text shorter when the finished message is longer than its parts."""


class Counting(Protocol):
    """The interface of a counter: `Counter`, or a host's counter that `guard_counter` has wrapped."""

    async def count_async(self, text: str, limit: int | None = None) -> TokenCount:
        """Return the number of tokens; with a limit, counting may stop once the limit is passed."""
        ...

    async def fit_async(self, text: str, limit: int) -> tuple[int, TokenCount]:
        """Return the number of characters from the start that fit, and their count."""
        ...


class Cut(msgspec.Struct, frozen=True):
    """The kept part of a text: tokens of the text alone, without headings."""

    tokens: int
    total: int


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """One hook's text, as the model reads it."""

    item: ContextInjection
    role: Role
    text: str
    """The escaped text."""
    size: int
    """Bytes of UTF-8, as the hook wrote the text."""
    digest: str
    """SHA-256 of those bytes."""
    escaped: bool = False
    """True if characters had to be made visible."""
    cut: Cut | None = None
    source: SourceTrust = HOST
    mark: str
    """The session's mark, at the end of every heading."""

    def render(self, size: str = "") -> str:
        """Return the heading with the hook's name, the text, and a mark if the text was cut."""
        outside = (self.source.trust_level, self.source.origin) if self.source.origin else ()
        head = marker(f"hook {self.item.hook_name}", *outside, size, self.mark)
        if self.cut is None:
            return f"{head}\n{self.text}"
        line = "" if self.text.endswith("\n") else "\n"
        cut = marker("trimmed", f"kept {self.cut.tokens:,} of {self.cut.total:,} tokens", self.mark)
        return f"{head}\n{self.text}{line}{cut}"


class FittedBlocks(msgspec.Struct, frozen=True):
    """A message that fits: its text, the blocks in it, and its count."""

    blocks: tuple[Block, ...]
    text: str
    count: TokenCount


Layout: TypeAlias = Callable[[Sequence[Block]], str]


def join_blocks(blocks: Sequence[Block]) -> str:
    """Return the blocks as one message for the context."""
    if len(blocks) == 1:
        return blocks[0].render()
    heading = marker(f"{len(blocks)} texts of hooks", blocks[0].item.event, blocks[0].mark)
    return "\n\n".join([heading, *(one.render(f"{one.size:,} bytes") for one in blocks)])


def quote_blocks(blocks: Sequence[Block]) -> str:
    """Return the blocks as text inside a denial, which is the heading."""
    return "\n\n".join(one.render() for one in blocks)


async def fit_blocks(
    blocks: Sequence[Block], room: int, counter: Counting, layout: Layout, *, trim: bool
) -> FittedBlocks | None:
    """Return as many of the blocks, in order, as fit into `room`; None if nothing fits.

    With `trim` the first block that does not fit is cut, and the blocks after it are left out; otherwise only the
    blocks that do not fit are left out.
    """
    fitted: FittedBlocks | None = None
    for one in blocks:
        before = fitted.blocks if fitted else ()
        text = layout([*before, one])
        count = await counter.count_async(text, room)
        if not count.over_limit:
            fitted = FittedBlocks((*before, one), text, count)
        elif trim:
            fitted = await _cut_block(before, one, room, counter, layout) or fitted
            break
    return fitted


async def _cut_block(
    before: Sequence[Block], one: Block, room: int, counter: Counting, layout: Layout
) -> FittedBlocks | None:
    """Return the blocks before, and as much of this block as fits behind them."""
    total = (await counter.count_async(one.text)).tokens
    empty = msgspec.structs.replace(one, text="", cut=Cut(total, total))  # no marker is longer than this one
    frame = await counter.count_async(layout([*before, empty]), room)
    space = room - frame.tokens
    for _ in range(TRIES):
        if space <= 0:
            break
        end, kept = await counter.fit_async(one.text, space)
        if not one.text[:end].strip():
            break
        last = (
            msgspec.structs.replace(one, text=one.text[:end], cut=Cut(kept.tokens, total))
            if end < len(one.text)
            else one
        )
        text = layout([*before, last])
        count = await counter.count_async(text, room)
        if not count.over_limit:
            return FittedBlocks((*before, last), text, count)
        space -= max(1, count.tokens - room)
    return None


# -- the injector ------------------------------------------------------------------------------------------------------


class Injection(msgspec.Struct, frozen=True, kw_only=True):
    """One text that a hook injected: its hook, its target, and the text that the model reads."""

    provenance: Provenance
    role: Role
    text: str
    """The escaped text, cut if it was too long; without the heading."""
    size: int
    """Bytes of UTF-8, as the hook wrote the text."""
    target: InjectionTarget

    @property
    def hook(self) -> str:
        """Name of the hook that injected the text."""
        return self.provenance.hook_name

    @property
    def event(self) -> str:
        """Event that the hook was called with."""
        return self.provenance.event

    @property
    def tokens(self) -> int:
        """Number of tokens taken out of the budget."""
        return self.provenance.tokens

    @property
    def trimmed(self) -> bool:
        """True if the model reads only the beginning of the text."""
        return self.provenance.trimmed


class Injector:
    """Puts injections where one session's model reads them: into the context, the next call, or a denial."""

    def __init__(  # noqa: PLR0917  # the collaborators, the last one a text meets first
        self,
        context: ContextManager,
        recorder: Recorder,
        clock: Clock,
        tenant: str,
        budget: Budget,
        counter: Counting,
        voice: Callable[[str, str], SourceTrust],
        tell: Callable[[UserMessage], Awaitable[None]],
        mark: str,
    ) -> None:
        self._context = context
        self._recorder = recorder
        self._clock = clock
        self._tenant = tenant
        self._budget = budget
        self._counter = counter
        self._source_trust = voice
        self._tell = tell
        self._mark = mark
        self._injections: list[Injection] = []
        self._waiting: list[dict[str, Any]] = []
        self._context_has_ephemeral = False
        """True if the context has texts for the next call."""

    @property
    def injections(self) -> tuple[Injection, ...]:
        """The last 1,000 injected texts, in order, for review."""
        return tuple(self._injections)

    @property
    def tokens_this_turn(self) -> int:
        """Number of tokens that this turn's injections took out of the budget."""
        return self._budget.turn_tokens

    def check(self, injections: Iterable[ContextInjection]) -> None:
        """Raise `InjectionTooLarge` for the first text that exceeds the size limit; write nothing."""
        limit = self._budget.limits.injection_size
        for item in injections:
            if (size := len(utf8(item.content))) > limit:
                raise InjectionTooLarge(size, limit, item.hook_name)

    def new_turn(self) -> None:
        """Start a new turn with a full budget. Texts for the next model call keep waiting."""
        self._budget.reset_turn()

    def take_ephemeral(self) -> list[dict[str, Any]]:
        """Remove and return the messages that only the next model call gets."""
        taken: list[dict[str, Any]] = []
        if self._context_has_ephemeral:
            self._context_has_ephemeral = False
            context: Any = self._context
            try:
                taken.extend(context.take_ephemeral())
            except Exception as error:  # noqa: BLE001  # the context is the host's and may raise anything
                log.warning("injection_failed", error=describe(error))
        taken, self._waiting = [*taken, *self._waiting], []
        return taken

    def give_back(self, messages: Sequence[dict[str, Any]]) -> None:
        """Return messages that no model has read; they wait for the next model call."""
        self._waiting[:0] = messages

    async def deliver(self, injections: Sequence[ContextInjection]) -> None:
        """Inject the texts of one emit's hooks. Report a text that cannot be delivered to the user, and continue.

        Cancelling it leaves out the texts that are not written yet.
        """
        batches: dict[tuple[Role, InjectionTarget], list[Block]] = {}
        for one in await self._admit(injections):
            batches.setdefault((one.role, target_of(one.item)), []).append(one)
        for (_, place), blocks in batches.items():
            with suppress(Exception):  # the failure is reported already
                await self._deliver_blocks(blocks, join_blocks, place)

    async def quote(self, injections: Sequence[ContextInjection]) -> list[str]:
        """Return the texts for a denial, one after another; the context does not get them."""
        blocks = await self._admit(injections)
        if not blocks:
            return []
        with suppress(Exception):  # as above
            return [one.render() for one in await self._deliver_blocks(blocks, quote_blocks, "denial")]
        return []

    # -- the steps -----------------------------------------------------------------------------------------------------

    async def _admit(self, injections: Iterable[ContextInjection]) -> list[Block]:
        """Return the texts, escaped, that are within the limits of size and number."""
        blocks: list[Block] = []
        refused: dict[tuple[SkipReason, str], list[Block]] = {}
        limit = self._budget.limits.injection_size
        for item in injections:
            one = as_block(item, self._source_trust(item.hook_name, item.event), self._mark)
            if one.size > limit:
                refused.setdefault(("size", f"it exceeds the limit of {limit:,} bytes; shorten it"), []).append(one)
            elif not one.source.may_inject:
                refused.setdefault(("standing", forbidden_reason(one)), []).append(one)
            elif self._budget.take_items(1):
                blocks.append(escape_block(one))
            else:
                refused.setdefault(("items", self._items_limit_text()), []).append(one)
        for (why, problem), left in refused.items():
            await self._leave_out(left, problem, why)
        return blocks

    async def _deliver_blocks(self, blocks: list[Block], layout: Layout, target: InjectionTarget) -> tuple[Block, ...]:
        """Write one message, as far as it fits, to its target. Return the delivered texts.

        Raises what the context raises, after the failure is recorded and reported.
        """
        try:
            fitted, over = await self._fit_to_budget(blocks, layout)
            if fitted is None:
                await self._leave_out(blocks, self._budget_text(), "budget")
                return ()
            counts = [fitted.count]
            if len(fitted.blocks) > 1:
                counts = await asyncio.gather(*(self._counter.count_async(one.render()) for one in fitted.blocks))
            sources = [self._provenance(one, count) for one, count in zip(fitted.blocks, counts, strict=True)]
            facts = [one.facts() for one in sources]
            target = await self._write(fitted, tag(facts, fitted.count.tokens), target)
        except Exception as error:
            await self._leave_out(blocks, describe(error))
            raise
        injected = [
            Injection(provenance=provenance, role=one.role, text=one.text, size=one.size, target=target)
            for one, provenance in zip(fitted.blocks, sources, strict=True)
        ]
        self._injections.extend(injected)
        del self._injections[:-INJECTIONS_KEPT]
        await self._report(list(zip(fitted.blocks, injected, facts, strict=True)), over)
        kept = {id(one.item) for one in fitted.blocks}  # two texts may be equal
        if rest := [one for one in blocks if id(one.item) not in kept]:
            await self._leave_out(rest, self._budget_text(), "budget")
        return fitted.blocks

    async def _fit_to_budget(self, blocks: list[Block], layout: Layout) -> tuple[FittedBlocks | None, int]:
        """Return as much of the message as the budget pays for, and the tokens over the budget.

        The tokens stay spent if the message then cannot be written: a failing context may have kept it all the same.
        """
        budget, text = self._budget, layout(blocks)
        anyway = budget.limits.overflow == "warn"
        count = await self._counter.count_async(text, None if anyway else budget.room)
        # No await between the count and the reservation: another delivery could reserve the same room.
        grant = budget.reserve_rest() if count.over_limit else budget.reserve(count.tokens)
        used = 0
        try:
            if grant.full or anyway:
                fitted: FittedBlocks | None = FittedBlocks(tuple(blocks), text, count)
            else:
                trim = budget.limits.overflow == "trim"
                fitted = await fit_blocks(blocks, grant.tokens, self._counter, layout, trim=trim)
            used = fitted.count.tokens if fitted else 0
        finally:
            budget.settle(grant, used)
        return fitted, grant.over if anyway else 0

    async def _write(self, message: FittedBlocks, metadata: dict[str, Any], target: InjectionTarget) -> InjectionTarget:
        """Write the message to its target, or the nearest available one. Return the actual target."""
        context: Any = self._context
        role = message.blocks[0].role
        try:
            if target == "tool result" and await try_context_call(
                context, "append_to_last_tool_result", message.text, metadata
            ):
                return target
            if target == "next call":
                await self._keep(role, message.text, metadata)
            elif target != "denial":
                await await_answer(context.add_message(role, message.text, metadata))
                return "context"
        except asyncio.CancelledError:
            await self._note("injection.failed", message.blocks, {"problem": "cancelled while the context took it"})
            raise
        return target

    async def _keep(self, role: Role, text: str, metadata: dict[str, Any]) -> None:
        """Keep a message for the next model call only: in the context if it has `add_ephemeral`, otherwise here."""
        if len(self._waiting) >= WAITING:
            raise RuntimeError(f"{WAITING} messages wait for a model call already, and no model call takes them")
        if await try_context_call(self._context, "add_ephemeral", role, text, metadata):
            self._context_has_ephemeral = True
        else:
            self._waiting.append({"role": role, "content": text, "metadata": metadata})

    # -- reporting -----------------------------------------------------------------------------------------------------

    def _provenance(self, one: Block, count: TokenCount) -> Provenance:
        return Provenance(
            hook_name=one.item.hook_name,
            event=one.item.event,
            timestamp=self._clock.now().isoformat(),
            tenant=self._tenant,
            digest=one.digest,
            tokens=count.tokens,
            counter=count.method,
            trimmed=one.cut is not None,
            standing=one.source.trust_level,
            origin=one.source.origin,
        )

    async def _report(self, injections: list[tuple[Block, Injection, dict[str, Any]]], over: int) -> None:
        """Record the injected texts; report cut texts, and texts over the budget, to the user."""
        for one, injected, source in injections:
            facts = {
                **source,
                "role": one.role,
                "asked_role": one.item.role,
                "size": one.size,
                "escaped": one.escaped,
                "within": injected.target,
                "over": over,
            }
            await self._recorder.note("injection", facts)
            log.info(
                "hook_context_injection",
                hook=injected.hook,
                event=injected.event,
                size=one.size,
                role=one.role,
                tokens=injected.tokens,
            )
            if one.cut:
                kept, total = one.cut.tokens, one.cut.total
                await self._note("injection.trimmed", [one], {"kept": kept, "total": total})
                said = f"was cut: the model reads {kept:,} of its {total:,} tokens, for {self._budget_text()}"
                await self._tell_user([one], said)
        if over:
            said = f"went in all the same, {over:,} tokens over: {self._budget_text()}"
            await self._tell_user([one for one, *_ in injections], said)

    async def _leave_out(self, blocks: Sequence[Block], problem: str, why: SkipReason | None = None) -> None:
        """Record and report texts that are left out: because of the session's limits, or without `why` of an error."""
        kind, facts = ("injection.refused", {"why": why}) if why else ("injection.failed", {})
        await self._note(kind, blocks, {**facts, "problem": problem})
        await self._tell_user(blocks, f"did not reach the model: {problem}")

    async def _note(self, kind: str, blocks: Sequence[Block], facts: Mapping[str, Any]) -> None:
        """Write one record and one log line for all these texts, which have one event."""
        who = {
            "hooks": hook_names(blocks),
            "event": blocks[0].item.event,
            "count": len(blocks),
            "size": sum(one.size for one in blocks),
        }
        log.warning(kind.replace(".", "_"), **who, **facts)
        digests = [one.digest for one in blocks[:DIGESTS]]
        await self._recorder.note(kind, {**who, "digests": digests, **facts})

    async def _tell_user(self, blocks: Sequence[Block], what: str) -> None:
        """Send the user one message about all these texts."""
        hooks = hook_names(blocks)
        names = ", ".join(map(repr, hooks))
        text = f"a text of hook {names} {what}" if len(blocks) == 1 else f"{len(blocks)} texts of {names}: each {what}"
        with suppress(Exception):  # a failing screen must not decide about injections; the record has it
            await self._tell(UserMessage(text=text, level="warning", hook_name=hooks[0], source="session"))

    def _items_limit_text(self) -> str:
        return f"a turn takes {self._budget.limits.items_per_turn:,} texts"

    def _budget_text(self) -> str:
        limits = self._budget.limits
        allowed = [
            f"{limit:,} tokens a {span}"
            for limit, span in ((limits.per_turn, "turn"), (limits.per_session, "session"))
            if limit is not None
        ]
        return f"the budget is {' and '.join(allowed)}"


def as_block(item: ContextInjection, source: SourceTrust, mark: str) -> Block:
    """Return a text as a block, empty until `escape_block` escapes it."""
    data = utf8(item.content)
    role = "user" if item.role == "system" and not source.instructs else item.role
    digest = hashlib.sha256(data).hexdigest()
    return Block(item=item, role=role, text="", size=len(data), digest=digest, source=source, mark=mark)


def escape_block(one: Block) -> Block:
    """Return the block with its text, escaped for the model."""
    text = for_model(one.item.content)
    return msgspec.structs.replace(one, text=text, escaped=text != one.item.content)


def hook_names(blocks: Sequence[Block]) -> list[str]:
    """Return the names of the hooks of these texts, each once."""
    return list(dict.fromkeys(one.item.hook_name for one in blocks))


def forbidden_reason(one: Block) -> str:
    """Return the reason why a text of this hook may not come in, whatever its size."""
    return f"no text of a {one.source.trust_level} hook comes in at {one.item.event}"


def utf8(text: str) -> bytes:
    """Return the text's bytes in UTF-8, with bytes for lone surrogates, too."""
    return text.encode("utf-8", "surrogatepass")


def target_of(item: ContextInjection) -> InjectionTarget:
    """Return the target that the hook wants."""
    if item.ephemeral:
        return "next call"
    return "tool result" if item.append_to_last_tool_result else "context"


async def try_context_call(context: Any, name: str, *arguments: Any) -> bool:
    """Call an optional method of the context. Return True if the method exists and returned True."""
    method = getattr(context, name, None)
    return callable(method) and await await_answer(method(*arguments)) is True


async def await_answer(answer: Any) -> Any:
    """Return the answer of a plain or an async method, within the timeout.

    Raises `TooLate`.
    """
    return await within(CONTEXT_TIMEOUT, answer) if inspect.isawaitable(answer) else answer
