"""Scripted models on loopback, for real agent programs in their own wire formats.

A script is a list of steps: `Use(tool, input)` calls a tool, `Say(text)` ends the turn. Requests are kept, so that a
test can read them.
"""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from attrs import define, field
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from amplifier_hooks.server.edge import listen
from tests.scripted_steps import Say, Use

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from starlette.requests import Request

__all__ = ["Say", "ScriptedModel", "Use", "serving"]


def events(parts: Iterable[tuple[str, Any]]) -> Response:
    """Server-sent events."""
    body = "".join(f"event: {name}\ndata: {json.dumps(data)}\n\n" for name, data in parts)
    return Response(body, media_type="text/event-stream")


@define
class ScriptedModel:
    """The model's side of one conversation."""

    script: list[Use | Say]
    port: int = 0
    requests: list[dict[str, Any]] = field(factory=list)
    _next: int = 0

    @property
    def url(self) -> str:
        """Address of the model."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def read(self) -> str:
        """Return all requests to the model, as one text."""
        return json.dumps(self.requests)

    def step(self) -> Use | Say:
        """Return the next step; after the script's end, an empty answer."""
        number, self._next = self._next, self._next + 1
        return self.script[number] if number < len(self.script) else Say("done")

    # -- Claude Code -------------------------------------------------------------------------------------------------

    async def messages(self, request: Request) -> Response:
        """`POST /v1/messages`."""
        body = await request.json()
        step = self.step() if body.get("tools") else Say("ok")
        if body.get("tools"):
            self.requests.append(body)
        number = self._next
        if isinstance(step, Use):
            block: dict[str, Any] = {"type": "tool_use", "id": f"toolu_{number:04}", "name": step.tool, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(step.input)}
            stop = "tool_use"
        else:
            block, delta, stop = {"type": "text", "text": ""}, {"type": "text_delta", "text": step.text}, "end_turn"
        message = {
            "id": f"msg_{number}", "type": "message", "role": "assistant", "model": body.get("model", "m"),
            "content": [], "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1},
        }  # fmt: skip
        if not body.get("stream"):
            content = (
                [{**block, "input": step.input}] if isinstance(step, Use) else [{"type": "text", "text": step.text}]
            )
            return JSONResponse({**message, "content": content, "stop_reason": stop})
        ends = {
            "type": "message_delta",
            "delta": {"stop_reason": stop, "stop_sequence": None},
            "usage": {"output_tokens": 1},
        }
        return events(
            [
                ("message_start", {"type": "message_start", "message": message}),
                ("content_block_start", {"type": "content_block_start", "index": 0, "content_block": block}),
                ("content_block_delta", {"type": "content_block_delta", "index": 0, "delta": delta}),
                ("content_block_stop", {"type": "content_block_stop", "index": 0}),
                ("message_delta", ends),
                ("message_stop", {"type": "message_stop"}),
            ]
        )

    # -- OpenAI and models with its interface --------------------------------------------------------------------------

    async def completions(self, request: Request) -> Response:
        """`POST /v1/chat/completions`, streamed: text in two pieces, arguments in two pieces."""
        self.requests.append(await request.json())
        step, number = self.step(), self._next
        if isinstance(step, Use):
            arguments = json.dumps(step.input)
            call: dict[str, Any] = {"index": 0, "id": f"call_{number:04}", "type": "function"}
            deltas: list[dict[str, Any]] = [
                {"tool_calls": [{**call, "function": {"name": step.tool, "arguments": arguments[:5]}}]},
                {"tool_calls": [{"index": 0, "function": {"arguments": arguments[5:]}}]},
            ]
        else:
            deltas = [{"content": step.text[:3]}, {"content": step.text[3:]}]
        reason = "tool_calls" if isinstance(step, Use) else "stop"
        chunks: list[dict[str, Any]] = [{"delta": delta, "finish_reason": None} for delta in deltas]
        chunks.append({"delta": {}, "finish_reason": reason})
        lines = [json.dumps({"id": "c", "choices": [{"index": 0, **chunk}]}) for chunk in chunks]
        body = "".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"])
        return Response(body, media_type="text/event-stream")

    # -- Codex -------------------------------------------------------------------------------------------------------

    async def responses(self, request: Request) -> Response:
        """`POST /v1/responses`."""
        self.requests.append(await request.json())
        step, number = self.step(), self._next
        if isinstance(step, Use):
            item: dict[str, Any] = {
                "type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": step.tool,
                "arguments": json.dumps(step.input), "status": "completed",
            }  # fmt: skip
        else:
            content = [{"type": "output_text", "text": step.text, "annotations": []}]
            item = {
                "type": "message",
                "id": f"msg_{number}",
                "role": "assistant",
                "status": "completed",
                "content": content,
            }
        usage = {
            "input_tokens": 1, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 1,
            "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 2,
        }  # fmt: skip
        answer = {"id": f"resp_{number}", "object": "response", "status": "completed", "output": [item], "usage": usage}
        return events(
            [
                ("response.created", {"type": "response.created", "response": {**answer, "status": "in_progress"}}),
                ("response.output_item.added", {"type": "response.output_item.added", "output_index": 0, "item": item}),
                ("response.output_item.done", {"type": "response.output_item.done", "output_index": 0, "item": item}),
                ("response.completed", {"type": "response.completed", "response": answer}),
            ]
        )

    # -- Gemini CLI --------------------------------------------------------------------------------------------------

    async def generate(self, request: Request) -> Response:
        """`POST /v1beta/models/NAME:streamGenerateContent`, and the same without stream."""
        body = await request.json()
        step = self.step() if body.get("tools") else Say("ok")
        if body.get("tools"):
            self.requests.append(body)
        part = (
            {"functionCall": {"name": step.tool, "args": step.input}} if isinstance(step, Use) else {"text": step.text}
        )
        answer = {
            "candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}],
            "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
        }
        if request.path_params["call"].endswith(":streamGenerateContent"):
            return Response(f"data: {json.dumps(answer)}\n\n", media_type="text/event-stream")
        return JSONResponse(answer)

    async def rest(self, request: Request) -> Response:
        """Probes, token counts and the like."""
        return JSONResponse({"input_tokens": 1, "totalTokens": 1, "data": [], "models": []})


@asynccontextmanager
async def serving(*script: Use | Say) -> AsyncIterator[ScriptedModel]:
    """Serve a model with this script, for as long as the block lasts."""
    model = ScriptedModel(list(script))
    app = Starlette(
        routes=[
            Route("/v1/messages", model.messages, methods=["POST"]),
            Route("/v1/chat/completions", model.completions, methods=["POST"]),
            Route("/v1/responses", model.responses, methods=["POST"]),
            Route("/v1beta/models/{call:path}", model.generate, methods=["POST"]),
            Route("/{rest:path}", model.rest, methods=["GET", "POST", "HEAD"]),
        ]
    )
    async with listening(app) as port:
        model.port = port
        yield model


@asynccontextmanager
async def listening(app: Starlette) -> AsyncIterator[int]:
    """Serve an application for as long as the block lasts, and yield its port."""
    listener = listen.loopback_socket(0)
    async with listen.listening(app, listener):
        yield listener.getsockname()[1]
