"""Rules decide routine calls without a prompt; a call that they leave open goes to a person.

The rules are in rules.yaml. A deny beats everything, an ask beats an allow, and an allow answers hooks that ask.

Run it, with the extra yaml: python examples/rules.py

Prints:
    git status: ran
    git status; rm -rf /: Operation denied by ask_before_commands, rule:otherwise: No approval system available
    cat .env: Operation denied by rule:secrets: secrets are not for agents
    why: deny, by secrets: secrets are not for agents
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.ports import ActionFacts
from approval_backends import Rules

registry = HookRegistry()


@registry.gate("tool:pre", match="Bash")
async def ask_before_commands(_event: str, data: Mapping[str, Any]) -> HookResult:
    """Ask about every command; rules answer for those that are harmless."""
    return HookResult.ask(f"Run {data['tool_input']['command']}?")


async def main() -> None:
    """Try three commands, without a person to ask."""
    rules = Rules.load(Path(__file__).with_name("rules.yaml"))
    async with SessionCoordinator(hooks=registry, rules=rules, cwd="/project") as session:
        for command in ("git status", "git status; rm -rf /", "cat .env"):
            result = await session.call_tool("Bash", {"command": command}, lambda _: "ran")
            print(f"{command}: {result.reason if result.denied else result.value}")
    facts = ActionFacts(
        tool="Read", arguments={"file_path": ".env"}, event="tool:pre", session="", tenant="", cwd="/project"
    )
    print("why:", str(rules.explain(facts)).splitlines()[0])


if __name__ == "__main__":
    asyncio.run(main())
