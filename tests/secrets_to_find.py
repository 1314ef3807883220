"""Texts with a secret in them (the text, the kind of the secret, and the secret), and texts without one."""

from __future__ import annotations

from typing import Final

__all__ = ["FOUND", "INNOCENT", "PEM", "VALUE"]

VALUE: Final = "a1B2" * 9
PEM: Final = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE\n-----END EC PRIVATE KEY-----"
PGP: Final = "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nlQHYBF\n-----END PGP PRIVATE KEY BLOCK-----"
ENCODED: Final = "LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVktLS0tLQpNSUlF"

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
    (PGP, "private key", PGP),
    (f"tls.key: {ENCODED}", "private key", ENCODED),
    (r"{\"api_key\": \"hunter22\"}", "password", "hunter22"),
    ("api_key%22%3A%22hunter22%22", "password", "%22hunter22%22"),
    ("password   =   hunter22", "password", "hunter22"),
    ('password := "hunter22"', "password", "hunter22"),
    ("'password' => 'hunter22'", "password", "hunter22"),
    ('{"name": "DB_PASSWORD", "value": "hunter22"}', "password", "hunter22"),
    ("- name: DB_PASSWORD\n  value: hunter22", "password", "hunter22"),
    ("<db:password>hunter22</db:password>", "password", "hunter22"),
    ("login --user ann --password hunter22", "password", "hunter22"),
    ('password = "hunter(2)[2],3;"', "password", "hunter(2)[2],3;"),
    ('passphrase: "correct horse staple"', "password", "correct horse staple"),
    ("Server=db;Uid=ann;Pwd=hunter22;", "password", "hunter22"),
    ("AccountKey=aHVudGVyMjI=;", "password", "aHVudGVyMjI="),
    ('["Authorization", "Basic dXNlcjpwYXNz"]', "authorization", "Basic dXNlcjpwYXNz"),
    ("Set-Cookie: sid=a1b2c3d4e5; Path=/", "cookie", "sid=a1b2c3d4e5; Path=/"),
    (f"https://{VALUE}@example.org/x.git", "password in a URL", VALUE),
    ("swordfish-42", "known secret", "swordfish-42"),
    ("correct horse battery", "known secret", "correct horse battery"),
]

INNOCENT: Final = [
    "password: string;",
    '"password": "string"',
    "def login(password: Optional[str] = None) -> None: ...",
    'token = request.headers["x-token"]',
    "token = get_token(1)",
    "login(token=self._token)",
    "secret = process.env.MY_SECRET;",
    "mysql --password=$DB_PASSWORD",
    'mysql --password="$DB_PASSWORD"',
    "password=${DB_PASSWORD}",
    "if password == confirmation:",
    "password: ********",
    "docker login --password-stdin registry.example.org",
    "<label>Password</label><input name=password>",
    "PWD=/home/robin/project",
    "reading the token, and its value",
    "ssh://git@example.org/x.git",
    "the cookie: a small text",
    "-----BEGIN PUBLIC KEY-----",
]
"""Texts that come near to having one, and stay as they are."""
