"""Hooks of runs in a procrastinate task, without our queue: the task asks before its agent runs, and tells after it.

procrastinate queues the task in PostgreSQL, at DATABASE_URL. A task that is done again after a crash asks the start
hook again, under the same run id: that of the job. The blueprint and its schema are those of our own queue.

Prints:

    {'amount': 1200, 'customer': 'C-2071'}
      audit: completed: Invoice for C-2071 (gold): 1,200.00
    {'amount': 48000, 'customer': 'C-1188'}
      blocked: 48,000 is above the limit of 20,000
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, Final

import procrastinate

from amplifier_hooks.runs import Blocked, RunHooks, load_agents

WRITER: Final = load_agents(Path(__file__).with_name("with_engine")).get("invoice-writer")
HOOKS: Final = RunHooks()

app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=os.environ.get("DATABASE_URL", "")))


@app.task(pass_context=True, lock="invoices")
async def invoice(context: procrastinate.JobContext, parameters: dict[str, Any]) -> None:
    """Run the agent between its hooks."""
    print(parameters)
    run = f"job-{context.job.id}"
    begun = await HOOKS.start(WRITER, parameters, run=run)
    if isinstance(begun, Blocked):
        print(f"  blocked: {begun.reason}")
        return
    text = write(begun)
    await HOOKS.finish(WRITER, begun, text, run=run)


def write(parameters: dict[str, Any]) -> str:
    """Write the invoice; in a program of your own a model does it."""
    return f"Invoice for {parameters['customer']} ({parameters['tier']}): {parameters['amount']:,.2f}"


async def main() -> None:
    """Two invoices: one for a good customer, and one that is too large."""
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        for parameters in ({"customer": "C-2071", "amount": 1200}, {"customer": "C-1188", "amount": 48000}):
            await invoice.defer_async(parameters=parameters)
        await app.run_worker_async(wait=False, install_signal_handlers=False)


if __name__ == "__main__":
    asyncio.run(main())
