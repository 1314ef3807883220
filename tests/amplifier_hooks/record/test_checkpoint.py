"""Signed notes in the format of C2SP."""

from __future__ import annotations

import base64
import hashlib

import pytest

from amplifier_hooks.record.line import Checkpoint, VerifierKey, open_note, sign_checkpoint
from amplifier_hooks.record.log_files import AuditKey
from amplifier_hooks.record.record_errors import BadNote

PETER = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
"""The verifier key of the Go implementation's examples, and a note with its signature."""
SAID = (
    "If you think cryptography is the answer to your problem,\n"
    "then you don't know what your problem is.\n"
    "\n"
    "\u2014 PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n"
)
KEY = AuditKey(b"\x07" * 32)
HEAD = hashlib.sha256(b"head").digest()
CHECKPOINT = Checkpoint("amplifier-hooks/audit/1/5b/1", 256, HEAD)
VKEY = VerifierKey(CHECKPOINT.origin, KEY.public)


@pytest.mark.rule("AUD-2")
def test_foreign_key_and_note() -> None:
    """A key and a signature of another implementation verify; only the signed text is no checkpoint."""
    key = VerifierKey.parse(PETER)
    assert str(key) == PETER
    with pytest.raises(BadNote, match="three lines"):
        open_note(SAID, key)
    with pytest.raises(BadNote, match="is wrong"):
        open_note(SAID.replace("problem is", "problem was"), key)


@pytest.mark.rule("AUD-2")
def test_note() -> None:
    """A checkpoint becomes a note that its own key opens, and reads the same."""
    note = sign_checkpoint(CHECKPOINT, KEY)
    assert note.startswith(
        f"{CHECKPOINT.origin}\n256\n{base64.b64encode(HEAD).decode()}\n\n\u2014 {CHECKPOINT.origin} "
    )
    assert open_note(note, VKEY) == CHECKPOINT


@pytest.mark.rule("AUD-2")
def test_other_signatures() -> None:
    """Signatures of witnesses are ignored; a second signature under the log's own name is not."""
    note = sign_checkpoint(CHECKPOINT, KEY)
    witness = sign_checkpoint(Checkpoint("witness", 1, HEAD), KEY).rpartition("\n\n")[2]
    assert open_note(note + witness, VKEY) == CHECKPOINT
    with pytest.raises(BadNote, match="wrong"):
        open_note(note + note.rpartition("\n\n")[2], VKEY)


@pytest.mark.rule("AUD-2")
def test_every_character_counts() -> None:
    """A note with any one character changed is not opened."""
    note = sign_checkpoint(CHECKPOINT, KEY)
    for place, character in enumerate(note):
        for other in ("A", "+", "\n", " ") if character != "A" else ("B", "="):
            if other != character:
                with pytest.raises(BadNote):
                    open_note(note[:place] + other + note[place + 1 :], VKEY)


@pytest.mark.rule("AUD-2")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "a\n",
        "a\n1\nb\n",
        f"a\n01\n{base64.b64encode(HEAD).decode()}\n",
        f"a b\n1\n{base64.b64encode(HEAD).decode()}\n",
    ],
)
def test_no_checkpoint(text: str) -> None:
    """A checkpoint in any other than its only spelling is refused."""
    with pytest.raises(BadNote):
        Checkpoint.parse(text)


@pytest.mark.rule("AUD-2")
def test_no_key() -> None:
    """A verifier key with a wrong id is refused, and one of another algorithm verifies nothing."""
    with pytest.raises(BadNote, match="id 'c74f20a4'"):
        VerifierKey.parse(PETER.replace("c74f20a3", "c74f20a4"))
    with pytest.raises(BadNote, match="no verifier key"):
        VerifierKey.parse("name")
    other = VerifierKey(VKEY.name, VKEY.public, 6)
    assert VerifierKey.parse(str(other)) == other
    assert not other.verifies(KEY.sign(b"x"), b"x")
    assert VKEY.verifies(KEY.sign(b"x"), b"x")
