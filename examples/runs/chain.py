"""Hooks around whole runs: a validator that enriches or blocks, the agent, and an audit agent that follows.

One runner is enough: while the start hook of a run waits for the validator, the validator itself can be claimed. The
blueprints beside this file say who hooks in where; the runner below knows nothing of hooks. With the commands it is

    amplifier-hooks runs serve examples/runs/blueprints
    amplifier-hooks runs work chain:AGENTS
    amplifier-hooks runs submit invoice-writer '{"customer": "C-2071", "amount": 1200}'

Prints:

    an invoice for a good customer
      invoice-writer completed: Invoice for C-2071 (gold): 1,200.00
      as sent  {'amount': 1200, 'customer': 'C-2071'}
      as run   {'amount': 1200, 'customer': 'C-2071', 'tier': 'gold'}
        hook_start    on_run_start   agent validator
        hook_complete on_run_start   agent validator
        hook_start    on_run_finish  agent audit-agent
        hook_complete on_run_finish  agent audit-agent
      child    validator completed
      child    audit-agent completed

    an invoice that is too large
      invoice-writer failed, blocked: 48,000 is above the limit of 20,000 for tier silver
      as sent  {'amount': 48000, 'customer': 'C-1188'}
        hook_start    on_run_start   agent validator
        hook_blocked  on_run_start   agent validator
      child    validator completed

    parameters against the schema
      refused: these are no parameters for 'invoice-writer': $: "customer" is a required property

    the audit agent wrote down
      Invoice for C-2071 (gold): 1,200.00
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from amplifier_hooks.runs import ENDED, Holder, ParametersRefused, RunCoordinator, SqliteRuns, load_agents

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_hooks.runs import RunRecord

BLUEPRINTS: Final = Path(__file__).with_name("blueprints")
TIERS: Final = {"C-2071": ("gold", 50_000), "C-1188": ("silver", 20_000)}
LEDGER: Final[list[str]] = []


# -- what the agents do; in a program of your own a model does it ------------------------------------------------------


def validate(run: Any) -> dict[str, Any]:
    """Block what is too large, and add what the writer has to know."""
    wanted = run.parameters["parameters"]
    tier, limit = TIERS[wanted["customer"]]
    if wanted["amount"] > limit:
        reason = f"{wanted['amount']:,} is above the limit of {limit:,} for tier {tier}"
        return {"action": "block", "block_reason": reason}
    return {"action": "continue", "parameters": {**wanted, "tier": tier}}


def write(run: Any) -> str:
    """Write the invoice."""
    wanted = run.parameters
    return f"Invoice for {wanted['customer']} ({wanted['tier']}): {wanted['amount']:,.2f}"


def audit(run: Any) -> dict[str, Any]:
    """Write down what was invoiced."""
    LEDGER.append(run.parameters["result_text"])
    return {}


AGENTS: Final = {"validator": validate, "invoice-writer": write, "audit-agent": audit}


# -- one runner, without HTTP: the same steps that `amplifier-hooks runs work` takes -----------------------------------


class Given:
    """The argument of an agent's function."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.parameters = parameters


async def runner(runs: RunCoordinator) -> None:
    """Claim, do, report, complete; for ever."""
    while True:
        run = await runs.claim("the only runner", wait=5)
        if run is None:
            continue
        by = Holder("the only runner", run.attempt)
        result = AGENTS[run.agent](Given(run.effective))
        if isinstance(result, str):
            await runs.report(run.id, by, text=result)
        else:
            await runs.report(run.id, by, data=result)
        await runs.complete(run.id, by, "completed")


async def shown(runs: RunCoordinator, title: str, parameters: dict[str, Any]) -> None:
    """Submit one run, follow it to its end, and say what happened."""
    print(title)
    try:
        run = await runs.submit("invoice-writer", parameters)
    except ParametersRefused as problem:
        print(f"  refused: {problem}\n")
        return
    run = await ended(runs, run.id)
    children = [await ended(runs, child.id) for child in await runs.store.children(run.id)]
    hooks = [event for event in await runs.store.events(run.id) if event["event_type"].startswith("hook_")]
    how = f"{run.status}, blocked" if run.blocked else run.status
    print(f"  {run.agent} {how}: {run.error or run.result_text}")
    print(f"  as sent  {dict(run.parameters)}")
    if run.ran_with is not None:
        print(f"  as run   {dict(run.ran_with)}")
    for hook in hooks:
        print(f"    {hook['event_type']:13} {hook['hook_type']:14} {hook['target_type']} {hook['target_name']}")
    for child in children:
        print(f"  child    {child.agent} {child.status}")
    print()


async def ended(runs: RunCoordinator, run: str) -> RunRecord:
    """A run, once it has ended with its finish hook: finish agents are not waited for."""
    with runs.store.watch(run) as watch:
        while (record := await runs.get(run)).stage not in ENDED or record.owes:
            await watch.wait(5)
    return record


async def main() -> None:
    """Three submissions, and one runner."""
    async with SqliteRuns("runs.db") as store, RunCoordinator(store, load_agents(BLUEPRINTS)) as runs:
        working = asyncio.ensure_future(runner(runs))
        await shown(runs, "an invoice for a good customer", {"customer": "C-2071", "amount": 1200})
        await shown(runs, "an invoice that is too large", {"customer": "C-1188", "amount": 48000})
        await shown(runs, "parameters against the schema", {"amount": 5})
        working.cancel()
        await asyncio.wait({working})
    print("the audit agent wrote down")
    for line in LEDGER:
        print(f"  {line}")


if __name__ == "__main__":
    asyncio.run(main())
