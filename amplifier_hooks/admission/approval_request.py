"""The parts of an approval request: the risk, the id and the impacts of one act."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import msgspec

from amplifier_hooks.dispatch.run_hooks import describe
from amplifier_hooks.events import TOOL_PRE
from amplifier_hooks.foreign_code import DaemonPool
from amplifier_hooks.impacts import Impact, ImpactPolicy
from amplifier_hooks.logs import get_logger
from amplifier_hooks.result import RISKS, Assessment, Risk, highest

if TYPE_CHECKING:
    from amplifier_hooks.act import Act, Call
    from amplifier_hooks.ports import Question
    from amplifier_hooks.result import Outcome


DOMAIN: Final = b"amplifier-hooks/request/1\n"

ANALYSIS_TIMEOUT: Final = 5.0
"""Timeout of the analysis of a call, in seconds."""

HOST: Final = "host"
UNASSESSED: Final = Assessment(by="", risk="medium")
"""Risk of a question without a risk of its own."""

log = get_logger(__name__)


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The source of a session's questions, and the host's settings for them."""

    agent: str = ""
    cwd: str = ""
    wait: float | None = None
    """Seconds to wait inline."""
    assess: Callable[[str, Mapping[str, Any]], Risk] | None = None
    """The host's function for the risk, by tool and arguments."""
    version: Callable[[str], str] = lambda _hook: ""
    """The function for a hook's version, by name: a grant is for one version."""
    ours: Callable[[str], bool] = lambda _hook: True
    """The function that returns True for the host's own hooks; only those may let silence allow."""

    def assessments(
        self, tool: str, arguments: Mapping[str, Any], outcome: Outcome | None = None
    ) -> tuple[Assessment, ...]:
        """Return every risk that hooks, rules and the host give; the highest counts.

        If the host gives none, a question without a risk is `UNASSESSED`: a hook may call its own question harmless,
        but not another hook's question.
        """
        said = () if outcome is None else outcome.assessments
        if self.assess is not None:
            return (*said, self._assessed(self.assess, tool, arguments))
        asking = set() if outcome is None else {ask.hook_name for ask in outcome.asks}
        return said if asking and asking <= {one.by for one in said} else (*said, UNASSESSED)

    def risk(self, tool: str, arguments: Mapping[str, Any], outcome: Outcome | None = None) -> Risk:
        """Return the highest of the assessments."""
        return highest(self.assessments(tool, arguments, outcome)) or UNASSESSED.risk

    @staticmethod
    def _assessed(
        assess: Callable[[str, Mapping[str, Any]], object], tool: str, arguments: Mapping[str, Any]
    ) -> Assessment:
        """Return the host's assessment. If the host's function fails, the risk is high."""
        try:
            risk = assess(tool, arguments)
        except Exception as error:  # noqa: BLE001  # a failure of the host's code must not make an action look harmless
            problem = describe(error)
        else:
            if isinstance(risk, str) and risk in RISKS:
                return Assessment(by=HOST, risk=risk)
            said = f"{risk!r:.100}" if type(risk) is str else f"something of type {type(risk).__name__}"
            problem = f"{said} is none of {', '.join(RISKS)}"
        log.warning("risk_unknown", error=problem)
        return Assessment(by=HOST, risk="high", reason=f"The host could not say how high the risk is: {problem}")


def request_id(act: Act, call: Call, attempt: str, questions: tuple[Question, ...] = ()) -> str:
    """Return the id of a question: stable across restarts for one call, and different for every other call.

    The id changes when a hook that asks has changed: a decision about the old version does not count for the new one.
    An action without a call gets an id that no caller can come back to. Each hashed part is preceded by its length, so
    that no two questions have the same spelling.
    """
    if not call.returns:
        return uuid4().hex
    hashed = hashlib.sha256(DOMAIN)
    versions = [part for question in questions for part in (question.hook, question.version)]
    for part in (act.tenant, act.session, act.event, call.id, attempt, *versions):
        data = part.encode("utf-8", "surrogatepass")
        hashed.update(len(data).to_bytes(8, "big"))
        hashed.update(data)
    return hashed.hexdigest()[:32]


async def predict_impacts(act: Act, root: str) -> tuple[Impact, ...]:
    """Return what a tool call would do, without running anything; the session's `root` is the project folder.

    The analysis asks the file system, so it runs in a thread: one thread, so that questions keep the order of their
    calls. A call that cannot be analysed has the impact `unreadable`. An act that is no tool call has no impact.
    """
    if act.event != TOOL_PRE:
        return ()
    if not (act.cwd or root):
        return (Impact("unreadable", "", "the folder of the call is unknown"),)
    try:
        async with asyncio.timeout(ANALYSIS_TIMEOUT):  # the thread's call is given up at once, so it needs no task
            return await _thread().run(_impacts_of, act, root or act.cwd)
    except TimeoutError:
        return (Impact("unreadable", "", "the file system does not answer"),)


@cache
def _thread() -> DaemonPool:
    return DaemonPool(1, "impact")


def _impacts_of(act: Act, root: str) -> tuple[Impact, ...]:
    from pathlib import Path  # the tables and readers of impact load with the first question, in the thread

    from amplifier_hooks.impact.file_facts import FileSystem
    from amplifier_hooks.impact.tools import predict_impact

    try:
        policy = ImpactPolicy(root, str(Path.home()))
        return predict_impact(act.name, act.arguments(), policy, FileSystem(), folder=act.cwd or root).impacts
    except RuntimeError as problem:  # a user without a home folder
        return (Impact("unreadable", "", str(problem)),)
