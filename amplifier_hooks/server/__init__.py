"""The server: registry, store, record and approvals in one process, for programs that are not written in Python.

    guest       a session of another program, whose tool calls pass through a coordinator here
    guests      all of them: one for each session of each program
    elsewhere   an approval backend for programs that ask at their own prompt
    place       where it is found
    listening   its socket
    app         the HTTP application: where questions come in

Extra `server`. The command is `amplifier-hooks serve`.
"""
