"""Hooks of runs in a DBOS workflow, without our queue: `RunHooks.start` and `RunHooks.finish` are two of its steps.

DBOS queues the workflow, stores the result of each step, and takes the workflow up again after a crash. A hook whose
step had not ended then runs again, under the same run id. The blueprint and its schema are those of our own queue.

Prints:

    {'customer': 'C-2071', 'amount': 1200}
      audit: completed: Invoice for C-2071 (gold): 1,200.00
      Invoice for C-2071 (gold): 1,200.00
    {'customer': 'C-1188', 'amount': 48000}
      blocked: 48,000 is above the limit of 20,000
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

from dbos import DBOS, DBOSConfig

from amplifier_hooks.runs import Blocked, RunHooks, load_agents

WRITER: Final = load_agents(Path(__file__).with_name("with_engine")).get("invoice-writer")
HOOKS: Final = RunHooks()


@DBOS.step()
async def start(parameters: dict[str, Any], run: str) -> dict[str, Any]:
    """Ask the start hooks: the parameters for the agent, or the reason why it does not run."""
    begun = await HOOKS.start(WRITER, parameters, run=run)
    return {"blocked": begun.reason} if isinstance(begun, Blocked) else {"parameters": begun}


@DBOS.step()
async def write(parameters: dict[str, Any]) -> str:
    """Write the invoice; in a program of your own a model does it."""
    return f"Invoice for {parameters['customer']} ({parameters['tier']}): {parameters['amount']:,.2f}"


@DBOS.step()
async def finish(parameters: dict[str, Any], text: str, run: str) -> None:
    """Show the end of the run to the finish hooks."""
    await HOOKS.finish(WRITER, parameters, text, run=run)


@DBOS.workflow()
async def invoice(parameters: dict[str, Any]) -> str:
    """Run the agent between its hooks."""
    run = str(DBOS.workflow_id)
    begun = await start(parameters, run)
    if "blocked" in begun:
        return f"blocked: {begun['blocked']}"
    text = await write(begun["parameters"])
    await finish(begun["parameters"], text, run)
    return text


async def main() -> None:
    """Two invoices: one for a good customer, and one that is too large."""
    config: DBOSConfig = {"name": "invoices", "system_database_url": "sqlite:///invoices.db", "log_level": "ERROR"}
    DBOS(config=config)
    DBOS.launch()
    try:
        for parameters in ({"customer": "C-2071", "amount": 1200}, {"customer": "C-1188", "amount": 48000}):
            print(parameters)
            handle = await DBOS.start_workflow_async(invoice, parameters)
            print(f"  {await handle.get_result()}")
    finally:
        DBOS.destroy()


if __name__ == "__main__":
    asyncio.run(main())
