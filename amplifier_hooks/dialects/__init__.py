"""How other agent programs spell hooks: to run theirs here, and to be a hook of theirs.

    dialect       what a dialect is: its events and fields, and `DialectCodec`, which speaks it to commands and services
    claude_code   the first, and what the others are compared with
    codex         nearly the same shape; stricter answers, fewer of them
    gemini        names, units and answers of its own
    settings      their settings files, read into hooks that can be registered
    guest         a session of such a program, whose tool calls pass through a coordinator here
    trust         whether somebody has read what a project's files would run

Each dialect is a table of events plus two functions, `read` and `write`, between its answers and a `Verdict`.
"""
