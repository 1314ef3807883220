"""`amplifier-hooks runs`: runs are queued, listed, stopped and carried out."""

from __future__ import annotations

from pathlib import Path  # typer reads the annotations
from typing import Annotated, Final

import typer

from amplifier_hooks.cli.common.terminal_io import LAST_PORT

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
CHECK: Final = """List all that would fail at run time: flaws of blueprints, and targets that are missing or forbidden.

\b
Examples:
  amplifier-hooks runs check blueprints/
  amplifier-hooks runs check blueprints/ --allow-network 10.0.0.0/8 --allow-http validator:8080
"""
SERVE: Final = """Serve the queue over HTTP: runs are submitted, claimed and completed, and their hooks run here.

Several servers may share one PostgreSQL store. It listens on this machine only, and every caller needs a token.

\b
Examples:
  amplifier-hooks runs serve blueprints/
  amplifier-hooks runs serve blueprints/ --hooks guards:registry
  amplifier-hooks runs serve blueprints/ --store postgresql://localhost/hooks --port 8440
  amplifier-hooks runs serve blueprints/ --allow-network 10.0.0.0/8 --allow-port 8443
"""
WORK: Final = """Carry out queued runs: claim them, and call functions of your own in the place of their agents.

\b
Examples:
  amplifier-hooks runs work my_agents:AGENTS
  amplifier-hooks runs work my_agents:AGENTS --name builder-2
"""
SUBMIT: Final = """Queue a run of an agent, and print its id.

\b
Examples:
  amplifier-hooks runs submit invoice-writer '{"amount": 1200}'
  amplifier-hooks runs submit invoice-writer --parent run_8c1f --json
"""
LIST: Final = """List runs, newest first.

\b
Examples:
  amplifier-hooks runs list
  amplifier-hooks runs list --has-hooks --status failed
  amplifier-hooks runs list --hook-blocked --json
"""
SHOW: Final = """Show one run whole: its timeline, its hooks and their changes, its result and its children.

\b
Examples:
  amplifier-hooks runs show run_8c1f
"""
STOP: Final = """Stop a run: at once if no runner has it, otherwise its runner is told.

\b
Examples:
  amplifier-hooks runs stop run_8c1f --reason "wrong customer"
"""

PORT: Final = 8439

runs_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help=HELP)

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="Of blueprints: *.json.", show_default=False)]
Url = Annotated[
    str, typer.Option(envvar="AMPLIFIER_HOOKS_URL", metavar="URL", help="The coordinator's address.", show_default=True)
]
TokenFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Holds your token; otherwise AMPLIFIER_HOOKS_TOKEN does.", show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Run = Annotated[str, typer.Argument(metavar="ID", help="The run's id.", show_default=False)]
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


@runs_app.command(help=CHECK)
def check(folder: Folder, *, allow_network: Networks = None, allow_port: Ports = None, allow_http: Http = None) -> None:
    """Check a folder of blueprints."""
    from amplifier_hooks.cli.runs import serve_runs

    serve_runs.check_blueprints(folder, (allow_network, allow_port, allow_http))


@runs_app.command(help=SERVE)
def serve(
    folder: Folder,
    *,
    store: Annotated[
        str | None,
        typer.Option(
            envvar="AMPLIFIER_HOOKS_STORE",
            metavar="STORE",
            help="A SQLite file, or postgresql://…; otherwise a file of your own.",
            show_default=False,
        ),
    ] = None,
    hooks: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|MODULE:NAME",
            help="Hooks for the runs of every agent: a file, or a registry.",
            show_default=False,
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=LAST_PORT, help="0 takes a free one.")] = PORT,
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
    """Serve as a coordinator."""
    from amplifier_hooks.cli.runs import serve_runs

    allowed, leases = (allow_network, allow_port, allow_http), (runner_lease, lease)
    serve_runs.serve_runs(folder, store=store, hooks=hooks, port=port, leases=leases, allowed=allowed, as_json=as_json)


@runs_app.command(help=WORK)
def work(
    agents: Annotated[
        str, typer.Argument(metavar="MODULE:NAME", help="A mapping of agent and function.", show_default=False)
    ],
    *,
    name: Annotated[str | None, typer.Option(help="The name of this runner.", show_default=False)] = None,
    url: Url = HERE,
    token_file: TokenFile = None,
) -> None:
    """Work as a runner."""
    from amplifier_hooks.cli.runs import serve_runs

    serve_runs.work_runs(agents, name=name, url=url, token_file=token_file)


@runs_app.command(help=SUBMIT)
def submit(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="The agent to run.", show_default=False)],
    parameters: Annotated[str, typer.Argument(metavar="JSON", help="One object.")] = "{}",
    *,
    parent: Annotated[str | None, typer.Option(metavar="ID", help="The run it belongs to.", show_default=False)] = None,
    session: Annotated[
        str | None, typer.Option(metavar="ID", help="A session to go on with.", show_default=False)
    ] = None,
    url: Url = HERE,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Queue a run."""
    from amplifier_hooks.cli.runs import ask_coordinator

    ask_coordinator.submit_run(agent, parameters, parent, session, at=(url, token_file), as_json=as_json)


@runs_app.command("list", help=LIST)
def list_(
    *,
    has_hooks: Annotated[bool, typer.Option("--has-hooks", help="Only those with hooks.")] = False,
    hook_blocked: Annotated[
        bool, typer.Option("--hook-blocked", help="Only those a hook stopped before they ran.")
    ] = False,
    status: Annotated[
        str | None, typer.Option(metavar="STATUS", help="queued, starting, running, completed, failed, stopped.")
    ] = None,
    agent: Annotated[str | None, typer.Option(metavar="NAME", help="Only of this agent.", show_default=False)] = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="At most so many.")] = 50,
    url: Url = HERE,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """List runs."""
    from amplifier_hooks.cli.runs import ask_coordinator

    wanted = {
        "has_hooks": has_hooks or None,
        "hook_blocked": hook_blocked or None,
        "status": status,
        "agent_name": agent,
    }
    ask_coordinator.list_runs({**wanted, "limit": limit}, at=(url, token_file), as_json=as_json)


@runs_app.command(help=SHOW)
def show(run: Run, *, url: Url = HERE, token_file: TokenFile = None, as_json: AsJson = False) -> None:
    """Show one run."""
    from amplifier_hooks.cli.runs import ask_coordinator

    ask_coordinator.show_run(run, at=(url, token_file), as_json=as_json)


@runs_app.command(help=STOP)
def stop(
    run: Run,
    *,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="The reason, for its readers.")] = None,
    url: Url = HERE,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Stop one run."""
    from amplifier_hooks.cli.runs import ask_coordinator

    ask_coordinator.stop_run(run, reason, at=(url, token_file), as_json=as_json)
