"""Where secrets are in a text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amplifier_hooks.credentials import SHAPES, Secrets
from tests.secrets_to_find import FOUND, VALUE

SECRETS = Secrets(known=["correct horse battery"], environment={"MY_TOKEN": "swordfish-42", "HOME": "/home/someone"})


@pytest.mark.rule("LIB-5")
@pytest.mark.parametrize(("text", "kind", "secret"), FOUND, ids=lambda value: value[:12])
@pytest.mark.parametrize("before", ["", "word\n" * 600, "é " * 9_000], ids=len)
def test_exactly(text: str, kind: str, secret: str, before: str) -> None:
    """What is found of a secret is the secret alone, all of it, wherever it stands."""
    text = f"{before}{text} after"
    spans = SECRETS.spans(text)
    assert [(text[start:end], kind) for start, end, kind in spans] == [(secret, kind)]


@pytest.mark.rule("LIB-5")
def test_two_in_one() -> None:
    """What is a secret for two reasons is one secret."""
    [span] = SECRETS.spans("export MY_PASSWORD=swordfish-42-and-more now")
    assert "export MY_PASSWORD=swordfish-42-and-more now"[span.start : span.end] == "swordfish-42-and-more"


@pytest.mark.rule("LIB-5")
def test_every_shape_is_found() -> None:
    """There is an example for every shape there is."""
    assert {shape.kind for shape in SHAPES} == {kind for _, kind, _ in FOUND} - {"known secret"}


@pytest.mark.rule("LIB-5")
@settings(max_examples=40)
@given(st.lists(st.one_of(st.sampled_from([text for text, _, _ in FOUND]), st.text(max_size=90)), max_size=40))
def test_nothing_left(parts: list[str]) -> None:
    """With what was found taken out, no secret is suspected any more; and what was found is in order."""
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
    """A secret that something else was about to swallow, or beside half a character, is found all the same."""
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
    ["-eyJabcdefgh", "password", "://a:", "-----BEGIN ", "-----BEGIN PRIVATE KEY ", "authorization: ", "sk-a ", " "],
)
def test_hostile(hostile: str) -> None:
    """A text made of beginnings of secrets does not make the search slow, and hides no secret that comes after it."""
    text = hostile * (200_000 // len(hostile)) + f" ghp_{VALUE}"
    assert SECRETS.spans(text)[-1].end == len(text)
