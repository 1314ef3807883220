"""The server: registry, store, record and approvals in one process.

    guests      the sessions of other programs: one for each session of each program
    guestbook   what outlives the server of their questions
    elsewhere   an approval backend for programs that ask at their own prompt
    place       where it is found
    listening   its socket
    app         where the questions of programs come in

    api         the HTTP API: the application that the routes are given to
    edge        what is let in before anything is parsed
    access      tokens: who may ask, for which tenant, and for what
    admission   what every route depends on: the caller
    pace        how often one tenant may ask
    problems    what every error looks like
    runs/       runs: queueing, looking, and the runners

Extra `server`. The command is `amplifier-hooks serve`.
"""
