"""Models behind an address, in both formats, and the choice between them."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from amplifier_hooks.cli.chat.chat_tools import Workplace
from amplifier_hooks.cli.chat.choose_model import ScriptedModel, model_from
from amplifier_hooks.cli.chat.remote_model import AnthropicWire, Draft, ModelFailed, OpenAIWire, ToolUse, join_pieces
from tests.scripted_models import Say, Use, listening, serving

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from amplifier_hooks.cli.chat.remote_model import ChatAnswer, ChatModel

BASES = {"anthropic": "ANTHROPIC_BASE_URL", "openai": "OPENAI_BASE_URL"}
KEYS = {"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY"}
FIELDS = [
    "arguments", "choices", "content", "content_block", "delta", "error", "finish_reason", "function", "id", "index",
    "name", "partial_json", "text", "tool_calls", "type",
]  # fmt: skip
HISTORY: list[dict[str, Any]] = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": "write"},
    {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "name": "Write", "input": {"file_path": "a"}}]},
    {"role": "tool", "content": "wrote", "tool_call_id": "c1"},
]


def at(provider: str, address: str) -> ChatModel:
    """A model of this provider at this address."""
    base = f"{address}/v1" if provider == "openai" else address
    return model_from({BASES[provider]: base, KEYS[provider]: "sk-test"}, provider, "m-1")


async def asked(model: ChatModel, folder: Path) -> ChatAnswer:
    """Return the model's whole answer."""
    return join_pieces([piece async for piece in model.stream(HISTORY, Workplace(folder).tools())])


@pytest.mark.rule("CLI-6")
@pytest.mark.parametrize("provider", ["anthropic", "openai"])
async def test_speaks_both_formats(provider: str, tmp_path: Path) -> None:
    """Text and tool calls come whole out of their pieces, and the model is sent the history and the tools."""
    async with serving(Use("Read", {"file_path": "ä.txt"}), Say("all done")) as server:
        model = at(provider, server.url)
        first, second = await asked(model, tmp_path), await asked(model, tmp_path)
        sent = server.requests[0]
    assert [(use.name, use.input) for use in first.uses] == [("Read", {"file_path": "ä.txt"})]
    assert first.uses[0].id
    assert (second.text, second.uses) == ("all done", ())
    assert (sent["model"], sent["stream"], len(sent["tools"])) == ("m-1", True, 3)
    assert "wrote" in json.dumps(sent["messages"])


BAD = [
    (401, "application/json", b'{"error": {"message": "bad key"}}', "status 401 .*bad key; check the key in"),
    (404, "text/plain", b"no such model", "check --model and"),
    (500, "text/html", b"<h1>\x1b[31moops", r"oops"),
    (200, "text/event-stream", b"", "ended in the middle"),
    (200, "text/event-stream", b"data: {]\n\n", "no format that is known"),
    (200, "text/event-stream", b"data: []\n\n", "no format that is known"),
    (200, "application/json", b"{}", "cannot be reached"),
    (200, "text/event-stream", b'data: {"type": "error", "error": "overloaded"}\n\n', "middle: overloaded"),
]


@pytest.mark.rule("CLI-6")
@pytest.mark.parametrize("provider", ["anthropic", "openai"])
async def test_bad_answers(provider: str) -> None:
    """An invalid answer of a server fails with a sentence, and without control codes or keys."""

    async def answer(request: Request) -> Response:
        status, kind, body, _ = BAD[int(request.path_params["number"])]
        return Response(body, status, media_type=kind)

    routes = [Route("/{number}/{rest:path}", answer, methods=["POST"])]
    async with listening(Starlette(routes=routes)) as port:
        for number, (_, _, _, said) in enumerate(BAD):
            with pytest.raises(ModelFailed, match=said) as failed:
                await asked(at(provider, f"http://127.0.0.1:{port}/{number}"), Path())
            assert "\x1b" not in str(failed.value)
            assert "sk-test" not in str(failed.value)


@pytest.mark.rule("CLI-6")
@pytest.mark.parametrize("address", ["http://127.0.0.1:1", "nonsense", "http://"])
async def test_nobody_there(address: str, tmp_path: Path) -> None:
    """If no server answers, the error names the variable to check."""
    model = model_from({"OPENAI_BASE_URL": address})
    with pytest.raises(ModelFailed, match="check OPENAI_BASE_URL"):
        await asked(model, tmp_path)


@pytest.mark.rule("CLI-6")
@pytest.mark.parametrize(
    ("environment", "provider", "name"),
    [
        ({}, "auto", "script"),
        ({"OPENAI_API_KEY": "", "ANTHROPIC_API_KEY": ""}, "auto", "script"),
        ({"OPENAI_API_KEY": "k"}, "auto", "gpt-5-mini"),
        ({"OPENAI_BASE_URL": "http://127.0.0.1/v1", "OPENAI_MODEL": "qwen3"}, "auto", "qwen3"),
        ({"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}, "auto", "claude-sonnet-4-5"),
        ({"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}, "openai", "gpt-5-mini"),
        ({"OPENAI_API_KEY": "k"}, "script", "script"),
    ],
)
def test_which_model(environment: dict[str, str], provider: str, name: str) -> None:
    """A key or an address in the environment chooses the model; without any the script answers."""
    assert model_from(environment, provider).name == name
    assert "'k'" not in repr(model_from(environment, provider))


@pytest.mark.rule("CLI-6")
@pytest.mark.parametrize(
    ("arguments", "read"),
    [
        ('{"a": 1}', {"a": 1}),
        ("", {}),
        ("  ", {}),
        ('{"a": ', None),
        ("[1]", None),
        ("[" * 100_000, None),
        ('{"a": NaN}', None),
    ],
    ids=["object", "empty", "blank", "torn", "list", "deep", "nan"],
)
def test_arguments(arguments: str, read: dict[str, Any] | None) -> None:
    """Arguments are an object, or none at all; anything else is no input."""
    assert Draft("c1", "Read", arguments).whole() == ToolUse("c1", "Read", read)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 3) | st.text(max_size=4),
    lambda values: st.lists(values, max_size=2) | st.dictionaries(st.sampled_from(FIELDS), values, max_size=4),
    max_leaves=12,
)


@pytest.mark.rule("CLI-6")
@pytest.mark.parametrize("wire", [AnthropicWire, OpenAIWire])
@given(events=st.lists(st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=5), max_size=4))
def test_any_events(wire: Callable[[], AnthropicWire | OpenAIWire], events: list[dict[str, Any]]) -> None:
    """Any answer of a server is pieces or a reported error; a tool call has a name and an id as text."""
    reading = wire()
    pieces: list[Any] = []
    with suppress(ModelFailed, LookupError, TypeError, ValueError, AttributeError):
        for event in events:
            pieces += reading.read(event)
    for use in join_pieces(pieces).uses:
        assert isinstance(use.id, str)
        assert isinstance(use.name, str)
        assert use.input is None or isinstance(use.input, dict)


@pytest.mark.rule("CLI-6")
async def test_the_script() -> None:
    """The script carries out the orders of a prompt, and explains them if there are none."""
    model = ScriptedModel()

    async def said(prompt: str) -> list[object]:
        return [piece async for piece in model.stream([{"role": "user", "content": prompt}], ())]

    for prompt, tool, arguments in (
        ("read a.py", "Read", {"file_path": "a.py"}),
        ("write a.py x = 1\\ny = 2", "Write", {"file_path": "a.py", "content": "x = 1\ny = 2\n"}),
        ("run ls -l", "Bash", {"command": "ls -l"}),
        ("$ ls", "Bash", {"command": "ls"}),
    ):
        assert await said(prompt) == [ToolUse("call_1", tool, arguments)]
    assert "".join(map(str, await said("hello"))).startswith("I am a script, not a model.")
