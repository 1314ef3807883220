"""A runner: it claims runs over HTTP, does the work of their agents, and reports the results.

```python
async def writer(run: RunnerTask) -> str:
    return f"An invoice over {run.parameters['amount']}"

async with Runner("http://127.0.0.1:8787", token, {"invoice-writer": writer}) as runner:
    await runner.serve()
```

While an agent works, the runner renews its run. If the run is to stop, or another runner holds it, the agent is
cancelled. Plain functions work in threads, so that a slow one does not keep its own run from being renewed. A thread
cannot be cancelled; the result that it brings after that is dropped.

An agent never ends its runner: any error that it raises, and a result that is no JSON, fails its run.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import socket
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import uuid4

import msgspec

from amplifier_hooks.dispatch.run_hooks import describe
from amplifier_hooks.errors import HookError, MissingExtra
from amplifier_hooks.foreign_code import DaemonPool, underway
from amplifier_hooks.logs import get_logger
from amplifier_hooks.registry.registration import awaits
from amplifier_hooks.text.escape import clip, for_log

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    import httpx2


WAIT: Final = 30.0
"""Seconds one claim waits for a run."""
PAUSE: Final = 1.0
"""Seconds between tries while the server does not answer."""
TRIES: Final = 40
"""Number of tries of a report, at most; a claim is repeated without end."""
LONGEST_ERROR: Final = 2_048
THREADS: Final = 8
"""Threads for agents that are plain functions.

A runner has one run at a time; the other threads belong to runs that were stopped and whose functions still work.
"""
GONE: Final = frozenset({404, 409})
"""Statuses that mean: this run is not yours."""
MAY_PASS: Final = frozenset({408, 425, 429})
"""Statuses of temporary refusals, after which the runner asks again."""
SHORTEST_PAUSE: Final = 0.003

log = get_logger(__name__)


class RunnerUnavailable(HookError):
    """The server does not answer, or its answer is not understood."""


class RunnerRefused(HookError):
    """The server understands the request and refuses it.

    `status` is that of its answer, `code` the reason for programs.
    """

    def __init__(self, status: int, code: str, detail: str) -> None:
        self.status = status
        self.code = code
        super().__init__(f"the server refuses ({status} {code}): {detail}")


class RunLost(RunnerRefused):
    """The runner has lost the run: the run ended, or another runner holds it."""


class RunnerTask(msgspec.Struct, frozen=True, kw_only=True):
    """A run in this runner's hands. `agent` holds the parts of the blueprint that a runner needs."""

    run_id: str
    session_id: str
    agent_name: str
    parameters: Mapping[str, Any]
    attempt: int
    lease: float = msgspec.field(name="lease_seconds")
    agent: Mapping[str, Any] | None
    parent_run_id: str | None = None
    parent_session_id: str | None = None
    tenant_id: str = ""


class Runner:
    """A client of the queue. `agents` maps the names of agents to the functions that do their work.

    A function receives the `RunnerTask` and returns the result: a text for agents that bring a text, otherwise data. An
    error of the function fails the run, `SystemExit` too. Use the runner as an async context; several may share an
    event loop.

    Args:
        url: Address of the coordinator, such as `http://127.0.0.1:8439`.
        token: Token with the scope that runners need.
        agents: Functions that do the work, by the names of their agents.
        name: Name of the runner; the host's name and random letters if None.
        client: Client of `httpx2` to use; one of the runner's own if None.
        wait: Seconds that a claim waits for a run.
    """

    def __init__(
        self,
        url: str,
        token: str,
        agents: Mapping[str, Callable[[RunnerTask], Any]] | None = None,
        *,
        name: str | None = None,
        client: httpx2.AsyncClient | None = None,
        wait: float = WAIT,
    ) -> None:
        self.name = name or f"{socket.gethostname()}-{uuid4().hex[:8]}"
        self._url = url.rstrip("/")
        self._headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        self._agents = dict(agents or {})
        self._given = client
        self._client: httpx2.AsyncClient | None = None
        self._wait = wait
        self._threads = DaemonPool(THREADS, "amplifier-hooks-runner")

    async def __aenter__(self) -> Self:
        """Open the client. Raise `MissingExtra`, or `RunnerUnavailable` for a wrong address or token."""
        if not re.fullmatch(r"https?://[^/?#\s]+\S*", self._url):
            raise RunnerUnavailable(f"{self._url!r:.200} is no address of a coordinator; write http://127.0.0.1:8439")
        if not all(value.isascii() and value.isprintable() for value in self._headers.values()):
            raise RunnerUnavailable("the token is none: it has characters that no token has")
        httpx2 = await self._threads.run(MissingExtra.load, "httpx2", "a runner", "http")
        self._client = self._given or httpx2.AsyncClient(
            trust_env=False, follow_redirects=False, timeout=self._wait + 15
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        client, self._client = self._client, None
        if client is not None and client is not self._given:
            await client.aclose()

    # -- the protocol --------------------------------------------------------------------------------------------------

    async def claim(self, wait: float | None = None) -> RunnerTask | None:
        """Claim one run; return None if there is none in time. Raise `RunnerRefused`, `RunnerUnavailable`.

        Cancelling the call may leave this runner with a run that it does not know of; the run is found again after its
        lease.

        Args:
            wait: Seconds to wait; those of the runner if None.
        """
        query = {"runner": self.name, "wait": self._wait if wait is None else wait, "agents": [*self._agents]}
        said = await self.ask("GET", "/runner/runs", params=query)
        try:
            return msgspec.convert(said, RunnerTask) if said else None
        except msgspec.ValidationError as problem:
            raise RunnerUnavailable(f"the server answered a claim with what is no run: {problem!r:.200}") from None

    async def renew(self, task: RunnerTask) -> bool:
        """Extend the hold of a run, and return True if the run is to stop. Raise `RunLost`, `RunnerUnavailable`."""
        return (await self._tell(task, "renew")).get("stop") is True

    async def post_result(self, task: RunnerTask, value: Any) -> None:
        """Post the result. A text is posted as text if the agent brings texts, otherwise as data.

        Args:
            value: Text or data, as the agent brings it.

        Raise `ValueError` for a result that is no JSON, `RunLost`, `RunnerRefused`, and `RunnerUnavailable` after some
        tries.
        """
        agent = task.agent or {}
        brings_text = agent.get("type") == "autonomous" and agent.get("output_schema") is None
        text = value if brings_text and isinstance(value, str) else None
        await self._insist(task, "result", result_text=text, result_data=None if text is not None else value)

    async def complete(self, task: RunnerTask, status: str, error: str | None = None) -> None:
        """End the run. Ending it twice is harmless, for example after a lost answer.

        Args:
            status: End of the run: `completed` or `failed`.

        Raise `RunLost`, `RunnerRefused`, and `RunnerUnavailable` after some tries.
        """
        await self._insist(task, "completed", status=status, error=error)

    # -- the loop ------------------------------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Claim and do one run after the other, until cancelled.

        A server that does not answer is asked again. Raise `RunnerRefused` if the server does not accept this runner.
        """
        while True:
            try:
                task = await self.claim()
            except RunnerUnavailable as problem:
                log.warning("runner_waits", error=str(problem))
                await asyncio.sleep(PAUSE)
            else:
                if task is not None:
                    await self.do(task)

    async def do(self, task: RunnerTask) -> None:
        """Do a claimed run, and report its end. Cancelling the call leaves the run to be found again.

        An agent that is cancelled has the time of the lease to clean up.
        """
        running = underway(self._run_agent(task), grace=task.lease)
        async with running as work, underway(self._keep_renewing(task)) as keeping:
            tasks: set[asyncio.Future[Any]] = {work, keeping}
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        try:
            if work.done() and not work.cancelled():
                await self._report_outcome(task, *work.result())
            elif keeping.cancelled():  # the agent ended first
                await self._report_outcome(task, None, "it cancelled itself")
            elif keeping.result():
                await self.complete(task, "stopped", "it was told to stop")
        except (RunnerRefused, RunnerUnavailable) as problem:  # if the refusal is final, the next claim is refused, too
            log.warning("run_not_ours", run=task.run_id, error=str(problem))

    async def _report_outcome(self, task: RunnerTask, value: Any, error: str | None) -> None:
        if error is None:
            try:
                await self.post_result(task, value)
            except RunLost:
                raise
            except (RunnerRefused, TypeError, ValueError, RecursionError) as refusal:  # not the result it was to bring
                error = describe(refusal, LONGEST_ERROR)
        if error is not None:  # lone surrogates are escaped, because no request can hold them
            error = clip(error.encode("utf-8", "backslashreplace").decode(), LONGEST_ERROR)
            log.warning("agent_failed", run=task.run_id, agent=task.agent_name, error=for_log(error))
        await self.complete(task, "completed" if error is None else "failed", error)

    async def _run_agent(self, task: RunnerTask) -> tuple[Any, str | None]:
        """Return the agent's result, or its error in words."""
        try:
            function = self._agents.get(task.agent_name)
            if function is None:
                return None, f"this runner has no agent {task.agent_name!r}"
            result = function(task) if awaits(function) else await self._threads.run(function, task)
            return await result if inspect.isawaitable(result) else result, None
        except asyncio.CancelledError:
            raise
        except Exception as problem:  # noqa: BLE001  # an agent may raise anything
            return None, describe(problem, LONGEST_ERROR)
        except BaseException as problem:  # noqa: BLE001  # in a task it would end the loop and every other task
            return None, f"it ended with {type(problem).__name__}"

    async def _keep_renewing(self, task: RunnerTask) -> bool:
        """Renew a run until it is to stop or is lost. Return True if it is to stop."""
        while True:
            await asyncio.sleep(max(task.lease / 3, SHORTEST_PAUSE))
            try:
                if await self.renew(task):
                    return True
            except RunLost:
                return False
            except (RunnerUnavailable, RunnerRefused) as problem:
                log.warning("run_not_renewed", run=task.run_id, error=str(problem))

    # -- asking --------------------------------------------------------------------------------------------------------

    async def _insist(self, task: RunnerTask, what: str, **fields: Any) -> None:
        """Repeat a report until the server has received it."""
        for _ in range(TRIES):
            with suppress(RunnerUnavailable):
                await self._tell(task, what, **fields)
                return
            await asyncio.sleep(PAUSE)
        raise RunnerUnavailable(f"run {task.run_id}: the server could not be told of its {what}")

    async def _tell(self, task: RunnerTask, what: str, **fields: Any) -> dict[str, Any]:
        body = {"runner": self.name, "attempt": task.attempt, **fields}
        return await self.ask("POST", f"/runner/runs/{task.run_id}/{what}", body=body)

    async def ask(
        self, method: str, path: str, *, params: Mapping[str, Any] | None = None, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return the server's answer to any request, or an empty dict if it has none.

        `ask("POST", "/runs", body={"agent_name": …, "parameters": {…}, "parent_run_id": task.run_id})` queues a run.
        Raise `RunnerUnavailable` for a temporary refusal or an answer that is not understood, `RunnerRefused` for a
        refusal, and `RuntimeError` outside of the runner's context.
        """
        import httpx2

        if self._client is None:
            raise RuntimeError("use the runner as an async context")
        # In ASCII a lone surrogate is escaped; the server can refuse it then, with a message.
        content = None if body is None else json.dumps(body, allow_nan=False).encode("ascii")
        given: dict[str, Any] = {"headers": self._headers, "params": params, "content": content}
        try:
            answer = await self._client.request(method, self._url + path, **given)
        except (httpx2.HTTPError, httpx2.StreamError, OSError) as problem:
            remedy = "is the address right, and does `amplifier-hooks runs serve` run there?"
            raise RunnerUnavailable(f"{self._url} cannot be reached: {type(problem).__name__}; {remedy}") from None
        if answer.status_code == HTTPStatus.NO_CONTENT:
            return {}
        said = None
        with suppress(ValueError, RecursionError):
            said = answer.json()
        if not isinstance(said, dict) or answer.is_server_error or answer.status_code in MAY_PASS:
            raise RunnerUnavailable(f"{self._url} answered with status {answer.status_code}")
        if answer.is_error:
            refusal = RunLost if answer.status_code in GONE else RunnerRefused
            raise refusal(answer.status_code, str(said.get("code", "")), str(said.get("detail", "")))
        return said
