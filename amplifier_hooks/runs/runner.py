"""A runner: it claims runs over HTTP, does what their agents do, and says what came of it.

```python
async def writer(run: RunnerTask) -> str:
    return f"An invoice over {run.parameters['amount']}"

async with Runner("http://127.0.0.1:8787", token, {"invoice-writer": writer}) as runner:
    await runner.serve()
```

While an agent works its run is renewed. If it is to be stopped, or somebody else has it by now, the agent is cancelled.
"""

from __future__ import annotations

import asyncio
import inspect
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import uuid4

from attrs import frozen

from amplifier_hooks.errors import HookError
from amplifier_hooks.escape import clip
from amplifier_hooks.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    import httpx2

__all__ = ["RunLost", "Runner", "RunnerRefused", "RunnerTask", "RunnerUnavailable"]

WAIT: Final = 30.0
"""Seconds one claim waits for a run."""
PAUSES: Final = (0.2, 0.5, 1.0, 2.0, 5.0)
"""Seconds between tries while the server does not answer; the last one again and again."""
MOST_TRIES: Final = 12
LONGEST_ERROR: Final = 2_048
GONE: Final = frozenset({404, 409})

log = get_logger(__name__)


class RunnerUnavailable(HookError):
    """The server does not answer, or not in a way we know."""


class RunnerRefused(HookError):
    """The server understands and does not do it. `status` is its answer's, `code` says why, for programs."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        self.status = status
        self.code = code
        super().__init__(f"the server refuses ({status} {code}): {detail}")


class RunLost(RunnerRefused):
    """The run is not this runner's any more: it ended, or somebody else has it."""


@frozen(kw_only=True)
class RunnerTask:
    """A run in this runner's hands."""

    run_id: str
    session_id: str
    agent_name: str
    parameters: Mapping[str, Any]
    attempt: int
    lease: float
    agent: Mapping[str, Any]
    """Its blueprint, as far as a runner needs it."""
    parent_run_id: str | None = None
    parent_session_id: str | None = None
    tenant_id: str = ""


class Runner:
    """A client of the queue. `agents` are the functions that do what the agents do, by their names.

    A function is given the `RunnerTask` and returns the result: a text for agents that bring one, otherwise data. What
    it raises fails the run. Use it as an async context; several may share an event loop.
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
        self._headers = {"authorization": f"Bearer {token}"}
        self._agents = dict(agents or {})
        self._given = client
        self._client: httpx2.AsyncClient | None = None
        self._wait = wait

    async def __aenter__(self) -> Self:
        import httpx2

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

    async def submit(
        self,
        agent: str,
        parameters: Mapping[str, Any],
        *,
        parent: str | None = None,
        session: str | None = None,
    ) -> str:
        """Queue a run, as a child of another or in a session that is there. Returns its id.

        Raises `RunnerRefused`, and `RunnerUnavailable`: the run may or may not be queued then.
        """
        body = {
            "agent_name": agent,
            "parameters": dict(parameters),
            "parent_run_id": parent,
            "session_id": session,
        }
        return str((await self._ask("POST", "/runs", json=body))["run_id"])

    async def get(self, run: str) -> dict[str, Any]:
        """All of one run. Raises `RunnerRefused`, `RunnerUnavailable`."""
        return await self._ask("GET", f"/runs/{run}")

    async def list(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """A page of runs, by the filters of the route. Raises `RunnerRefused`, `RunnerUnavailable`."""
        return await self._ask("GET", "/runs", params=dict(wanted))

    async def stop(self, run: str, reason: str) -> dict[str, Any]:
        """Stop a run. Raises `RunnerRefused`, `RunnerUnavailable`."""
        return await self._ask("POST", f"/runs/{run}/stop", json={"reason": reason})

    async def claim(self, wait: float | None = None) -> RunnerTask | None:
        """One run, or None if there is none in time. Raises `RunnerRefused`, `RunnerUnavailable`.

        Cancelling it may leave this runner with a run it does not know of; that one is found again after its lease.
        """
        seconds = self._wait if wait is None else wait
        query: dict[str, Any] = {"runner": self.name, "wait": seconds}
        if self._agents:
            query["agents"] = [*self._agents]
        said = await self._ask("GET", "/runner/runs", params=query)
        if not said:
            return None
        return RunnerTask(
            run_id=said["run_id"],
            session_id=said["session_id"],
            agent_name=said["agent_name"],
            parameters=said["parameters"],
            attempt=said["attempt"],
            lease=said["lease_seconds"],
            agent=said["agent"] or {},
            parent_run_id=said["parent_run_id"],
            parent_session_id=said["parent_session_id"],
            tenant_id=said["tenant_id"],
        )

    async def renew(self, task: RunnerTask) -> bool:
        """Hold on to a run; whether it is to be stopped. Raises `RunLost`, `RunnerUnavailable`."""
        return bool((await self._tell(task, "renew"))["stop"])

    async def result(self, task: RunnerTask, value: Any) -> None:
        """Post the result; a text is one where the agent brings texts. Raises `RunLost`, `RunnerRefused`."""
        brings_text = task.agent.get("type") == "autonomous" and task.agent.get("output_schema") is None
        text = value if brings_text and isinstance(value, str) else None
        await self._insist(task, "result", result_text=text, result_data=None if text is not None else value)

    async def completed(self, task: RunnerTask, status: str, error: str | None = None) -> None:
        """End the run. The server may have heard it before: twice is harmless. Raises `RunLost`, `RunnerRefused`."""
        await self._insist(task, "completed", status=status, error=error)

    # -- the loop ------------------------------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Claim and do one run after the other, until it is cancelled.

        A server that does not answer is asked again; raises `RunnerRefused` where it will not have this runner.
        """
        failures = 0
        while True:
            try:
                task = await self.claim()
                failures = 0
            except RunnerUnavailable as problem:
                log.warning("runner_waits", error=str(problem))
                await asyncio.sleep(PAUSES[min(failures, len(PAUSES) - 1)])
                failures += 1
                continue
            if task is not None:
                await self.do(task)

    async def do(self, task: RunnerTask) -> None:
        """Do a run that was claimed, and say what came of it. Cancelling it leaves the run to be found again."""
        work = asyncio.ensure_future(self._worked(task))
        keeping = asyncio.ensure_future(self._kept(task))
        try:
            await asyncio.wait({work, keeping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in (work, keeping):
                if not one.done():
                    one.cancel()
            await asyncio.wait({work, keeping})
        stopped = keeping.result() if keeping.done() and not keeping.cancelled() else ""
        try:
            if not work.cancelled():
                await self._said(task, work)
            elif stopped == "stop":
                await self.completed(task, "stopped", "it was told to stop")
        except (RunLost, RunnerUnavailable) as problem:
            log.warning("run_not_ours", run=task.run_id, error=str(problem))

    async def _said(self, task: RunnerTask, work: asyncio.Future[Any]) -> None:
        problem = work.exception()
        if problem is None:
            try:
                await self.result(task, work.result())
            except RunLost:
                raise
            except RunnerRefused as refusal:  # not what this agent was to bring
                problem = refusal
            else:
                await self.completed(task, "completed")
                return
        await self.completed(task, "failed", clip(f"{type(problem).__name__}: {problem}", LONGEST_ERROR))

    async def _worked(self, task: RunnerTask) -> Any:
        function = self._agents.get(task.agent_name)
        if function is None:
            raise LookupError(f"this runner has no agent {task.agent_name!r}")
        result = function(task)
        return await result if inspect.isawaitable(result) else result

    async def _kept(self, task: RunnerTask) -> str:
        """Hold on to a run until it is to be stopped, or is somebody else's: which of the two."""
        while True:
            await asyncio.sleep(task.lease / 3)
            try:
                if await self.renew(task):
                    return "stop"
            except RunLost:
                return "lost"
            except (RunnerUnavailable, RunnerRefused) as problem:
                log.warning("run_not_renewed", run=task.run_id, error=str(problem))

    # -- asking --------------------------------------------------------------------------------------------------------

    async def _insist(self, task: RunnerTask, what: str, **fields: Any) -> None:
        """Say it until the server has heard it."""
        for attempt in range(MOST_TRIES):
            with suppress(RunnerUnavailable):
                await self._tell(task, what, **fields)
                return
            await asyncio.sleep(PAUSES[min(attempt, len(PAUSES) - 1)])
        raise RunnerUnavailable(f"run {task.run_id}: the server could not be told of its {what}")

    async def _tell(self, task: RunnerTask, what: str, **fields: Any) -> dict[str, Any]:
        body = {"runner": self.name, "attempt": task.attempt, **fields}
        return await self._ask("POST", f"/runner/runs/{task.run_id}/{what}", json=body)

    async def _ask(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        """What the server answers; nothing where it has none."""
        import httpx2

        if self._client is None:
            raise RuntimeError("use the runner as an async context")
        try:
            answer = await self._client.request(method, self._url + path, headers=self._headers, **options)
        except httpx2.HTTPError as problem:
            raise RunnerUnavailable(f"{self._url} cannot be reached: {type(problem).__name__}") from None
        if answer.status_code == 204:  # noqa: PLR2004  # nothing to say
            return {}
        try:
            said = answer.json()
        except ValueError:
            said = None
        if not isinstance(said, dict) or answer.status_code >= 500 or answer.status_code == 429:  # noqa: PLR2004  # it may pass
            raise RunnerUnavailable(f"{self._url} answered with status {answer.status_code}")
        if answer.status_code >= 400:  # noqa: PLR2004  # it means what was asked
            refusal = RunLost if answer.status_code in GONE else RunnerRefused
            raise refusal(answer.status_code, str(said.get("code", "")), str(said.get("detail", "")))
        return said
