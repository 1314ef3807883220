"""`amplifier-hooks chat`: the command and its options; they become a session, and the exit code goes out."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path  # typer reads the annotations
from typing import Annotated, Final

import typer

CHAT: Final = """Talk to a model that works in a folder, with your hooks in front of everything it does.

\b
Examples:
  amplifier-hooks chat                                    in this folder, with the hooks of its amplifier-hooks.yaml
  amplifier-hooks chat --web                              with a page to approve on, beside this terminal
  amplifier-hooks chat -p "mend the tests" --json         one turn, for programs
  OPENAI_BASE_URL=http://127.0.0.1:11434/v1 amplifier-hooks chat --model qwen3

The model is Anthropic's with ANTHROPIC_API_KEY, OpenAI's or a compatible one with OPENAI_API_KEY or OPENAI_BASE_URL;
without any of them a script that understands read, write and run. In the chat, /help lists the other commands.
"""
ENDING: Final = "Exit codes: 0 it worked, 1 the turn was denied or failed, 2 it was called wrongly."


class ProviderName(StrEnum):
    """The provider of the model."""

    AUTO = "auto"
    ANTHROPIC = "anthropic"
    OPENAI = "openai"
    SCRIPT = "script"


def chat(
    *,
    prompt: Annotated[
        str | None, typer.Option("--prompt", "-p", metavar="TEXT", help="Send this prompt, and end.")
    ] = None,
    directory: Annotated[
        Path, typer.Option("--directory", "-C", metavar="DIR", help="The folder it works in.")
    ] = Path(),
    hooks: Annotated[
        str | None,
        typer.Option(metavar="FILE|MODULE:NAME", help="The hooks; otherwise those of amplifier-hooks.yaml there."),
    ] = None,
    rules: Annotated[Path | None, typer.Option(metavar="FILE", help="Rules that decide without a person.")] = None,
    provider: Annotated[ProviderName, typer.Option(help="The provider of the model.")] = ProviderName.AUTO,
    model: Annotated[str | None, typer.Option(metavar="NAME", help="The model's name.")] = None,
    web: Annotated[bool, typer.Option("--web", help="Approve on a page as well.")] = False,
    store: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Approve also at this store, by another program."),
    ] = None,
    record: Annotated[Path | None, typer.Option(metavar="FILE", help="The record; otherwise one of your own.")] = None,
    budget: Annotated[
        int | None,
        typer.Option(metavar="TOKENS", min=0, help="Tokens that hooks may inject in a turn."),
    ] = None,
    no_input: Annotated[
        bool, typer.Option("--no-input", help="Never ask; deny the calls that need an answer.")
    ] = False,
    no_self_protection: Annotated[
        bool, typer.Option("--no-self-protection", help="Let the model change what guards it; the record says so.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --prompt: the result of the turn, as JSON.")] = False,
) -> None:
    """Check what can be checked beforehand, then talk."""
    if as_json and prompt is None:
        raise typer.BadParameter("it needs --prompt", param_hint="--json")
    if not directory.is_dir():
        raise typer.BadParameter(f"{directory} is no folder", param_hint="--directory")
    if no_input and web:
        raise typer.BadParameter("the page asks, and --no-input forbids it", param_hint="--no-input and --web")
    import asyncio
    import os

    from amplifier_hooks.cli.chat.chat_session import ChatOptions, agreeing
    from amplifier_hooks.cli.chat.models import model_from
    from amplifier_hooks.cli.chat.read_input import one_turn, talk
    from amplifier_hooks.cli.project.read_project import hooks_named, hooks_of_folder
    from amplifier_hooks.errors import HookError
    from amplifier_hooks.programs.guarded_processes import marked
    from amplifier_hooks.storage.database import StoreUnavailable
    from amplifier_hooks.text.escape import for_terminal

    folder, rules, record = (None if path is None else path.resolve() for path in (directory, rules, record))
    try:
        agree = agreeing(ask=not no_input)
        wishes = ChatOptions(
            folder=folder or Path(),
            hooks=hooks_of_folder(directory, agree) if hooks is None else hooks_named(hooks),
            model=model_from(os.environ, provider.value, model),
            rules=rules,
            record=record,
            store=store,
            ask=not no_input,
            web=web,
            budget=budget,
            protect=not no_self_protection,
        )
        os.chdir(wishes.folder)  # hooks and their commands expect to run there
        done = talk(wishes) if prompt is None else one_turn(wishes, prompt, as_json=as_json)
        with marked(protects=not no_self_protection):
            code = asyncio.run(done)
    except (OSError, StoreUnavailable, HookError) as problem:
        typer.echo(f"The chat cannot go on: {for_terminal(str(problem))}", err=True)
        code = 1
    except KeyboardInterrupt:
        code = 1
    raise typer.Exit(code)
