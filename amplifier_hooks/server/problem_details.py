"""Errors come in; problem documents (RFC 9457) go out.

A problem names the place of a mistake and the correct form, but repeats no value of the request, which may be secret.
"""

from __future__ import annotations

import json
from http.client import responses
from typing import TYPE_CHECKING, Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException

from amplifier_hooks.definitions.files.open_files import InvalidDefinitions
from amplifier_hooks.definitions.store import ChangedMeanwhile, NameTaken, TooManyDefinitions
from amplifier_hooks.errors import HookRefused, HookUnavailable, InvalidRegistration, TooManyHooks, UnknownEvent
from amplifier_hooks.logs import get_logger
from amplifier_hooks.record.record_errors import RecordUnavailable
from amplifier_hooks.runs.run_states import (
    AgentsTooDeep,
    ParametersRefused,
    ResultRefused,
    RunMoved,
    UnknownAgent,
    UnknownRun,
    UnknownSession,
)
from amplifier_hooks.storage.database import StoreUnavailable
from amplifier_hooks.text.escape import clip, for_log

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping


PROBLEM: Final = "application/problem+json"

LONGEST_DETAIL: Final = 1_000
MOST_MISTAKES: Final = 20

log = get_logger(__name__)


class Mistake(BaseModel):
    """One mistake in a request."""

    at: str = Field(description="Place of the mistake: body.name, query.limit …")
    problem: str = Field(description="Description of the mistake.")


class ProblemDetails(BaseModel):
    """An error as a problem document (RFC 9457). `code` is for programs, `detail` for people."""

    model_config = ConfigDict(extra="allow")

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    code: str
    mistakes: list[Mistake] | None = None


class Problem(Exception):
    """An error that a route raises and that becomes its response.

    `facts` are further members of the body, `headers` further headers of the response.
    """

    def __init__(
        self, status: int, code: str, detail: str, *, headers: Mapping[str, str] | None = None, **facts: Any
    ) -> None:
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = dict(headers or {})
        self.facts = facts
        super().__init__(detail)

    def response(self) -> Response:
        """Return the response of this problem."""
        return problem(self.status, self.code, self.detail, headers=self.headers, **self.facts)


def problem(status: int, code: str, detail: str, *, headers: Mapping[str, str] | None = None, **facts: Any) -> Response:
    """Return a response with a problem document."""
    title = responses.get(status, "Error")
    said = clip(for_log(detail), LONGEST_DETAIL)
    body = {"type": "about:blank", "title": title, "status": status, "detail": said, "code": code, **facts}
    return Response(json.dumps(body), status_code=status, media_type=PROBLEM, headers=dict(headers or {}))


def install_problem_handlers(app: FastAPI) -> None:
    """Make an application answer every error with a problem document."""
    # Starlette's signature asks for handlers of the base class; each is called with its own class only.
    for kind, answer in _ANSWERS.items():
        app.add_exception_handler(kind, answer)


async def _answer_problem(_request: Request, error: Any) -> Response:
    answer: Response = error.response()
    return answer


async def _answer_malformed(_request: Request, error: Any) -> Response:
    mistakes = [
        Mistake(
            at=for_log(".".join(map(str, one["loc"])))[:200],
            problem=for_log(str(one["msg"]).removeprefix("Value error, "))[:300],
        )
        for one in error.errors()[:MOST_MISTAKES]
    ]
    detail = "; ".join(f"{one.at}: {one.problem}" for one in mistakes[:3])
    return problem(422, "invalid", detail, mistakes=[one.model_dump() for one in mistakes])


async def _answer_invalid_definition(_request: Request, error: Any) -> Response:
    """Return the response to a change that gives no valid definition."""
    error = RequestValidationError([{**one, "loc": ("body", *one["loc"])} for one in error.errors(include_url=False)])
    return await _answer_malformed(_request, error)


def _answer_with(status: int, code: str) -> Callable[[Request, Any], Awaitable[Response]]:
    """Return a handler whose problem says what the error says."""

    async def answer(_request: Request, error: Any) -> Response:
        return problem(status, code, str(error))

    return answer


async def _answer_stale(_request: Request, error: Any) -> Response:
    if error.version is None:
        return problem(404, "not_found", "there is no such hook")
    return problem(412, "changed_meanwhile", str(error), headers={"etag": f'"{error.version}"'})


async def _answer_http_error(_request: Request, error: Any) -> Response:
    code = responses.get(error.status_code, "error").lower().replace(" ", "_")
    return problem(error.status_code, code, str(error.detail), headers=error.headers)


async def _answer_moved(_request: Request, error: Any) -> Response:
    return problem(409, "run_moved", str(error), run_status=error.status)


def _answer_down(code: str, detail: str) -> Callable[[Request, Any], Awaitable[Response]]:
    """Return a handler for a part that cannot be used now; the log says why."""

    async def answer(_request: Request, error: Any) -> Response:
        log.error(code, error=str(error))
        return problem(503, code, f"{detail}; try again", headers={"retry-after": "1"})

    return answer


async def _answer_unforeseen(_request: Request, error: Any) -> Response:
    log.error("request_failed", error=f"{type(error).__name__}: {error}")
    return problem(500, "unforeseen", "this should not have happened; the server's log says more")


_ANSWERS: Final[Mapping[type[Exception], Callable[[Request, Any], Awaitable[Response]]]] = {
    Problem: _answer_problem,
    RequestValidationError: _answer_malformed,
    HTTPException: _answer_http_error,
    ValidationError: _answer_invalid_definition,
    NameTaken: _answer_with(409, "name_taken"),
    TooManyDefinitions: _answer_with(409, "quota"),
    TooManyHooks: _answer_with(409, "quota"),
    ChangedMeanwhile: _answer_stale,
    HookRefused: _answer_with(403, "refused"),
    HookUnavailable: _answer_with(422, "impossible"),
    InvalidRegistration: _answer_with(422, "impossible"),
    UnknownEvent: _answer_with(422, "impossible"),
    InvalidDefinitions: _answer_with(422, "impossible"),
    UnknownRun: _answer_with(404, "unknown_run"),
    UnknownAgent: _answer_with(422, "unknown_agent"),
    UnknownSession: _answer_with(422, "unknown_session"),
    ParametersRefused: _answer_with(422, "parameters_refused"),
    ResultRefused: _answer_with(422, "result_refused"),
    AgentsTooDeep: _answer_with(409, "agents_too_deep"),
    RunMoved: _answer_moved,
    StoreUnavailable: _answer_down("store_unavailable", "the store cannot be used now"),
    RecordUnavailable: _answer_down("audit_unavailable", "the record cannot be written now, so nothing was changed"),
    Exception: _answer_unforeseen,
}
