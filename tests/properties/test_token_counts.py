"""Token counts against tiktoken itself, over random texts, and laws for every text."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st
from tiktoken.load import load_tiktoken_bpe

from amplifier_hooks.injection.tokens.counter import count, fit
from amplifier_hooks.injection.tokens.tokenizers import ENCODINGS, encoding
from tests.ranks import to_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

TEXTS: Final = 20_000
MODELS: Final = (
    "o200k_base",
    "cl100k_base",
    "o200k_harmony",
    "claude-opus-4-5",
    "claude-opus-4-7",
    "gemini-3",
    "bytes",
)

ALPHABETS: Final = (
    "abcdefghijklmnopqrstuvwxyz      ",
    "aA1 \t\n\r'sSdDmMtTlLvVrReE.,/",
    " \t\n\r\u00a0\u2028\u3000\u0085a",
    "0123456789.,- ",
    "漢字かな交じり文。、　ok",
    "éñüßøÅǅİıſK̈a\u0301\u200d ",
    "😀👩‍👩‍👧‍👦🇩🇪❤️ ok",
    "\ud800\udfff\ude00\ud83d a\n",
    "абвгдеёж ЖЗИЙ\n",
    "<|endoftext|>\n\u0000\u0007\x1b[31m",
    "{}[]()<>;:=+-*/\\|&%$#@!?~^_`\"' \n",
)

texts: Final = st.text(max_size=300) | st.lists(
    st.tuples(
        st.sampled_from(ALPHABETS).flatmap(lambda letters: st.text(letters, max_size=30)), st.integers(1, 40)
    ).map(lambda run: run[0] * run[1]),
    max_size=8,
).map("".join)


def random_text(source: random.Random) -> str:
    """Up to a few hundred characters, runs of one kind after runs of another."""
    runs = []
    for _ in range(source.randint(1, 5)):
        letters = source.choice(ALPHABETS)
        if source.random() < 0.1:
            letters = "".join(chr(source.randrange(0x110000)) for _ in range(8)) + " a"
        runs.append("".join(source.choices(letters, k=source.randint(0, 60))) * source.choice((1, 1, 1, 2, 5)))
    return "".join(runs)


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, tiktoken.Encoding]:
    """Encodings made by tiktoken's own reader, from its own file format."""

    def read(name: str, folder: Path) -> tiktoken.Encoding:
        ours = encoding(name)
        assert isinstance(ours, tiktoken.Encoding)
        path = folder / f"{name}.tiktoken"
        path.write_bytes(to_text(list(ours._mergeable_ranks)))
        known = ENCODINGS[name]
        return tiktoken.Encoding(
            f"{name}_from_file",
            pat_str=known.pattern,
            mergeable_ranks=load_tiktoken_bpe(str(path)),
            special_tokens=dict(known.special),
        )

    folder = tmp_path_factory.mktemp("tiktoken")
    return {name: read(name, folder) for name in ENCODINGS}


@pytest.mark.slow
@pytest.mark.rule("INJ-4")
@pytest.mark.parametrize("name", ENCODINGS)
def test_ids_are_tiktokens(name: str, theirs: Mapping[str, tiktoken.Encoding], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 20,000 random texts every one has tiktoken's ids, and its count counted in tiny pieces."""
    monkeypatch.setattr("amplifier_hooks.injection.tokens.counter._PIECE", 8)
    ours = encoding(name)
    assert isinstance(ours, tiktoken.Encoding)
    source = random.Random(name)
    for _ in range(TEXTS):
        text = random_text(source)
        ids = theirs[name].encode_ordinary(text)
        assert ours.encode_ordinary(text) == ids, text
        found = count(text, name)
        assert (found.tokens, found.exact) == (len(ids), True), text


@pytest.mark.rule("INJ-4")
@given(texts, st.sampled_from(MODELS), st.none() | st.integers(-2, 400))
def test_any_text(text: str, model: str, limit: int | None) -> None:
    """No text raises or has more tokens than bytes; a limit ends counting, no more."""
    whole, limited = count(text, model), count(text, model, limit)
    assert whole.tokens >= 0
    assert whole.tokens <= len(text.encode("utf-8", "surrogatepass"))
    assert limited.tokens <= whole.tokens
    assert limited.over_limit == (limit is not None and whole.tokens > limit)
    assert limited.over_limit or limited == whole
    assert not limited.over_limit or limit is None or limited.tokens > limit


@pytest.mark.rule("INJ-4")
@given(texts, st.sampled_from(MODELS), st.integers(0, 400))
def test_any_text_fits(text: str, model: str, limit: int) -> None:
    """The kept part of any text is within the limit, has the stated count, and one more line would be too much."""
    kept, found = fit(text, limit, model)
    assert found == count(text[:kept], model, limit)
    assert found.tokens <= limit
    assert not found.over_limit
    line = text.find("\n", kept) + 1
    whole_lines = not kept or text[kept - 1] == "\n"
    assert not whole_lines or not line or count(text[:line], model, limit).over_limit
    assert kept == len(text) or count(text, model, limit).over_limit
