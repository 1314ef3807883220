"""Any value becomes a line, or a statement about its omission."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import sys
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.record.encode_facts import ROOM, Encoder, Heavy, Redactor
from amplifier_hooks.record.log import AuditLog
from amplifier_hooks.record.log_files import AuditKey
from amplifier_hooks.testing import ScriptedApprover
from amplifier_hooks.text.secrets import is_secret_name
from tests.cases import each
from tests.records import facts, kinds

if TYPE_CHECKING:
    from pathlib import Path

PLAIN = Encoder(None)
HIDING = Encoder(Redactor(b"k" * 32, environment={}))


def told(facts: object, encoder: Encoder = PLAIN) -> Any:
    """Return the facts as a reader decodes them. The bytes are ASCII, one line, and within their room."""
    data = encoder.encode("note", facts, patient=True)  # type: ignore[arg-type]  # some are no mapping
    assert data.isascii()
    assert b"\n" not in data
    assert len(data) <= ROOM + 20
    return json.loads(b"{" + data + b"}")["facts"]


def sha256(text: str) -> str:
    """Return the digest of a text, lone surrogates included."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class Colour(Enum):
    """A choice."""

    RED = "red"


class Rude:
    """A value whose own code fails."""

    def __str__(self) -> str:
        raise RuntimeError("no")


class Loud(str):
    """A text whose `str` is another text."""

    __slots__ = ()

    def __str__(self) -> str:
        return "something else"


def nested(depth: int) -> list[Any]:
    """Return lists nested to a depth."""
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


CIRCULAR: dict[str, Any] = {"name": "x"}
CIRCULAR["self"] = [CIRCULAR]

REPLACED: dict[str, tuple[Any, Any]] = {
    "not a number": (float("nan"), {"$omitted": "float", "why": "nan"}),
    "infinity": (float("-inf"), {"$omitted": "float", "why": "-inf"}),
    "a huge integer": (10**10_000, {"$omitted": "int", "why": "size", "length": 33_220}),
    "half a character": (
        "a\ud800",
        {"$omitted": "str", "why": "lone surrogate", "length": 2, "sha256": sha256("a\ud800")},
    ),
    "bytes": (b"\xff\n", {"$bytes": 2, "sha256": hashlib.sha256(b"\xff\n").hexdigest()}),
    "a circle": (CIRCULAR, {"name": "x", "self": [{"$omitted": "dict", "why": "circular"}]}),
    "too many members": (list(range(5_000)), {"$omitted": "list", "why": "size", "length": 5_000}),
    "an object": (Rude(), {"$omitted": "Rude", "why": "not a value of the record"}),
    "an exception": (ValueError(Rude()), {"$omitted": "ValueError", "why": "it raised RuntimeError"}),
    "a time": (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00"),
    "a day": (date(2026, 1, 2), "2026-01-02"),
    "a duration": (timedelta(seconds=2), 2.0),
    "a decimal": (Decimal("1.10"), "1.10"),
    "a path": (PurePosixPath("/tmp/x"), "/tmp/x"),  # a name only
    "a uuid": (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    "a choice": (Colour.RED, "red"),
    "a class": (Rude, "Rude"),
    "a set": ({1}, [1]),
    "a view": (MappingProxyType({"a": 1}), {"a": 1}),
    "a loud text": (Loud("quiet"), "quiet"),
    "a name that is ours": ({"$omitted": 1, "$$x": 2}, {"$$omitted": 1, "$$$x": 2}),
    "names that are no texts": ({1: "a", None: "b"}, {"1": "a", "None": "b"}),
    "as it is": ({"a": [1, -1.5, True, None, "é\u2028"]}, {"a": [1, -1.5, True, None, "é\u2028"]}),
    "the largest integer": (2**63 - 1, 2**63 - 1),
    "a larger one": (2**63, {"$omitted": "int", "why": "size", "length": 64}),
}


@pytest.mark.rule("AUD-4")
@pytest.mark.fault("F-AUD-11")
@each("case", REPLACED)
@each("encoder", [PLAIN, HIDING])
def test_values(case: str, encoder: Encoder) -> None:
    """Every type has its rule: the value is written unchanged, as something readable, or as an omission."""
    value, written = REPLACED[case]
    assert told({"value": value}, encoder) == {"value": written}


@pytest.mark.rule("AUD-4")
@pytest.mark.fault("F-AUD-11")
def test_deep() -> None:
    """Endless nesting is cut at a depth, and the record says so there."""
    value, depth = told({"value": nested(5_000)})["value"], 1
    while isinstance(value, list):
        (value,), depth = value, depth + 1
    assert value == {"$omitted": "list", "why": "depth"}
    assert depth == 32


@pytest.mark.rule("AUD-4")
@pytest.mark.fault("F-AUD-11")
def test_large() -> None:
    """Values too large for a line are replaced by their digest, the largest first; small values stay readable."""
    large = "x" * 10_000_000
    found = told({"large": large, "middle": ["y" * 9_000] * 9, "small": "z" * 900})
    assert found["large"] == {"$omitted": "str", "why": "size", "length": len(large), "sha256": sha256(large)}
    assert found["middle"][0]["sha256"] == sha256("y" * 9_000)
    assert found["small"] == "z" * 900
    assert told({"value": "y" * 60_000})["value"]["length"] == 60_000
    assert told({"value": "y" * 40_000})["value"] == "y" * 40_000


@pytest.mark.rule("AUD-4")
@pytest.mark.fault("F-AUD-11")
def test_more_than_there_are_atoms() -> None:
    """Containers that hold each other many times are omitted, not walked through."""
    value: list[Any] = [1]
    for _ in range(60):
        value = [value, value]
    assert "$omitted" in json.dumps(told({"value": value}))
    assert told({f"{number}": number for number in range(3_000)}) == {
        "$omitted": "dict",
        "why": "size",
        "length": 3_000,
    }
    assert told(["no", "mapping"]) == {"facts": ["no", "mapping"]}


@pytest.mark.rule("AUD-4")
def test_heavy() -> None:
    """The encoder refuses every heavy record of an impatient caller."""
    for value in ("x" * 40_000, b"x" * 40_000, [[0] * 300] * 300, {"a": nested(40_000)}, [CIRCULAR] * 2_000):
        with pytest.raises(Heavy):
            PLAIN.encode("note", {"value": value})
    assert PLAIN.encode("note", {"value": "x" * 30_000, "odd": {1}})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters()), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.rule("AUD-4")
@given(value=st.dictionaries(st.text(st.characters()), JSON, max_size=5), kind=st.text(st.characters()))
def test_anything(value: dict[str, Any], kind: str) -> None:
    """Any kind and facts become one line, and the short way and the long way give equal lines."""
    assert json.loads(b"{" + PLAIN.encode(kind, value) + b"}")
    data = HIDING._encode_plain(value)
    if data is not None:
        assert json.loads(data) == json.loads(HIDING._encode_long(value))


@pytest.mark.rule("AUD-4")
@pytest.mark.fault("F-AUD-11")
async def test_written(tmp_path: Path) -> None:
    """A record that takes long to encode is encoded beside the event loop, and is on record all the same."""
    log = AuditLog.open(tmp_path / "record.jsonl", key=AuditKey(b"\x07" * 32))
    await log.write("note", {"value": "x" * 5_000_000}, durable=True)
    await log.close()
    assert facts(tmp_path / "record.jsonl", "note")[0]["value"]["length"] == 5_000_000


# -- redaction ---------------------------------------------------------------------------------------------------------


KEY = b"k" * 32
REDACTOR = Redactor(KEY, secrets=["correct horse battery"], environment={"MY_TOKEN": "swordfish-42", "HOME": "/home/x"})

SECRET_NAMES = """password passwd PASSWORD userPassword db-password API_KEY apiKey x-api-key ApiKeys secret
    client_secret token access_token accessToken Authorization Set-Cookie cookie credentials AWS_ACCESS_KEY_ID
    privateKey SSH_PRIVATE_KEY passphrase signing_key"""
OTHER_NAMES = """name keyboard monkey tokens tokens_used max_tokens session digest key keys passenger secretary_name2
    hook event author authored cookiecutter privately access public_key"""

TEXTS = [
    "ghp_" + "a1B2" * 9,
    "github_pat_" + "a1B2" * 9,
    "glpat-" + "a1B2" * 5,
    "sk-ant-api03-" + "a1B2" * 9,
    "sk_live_" + "a1B2" * 6,
    "xoxb-123456789012-abcdefghijkl",
    "AKIAIOSFODNN7EXAMPLE",
    "AIza" + "a1B2" * 9,
    "ya29.a0AfH6SMBxyz",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
    "npm_" + "a1B2" * 9,
    "hf_" + "a1B2" * 9,
    "swordfish-42",
    "correct horse battery",
]
SENTENCES = [
    "Authorization: Bearer abcdefgh12345678",
    "authorization: Basic dXNlcjpwYXNz",
    "bearer abcdefghijklmnop1234",
    "export DB_PASSWORD=hunter22",
    '{"api_key": "hunter22"}',
    "--token=hunter22x",
    "postgres://user:hunter22@db/x",
]


@pytest.mark.rule("AUD-4")
def test_names() -> None:
    """A name is split into its words in any spelling; a word within a word does not count."""
    assert [name for name in SECRET_NAMES.split() if not is_secret_name(name)] == []
    assert [name for name in OTHER_NAMES.split() if is_secret_name(name)] == []


@pytest.mark.rule("AUD-4")
@each("secret", TEXTS)
@each(
    "text", ["{}", "use {} now", "a\n{}\nb", "url?key={}&x", '"{}"', "x " * 100 + "{}" + " y" * 100, "é{} ü" + "é" * 60]
)
def test_shapes(secret: str, text: str) -> None:
    """The redactor finds a secret by its shape or its value in any place, and leaves nothing of it."""
    left = REDACTOR.redact(text.format(secret))
    assert secret[4:12] not in left
    assert "{$secret " in left


@pytest.mark.rule("AUD-4")
@pytest.mark.parametrize("text", SENTENCES)
def test_sentences(text: str) -> None:
    """The value of a password and the token after `Bearer` are hidden in a text as well; their neighbours stay."""
    left = REDACTOR.redact(f"{'before ' * 20}{text}{' after' * 20}")
    assert "hunter22" not in left
    assert "abcdefgh" not in left
    assert "dXNlcjpwYXNz" not in left
    assert left.startswith("before before")
    assert left.endswith("after after")


@pytest.mark.rule("AUD-4")
def test_private_key() -> None:
    """A text with a private key is hidden from its first line to its last."""
    text = "here\n-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE\n-----END EC PRIVATE KEY-----\nthere" + " x" * 100
    assert REDACTOR.redact(text).startswith("{$secret ")


@pytest.mark.rule("AUD-4")
def test_innocent() -> None:
    """Digests, paths, prose and code without a secret stay as they are."""
    for text in (
        "9f" * 32,
        "/home/x/token.py",
        "the token is checked, and the password field is empty",
        "ask-for-permission-before-every-write",
        "risk-assessment-and-task-planning",
        "https://example.org/a?b=c",
        "def password(self): ...",
    ):
        assert REDACTOR.redact(text) == text


@pytest.mark.rule("AUD-4")
def test_keyed() -> None:
    """A keyed hash and the length replace a secret: equal for equal secrets, and different under another key."""
    hidden = REDACTOR.replacement_of("hunter2")
    assert hidden == {"$secret": hmac.digest(KEY, b"hunter2", "sha256")[:16].hex(), "length": 7}
    assert Redactor(b"other", environment={}).replacement_of("hunter2") != hidden


@pytest.mark.rule("AUD-4")
def test_many() -> None:
    """A text with too many secrets to distinguish is hidden as a whole."""
    few, many = ("word " * 9 + "ghp_" + "a1B2" * 9 + " ") * 4, ("word " * 9 + "ghp_" + "a1B2" * 9 + " ") * 5
    assert REDACTOR.redact(few).count("{$secret") == 4
    assert REDACTOR.redact(many).count("{$secret") == 1
    assert "word" not in REDACTOR.redact(many)


@pytest.mark.rule("AUD-4")
@given(before=st.text(max_size=300), after=st.text(max_size=300), secret=st.sampled_from(TEXTS))
def test_anywhere(before: str, after: str, secret: str) -> None:
    """A secret is hidden whatever its surroundings, and the redacted text has no secret."""
    left = REDACTOR.redact(f"{before} {secret} {after}")
    assert secret not in left
    assert not REDACTOR.suspects(left)


@pytest.mark.rule("AUD-4")
def test_under_a_name() -> None:
    """Every value under a secret's name is hidden, except a missing one."""
    facts = {"password": "x", "token": {"a": ["y", 7, None, True]}, "api_key": b"z", "tokens": 5, "pwd": 1234}
    data = Encoder(REDACTOR).encode("note", facts)
    written = json.loads(b"{" + data + b"}")["facts"]
    assert written["password"] == REDACTOR.replacement_of("x")
    assert written["token"] == {"a": [REDACTOR.replacement_of("y"), REDACTOR.replacement_of("7"), None, True]}
    assert written["pwd"] == REDACTOR.replacement_of("1234")
    assert "$secret" in written["api_key"]
    assert written["tokens"] == 5


@pytest.mark.rule("AUD-4")
def test_beside_a_name() -> None:
    """A value beside a secret's name is hidden as well as one under it."""
    data = Encoder(REDACTOR).encode(
        "note", {"env": [{"name": "DB_PASSWORD", "value": "x"}, {"name": "a", "value": "y"}]}
    )
    hidden, plain = json.loads(b"{" + data + b"}")["facts"]["env"]
    assert (hidden["value"], plain["value"]) == (REDACTOR.replacement_of("x"), "y")


@pytest.mark.rule("AUD-4")
@pytest.mark.fault("F-AUD-16")
@pytest.mark.parametrize("shaped", [True, False], ids=["of a known shape", "of the environment"])
async def test_canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, shaped: bool) -> None:
    """A secret in arguments, headers, environment, prompts, output and exceptions leaves only its keyed hash."""
    canary = ("ghp_" if shaped else "") + secrets.token_urlsafe(24)
    if not shaped:
        monkeypatch.setenv("CANARY_SECRET", canary)
    registry = HookRegistry()

    @registry.gate("tool:pre")
    async def asks(event: str, data: dict[str, Any]) -> HookResult:
        return HookResult.ask(f"Run it with {canary}?", options=["Allow", "Deny"])

    @registry.on("tool:post")
    async def leaks(event: str, data: dict[str, Any]) -> HookResult:
        sys.stderr.write(canary)
        return HookResult.inject(f"the key is {canary}", user_message=f"found {canary}")

    @registry.on("tool:error")
    async def fails(event: str, data: dict[str, Any]) -> HookResult:
        raise ValueError(f"cannot use {canary}")

    def broken(_given: Any) -> None:
        raise OSError(f"401 for {canary}")

    path = tmp_path / "record.jsonl"
    given = {"command": f"curl -H 'Authorization: Bearer {canary}'", "env": {"API_KEY": canary}, "headers": [canary]}
    async with (
        AuditLog.open(path, key=AuditKey(b"\x07" * 32)) as log,
        SessionCoordinator(
            registry, session_id=f"s-{canary}", approvals=ScriptedApprover("Allow", "Allow"), audit=log
        ) as session,
    ):
        assert (await session.call_tool("Bash", given, str)).ok
        assert (await session.call_tool(canary, given, broken)).error is not None
        await log.write("note", {"environment": {"MY_KEY": canary}, canary: 1, "argv": ["--key", canary]}, durable=True)
    for file in os.listdir(tmp_path):  # noqa: PTH208
        assert canary.encode() not in (tmp_path / file).read_bytes()
    assert {"approval.requested", "tool.failed", "injection", "outcome"} <= set(kinds(path))
    assert b"$secret" in path.read_bytes()


@pytest.mark.rule("AUD-4")
async def test_switched_off(tmp_path: Path) -> None:
    """A log without redaction has every value unchanged."""
    log = AuditLog.open(tmp_path / "record.jsonl", key=AuditKey(b"\x07" * 32), redact=False)
    await log.write("note", {"password": "hunter2"}, durable=True)
    await log.close()
    assert b'"password":"hunter2"' in (tmp_path / "record.jsonl").read_bytes()
