"""The secrets in a text."""

from __future__ import annotations

import html
import json
import re
from base64 import b64encode, urlsafe_b64encode
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amplifier_hooks.text.secrets import PRIVATE_KEY, SHAPES, Secrets, is_secret_name
from tests.cases import each
from tests.conftest import THOROUGH
from tests.secrets_to_find import FOUND, INNOCENT, PEM, VALUE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SECRETS = Secrets(secrets=["correct horse battery"], environment={"MY_TOKEN": "swordfish-42", "HOME": "/home/someone"})


@pytest.mark.rule("LIB-5")
@each(("text", "kind", "secret"), FOUND)
@each("before", ["", "word\n" * 600, "é " * 9_000])
def test_exactly(text: str, kind: str, secret: str, before: str) -> None:
    """A span covers exactly the secret, all of it, in every place."""
    text = f"{before}{text} after"
    spans = SECRETS.spans(text)
    assert [(text[start:end], kind) for start, end, kind in spans] == [(secret, kind)]


@pytest.mark.rule("LIB-5")
@each("text", INNOCENT)
@each("beside", ["", f"ghp_{VALUE}"])
def test_innocent(text: str, beside: str) -> None:
    """Code, variables, types and masks in the place of a password are no secrets, also beside a secret."""
    whole = f"{text}\n{beside}"
    assert "".join(whole[start:end] for start, end, _ in SECRETS.spans(whole)) == beside


@pytest.mark.rule("LIB-5")
def test_environment(tmp_path: Path) -> None:
    """The working folder, and the path of an existing file, are no secrets, whatever their variable is called."""
    file = tmp_path / "key.json"
    file.touch()
    environment = {
        "PWD": "/some/where",
        "OLDPWD": "/else/where",
        "MY_CREDENTIALS": str(file),
        "MY_KEY_TOKEN": "/a1B2c3D4",
    }
    found = Secrets(environment=environment)
    assert not found.spans(f"/some/where/x /else/where {file}")
    assert len(found.spans("it is /a1B2c3D4")) == 1


@pytest.mark.rule("LIB-5")
@pytest.mark.parametrize("name", ["pаssword", "ｐａｓｓｗｏｒｄ", "pass\u200bword", "ТOKEN", "АPI_КEY"])
def test_lookalikes(name: str) -> None:
    """A name that looks like a secret's counts as one, whatever its letters are."""
    assert is_secret_name(name)


@pytest.mark.rule("LIB-5")
def test_beside_a_key() -> None:
    """Text beside a private key stays, and another secret there is found by itself."""
    text = f"before {PEM} and ghp_{VALUE} after"
    assert [text[start:end] for start, end, _ in SECRETS.spans(text)] == [PEM, f"ghp_{VALUE}"]


@pytest.mark.rule("LIB-5")
def test_two_in_one() -> None:
    """A secret for two reasons is one secret."""
    [(start, end, _)] = SECRETS.spans("export MY_PASSWORD=swordfish-42-and-more now")
    assert "export MY_PASSWORD=swordfish-42-and-more now"[start:end] == "swordfish-42-and-more"


@pytest.mark.rule("LIB-5")
def test_known_over_each_other() -> None:
    """Known secrets are found in their order, and overlapping ones are one."""
    known = Secrets(secrets=["swordfish", "fishermen", "much-longer-one"], environment={})
    assert [span[:2] for span in known.spans("swordfishermen fishermen much-longer-one")] == [
        (0, 14),
        (15, 24),
        (25, 40),
    ]


KNOWN: Final = "p\"ss/wörd+<42> & more'"
"""A value that every encoding spells in its own way."""

SPELLINGS: Final[dict[str, Callable[[str], str]]] = {
    "base64": lambda text: b64encode(text.encode()).decode(),
    "base64 of an address": lambda text: urlsafe_b64encode(text.encode()).decode().rstrip("="),
    "hex": lambda text: text.encode().hex(),
    "HEX": lambda text: text.encode().hex().upper(),
    "percent": lambda text: quote(text, safe=""),
    "percent, small": lambda text: re.sub("%..", lambda code: code[0].lower(), quote(text, safe="")),
    "path": quote,
    "form": quote_plus,
    "JSON": json.dumps,
    "JSON in UTF-8": lambda text: json.dumps(text, ensure_ascii=False),
    "JSON in JSON": lambda text: json.dumps(json.dumps(text)),
    "JSON for a page": lambda text: json.dumps(text).replace("/", "\\/"),
    "Python": repr,
    "HTML": html.escape,
    "HTML text": lambda text: html.escape(text, quote=False),
}


@pytest.mark.rule("LIB-5", "AUD-4")
@each("spelling", SPELLINGS)
@each("before", ["", "u", "u:"])
def test_known_and_encoded(spelling: str, before: str) -> None:
    """A known value is found in every encoding, wherever it stands in the encoded text."""
    found = Secrets(secrets=[KNOWN], environment={})
    text = f"it is {SPELLINGS[spelling](before + KNOWN + ':end')} as you see"
    [(start, end, kind)] = found.spans(text)
    assert kind == "known secret"
    assert not found.suspects(text[:start] + text[end:])
    assert end - start >= len(KNOWN)
    assert len(text) - (end - start) < 50


@pytest.mark.rule("LIB-5")
def test_hundreds_of_known_secrets() -> None:
    """Each of many known secrets is found, raw and encoded."""
    known = [f"{number:04}-{'abcdefgh' * 8}" for number in range(256)]
    found = Secrets(secrets=known, environment={})
    text = f"{known[0]} {known[100].encode().hex()} {b64encode(known[255].encode()).decode()} {'fine ' * 1_000}"
    assert [end - start for start, end, _ in found.spans(text)] == [69, 138, 92]


@pytest.mark.rule("LIB-5")
def test_every_shape_is_found() -> None:
    """Every shape has an example."""
    assert {shape.kind for shape in (*SHAPES, PRIVATE_KEY)} == {kind for _, kind, _ in FOUND} - {"known secret"}


@pytest.mark.rule("LIB-5")
@settings(max_examples=40 if THOROUGH else 15)
@given(st.lists(st.one_of(st.sampled_from([text for text, _, _ in FOUND]), st.text(max_size=90)), max_size=40))
def test_nothing_left(parts: list[str]) -> None:
    """Without the found secrets the text has no suspect part; the spans are in order."""
    text = "\n".join(parts).encode("utf-8", "replace").decode()
    left, place = [], 0
    for start, end, _ in SECRETS.spans(text):
        assert place <= start < end <= len(text)
        left.append(text[place:start])
        place = end
    assert not SECRETS.suspects(" ".join([*left, text[place:]]))


@pytest.mark.rule("LIB-5")
@pytest.mark.parametrize(
    "tricky",
    [
        f"password-ghp_{VALUE}",
        f"eyJabcdefgh-ghp_{VALUE}",
        f"eyJabcdefgh-ghp_{VALUE} and sk-{VALUE}",
        f"\ud800 ghp_{VALUE}",
    ],
    ids=["name", "jwt", "two", "half"],
)
def test_within(tricky: str) -> None:
    """A secret within another candidate, or beside a lone surrogate, is found all the same."""
    text = f"{'before ' * 300}\n{tricky}\n{'after ' * 300}"
    left, place = "", 0
    for start, end, _ in SECRETS.spans(text):
        left, place = left + text[place:start], end
    left += text[place:]
    assert VALUE not in left
    assert left.startswith("before before")
    assert left.endswith("after after ")


@pytest.mark.rule("LIB-5")
@pytest.mark.parametrize(
    "hostile",
    [
        "-eyJabcdefgh",
        "password",
        "password  ",
        "password\\\\",
        "password=a.",
        "password value",
        "--secret-",
        "cookie:a=",
        'password"= ',
        "pwd>a",
        "password=$A",
        "password=self.a",
        "LS0tLS1CRUdJTiB",
        "://a:",
        "-----BEGIN ",
        "-----BEGIN PRIVATE KEY ",
        "authorization: ",
        "sk-a ",
        " ",
    ],
)
def test_hostile(hostile: str) -> None:
    """A text of beginnings of secrets does not slow the search, and hides no secret after it."""
    text = hostile * (200_000 // len(hostile)) + f" ghp_{VALUE}"
    assert SECRETS.spans(text)[-1][1] == len(text)
