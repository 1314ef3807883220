import hashlib
import importlib.resources
import lzma
import runpy
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st
from tiktoken_ext import openai_public  # type: ignore[import-untyped]

from amplifier_hooks.injection.tokens import counter, tokenizers
from amplifier_hooks.injection.tokens.counter import TokenCount, count, counter_for
from amplifier_hooks.injection.tokens.tokenizers import ENCODINGS, Unavailable, encoding, unpack
from tests.ranks import to_text

TEXT = "The quick brown fox jumps over the lazy dog."
EXACT = {"o200k_base": 10, "cl100k_base": 10}


@pytest.mark.rule("INJ-4")
@pytest.mark.parametrize(
    ("model", "encoding"),
    [
        (None, "o200k_base"),
        ("gpt-5", "o200k_base"),
        ("gpt-5.3-codex", "o200k_base"),
        ("openai/gpt-4.1-mini", "o200k_base"),
        ("GPT-4o", "o200k_base"),
        ("o3", "o200k_base"),
        ("gpt-oss-120b", "o200k_base"),
        ("gpt-4", "cl100k_base"),
        ("gpt-3.5-turbo-0125", "cl100k_base"),
        ("azure/gpt-35-turbo", "cl100k_base"),
        ("text-embedding-3-small", "cl100k_base"),
        ("cl100k_base", "cl100k_base"),
    ],
)
def test_exact_models(model: str | None, encoding: str) -> None:
    """A model known to tiktoken is counted with its encoding, exactly."""
    found = count(TEXT, model)
    assert (found.method, found.exact, found.tokens) == (f"tiktoken:{encoding}", True, EXACT[encoding])


@pytest.mark.rule("INJ-4")
@pytest.mark.parametrize(
    ("model", "method", "tokens"),
    [
        ("claude-2.1", "estimate:claude:o200k_base*2.8", 28),
        ("claude-3-opus-20240229", "estimate:claude:o200k_base*2.8", 28),
        ("claude-3-5-sonnet-latest", "estimate:claude:o200k_base*2.8", 28),
        ("claude-opus-4-20250514", "estimate:claude:o200k_base*2.8", 28),
        ("anthropic/claude-sonnet-4.5", "estimate:claude:o200k_base*2.8", 28),
        ("us.anthropic.claude-haiku-4-5-20251001-v1:0", "estimate:claude:o200k_base*2.8", 28),
        ("claude-opus-4-6", "estimate:claude:o200k_base*2.8", 28),
        ("claude-opus-4-7", "estimate:claude:o200k_base*2.8", 28),
        ("claude-opus-4-10", "estimate:claude:o200k_base*2.8", 28),
        ("claude-sonnet-5", "estimate:claude:o200k_base*2.8", 28),
        ("claude-opus-5@20260801", "estimate:claude:o200k_base*2.8", 28),
        ("opus", "estimate:claude:o200k_base*2.8", 28),
        ("gemini-2.5-pro", "estimate:gemini:o200k_base*1.15", 12),
        ("models/gemini-3-flash", "estimate:gemini:o200k_base*1.15", 12),
        ("gpt-6", "estimate:unknown-model:o200k_base*1.3", 13),
        ("text-davinci-003", "estimate:unknown-model:o200k_base*1.3", 13),
        ("", "estimate:unknown-model:o200k_base*1.3", 13),
        ("octopus-1", "estimate:unknown-model:o200k_base*1.3", 13),
        ("bytes", "bytes", 44),
    ],
)
def test_estimates(model: str, method: str, tokens: int) -> None:
    """Any other model gets an estimate that is never called exact and says how it was made."""
    found = count(TEXT, model)
    assert (found.method, found.exact, found.tokens) == (method, False, tokens)


@pytest.mark.rule("INJ-4")
@pytest.mark.parametrize(
    ("text", "most"),
    [
        ("The quick brown fox jumps over the lazy dog. " * 20, 1.40),
        ("# Title\n\n* a list, with `code` and [links](https://example.org)\n" * 20, 1.77),
        ("def run(self, *args: int) -> None:\n    return self._inner(*args)\n" * 20, 1.63),
        ("Съешь же ещё этих мягких французских булок. " * 20, 1.82),
        ("THE QUICK BROWN FOX JUMPS OVER THE LAZY DOG. " * 20, 2.46),
        ("a" * 5_000, 2.7),
    ],
    ids=["prose", "markdown", "code", "Russian", "capitals", "a run"],
)
def test_claude_is_never_under_counted(text: str, most: float) -> None:
    """The estimate for Claude is above what its own tokenizer makes of any kind of text, as it was measured."""
    assert count(text, "claude-opus-4-7").tokens >= most * count(text, "o200k_base").tokens


@pytest.mark.rule("INJ-4")
def test_estimates_stay_below_bytes() -> None:
    """An estimate is never more than the bytes, which no tokenizer of bytes exceeds."""
    assert count("\x01\x02\x03", "claude-opus-4-7").tokens == 3


def test_one_counter_for_a_yardstick() -> None:
    """Models that are measured alike share a counter."""
    assert counter_for("gpt-5") is counter_for("o3")
    assert counter_for("gpt-5") is not counter_for("gpt-4")


ROOT = Path(__file__).parents[4]
RANKS = ROOT / "amplifier_hooks" / "injection" / "tokens" / "ranks"


SCRIPT = runpy.run_path(str(ROOT / "scripts" / "pack_ranks.py"))


def vocabulary(name: str) -> list[bytes]:
    """Return the shipped vocabulary."""
    return unpack((RANKS / f"{name}.xz").read_bytes())


def by_tiktoken(name: str, ranks: object) -> dict[str, Any]:
    """Return tiktoken's definition of an encoding, with its loader replaced."""
    with patch.object(openai_public, "load_tiktoken_bpe", lambda _source, expected_hash: ranks):
        definition: dict[str, Any] = getattr(openai_public, name)()
    return definition


@pytest.fixture
def unsettled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has loaded no encoding yet."""
    monkeypatch.setattr(tokenizers, "_settled", {})


@pytest.mark.rule("INJ-4")
@pytest.mark.parametrize("name", ENCODINGS)
def test_vocabulary_is_tiktokens(name: str) -> None:
    """The text form of what ships has the SHA-256 that tiktoken expects of its own download."""
    assert hashlib.sha256(to_text(vocabulary(name))).hexdigest() == SCRIPT["expected_hash"](name)


@pytest.mark.rule("INJ-4")
@pytest.mark.parametrize("name", ENCODINGS)
def test_definition_is_tiktokens(name: str) -> None:
    """Pattern and special tokens are those of the installed tiktoken."""
    theirs = by_tiktoken(name, {})
    assert ENCODINGS[name].pattern == theirs["pat_str"]
    assert ENCODINGS[name].special == theirs["special_tokens"]


@pytest.mark.rule("INJ-4")
def test_harmony_differs_in_special_tokens_only() -> None:
    """For text that is only text, o200k_harmony is o200k_base."""
    ranks = object()
    harmony, base = (by_tiktoken(name, ranks) for name in ("o200k_harmony", "o200k_base"))
    assert harmony["pat_str"] == base["pat_str"]
    assert harmony["mergeable_ranks"] is base["mergeable_ranks"] is ranks
    assert counter.counter_for("o200k_harmony") is counter.counter_for("o200k_base")


@pytest.mark.rule("INJ-4")
@pytest.mark.parametrize("name", ENCODINGS)
def test_tokens_are_at_most_128_bytes(name: str) -> None:
    """No token is empty or longer than the bound that rejects a text by its length."""
    sizes = {len(token) for token in vocabulary(name)}
    assert min(sizes) >= 1
    assert max(sizes) <= 128


@pytest.mark.parametrize("name", ENCODINGS)
def test_hash_stands_beside(name: str) -> None:
    """`sha256sum --check` accepts the packed file, and tiktoken's licence lies beside it."""
    packed = (RANKS / f"{name}.xz").read_bytes()
    beside = (RANKS / f"{name}.xz.sha256").read_text(encoding="ascii")
    assert beside == f"{hashlib.sha256(packed).hexdigest()}  {name}.xz\n"
    assert "MIT License" in (RANKS / "LICENSE").read_text(encoding="utf-8")


@pytest.mark.slow
@given(st.lists(st.binary(max_size=255)))
def test_packing_loses_nothing(vocabulary: list[bytes]) -> None:
    """A packed vocabulary is unpacked unchanged, and the text form is read back."""
    assert unpack(SCRIPT["pack"](vocabulary)) == vocabulary
    if vocabulary and all(vocabulary):
        assert SCRIPT["from_text"](to_text(vocabulary)) == vocabulary


@pytest.mark.parametrize("damaged", [b"", b"\0\0\0\x02\x01", b"\0\0\0\x01\x02a", b"\0\0\0\x01\x01abc"])
def test_damage_is_an_error(damaged: bytes) -> None:
    """A packed file whose parts do not add up is refused."""
    with pytest.raises(ValueError, match="do not add up"):
        unpack(lzma.compress(damaged))


def test_gaps_in_ranks_are_an_error() -> None:
    """A text form with a rank missing is refused, since the packed form has no place for it."""
    with pytest.raises(ValueError, match="ranks"):
        SCRIPT["from_text"](b"YQ== 0\nYg== 2\n")


@pytest.mark.rule("INJ-4")
@pytest.mark.usefixtures("unsettled")
@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({}, "FileNotFoundError"),
        ({"o200k_base.xz": b"x", "o200k_base.xz.sha256": b"0  o200k_base.xz\n"}, "SHA-256"),
        ({"o200k_base.xz": b"", "o200k_base.xz.sha256": hashlib.sha256(b"").hexdigest().encode()}, "Error"),
    ],
)
def test_damaged_file(
    files: dict[str, bytes],
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Without usable ranks bytes are counted, never too few, and one warning says what to do."""
    folder = tmp_path / "ranks"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    monkeypatch.setattr(importlib.resources, "files", lambda _package: tmp_path)

    for _ in range(3):
        count = counter.count("naïve", "gpt-5")
        assert (count.tokens, count.exact, count.method) == (6, False, "bytes")
    assert counter.fit("naïve", 3, "gpt-5")[0] == 2
    found = encoding("o200k_base")
    assert isinstance(found, Unavailable)
    assert reason in found.reason
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "reinstall" in str(vars(record)["remedy"])


@pytest.mark.rule("INJ-4")
@pytest.mark.parametrize("model", ["gpt-5", "claude-opus-4-5", "gemini-3", "gpt-4", None])
def test_without_tiktoken(model: str | None, unsettled: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where tiktoken does not load, nor anything else that counts, bytes are counted for every model."""
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    monkeypatch.setitem(sys.modules, "tiktoken.model", None)
    assert counter.count("four", model) == TokenCount(tokens=4, exact=False, method="bytes")


def test_loaded_once(unsettled: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """An encoding is made once in a process."""
    first = encoding("cl100k_base")
    assert isinstance(first, tiktoken.Encoding)
    assert encoding("cl100k_base") is first
