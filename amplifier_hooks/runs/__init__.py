"""Hooks around a whole run: one job of one agent, from its parameters to its result.

    errors      what goes wrong, and whose turn it is then
    schema      schemas of parameters and results; the only door to jsonschema-rs
    contained   what other people's code may not do
    blueprint   an agent as data, and the hooks around its runs
    agents      the blueprints there are
    life        a run's life as one table
    events      what is told of a run
    codec       runs and events as columns and back
    tables      the tables they are kept in
    orders      what is asked of a store
    turns       what becomes of a run, and what is told of that
    statements  the statements over runs
    scripts     the transactions, put together from them
    store       the face of all stores; memory and SQLite
    postgres    many coordinators: the common way in two statements
    answers     what hooks are given, and what their answers mean
    carriers    how the hooks of blueprints are carried out
    around      the hooks before a run and after it
    poller      a runner that waits
    lane        one transaction for all who came while the last one was under way
    coordinator the heart: queue, claim, hooks, completion
    runner      the other side: claims over HTTP, and does what agents do

What a hook needs from elsewhere, Python functions by their path or settings of the environment, is handed in.
"""
