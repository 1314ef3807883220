"""`amplifier-hooks runs`: runs are queued, listed, stopped and carried out."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path  # typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from amplifier_hooks.cli.common.terminal_io import (
    LAST_PORT,
    AsJson,
    NoInput,
    Store,
    Yes,
    confirm,
    print_json,
    print_text,
    seconds_of,
)
from amplifier_hooks.cli.common.terminal_io import stop as end_command
from amplifier_hooks.errors import HookError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping


HELP: Final = """Queue runs of agents, look at them, and carry them out; hooks run around each of them.

\b
Examples:
  amplifier-hooks runs check blueprints/
  amplifier-hooks token create me --scope runs:create --scope runs:read --scope runs:claim
  amplifier-hooks runs serve blueprints/
  amplifier-hooks runs submit invoice-writer '{"amount": 1200}'
  amplifier-hooks runs list --hook-blocked
  amplifier-hooks runs work my_agents:AGENTS

The coordinator's address: --url, or AMPLIFIER_HOOKS_URL. Your token: --token-file, or AMPLIFIER_HOOKS_TOKEN.
"""

PORT: Final = 8439

runs_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help=HELP)

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="Of blueprints: *.json.")]
Url = Annotated[
    str, typer.Option(envvar="AMPLIFIER_HOOKS_URL", metavar="URL", help="The coordinator's address.", show_default=True)
]
TokenFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Holds your token; otherwise AMPLIFIER_HOOKS_TOKEN does.")
]
Run = Annotated[str, typer.Argument(metavar="ID", help="The run's id.")]
Networks = Annotated[
    list[str] | None,
    typer.Option("--allow-network", metavar="NETWORK", help="Hooks may reach it over https, as 10.0.0.0/8."),
]
Ports = Annotated[
    list[int] | None, typer.Option("--allow-port", metavar="PORT", help="Hooks may reach it over https, besides 443.")
]
Http = Annotated[
    list[str] | None,
    typer.Option("--allow-http", metavar="HOST[:PORT]", help="Hooks may reach it over plain http; port 80 if none."),
]
HERE: Final = f"http://127.0.0.1:{PORT}"


@runs_app.command()
def check(folder: Folder, *, allow_network: Networks = None, allow_port: Ports = None, allow_http: Http = None) -> None:
    """List all that would fail at run time: flaws of blueprints, and targets that are missing or forbidden.

    Examples:
      amplifier-hooks runs check blueprints/
      amplifier-hooks runs check blueprints/ --allow-network 10.0.0.0/8 --allow-http validator:8080
    """
    from amplifier_hooks.cli.runs import serve_runs

    serve_runs.check_blueprints(folder, (allow_network, allow_port, allow_http))


@runs_app.command()
def serve(
    folder: Folder,
    *,
    store: Store = None,
    hooks: Annotated[
        str | None,
        typer.Option(metavar="FILE|MODULE:NAME", help="Hooks for the runs of every agent: a file, or a registry."),
    ] = None,
    port: Annotated[int, typer.Option(metavar="PORT", min=0, max=LAST_PORT, help="0 takes a free one.")] = PORT,
    runner_lease: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="Seconds that a runner may be silent.")
    ] = 60.0,
    lease: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="Seconds that a coordinator may be silent.")
    ] = 30.0,
    allow_network: Networks = None,
    allow_port: Ports = None,
    allow_http: Http = None,
    as_json: AsJson = False,
) -> None:
    """Serve the queue over HTTP: runs are submitted, claimed and completed, and their hooks run here.

    Several servers may share one PostgreSQL store. It listens on this machine only, and every caller needs a token.

    Examples:
      amplifier-hooks runs serve blueprints/
      amplifier-hooks runs serve blueprints/ --hooks guards:registry
      amplifier-hooks runs serve blueprints/ --store postgresql://localhost/hooks --port 8440
      amplifier-hooks runs serve blueprints/ --allow-network 10.0.0.0/8 --allow-port 8443
    """
    from amplifier_hooks.cli.runs import serve_runs

    allowed, leases = (allow_network, allow_port, allow_http), (runner_lease, lease)
    serve_runs.serve_runs(folder, store=store, hooks=hooks, port=port, leases=leases, allowed=allowed, as_json=as_json)


@runs_app.command()
def work(
    agents: Annotated[str, typer.Argument(metavar="MODULE:NAME", help="A mapping of agent and function.")],
    *,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="The name of this runner.")] = None,
    url: Url = HERE,
    token_file: TokenFile = None,
) -> None:
    """Carry out queued runs: claim them, and call functions of your own in the place of their agents.

    Examples:
      amplifier-hooks runs work my_agents:AGENTS
      amplifier-hooks runs work my_agents:AGENTS --name builder-2
    """
    from amplifier_hooks.cli.runs import serve_runs

    serve_runs.work_runs(agents, name=name, url=url, token=token_in(token_file))


@runs_app.command()
def submit(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="The agent to run.")],
    parameters: Annotated[str, typer.Argument(metavar="JSON", help="One object.")] = "{}",
    *,
    parent: Annotated[str | None, typer.Option(metavar="ID", help="The run it belongs to.")] = None,
    session: Annotated[str | None, typer.Option(metavar="ID", help="A session to go on with.")] = None,
    url: Url = HERE,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Queue a run of an agent, and print its id.

    Examples:
      amplifier-hooks runs submit invoice-writer '{"amount": 1200}'
      amplifier-hooks runs submit invoice-writer --parent run_8c1f --json
    """
    import json

    try:
        given = json.loads(parameters)
    except ValueError as problem:
        raise typer.BadParameter(f"the parameters are no JSON: {problem}") from None
    if not isinstance(given, dict):
        raise typer.BadParameter("the parameters are one JSON object")

    body = {"agent_name": agent, "parameters": given, "parent_run_id": parent, "session_id": session}
    ask = ("POST", "/runs", {"body": body})
    print_answer((url, token_file), ask, lambda answer: [answer["run_id"]], as_json=as_json)


@runs_app.command("list")
def list_(
    *,
    has_hooks: Annotated[bool, typer.Option("--has-hooks", help="Only those with hooks.")] = False,
    hook_blocked: Annotated[
        bool, typer.Option("--hook-blocked", help="Only those a hook stopped before they ran.")
    ] = False,
    status: Annotated[
        str | None, typer.Option(metavar="STATUS", help="queued, starting, running, completed, failed, stopped.")
    ] = None,
    agent: Annotated[str | None, typer.Option(metavar="NAME", help="Only of this agent.")] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=500, help="At most so many.")] = 50,
    url: Url = HERE,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """List runs, newest first.

    Examples:
      amplifier-hooks runs list
      amplifier-hooks runs list --has-hooks --status failed
      amplifier-hooks runs list --hook-blocked --json
    """
    asked = {"has_hooks": has_hooks, "hook_blocked": hook_blocked, "status": status, "agent_name": agent}
    wanted = {name: value for name, value in asked.items() if value}
    ask = ("GET", "/runs", {"params": {**wanted, "limit": limit}})
    print_answer((url, token_file), ask, list_lines, as_json=as_json)


@runs_app.command()
def show(run: Run, *, url: Url = HERE, token_file: TokenFile = None, as_json: AsJson = False) -> None:
    """Show one run whole: its timeline, its hooks and their changes, its result and its children.

    Examples:
      amplifier-hooks runs show run_8c1f
    """
    print_answer((url, token_file), ("GET", f"/runs/{run}", {}), page_of, as_json=as_json)


@runs_app.command()
def stop(
    run: Run,
    *,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="The reason, for its readers.")] = None,
    url: Url = HERE,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Stop a run: at once if no runner has it, otherwise its runner is told.

    Examples:
      amplifier-hooks runs stop run_8c1f --reason "wrong customer"
    """
    ask = ("POST", f"/runs/{run}/stop", {"body": {} if reason is None else {"reason": reason}})
    print_answer((url, token_file), ask, lambda answer: [run_line(answer)], as_json=as_json)


@runs_app.command()
def purge(
    *,
    older_than: Annotated[
        str, typer.Option(metavar="TIME", help="Time since the run ended: 90s, 30m, 12h, 7d.")
    ] = "7d",
    yes: Yes = False,
    no_input: NoInput = False,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Remove runs that ended long ago, with their parameters, results and events.

    It works on the store itself, while servers run or not. Runs that go on, or whose finish hooks are still owed, stay.

    Examples:
      amplifier-hooks runs purge
      amplifier-hooks runs purge --older-than 30d --yes --store postgresql://localhost/hooks
    """
    from amplifier_hooks.cli.runs import serve_runs

    seconds = seconds_of(older_than, "--older-than")
    confirm(f"Remove for good the runs that ended more than {older_than} ago?", yes=yes, no_input=no_input)
    serve_runs.purge_runs(seconds, store=store, as_json=as_json)


At = tuple[str, "Path | None"]
"""The URL of the coordinator, and the file of the token."""
Ask = tuple[str, str, "dict[str, Any]"]
"""The method, the path, and the parameters or the body of a request."""


def token_in(file: Path | None) -> str:
    """Return the token from the file, or from the environment without one. Ends the command if there is none."""
    try:
        token = os.environ.get("AMPLIFIER_HOOKS_TOKEN", "") if file is None else file.read_text("ascii")
    except (OSError, UnicodeError) as problem:
        raise typer.BadParameter(f"{file}: {problem}") from None
    if not token.strip():
        raise typer.BadParameter("there is no token; set AMPLIFIER_HOOKS_TOKEN, or name --token-file")
    return token.strip()


def print_answer(at: At, ask: Ask, lines: Callable[[dict[str, Any]], Iterable[str]], *, as_json: bool) -> None:
    """Print the coordinator's answer, as JSON or as lines; print a refusal, and end the command."""
    from amplifier_hooks.runs.runner import Runner

    url, file = at
    token = token_in(file)

    async def answered() -> dict[str, Any]:
        method, path, given = ask
        async with Runner(url, token) as client:
            return await client.ask(method, path, **given)

    try:
        answer = asyncio.run(answered())
    except HookError as problem:
        end_command(str(problem))
    if as_json:
        print_json(answer, None)
        return
    for line in lines(answer):
        print_text(line)


def list_lines(page: Mapping[str, Any]) -> Iterator[str]:
    """Return the lines of a list of runs."""
    yield from map(run_line, page["runs"])
    if not page["runs"]:
        typer.echo("There are no such runs.", err=True)


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
