"""The file that `amplifier-hooks init` writes. Removing the `#:` of its lines switches an example on."""

from __future__ import annotations

from typing import Final

PRESET: Final = "preset: balanced # or careful, or open"


def template(preset: str = "balanced") -> str:
    """Return the text of the file with a preset of `guard`."""
    others = " or ".join(f"{name}," for name in ("careful", "balanced", "open") if name != preset).rstrip(",")
    return TEMPLATE.replace(PRESET, f"preset: {preset} # or {others}")


TEMPLATE: Final = """\
# Hooks of this project: they watch, deny, change or ask when an agent works here.
#
#   amplifier-hooks validate      is all of it right?
#   amplifier-hooks list          the hooks, their order, and what a failure of each means
#   amplifier-hooks test tool:pre --tool Write     which hooks would see a write?
#   amplifier-hooks chat          try it; no key is needed
version: 1

# Ready-made hooks, by name. Each has settings of its own; {} are its defaults.
library:
  # Predicts what a tool call would do, and runs nothing. Most calls pass; a person is asked about lost work, secrets,
  # files that start programs, all that leaves the machine, and what cannot be read. No sandbox: tests and scripts of
  # the project may do anything.
  guard:
    preset: balanced # or careful, or open
    trusted_hosts: [] # ".example.org" covers every name below
    trusted_folders: [] # folders outside the project that agents may write
    trusted_programs: [] # programs that no table names, as harmless as code of the project

  # Keys and passwords are taken out of prompts, tool inputs and tool results.
  redact_secrets: {}

  # Stops a loop that runs away: at most so many tool calls of a session begin within so many seconds. The busiest
  # minute in transcripts of real agents (18,203 calls) had 128 calls, those of subagents in parallel included.
  rate_limit:
    calls: 600
    seconds: 60

  # The linter reads each written file, and the agent mends its findings in the same turn. Fails open.
  linter_feedback: {} # ruff, unless a command is named

  # Text in results that means to steer the agent is pointed out to it; a person is asked about prompts and
  # inputs of agents with such text. No defence: text it misses may be harmful.
  injection_scan:
    inputs: ask # or deny, or leave

  # The agent reads a usual remedy when a tool fails.
  recovery_hint: {}

# Hooks of your own: take the "#:" of an example away, and it is one. Lower priorities run first; from 0 to 99 a hook
# that fails denies, from 100 on it is skipped.
hooks:
#:  # A command: reads {"event", "data"} as JSON; exit status 2 denies, and standard error says why.
#:  - name: no wiping
#:    event_type: tool:pre
#:    matcher: kind:shell
#:    priority: 10
#:    handler_ref: command
#:    config:
#:      argv: [sh, -c, "grep -q 'rm -rf' && { echo 'rm -rf is not for agents' >&2; exit 2; } || exit 0"]

#:  # Python: a function in a file beside this one. For example, in my_hooks.py:
#:  #
#:  #   from amplifier_hooks import HookResult
#:  #
#:  #   def no_publishing(event, data):
#:  #       if "git push" in data["tool_input"]["command"]:
#:  #           return HookResult.ask("Publish this?")
#:  #
#:  - name: no publishing
#:    event_type: tool:pre
#:    matcher: kind:shell
#:    priority: 10
#:    handler_ref: my_hooks:no_publishing

#:  # A web service: a signed POST, and an answer that has to be signed as well.
#:  - name: audit service
#:    event_type: tool:post
#:    handler_ref: http
#:    enabled: false # until the variable AUDIT_SECRET is set
#:    config: {url: "https://hooks.example.com/audit", secret_env: AUDIT_SECRET, mode: async}

# Settings for all hooks of your own; a variable such as AMPLIFIER_HOOKS_ENABLED wins over the file.
settings:
  hooks_enabled: true
"""
