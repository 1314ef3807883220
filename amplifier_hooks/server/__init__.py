"""The server: registry, store, record and approvals in one process.

Programs ask here what their hooks say:

    place       where their socket is found
    app         where their questions come in
    guests      their sessions: one for each session of each program
    guestbook   what outlives the server of their questions
    elsewhere   an approval backend for programs that ask at their own prompt

The HTTP API is for people and programs with a token. A request passes, in this order:

    listening   sockets and connections: slow ones, too many of them, and closing
    edge        what is let in before anything is parsed
    admission   who asks: a token of `access`, at the `pace` of its tenant
    hooks       routes: definitions, and trying them; `keeper` puts a change on record, makes it, puts it in force
    executions  routes: what hooks did
    approvals   routes: what waits for an answer
    metrics     route: for Prometheus; `health` is for whoever asks whether all is well
    runs/       routes: queueing, looking, and the runners
    pages       the pages of hooks and runs

`bodies` is what goes in and comes out, `paging` how lists are cut, `problems` what every error looks like, `standing`
what is in force of the store, and `trials` tries one hook alone. `api` makes the application of these routes, and
`management` puts all of it together.

Extra `server`. The command is `amplifier-hooks serve`.
"""
