"""How a hook is carried out that is no Python function of the program's own.

    messages    what goes out to one and what comes back: strict JSON within limits
    hops        how often a question has left a process and come back
    codec       how an event is spelt for it, and what its ending means; `NATIVE` is our own spelling
    programs    other programs, run to their end: capped, killed as a group
    command     a hook that is a command
    address     which addresses a webhook may be sent to
    webhook     a hook that is a web service
    agent       a hook that is an agent

A codec for another program's spelling is handed in; the ones that exist are in `dialects/`.
"""
