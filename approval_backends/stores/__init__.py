"""Requests, decisions and grants come in; a SQLite file, PostgreSQL or memory keeps them.

All three follow the table in `lifecycle.py` with the same compare-and-set, and one conformance suite runs over them.
"""
