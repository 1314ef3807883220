"""Where requests, decisions and grants live.

    base        what a store promises, as a contract; the limits; an event
    codec       records as columns and back
    script      the transactions that both databases run
    memory      gone with the process
    sqlite      one file, one machine; the default
    postgres    many machines
    address     which of them is meant, by a path or a DSN

All three follow the table in `lifecycle.py` with the same compare-and-set, and one conformance suite runs over them.
"""
