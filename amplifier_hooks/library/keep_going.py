"""An agent that wants to stop: save a checkpoint, and make the agent go on until its promise is met.

```python
from amplifier_hooks import HookRegistry
from amplifier_hooks.library import KeepGoing

registry = HookRegistry()
keep_going = KeepGoing.from_config({"promise": "TASK COMPLETE", "store": ":memory:"})
keep_going.register(registry)
outcome = await registry.emit("agent:stop", {"response": "I fixed two of three tests."})
print(outcome.action, "-", outcome.reason)
await keep_going.close()
```

```output
deny - round 1 of 3: nothing says that it is finished. Go on with what is left; when everything is done, write TASK COMPLETE on a line of its own
```
"""  # noqa: E501  # the output is one line

from __future__ import annotations

import asyncio
import inspect
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final

from attrs import frozen
from pydantic import AfterValidator, Field

from amplifier_hooks.clock import SystemClock, micros_of, moment_of
from amplifier_hooks.events import AGENT_STOP, PROMPT_SUBMIT
from amplifier_hooks.library.parts.hook_database import HookDatabase, StoreAddress, database_opener
from amplifier_hooks.library.parts.ready_made import (
    HookSettings,
    PerSession,
    Point,
    ReadyMade,
    folder_of,
    missing_files,
    text_of,
)
from amplifier_hooks.record.journal import JOURNAL_TABLES, WRITE, Fact, FactValues, Journal, name_in_facts
from amplifier_hooks.result import HookResult
from amplifier_hooks.storage.database import Script, Statement, StoreUnavailable
from amplifier_hooks.storage.state_folder import StateFolder
from amplifier_hooks.text.escape import for_log

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from datetime import datetime

    from amplifier_hooks.ports import Clock
    from amplifier_hooks.storage.database import Database, Migrations


PRIORITY: Final = 410
LONGEST_RESPONSE: Final = 4_000
KEPT: Final = timedelta(days=30)
"""Time for which a checkpoint is kept."""
MOST: Final = 10_000
"""Checkpoints of one session that are returned, the last ones."""
COUNT: Final = (
    "SELECT count(*) FROM {schema}.fact WHERE kind = 'checkpoint' AND tenant = $1 AND session = $2 AND name = $3 "
    "AND at >= $4"
)
ORNAMENT: Final = " *_`#>.!\t"
"""Characters that may surround a promise on its line."""


def _one_line(promise: str) -> str:
    if promise and (len(promise.splitlines()) > 1 or not promise.strip(ORNAMENT)):
        raise ValueError("write words that fit on one line; an empty line would keep a promise of signs alone")
    return promise


class KeepGoingSettings(HookSettings):
    """The promise, and the limit of rounds."""

    promise: Annotated[str, AfterValidator(_one_line)] = Field(
        default="TASK COMPLETE",
        max_length=200,
        description="what the agent writes on a line of its own when it is done; left empty, it is not asked for",
    )
    artifacts: tuple[str, ...] = Field(
        default=(), description="files or globs that have to be there as well, and not empty"
    )
    cwd: str = Field(default="", description="the folder they are looked for in; the session's")
    rounds: int = Field(default=3, ge=1, le=100, description="how often one turn is made to go on")
    store: StoreAddress = Field(
        default="",
        description="where checkpoints are: a file, `:memory:`, `postgresql://…`; left out, a file of yours",
    )


@frozen(kw_only=True)
class AgentCheckpoint:
    """The state of an agent when it was made to go on."""

    at: datetime
    turn: int
    round: int
    reason: str
    response: str
    """The agent's last response, without secrets."""


class KeepGoing(ReadyMade[KeepGoingSettings]):
    """When an agent wants to stop, saves a checkpoint and makes it go on until its promise is met, so often at most.

    The promise is met when the agent says so on a line of its own, all artifacts exist, and `condition`, if there is
    one, agrees; it returns True, or False, or a text that names the missing part. The checkpoint is in the store before
    the agent goes on: if none can be written, the agent stops, and the user is told. Rounds are counted in the store,
    so that a restart does not begin them anew. If a stop comes without the agent's response, only artifacts and
    `condition` are checked.

    Args:
        condition: Function of the payload that returns True, False, or a text that names the missing part.
    """

    name = "keep_going"
    Settings = KeepGoingSettings

    def __init__(
        self,
        settings: KeepGoingSettings | None = None,
        *,
        condition: Callable[[Mapping[str, Any]], bool | str | Awaitable[bool | str]] | None = None,
        database: Callable[[Migrations], Database] | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(settings)
        self._condition = condition
        self._clock = clock or SystemClock()
        self._database = HookDatabase(
            self.name, JOURNAL_TABLES, database or database_opener(self.settings.store, StateFolder().checkpoints)
        )
        self._journal = Journal(self._database, "checkpoint", keep=KEPT, clock=self._clock)
        self._values = FactValues(8 * LONGEST_RESPONSE)  # so that escapes and marks of secrets do not cut off the end
        self._starts: PerSession[list[int]] = PerSession(list)

    def points(self) -> tuple[Point, ...]:
        """Return a gate for an agent that wants to stop, and an observer of prompts."""
        return (
            Point(event=AGENT_STOP, call=self.on_stop, intent="gate", priority=PRIORITY, timeout=30.0),
            Point(event=PROMPT_SUBMIT, call=self.on_prompt, intent="observe", priority=PRIORITY),
        )

    async def on_stop(self, event: str, data: Mapping[str, Any]) -> HookResult | None:
        """Let the agent stop, or save a checkpoint and make the agent go on."""
        lacking = await self._find_missing(data)
        if not lacking:
            return None
        try:
            number = await self._save_round(data, lacking)
        except StoreUnavailable as error:
            return _message_result(f"The checkpoint could not be saved, so the agent stops although {lacking}: {error}")
        most = self.settings.rounds
        if number > most:
            return _message_result(f"The agent stops after {most} more rounds although {lacking}.")
        said = f"round {number} of {most}: {lacking}"
        promise = f"; when everything is done, write {self.settings.promise} on a line of its own"
        ends = promise if self.settings.promise else ""
        return HookResult.deny(f"{said}. Go on with what is left{ends}", user_message=f"The agent goes on, {said}.")

    async def on_prompt(self, event: str, data: Mapping[str, Any], outcome: object) -> None:
        """Begin the rounds anew."""
        self._starts.of(data)[:] = [micros_of(self._clock.now())]

    async def checkpoints(self, session: str, *, tenant: str = "") -> list[AgentCheckpoint]:
        """Return every checkpoint of a session, oldest first. Raise `StoreUnavailable`."""
        whose = {"tenant": name_in_facts(tenant), "session": name_in_facts(session)}
        return [_checkpoint(fact) for fact in reversed(await self._journal.find("checkpoint", limit=MOST, **whose))]

    async def close(self) -> None:
        """Close the store."""
        await self._database.close()

    async def _find_missing(self, data: Mapping[str, Any]) -> str:
        """Return the missing part of the promise in words, or an empty text if all is met."""
        if self._condition is not None:
            verdict = self._condition(data)
            verdict = await verdict if inspect.isawaitable(verdict) else verdict
            if verdict is not True:
                return verdict if isinstance(verdict, str) and verdict else "what was promised is not there"
        absent = await asyncio.to_thread(missing_files, folder_of(self.settings.cwd, data), self.settings.artifacts)
        if absent:
            return f"there is no {', '.join(absent)}"
        promise, response = self.settings.promise, text_of(data.get("response"))
        if promise and response is not None and not _says_promise(response, promise):
            return "nothing says that it is finished"
        return ""

    async def _save_round(self, data: Mapping[str, Any], lacking: str) -> int:
        """Return the number of this round, and save the round if the limit is not reached. Raise `StoreUnavailable`."""
        number = await self._database.run(self._write_round(data, lacking))
        await self._journal.write()  # removes old ones, if that is due
        return number

    def _write_round(self, data: Mapping[str, Any], lacking: str) -> Script[int]:
        turn = data.get("turn")
        tenant, session = (name_in_facts(data.get(name) or "") for name in ("tenant_id", "session_id"))
        name = str(turn if isinstance(turn, int) else 0)
        ((before,),) = yield Statement(COUNT, (tenant, session, name, max(self._starts.of(data), default=0)))
        number = int(before) + 1
        if number <= self.settings.rounds:
            at, text = micros_of(self._clock.now()), for_log(text_of(data.get("response")) or "")
            response = self._values.text(text[-LONGEST_RESPONSE:]) or ""
            key, reason = f"{at:020}.{number:03}", for_log(lacking)
            yield Statement(
                WRITE, Fact("checkpoint", key, tenant, session, number, name=name, at=at, note=reason, body=response)
            )
        return number


def _says_promise(response: str, promise: str) -> bool:
    wanted = promise.strip(ORNAMENT).casefold()
    return any(line.strip(ORNAMENT).casefold() == wanted for line in response.splitlines())


def _message_result(message: str) -> HookResult:
    return HookResult.proceed(user_message=message, user_message_level="warning")


def _checkpoint(fact: Fact) -> AgentCheckpoint:
    return AgentCheckpoint(
        at=moment_of(fact.at), turn=int(fact.name), round=fact.part, reason=fact.note or "", response=fact.body
    )
