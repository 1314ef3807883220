"""Models behind an address, in both formats, and the choice between them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from amplifier_hooks.cli.chat.conversation import ChatAnswer, Workplace
from amplifier_hooks.cli.chat.models import ModelFailed, ScriptedModel, ToolUse, input_of, model_from
from amplifier_hooks.errors import MissingExtra
from tests.scripted_models import Say, Use, listening, serving

if TYPE_CHECKING:
    from starlette.requests import Request

    from amplifier_hooks.cli.chat.models import ChatModel

BASES = {"anthropic": "ANTHROPIC_BASE_URL", "openai": "OPENAI_BASE_URL"}
KEYS = {"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY"}
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
    return ChatAnswer.of([piece async for piece in model.stream(HISTORY, Workplace(folder).tools())])


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
    (401, "application/json", b'{"error": {"message": "bad key"}}', "401.*bad key.*; check .*_API_KEY"),
    (404, "text/plain", b"no such model", "404.* and --model"),
    (400, "text/html", b"<h1>\x1b[31moops", "oops"),
    (200, "text/event-stream", b"", "check|ended in the middle"),
    (200, "text/event-stream", b"data: {]\n\n", "check|ended in the middle"),
    (200, "text/event-stream", b"data: []\n\n", "check|ended in the middle"),
    (200, "application/json", b"{}", "check|ended in the middle"),
    (
        200,
        "text/event-stream",
        b'event: error\ndata: {"type": "error", "error": {"message": "overloaded"}}\n\n',
        "overloaded",
    ),
]


@pytest.mark.rule("CLI-6")
@pytest.mark.parametrize("provider", ["anthropic", "openai"])
@pytest.mark.parametrize("number", range(len(BAD)))
async def test_bad_answers(provider: str, number: int) -> None:
    """An invalid answer of a server fails with a sentence, and without control codes or keys."""
    status, kind, body, said = BAD[number]

    async def answer(request: Request) -> Response:
        return Response(body, status, media_type=kind)

    async with listening(Starlette(routes=[Route("/{rest:path}", answer, methods=["POST"])])) as port:
        with pytest.raises(ModelFailed, match=said) as failed:
            await asked(at(provider, f"http://127.0.0.1:{port}"), Path())
    assert "\x1b" not in str(failed.value)
    assert "sk-test" not in str(failed.value)


@pytest.mark.rule("CLI-6")
@pytest.mark.parametrize("address", ["http://127.0.0.1:1", "nonsense", "http://"])
async def test_nobody_there(address: str, tmp_path: Path) -> None:
    """If no server answers, the error names the variable to check."""
    model = model_from({"OPENAI_BASE_URL": address})
    with pytest.raises(ModelFailed, match=r"check OPENAI_API_KEY, OPENAI_BASE_URL and --model"):
        await asked(model, tmp_path)


@pytest.mark.rule("CLI-6", "PKG-1")
def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its extra a model is refused by a sentence that names it, and the script needs none."""
    monkeypatch.setitem(sys.modules, "pydantic_ai.models", None)
    with pytest.raises(MissingExtra, match=r"amplifier-hooks\[chat\].*--provider script"):
        model_from({"OPENAI_API_KEY": "k"})
    assert model_from({"OPENAI_API_KEY": "k"}, "script").name == "script"


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
    assert input_of(arguments) == read


@pytest.mark.rule("CLI-6")
async def test_the_script() -> None:
    """The script carries out the orders of a prompt, and explains them if there are none."""
    model = ScriptedModel()

    async def answer_to(prompt: str) -> list[object]:
        return [piece async for piece in model.stream([{"role": "user", "content": prompt}], ())]

    for prompt, tool, arguments in (
        ("read a.py", "Read", {"file_path": "a.py"}),
        ("write a.py x = 1", "Write", {"file_path": "a.py", "content": "x = 1\n"}),
        ("run ls -l", "Bash", {"command": "ls -l"}),
    ):
        (use,) = await answer_to(prompt)
        assert isinstance(use, ToolUse)
        assert (use.name, use.input) == (tool, arguments)
    assert "".join(map(str, await answer_to("hello"))).startswith("I am a script, not a model.")
