"""One model call: its messages, its denials, and answers that come in pieces."""
# ruff: noqa: T201  # some hooks here print

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks import HookAbortError, HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.errors import ModelNotTaken
from amplifier_hooks.injection.budget import InjectionLimits
from amplifier_hooks.injection.memory_context import InMemoryContext
from amplifier_hooks.testing import CollectingAudit, CollectingDisplay, RecordingContext

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from amplifier_hooks.session.model_call import ModelStream

HELLO = [{"role": "user", "content": "hello"}]


def never(*_args: Any) -> Any:
    """Fail: this model or tool must not be called."""
    pytest.fail("it was called")


class Provider:
    """A model that answers in pieces, and notes its progress and its end."""

    def __init__(self, *pieces: str, error: BaseException | None = None, hangs: bool = False) -> None:
        self.pieces = pieces
        self.error = error
        self.hangs = hangs
        self.given: list[Any] = []
        self.sent = 0
        self.waiting = asyncio.Event()
        self.closed = asyncio.Event()

    async def __call__(self, messages: list[Any]) -> AsyncIterator[str]:
        """Answer."""
        self.given = messages
        try:
            for piece in self.pieces:
                self.sent += 1
                yield piece
            if self.error is not None:
                raise self.error
            if self.hangs:
                self.waiting.set()
                await asyncio.Event().wait()
        finally:
            self.closed.set()


def whole(pieces: list[str]) -> str:
    """Return the whole answer."""
    return "".join(pieces)


async def all_of(stream: ModelStream) -> list[Any]:
    """Return every piece of a stream."""
    return [piece async for piece in stream]


# -- messages ----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("COO-3")
async def test_messages() -> None:
    """A model reads the messages it is given, or else the context's, sync or async."""
    session = SessionCoordinator()
    await session.emit("host:event", {})
    session.context.add_message("user", "from the context")

    async def model(messages: list[Any]) -> list[str]:
        return [message["content"] for message in messages]

    assert (await session.call_model(model, HELLO)).value == ["hello"]
    assert (await session.call_model(model)).value == ["from the context"]
    assert (await session.call_model(len, HELLO)).value == 1


@pytest.mark.rule("EVT-8")
async def test_messages_are_replaced() -> None:
    """The model reads the messages as hooks at context:assembled and llm:pre replaced them."""
    registry = HookRegistry()
    registry.on(
        "context:assembled", lambda event, data: HookResult.modify({"messages": [*data["messages"], "assembled"]})
    )
    registry.on("llm:pre", lambda event, data: HookResult.modify({"messages": (*data["messages"], "pre")}))
    session = SessionCoordinator(hooks=registry)
    assert (await session.call_model(lambda messages: messages, ["x"])).value == ["x", "assembled", "pre"]


@pytest.mark.rule("EVT-8")
async def test_messages_changed_in_place() -> None:
    """A hook or observer that changes the list of messages in place changes nothing, also not the caller's."""
    registry = HookRegistry()
    registry.on("context:assembled", lambda event, data: data["messages"].clear())
    registry.observe("llm:pre", lambda event, data, outcome: data["messages"].append("!"))
    mine = ["x"]
    session = SessionCoordinator(hooks=registry)
    assert (await session.call_model(list, mine)).value == ["x"]
    assert mine == ["x"]


@pytest.mark.rule("EVT-8")
@pytest.mark.parametrize("event", ["context:assembled", "llm:pre"])
@pytest.mark.parametrize("odd", [None, "text", 7])
async def test_messages_are_replaced_by_nonsense(event: str, odd: Any) -> None:
    """A hook that replaces the messages by a value other than a list stops the call."""
    registry = HookRegistry()
    registry.on(event, lambda event, data: HookResult.modify({"messages": odd}))
    outcome = await SessionCoordinator(hooks=registry).call_model(never, HELLO)
    assert outcome.denied
    assert "replaced the messages by something of type" in (outcome.reason or "")


@pytest.mark.rule("EVT-8")
async def test_model_name() -> None:
    """The model's name is the call's, or the session's, and not for hooks to change."""
    registry = HookRegistry()
    told: list[Any] = []
    registry.on("llm:pre", lambda event, data: told.append(data["model"]))
    session = SessionCoordinator(hooks=registry, model="gpt-4o")
    await session.call_model(lambda _: 1)
    await session.call_model(lambda _: 1, model="o3")
    assert told == ["gpt-4o", "o3"]


@pytest.mark.rule("INJ-1")
@pytest.mark.parametrize("event", ["context:assembled", "llm:pre"])
async def test_injection_into_this_call(event: str) -> None:
    """An injection while the call is assembled is read by this call, once."""
    registry = HookRegistry()
    registry.on(event, lambda event, data: HookResult.inject("be brief"), name="adviser")
    session = SessionCoordinator(hooks=registry)
    session.context.add_message("user", "hello")
    read = (await session.call_model(lambda messages: [message["content"] for message in messages])).value
    assert [text.splitlines()[-1] for text in read] == ["hello", "be brief"]


@pytest.mark.rule("INJ-7")
@pytest.mark.parametrize("event", ["host:event", "context:assembled", "llm:pre"])
@pytest.mark.parametrize("messages", [HELLO, None])
async def test_ephemeral_text(event: str, messages: Any) -> None:
    """A text for the next call only is read by that call, also when it comes while the call is assembled."""
    registry, said = HookRegistry(), [HookResult.inject("psst", ephemeral=True)]
    registry.on(event, lambda event, data: said.pop() if said else None)
    session = SessionCoordinator(hooks=registry)
    await session.emit("host:event", {})
    first = (await session.call_model(list, messages)).value
    assert ["psst" in message["content"] for message in first] == [False] * len(messages or ()) + [True]
    assert (await session.call_model(list, messages)).value == (messages or [])


@pytest.mark.rule("INJ-7", "RES-7")
@pytest.mark.parametrize("own_context", [True, False])
@pytest.mark.parametrize("end", ["context:assembled", "llm:pre", "around", "provider", "cancelled"])
async def test_ephemeral_text_nobody_has_read(end: str, own_context: bool) -> None:
    """A text for the next call waits while no model has answered it: denied, stopped, failed or cancelled."""
    registry, denying = HookRegistry(), [True]
    registry.on("host:event", lambda event, data: HookResult.inject("psst", ephemeral=True))
    if end in ("context:assembled", "llm:pre"):
        registry.gate(end, lambda event, data: HookResult.deny("later") if denying else None)

    @registry.around("model")
    async def layer(context: Any, call_next: Any) -> None:
        if end == "around" and denying:
            raise HookAbortError("later")
        await call_next()

    session = SessionCoordinator(hooks=registry, context=InMemoryContext() if own_context else RecordingContext())
    await session.emit("host:event", {})

    async def provider(messages: list[Any]) -> list[Any]:
        if denying and end == "cancelled":
            task.cancel()
            await asyncio.sleep(0)
        if denying:
            raise ConnectionError
        return messages

    task = asyncio.ensure_future(session.call_model(provider))
    await asyncio.wait({task})
    assert task.cancelled() == (end == "cancelled")
    denying.clear()
    assert [message["content"] for message in (await session.call_model(provider)).value] == [
        f"⟦hook <lambda> · {session.mark}⟧\npsst"
    ]
    assert (await session.call_model(provider)).value == []


@pytest.mark.rule("INJ-7")
async def test_ephemeral_texts_that_nobody_ever_reads() -> None:
    """The texts that wait for a call are bounded while all calls are denied; the user hears of the rest."""
    registry, display = HookRegistry(), CollectingDisplay()
    registry.on("host:event", lambda event, data: HookResult.inject("psst", ephemeral=True))
    registry.gate("llm:pre", lambda event, data: HookResult.deny("never"))
    session = SessionCoordinator(
        hooks=registry, display=display, budget=InjectionLimits(per_turn=None, items_per_turn=None)
    )
    for _ in range(200):
        await session.emit("host:event", {})
        await session.call_model(never)
    told = [text for text, _, _ in display.messages if "did not reach the model" in text]
    assert len(told) == 200 - 64
    assert "64 messages wait for a model call already" in told[0]


@pytest.mark.rule("DIS-2")
async def test_what_a_provider_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """A captured hook that calls a model has not printed what the provider's client prints."""
    registry = HookRegistry()
    session = SessionCoordinator(hooks=registry)

    @registry.on("host:event", capture=True)
    async def calls(event: str, data: Any) -> HookResult:
        await session.call_model(lambda _: print("the provider's"), [])
        print("the hook's")
        return HookResult.proceed(suppress_output=True)

    await session.emit("host:event", {})
    assert capsys.readouterr().out == "the provider's\n"


@pytest.mark.rule("INJ-1")
async def test_injection_beside_messages_of_the_host() -> None:
    """Messages that the host brings along are its own: an injection goes into the context, and not among them."""
    registry = HookRegistry()
    registry.on("llm:pre", lambda event, data: HookResult.inject("be brief"))
    session = SessionCoordinator(hooks=registry)
    assert (await session.call_model(list, HELLO)).value == HELLO
    assert len(session.context.get_messages()) == 1


@pytest.mark.rule("EVT-8")
async def test_response_is_replaced() -> None:
    """The response as a hook at llm:post replaced it comes back, and is searched for tool calls."""
    registry = HookRegistry()
    told: list[Any] = []
    registry.on("llm:post", lambda event, data: HookResult.modify({"response": {"tools": ["Read"]}}))
    registry.observe("decision:tool_resolution", lambda event, data, outcome: told.append(data["tool_calls"]))
    outcome = await SessionCoordinator(hooks=registry).call_model(
        lambda _: {"tools": ["rm"]}, HELLO, tool_calls=lambda response: response["tools"]
    )
    assert outcome.value == {"tools": ["Read"]}
    assert told == [["Read"]]


# -- denials -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("COO-3", "RES-7")
@pytest.mark.parametrize("event", ["context:assembled", "llm:pre"])
async def test_denied(event: str) -> None:
    """A model call that is denied does not happen; the denial has hook and reason, and quotes the injections."""
    registry, audit = HookRegistry(), CollectingAudit()
    registry.gate(event, lambda event, data: HookResult.deny("secrets", context_injection="mask them"), name="guard")
    session = SessionCoordinator(hooks=registry, audit=audit)
    outcome = await session.call_model(never, HELLO)
    assert (outcome.ok, outcome.denied, outcome.by, outcome.answered) == (False, True, "guard", False)
    assert (outcome.reason or "").startswith("Operation denied by guard: secrets\n\n")
    assert (outcome.reason or "").endswith("mask them")
    assert session.context.get_messages() == []
    assert audit.facts("model.denied")[0]["by"] == "guard"
    assert (await session.call_tool("Read", {}, lambda _: 1)).ok


@pytest.mark.rule("RES-6", "COO-3")
async def test_denied_response() -> None:
    """A denied response does not come back, and its tool calls do not run until the model has answered anew."""
    registry = HookRegistry()
    registry.gate("llm:post", lambda event, data: HookResult.deny("leaks") if data["response"] == "bad" else None)
    told: list[Any] = []
    registry.observe("decision:tool_resolution", lambda event, data, outcome: told.append(event))
    session = SessionCoordinator(hooks=registry)

    def find(response: Any) -> list[str]:
        return ["Read"]

    def broken(messages: Any) -> None:
        raise ConnectionError

    async with session.turn("go"):
        outcome = await session.call_model(lambda _: "bad", tool_calls=find)
        assert (outcome.denied, outcome.answered, outcome.value) == (True, True, None)
        assert told == []
        for _ in range(2):
            tool = await session.call_tool("Read", {}, never)
            assert "the model's response was denied by" in (tool.reason or "")
            assert "leaks" in (tool.reason or "")
            assert (await session.call_tool("Read", {}, never, call_id="any")).denied  # the answer named no calls
            assert (await session.call_model(broken)).error is not None  # no answer: it allows nothing
        assert (await session.call_model(lambda _: "good", tool_calls=find)).ok
        assert (await session.call_tool("Read", {}, lambda _: 1)).ok
        await session.call_model(lambda _: "bad")
    async with session.turn("again"):
        assert (await session.call_tool("Read", {}, never)).denied
        await session.call_model(lambda _: "good")
        assert (await session.call_tool("Read", {}, lambda _: 1)).ok


def denying(**options: Any) -> SessionCoordinator:
    """Return a session whose hooks deny an answer that says it is bad."""
    registry = HookRegistry()
    registry.gate("llm:post", lambda event, data: HookResult.deny("leaks") if data["response"][0] == "bad" else None)
    return SessionCoordinator(hooks=registry, **options)


@pytest.mark.rule("RES-6", "COO-3")
async def test_denied_response_beside_another() -> None:
    """An answer to a model call that began before the denial does not let the calls of a denied answer run."""
    session, begun, go_on = denying(), asyncio.Event(), asyncio.Event()

    async def slow(_messages: Any) -> list[str]:
        begun.set()
        await go_on.wait()
        return ["good"]

    beside = asyncio.create_task(session.call_model(slow))
    await begun.wait()
    assert (await session.call_model(lambda _: ["bad"])).denied
    go_on.set()
    assert (await beside).ok
    for one in (session, session.child("sub"), session.child("sub").child("sub")):
        assert (await one.call_tool("Read", {}, never)).denied
    assert (await session.call_model(lambda _: ["good"])).ok
    assert (await session.child("sub").call_tool("Read", {}, lambda _: 1)).ok


@pytest.mark.rule("RES-6", "COO-3")
@pytest.mark.parametrize("name", ["id", "call_id", "tool_call_id"])
async def test_denied_response_by_call_ids(name: str) -> None:
    """Where the host names the calls of an answer, a denial is for them alone, and stays until one is called again."""
    session = denying()

    def calls(answer: list[str]) -> list[Any]:
        return [{name: one} if one != "b" else SimpleNamespace(**{name: one}) for one in answer[1:]]

    assert (await session.call_model(lambda _: ["bad", "a", "b"], tool_calls=calls)).denied
    sub = session.child("sub")
    for one in (session, sub):
        assert (await one.call_tool("Read", {}, lambda _: 1, call_id="c")).ok
        assert (await one.call_tool("Read", {}, never)).denied  # it may be one of the answer
        for call in ("a", "b"):
            assert "leaks" in ((await one.call_tool("Read", {}, never, call_id=call)).reason or "")
    assert (await session.call_model(lambda _: ["good", "b"], tool_calls=calls)).ok
    assert (await session.call_tool("Read", {}, never, call_id="a")).denied
    for chosen in ("b", "c", None):
        assert (await session.call_tool("Read", {}, lambda _: 1, call_id=chosen)).ok


# -- around it ---------------------------------------------------------------------------------------------------------


@pytest.mark.rule("REG-6", "REG-12")
@pytest.mark.parametrize("streamed", [False, True])
async def test_around(streamed: bool) -> None:
    """An around hook may replace the messages before the call and the answer after it, also for a stream."""
    registry, provider = HookRegistry(), Provider("a", "b")

    @registry.around("model")
    async def mask(context: Any, call_next: Callable[[], Awaitable[Any]]) -> str:
        assert (context.model, context.messages) == ("m", ["secret"])
        context.messages = ["***"]
        return str(await call_next()).upper()

    session = SessionCoordinator(hooks=registry, model="m")
    if streamed:
        stream = session.stream_model(provider, ["secret"], join=whole)
        assert await all_of(stream) == ["a", "b"]
        assert provider.given == ["***"]
        outcome = stream.outcome
    else:
        outcome = await session.call_model(lambda messages: f"read {messages}", ["secret"])
    assert outcome is not None
    assert outcome.value == ("AB" if streamed else "READ ['***']")


@pytest.mark.rule("REG-6")
@pytest.mark.parametrize("streamed", [False, True])
async def test_around_aborts(streamed: bool) -> None:
    """An around hook that aborts before the call makes it a denial, and the model is not called."""
    registry = HookRegistry()

    @registry.around("model", name="quota")
    async def quota(context: Any, call_next: Callable[[], Awaitable[Any]]) -> None:
        raise HookAbortError("used up")

    session = SessionCoordinator(hooks=registry)
    stream = session.stream_model(never, HELLO)
    outcome = (await all_of(stream), stream.outcome)[1] if streamed else await session.call_model(never, HELLO)
    assert outcome is not None
    assert (outcome.denied, outcome.answered) == (True, False)
    assert outcome.reason == "Operation denied by quota: used up"


@pytest.mark.rule("REG-6", "RES-6")
async def test_around_withholds() -> None:
    """An around hook that aborts after the call withholds the answer, and its tool calls do not run."""
    registry = HookRegistry()

    @registry.around("model", name="filter")
    async def screen(context: Any, call_next: Callable[[], Awaitable[Any]]) -> None:
        await call_next()
        raise HookAbortError("leaks")

    session = SessionCoordinator(hooks=registry)
    outcome = await session.call_model(lambda _: "secret", HELLO)
    assert (outcome.denied, outcome.answered, outcome.value) == (True, True, None)
    assert "leaks" in ((await session.call_tool("Read", {}, never)).reason or "")


@pytest.mark.rule("REG-6")
async def test_around_skips() -> None:
    """An around hook may answer in the model's place."""
    registry = HookRegistry()

    @registry.around("model")
    async def cache(context: Any, call_next: Callable[[], Awaitable[Any]]) -> str:
        return "cached"

    session = SessionCoordinator(hooks=registry)
    assert (await session.call_model(never, HELLO)).value == "cached"
    stream = session.stream_model(never, HELLO)
    assert await all_of(stream) == []
    assert stream.outcome is not None
    assert stream.outcome.value == "cached"


# -- errors and cancellation -------------------------------------------------------------------------------------------


@pytest.mark.rule("COO-3")
@pytest.mark.parametrize("error", [ConnectionError("503"), asyncio.CancelledError(), HookAbortError("its own")])
@pytest.mark.parametrize("streamed", [False, True])
async def test_provider_raises(error: BaseException, streamed: bool) -> None:
    """The provider's own exception comes back in .error, is on record, and cancels no task."""
    audit = CollectingAudit()
    session = SessionCoordinator(audit=audit)

    async def model(messages: Any) -> None:
        raise error

    if streamed:
        stream = session.stream_model(Provider("a", error=error), HELLO)
        assert await all_of(stream) == ["a"]
        outcome = stream.outcome
    else:
        outcome = await session.call_model(model, HELLO)
    assert outcome is not None
    assert (outcome.ok, outcome.denied, outcome.error) == (False, False, error)
    assert audit.facts("model.failed")[0]["error"]["type"] == type(error).__name__


@pytest.mark.rule("COO-3")
async def test_cancelled() -> None:
    """Cancelling a model call cancels the provider's call, and does not count as its failure."""
    calling, told = asyncio.Event(), []
    registry = HookRegistry()
    registry.observe("error:provider", lambda event, data, outcome: told.append(event))

    async def model(messages: Any) -> None:
        calling.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(SessionCoordinator(hooks=registry).call_model(model, HELLO))
    await calling.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert told == []


@pytest.mark.rule("COO-9")
async def test_session_is_cancelled_meanwhile() -> None:
    """A model call under way goes on when its session is cancelled; its tool calls are denied."""
    session = SessionCoordinator()

    async def model(messages: Any) -> str:
        await session.cancel("enough")
        return "done"

    assert (await session.call_model(model, HELLO)).value == "done"
    assert (await session.call_tool("Read", {}, never)).denied
    assert (await session.call_model(never, HELLO)).reason == "Operation denied by session: enough"


# -- in pieces ---------------------------------------------------------------------------------------------------------


@pytest.mark.rule("COO-3")
async def test_stream() -> None:
    """Pieces pass one by one as the host asks for them, and llm:post sees the whole answer."""
    registry, provider = HookRegistry(), Provider("hel", "lo")
    told: list[Any] = []
    registry.on("llm:post", lambda event, data: told.append(data["response"]))
    stream = SessionCoordinator(hooks=registry).stream_model(provider, HELLO, join=whole)
    before = stream.outcome
    sent = [(piece, provider.sent, list(told)) async for piece in stream]
    assert sent == [("hel", 1, []), ("lo", 2, [])]
    assert told == ["hello"]
    assert before is None
    assert stream.outcome is not None
    assert stream.outcome.value == "hello"
    assert provider.given == HELLO
    assert provider.closed.is_set()


@pytest.mark.rule("COO-3")
async def test_stream_that_has_to_be_awaited() -> None:
    """The provider's call may itself be awaited for its stream; without `join` the answer is the list of pieces."""

    async def open_stream(messages: list[Any]) -> AsyncIterator[str]:
        await asyncio.sleep(0)
        return Provider("a", "b")(messages)

    stream = SessionCoordinator().stream_model(open_stream, HELLO)
    assert await all_of(stream) == ["a", "b"]
    assert stream.outcome is not None
    assert stream.outcome.value == ["a", "b"]


@pytest.mark.rule("COO-3")
async def test_stream_without_a_generator() -> None:
    """A stream may be any async iterable; only what has something to close is closed."""

    class Pieces:
        def __init__(self) -> None:
            self.left = ["a", "b"]

        def __aiter__(self) -> Pieces:
            return self

        async def __anext__(self) -> str:
            if not self.left:
                raise StopAsyncIteration
            return self.left.pop(0)

    assert await all_of(SessionCoordinator().stream_model(lambda messages: Pieces(), HELLO)) == ["a", "b"]


@pytest.mark.rule("COO-3", "RES-6")
async def test_stream_denied_at_the_end() -> None:
    """Pieces stay shown; a denial of the whole answer keeps its tool calls from running."""
    registry = HookRegistry()
    registry.gate("llm:post", lambda event, data: HookResult.deny("leaks"), name="guard")
    session = SessionCoordinator(hooks=registry)
    stream = session.stream_model(Provider("a"), HELLO)
    assert await all_of(stream) == ["a"]
    assert stream.outcome is not None
    assert (stream.outcome.denied, stream.outcome.answered) == (True, True)
    assert (await session.call_tool("Read", {}, never)).denied


@pytest.mark.rule("COO-3")
async def test_stream_left_early() -> None:
    """Leaving the loop ends the provider's stream; no answer is decided on."""
    registry, provider = HookRegistry(), Provider("a", "b", "c")
    told: list[Any] = []
    registry.on("llm:post", lambda event, data: told.append(event))
    stream = SessionCoordinator(hooks=registry).stream_model(provider, HELLO)
    async for _ in stream:
        break
    await provider.closed.wait()
    assert provider.sent == 1
    assert (stream.outcome, told) == (None, [])


@pytest.mark.rule("COO-3")
async def test_stream_left_by_an_error() -> None:
    """An error in the host's own loop ends the provider's stream, and stays the host's."""
    provider = Provider("a", "b")
    stream = SessionCoordinator().stream_model(provider, HELLO)

    async def host() -> None:
        async for _ in stream:
            raise LookupError

    with pytest.raises(LookupError):
        await host()
    await provider.closed.wait()
    assert stream.outcome is None


@pytest.mark.rule("COO-3")
async def test_stream_cancelled() -> None:
    """Cancelling the host's task while it waits for a piece closes the provider's stream before it goes on."""
    provider = Provider("a", hangs=True)
    task = asyncio.create_task(all_of(SessionCoordinator().stream_model(provider, HELLO)))
    await provider.waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert provider.closed.is_set()


@pytest.mark.rule("COO-3")
async def test_stream_twice() -> None:
    """A stream is one model call; iterating over it again is the caller's error."""
    stream = SessionCoordinator().stream_model(Provider("a"), HELLO)
    await all_of(stream)
    with pytest.raises(RuntimeError, match="happens once"):
        await all_of(stream)


@pytest.mark.rule("COO-3")
async def test_stream_that_cannot_be_joined() -> None:
    """An answer that cannot be put together is a failed call, not half an answer."""

    def join(pieces: list[str]) -> str:
        raise ValueError("half a character")

    stream = SessionCoordinator().stream_model(Provider("a"), HELLO, join=join)
    assert await all_of(stream) == ["a"]
    assert stream.outcome is not None
    assert isinstance(stream.outcome.error, ValueError)


@pytest.mark.rule("COO-3")
async def test_looking_for_tool_calls_fails() -> None:
    """An error of the host's own `tool_calls` is raised to the host, also from a stream."""

    def find(response: Any) -> list[str]:
        raise KeyError("tools")

    session = SessionCoordinator()
    with pytest.raises(KeyError):
        await session.call_model(lambda _: 1, HELLO, tool_calls=find)
    with pytest.raises(KeyError):
        await all_of(session.stream_model(Provider("a"), HELLO, tool_calls=find))


# -- another model -----------------------------------------------------------------------------------------------------


def choosing(model: object, **more: Any) -> tuple[HookRegistry, list[Any]]:
    """Return a registry with a hook that chooses a model, and the models that hooks see after the call."""
    registry, seen = HookRegistry(), list[Any]()
    registry.on("llm:pre", lambda event, data: HookResult.modify({"model": model, **more}), name="cost")
    registry.observe("llm:post", lambda event, data, outcome: seen.append(data["model"]))
    return registry, seen


@pytest.mark.rule("COO-3", "EVT-8")
async def test_a_hook_chooses_the_model() -> None:
    """A callable with a parameter `model` is called with the model that hooks chose, whole or in pieces."""
    registry, seen = choosing("cheap")

    async def pieces(messages: list[Any], *, model: str) -> AsyncIterator[str]:
        yield model

    async with SessionCoordinator(registry, model="dear") as session:
        whole_answer = await session.call_model(lambda messages, model: f"by {model}", HELLO)
        stream = session.stream_model(pieces, HELLO, join=whole)
        assert [piece async for piece in stream] == ["cheap"]
    assert (whole_answer.value, seen) == ("by cheap", ["cheap", "cheap"])


@pytest.mark.rule("COO-3")
async def test_the_known_model_is_passed() -> None:
    """Without a choice a callable with a parameter `model` gets the session's model, or its own default for none."""

    def call(messages: list[Any], model: str = "own") -> str:
        return model

    for given, name in (("dear", "dear"), (None, "own")):
        async with SessionCoordinator(HookRegistry(), model=given) as session:
            assert (await session.call_model(call, HELLO)).value == name
            assert (await session.call_model(partial(call, model="bound"), HELLO)).value == (given or "bound")


@pytest.mark.rule("COO-3")
@pytest.mark.parametrize(
    "call", [never, lambda messages, **other: never(), lambda model, /, **other: never()], ids=["any", "other", "place"]
)
async def test_a_choice_that_is_not_taken(call: Any) -> None:
    """A choice for a callable without a parameter `model` denies the call, with a named error, before it is sent."""
    registry, seen = choosing("cheap")
    audit = CollectingAudit()
    async with SessionCoordinator(registry, model="dear", audit=audit) as session:
        outcome = await session.call_model(call, HELLO)
        stream = session.stream_model(call, HELLO)
        assert [piece async for piece in stream] == []
    assert (outcome.ok, outcome.denied, outcome.by, seen) == (False, True, "cost", [])
    assert isinstance(outcome.error, ModelNotTaken)
    assert (outcome.error.chosen, outcome.error.model) == ("cheap", "dear")
    assert "give its callable a parameter `model`" in (outcome.reason or "")
    assert stream.outcome is not None
    assert isinstance(stream.outcome.error, ModelNotTaken)
    assert [facts["by"] for facts in audit.facts("model.denied")] == ["cost", "cost"]


@pytest.mark.rule("COO-3")
@pytest.mark.parametrize("model", ["", None, 5, ["cheap"]])
async def test_a_choice_without_a_name(model: Any) -> None:
    """A choice that is no name denies the call."""
    registry, _ = choosing(model)
    async with SessionCoordinator(registry, model="dear") as session:
        outcome = await session.call_model(lambda messages, model: never(), HELLO)
    assert (outcome.denied, outcome.by) == (True, "cost")
    assert "by no name" in (outcome.reason or "")


@pytest.mark.rule("COO-3")
async def test_gates_look_at_the_model_that_is_called() -> None:
    """A gate that ran before the choice looks at the chosen model, too, and can deny it."""
    registry, _ = choosing("forbidden")

    @registry.gate("llm:pre", priority=-1)
    async def models(event: str, data: Any) -> HookResult:
        return HookResult.deny("not this one") if data["model"] == "forbidden" else HookResult.proceed()

    async with SessionCoordinator(registry, model="dear") as session:
        outcome = await session.call_model(lambda messages, model: never(), HELLO)
    assert (outcome.by, outcome.denied) == ("models", True)


@pytest.mark.rule("EVT-8")
async def test_notes_reach_the_event_after_the_model() -> None:
    """Fields that hooks set before a model call are there after it, except for the call's own."""
    registry, _ = choosing("dear", started=5, usage={"forged": 1}, duration_ms=-1.0)
    after: list[Any] = []
    registry.observe("llm:post", lambda event, data, outcome: after.append(dict(data)))
    async with SessionCoordinator(registry, model="dear") as session:
        await session.call_model(lambda messages: "hi", HELLO)
    assert (after[0]["started"], "usage" in after[0]) == (5, False)
    assert after[0]["duration_ms"] >= 0
