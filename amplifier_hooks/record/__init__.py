"""Facts of a session come in; a chained and signed log, and verdicts on one, go out.

The format is described in specs/audit-format.md. Redaction comes before hashing; verification reads the bytes
themselves. The log loads on first use.
"""
