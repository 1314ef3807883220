"""The commands that ask a coordinator over HTTP, and print its answer."""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING, Any

import typer

from amplifier_hooks.errors import HookError
from amplifier_hooks.runs.run_states import STOP_REASON
from amplifier_hooks.runs.runner import Runner
from amplifier_hooks.text.escape import for_terminal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path


At = tuple[str, "Path | None"]
"""The URL of the coordinator, and the file of the token."""


def token_in(file: Path | None) -> str:
    """Return the token from the file, or from the environment without one. Ends the command if there is none."""
    try:
        token = os.environ.get("AMPLIFIER_HOOKS_TOKEN", "") if file is None else file.read_text("ascii")
    except (OSError, UnicodeError) as problem:
        raise typer.BadParameter(f"{file}: {problem}") from None
    if not token.strip():
        raise typer.BadParameter("there is no token; set AMPLIFIER_HOOKS_TOKEN, or name --token-file")
    return token.strip()


def submit_run(agent: str, parameters: str, parent: str | None, session: str | None, *, at: At, as_json: bool) -> None:
    """Queue a run."""
    try:
        given = json.loads(parameters)
    except ValueError as problem:
        raise typer.BadParameter(f"the parameters are no JSON: {problem}") from None
    if not isinstance(given, dict):
        raise typer.BadParameter("the parameters are one JSON object")
    run = ask_or_stop(at, lambda client: client.submit(agent, given, parent=parent, session=session))
    typer.echo(json.dumps({"run_id": run}) if as_json else run)


def list_runs(wanted: Mapping[str, Any], *, at: At, as_json: bool) -> None:
    """List runs."""
    query = {name: value for name, value in wanted.items() if value is not None}
    page = ask_or_stop(at, lambda client: client.list(query))
    if as_json:
        typer.echo(json.dumps(page))
        return
    for run in page["runs"]:
        typer.echo(for_terminal(run_line(run)))
    if not page["runs"]:
        typer.echo("There are no such runs.", err=True)


def show_run(run: str, *, at: At, as_json: bool) -> None:
    """Show one run."""
    found = ask_or_stop(at, lambda client: client.get(run))
    typer.echo(json.dumps(found) if as_json else for_terminal("\n".join(page_of(found))))


def stop_run(run: str, reason: str | None, *, at: At, as_json: bool) -> None:
    """Stop one run."""
    found = ask_or_stop(at, lambda client: client.stop(run, reason or STOP_REASON))
    typer.echo(json.dumps(found) if as_json else for_terminal(run_line(found)))


def ask_or_stop(at: At, work: Callable[[Runner], Awaitable[Any]]) -> Any:
    """Return the coordinator's answer; print a refusal, and end the command."""
    url, file = at
    token = token_in(file)

    async def asking() -> Any:
        async with Runner(url, token) as client:
            return await work(client)

    try:
        return asyncio.run(asking())
    except HookError as problem:
        typer.echo(for_terminal(str(problem)), err=True)
        raise typer.Exit(1) from None


def run_line(run: Mapping[str, Any]) -> str:
    """Return a run as one line."""
    return "  ".join([run["run_id"], run["created_at"][:19].replace("T", " "), run["agent_name"], status_text(run)])


def status_text(run: Mapping[str, Any]) -> str:
    """Return the status of a run in words."""
    changed, failed = run["parameters_changed"], run["failed_hooks"]
    words = ["blocked" if run["blocked"] else str(run["status"])]
    words += [f"with {run['runner']}"] if run["status"] == "running" else []
    words += [f"{changed} parameters changed by hooks"] if changed else []
    words += [f"{failed} hooks failed"] if failed else []
    words += [str(run["error"])] if run["error"] else []
    return " · ".join(words)


def page_of(run: Mapping[str, Any]) -> list[str]:
    """Return the lines of a run in full."""
    lines = [f"{run['agent_name']}  {run['run_id']}", status_text(run), f"session {run['session_id']}"]
    if run["parent"] is not None:
        lines.append(f"started by {run['parent']['agent_name']} {run['parent']['run_id']}")
    lines.append("")
    for step in run["timeline"]:
        took = "" if step["duration_ms"] is None else f"{step['duration_ms']:,.1f} ms"
        lines.append(f"  {step['at'][11:23]}  {took:>12}  {step_text(step)}")
    lines += ["", "as sent  " + json.dumps(run["parameters"])]
    if run["parameters_changed"]:
        lines.append("as run   " + json.dumps(run["parameters_as_run"]))
    result = run["result_text"] if run["result_text"] is not None else run["result_data"]
    lines += [] if result is None else [f"result   {result if isinstance(result, str) else json.dumps(result)}"]
    lines += [f"child    {run_line(child)}" for child in run["children"]]
    return lines


def step_text(step: Mapping[str, Any]) -> str:
    """Return one step of the timeline as a line."""
    hook = step["hook"]
    if hook is None:
        return str(step["name"])
    why = hook["block_reason"] or hook["error"] or ""
    return f"{hook['hook_type']} {hook['outcome']}: {hook['target_type']} {hook['target_name']} {why}".rstrip()
