"""`amplifier-hooks chat`: the command and its options; they become a session, and the exit code goes out."""

from __future__ import annotations

from pathlib import Path  # typer reads the annotations
from typing import Annotated, Literal

import typer

from amplifier_hooks.cli.common.terminal_io import Directory, NeverAsk, NoSelfProtection, RecordFile, RulesFile, stop


def chat(
    *,
    prompt: Annotated[
        str | None, typer.Option("--prompt", "-p", metavar="TEXT", help="Send this prompt, and end.")
    ] = None,
    directory: Directory = Path(),
    hooks: Annotated[
        str | None,
        typer.Option(metavar="FILE|MODULE:NAME", help="The hooks; otherwise those of amplifier-hooks.yaml there."),
    ] = None,
    rules: RulesFile = None,
    provider: Annotated[
        Literal["auto", "anthropic", "openai", "script"], typer.Option(help="The provider of the model.")
    ] = "auto",
    model: Annotated[str | None, typer.Option(metavar="NAME", help="The model's name.")] = None,
    store: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Approve also at this store, by another program.")
    ] = None,
    record: RecordFile = None,
    no_input: NeverAsk = False,
    no_self_protection: NoSelfProtection = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --prompt: the result of the turn, as JSON.")] = False,
) -> None:
    """Talk to a model that works in a folder, with your hooks in front of everything it does.

    Examples:
      amplifier-hooks chat                                    in this folder, with the hooks of its amplifier-hooks.yaml
      amplifier-hooks chat --store approvals.db               asks there, too: approvals watch, or the page of serve
      amplifier-hooks chat -p "mend the tests" --json         one turn, for programs
      OPENAI_BASE_URL=http://127.0.0.1:11434/v1 amplifier-hooks chat --model qwen3

    The model is Anthropic's with ANTHROPIC_API_KEY, OpenAI's or a compatible one with OPENAI_API_KEY or
    OPENAI_BASE_URL; without any of them a script that understands read, write and run. Ctrl-C ends a turn, Ctrl-D the
    chat.
    """
    if as_json and prompt is None:
        raise typer.BadParameter("it needs --prompt", param_hint="--json")
    import asyncio
    import os
    from uuid import uuid4

    from amplifier_hooks.cli.chat.chat_session import one_turn, open_chat, talk
    from amplifier_hooks.cli.chat.models import model_from
    from amplifier_hooks.cli.project.read_project import hooks_named, hooks_of_folder
    from amplifier_hooks.errors import HookError
    from amplifier_hooks.programs.guarded_processes import marked
    from amplifier_hooks.storage.database import StoreUnavailable
    from amplifier_hooks.storage.state_folder import StateFolder

    folder = directory.resolve()

    async def run() -> int:
        async with chat as opened:
            done = talk(opened, kept) if prompt is None else one_turn(opened, prompt, kept, as_json=as_json)
            return await done

    try:
        records = StateFolder().make().chats
        records.mkdir(mode=0o700, exist_ok=True)
        kept = record.resolve() if record else records / f"{uuid4().hex}.jsonl"
        chat = open_chat(
            folder,
            hooks_of_folder(directory) if hooks is None else hooks_named(hooks),
            model_from(os.environ, provider, model),
            kept,
            rules=rules and rules.resolve(),
            store=store,
            ask=not no_input,
            protect=not no_self_protection,
            quiet=as_json,
        )
        os.chdir(folder)  # hooks and their commands expect to run there
        with marked(protects=not no_self_protection):
            raise typer.Exit(asyncio.run(run()))
    except (OSError, StoreUnavailable, HookError) as problem:
        stop(f"The chat cannot go on: {problem}")
