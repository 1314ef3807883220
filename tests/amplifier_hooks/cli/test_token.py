"""The command that makes, lists and ends tokens of the HTTP API."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from amplifier_hooks.cli.app import app
from amplifier_hooks.server.edge.access_tokens import ACCESS_TABLES, SCOPES, AccessToken, AccessTokens
from amplifier_hooks.storage.sqlite import SqliteDatabase


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder for the test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that the command finds by the environment."""
    path = tmp_path / "hooks.db"
    monkeypatch.setenv("AMPLIFIER_HOOKS_STORE", str(path))
    return path


def run(*arguments: str) -> Result:
    """Run the command here."""
    return CliRunner().invoke(app, ["token", *arguments])


def bearer(path: Path, secret: str) -> AccessToken | None:
    """Return the token that a server over this store finds for a secret."""

    async def looked_up() -> AccessToken | None:
        async with SqliteDatabase(path, ACCESS_TABLES) as database:
            return await AccessTokens(database).bearer(secret)

    return asyncio.run(looked_up())


@pytest.mark.rule("CLI-1")
def test_the_help_names_every_scope() -> None:
    """The help of `create` has each scope that a token may have."""
    text = run("create", "--help").stdout
    assert [scope for scope in SCOPES if scope not in text] == []


@pytest.mark.rule("API-6")
def test_a_token_is_made_listed_and_ended(store: Path) -> None:
    """A token is printed when it is made, and never again; once revoked it opens nothing."""
    made = run("create", "ci", "--tenant", "acme", "--scope", "hooks:manage", "--days", "1")
    secret = made.stdout.strip()
    token = bearer(store, secret)
    assert token is not None
    assert (token.name, token.tenant, sorted(token.scopes)) == ("ci", "acme", ["hooks:manage"])
    assert token.expires
    listed = run("list", "--json")
    assert secret not in listed.stdout
    assert [one["id"] for one in json.loads(listed.stdout)] == [token.id]
    assert token.id in run("list").stdout
    assert run("revoke", token.id).exit_code == 0
    assert bearer(store, secret) is None
    assert "revoked" in run("list").stdout


@pytest.mark.rule("API-6")
def test_for_programs(store: Path) -> None:
    """With --json everything about a new token is one value."""
    made = json.loads(run("create", "ops", "--scope", "hooks:admin", "--json").stdout)
    assert (made["tenant"], made["scopes"], made["expires"]) == ("", ["hooks:admin"], None)
    token = bearer(store, made["token"])
    assert token is not None


@pytest.mark.rule("API-6", "CLI-3")
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["create", "ci", "--scope", "hooks:everything"], 2),
        (["create", "ci", "--tenant", "acme", "--scope", "hooks:admin"], 2),
        (["create", "ci", "--scope", "hooks:read", "--store", "mysql://x"], 2),
        (["revoke", "tok_nobody"], 1),
        (["list", "--store", "/dev/null/hooks.db"], 1),
    ],
)
def test_what_cannot_be(store: Path, arguments: list[str], code: int) -> None:
    """A wrong call ends with 2 and shows a valid one; a failure ends with 1."""
    result = run(*arguments)
    assert result.exit_code == code
    assert result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.rule("API-6")
def test_an_empty_list(store: Path) -> None:
    """An empty list names the command that makes a token."""
    assert "token create" in run("list").stderr


@pytest.mark.rule("API-6")
@pytest.mark.parametrize(
    "arguments",
    [
        ["ci", "--tenant", ""],
        ["ci", "--tenant", "my team"],
        ["ci", "--tenant", "../other"],
        ["ci", "--days", "1e300"],
        ["ci", "--days", "inf"],
        ["ci", "--days", "0"],
        [" ci"],
        ["x" * 101],
    ],
)
def test_tokens_nobody_means(store: Path, arguments: list[str]) -> None:
    """An empty tenant is no token of the system; an impossible tenant or lifetime is refused."""
    result = run("create", *arguments, "--scope", "hooks:read")
    assert result.exit_code == 2
    assert not result.stdout
    assert "Traceback" not in result.stderr
    assert "no tokens" in run("list").stderr


def records(path: Path, kind: str) -> list[dict[str, Any]]:
    """Return the facts of one kind in a record."""
    return [one["facts"] for one in map(json.loads, path.read_text().splitlines()) if one["kind"] == kind]


@pytest.mark.rule("API-6", "API-12")
def test_tokens_are_on_record(store: Path, own_state: Path) -> None:
    """The record proves who made and who ended a token, and never has the secret itself."""
    secret = run("create", "ci", "--tenant", "acme", "--scope", "hooks:manage").stdout.strip()
    token = bearer(store, secret)
    assert token is not None
    run("revoke", token.id)
    path = own_state / "amplifier-hooks" / "tokens.jsonl"
    (made,), (ended,) = records(path, "token.created"), records(path, "token.revoked")
    assert made["bearer"] == ended["bearer"] == token.id
    assert (made["name"], made["tenant"], made["scopes"]) == ("ci", "acme", ["hooks:manage"])
    assert made["by"]
    assert secret not in path.read_text()
    checked = CliRunner().invoke(app, ["audit", "verify", str(path)])
    assert checked.output.startswith("cannot tell: The checks do not prove the log; the findings name the reasons.")


@pytest.mark.rule("API-6", "API-12")
def test_without_a_record_there_is_no_token(store: Path) -> None:
    """Without a writable record no token is made and none is ended."""
    secret = run("create", "ci", "--scope", "hooks:read").stdout.strip()
    token = bearer(store, secret)
    assert token is not None
    for arguments in (["create", "other", "--scope", "hooks:read"], ["revoke", token.id]):
        result = run(*arguments, "--record", "/dev/null/tokens.jsonl")
        assert result.exit_code == 1
        assert not result.stdout
    assert bearer(store, secret) is not None
    assert len(json.loads(run("list", "--json").stdout)) == 1
