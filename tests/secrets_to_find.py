"""Texts with a secret in them: the text, the kind of the secret, and the secret."""

from __future__ import annotations

from typing import Final

__all__ = ["FOUND", "PEM", "VALUE"]

VALUE: Final = "a1B2" * 9
PEM: Final = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE\n-----END EC PRIVATE KEY-----"

FOUND: Final = [
    (f"ghp_{VALUE}", "token", f"ghp_{VALUE}"),
    (f"sk-ant-api03-{VALUE}", "token", f"sk-ant-api03-{VALUE}"),
    ("AKIAIOSFODNN7EXAMPLE", "access key", "AKIAIOSFODNN7EXAMPLE"),
    ("eyJhbGciOiJI.eyJzdWIiOiIx.c2ln", "JSON web token", "eyJhbGciOiJI.eyJzdWIiOiIx.c2ln"),
    (f"bearer {VALUE}", "bearer token", VALUE),
    ("Authorization: Basic dXNlcjpwYXNz", "authorization", "Basic dXNlcjpwYXNz"),
    ("export DB_PASSWORD=hunter22", "password", "hunter22"),
    ('{"api_key": "hunter22"}', "password", "hunter22"),
    ("postgres://user:hunter22@db/x", "password in a URL", "hunter22"),
    (PEM, "private key", PEM),
    ("swordfish-42", "known secret", "swordfish-42"),
    ("correct horse battery", "known secret", "correct horse battery"),
]
