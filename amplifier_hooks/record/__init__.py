"""Facts of a session come in; a chained and signed log goes out, and so does a verdict on a log.

specs/audit-format.md describes the format. The log redacts before it hashes; the verifier reads the bytes of the
files. Python loads the log on first use.
"""
