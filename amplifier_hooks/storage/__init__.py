"""Facts come in; a SQLite file, a PostgreSQL database or memory keeps them. The only door to a database.

A store writes its statements once, as a script that yields them and receives their rows; each kind of database drives
the script to its end in one transaction. Messages only wake: a waiter that wakes reads again.
"""
