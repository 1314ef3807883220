import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from amplifier_hooks.injection.tokens import counter
from amplifier_hooks.injection.tokens.choose_counter import count, fit
from amplifier_hooks.injection.tokens.tokenizers import Tokenizer, Yardstick

LINES = "".join(f"app.py:{number}: E501 line too long ({number + 80} > 79 characters)\n" for number in range(500))
LONG_LINE = " ".join(f"word{number}" for number in range(3_000))
MODELS = ["o200k_base", "cl100k_base", "claude-opus-4-7", "bytes"]


@pytest.mark.rule("INJ-3", "INJ-4")
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("limit", [17, 100, 1_000, 8_000])
def test_whole_lines(model: str, limit: int) -> None:
    """As many whole lines are kept as fit, and not one more would."""
    kept, found = fit(LINES, limit, model)
    following = LINES.find("\n", kept) + 1
    assert LINES[:kept].endswith("\n") or not LINES[:kept].count("\n")
    assert found == count(LINES[:kept], model, limit)
    assert not found.over_limit
    assert not following or count(LINES[:following], model, limit).over_limit


@pytest.mark.rule("INJ-3", "INJ-4")
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("text", [LONG_LINE, "Report:\n" + LONG_LINE], ids=["alone", "after a heading"])
def test_inside_a_long_line(text: str, model: str) -> None:
    """Where one line is longer than everything before it, the cut is inside it, and the limit is used up."""
    kept, found = fit(text, 400, model)
    assert 390 <= found.tokens <= 400
    assert not found.over_limit
    assert kept > len("Report:\n")


@pytest.mark.rule("INJ-4")
@pytest.mark.parametrize("model", MODELS)
def test_all_of_it(model: str) -> None:
    """A text that fits is kept whole, and its count is that of the whole."""
    assert fit(LINES, 100_000, model) == (len(LINES), count(LINES, model, 100_000))
    assert fit("", 0, model)[0] == 0


@pytest.mark.rule("INJ-4")
@pytest.mark.parametrize("limit", range(1, 14))
def test_escapes_stay_whole(limit: int) -> None:
    """The cut is never inside an escape."""
    text = r"seen \u{202E}\u{1F600}\u{0} here and there and everywhere"
    kept, _ = fit(text, limit)
    rest = text[:kept].replace(r"\u{202E}", "").replace(r"\u{1F600}", "").replace(r"\u{0}", "")
    assert "\\" not in rest


@pytest.mark.rule("INJ-4")
def test_a_word_cut_in_two_counts_more() -> None:
    """A line that fits as a whole is kept, though a part of it would not fit."""
    text = "a\nconfigurations\nanother line that is longer than both\n"
    whole = text.index("another")
    limit = count(text[:whole]).tokens
    assert fit(text, limit)[0] == whole


@pytest.mark.rule("INJ-4")
def test_far_beyond_the_first_piece() -> None:
    """The kept part may end in any piece, and just before one."""
    text = LINES * 20
    for limit in range(20_000, 30_000, 997):
        kept, found = fit(text, limit)
        assert found == count(text[:kept], limit=limit)
        assert text[:kept].endswith("\n")
        assert limit - 30 < found.tokens <= limit


@pytest.fixture
def chaos(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tokenizer that gives a longer text fewer tokens as often as more, and no help."""

    def tokens(stretch: str) -> int:
        return zlib.crc32(stretch.encode()) % (len(stretch) + 1)

    def reach(stretch: str, room: int) -> int:
        raise RuntimeError

    by = Tokenizer(yardstick=Yardstick("chaos"), tokens=tokens, reach=reach)
    monkeypatch.setattr(counter, "tokenizer", lambda _yardstick: by)


@pytest.mark.rule("INJ-4")
@pytest.mark.usefixtures("chaos")
@pytest.mark.parametrize("limit", range(0, 60, 3))
def test_never_over(limit: int) -> None:
    """However a tokenizer behaves, what is kept is within the limit."""
    text = "a few\nshort lines\nand\n\nsome\nmore words in\none that is longer\n" * 4
    kept, found = fit(text, limit)
    assert found == count(text[:kept], limit=limit)
    assert found.tokens <= limit


@pytest.mark.rule("INJ-4")
def test_tokens_as_long_as_can_be() -> None:
    """A run that makes very long tokens is kept as far as it fits."""
    kept, found = fit(" " * 100_000, 500)
    assert found.tokens == 500
    assert kept == 500 * 128


@pytest.mark.rule("INJ-4")
def test_the_line_begins_before_the_piece() -> None:
    """A cut at a line is right also where the text goes on in a later piece."""
    lines = "word here\n" * 1_638
    text = lines + "a line that goes on " * 100
    kept, found = fit(text, count(lines).tokens + 10)
    assert kept == len(lines)
    assert found.tokens == count(lines).tokens


# -- estimates for Anthropic's models ----------------------------------------------------------------------------------


CTOK = """
def token_count(text, version):
    if "boom" in text:
        raise RuntimeError("boom")
    return {"3.0": 7, "4.7": 12, "4.8": 6}[version] + 2 * len(text.split())
"""


@pytest.fixture
def ctok(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package of that name that counts two tokens a word and a frame."""
    (tmp_path / "ctok").mkdir()
    module = tmp_path / "ctok" / "__init__.py"
    module.write_text(CTOK, encoding="utf-8")
    monkeypatch.delitem(sys.modules, "ctok", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    yield module
    sys.modules.pop("ctok", None)


@pytest.mark.rule("INJ-4")
@pytest.mark.usefixtures("ctok")
@pytest.mark.parametrize(
    ("model", "version"),
    [("claude-3-opus", "3.0"), ("claude-opus-4-6", "3.0"), ("claude-opus-4-7", "4.7"), ("claude-opus-5", "4.8")],
)
def test_counts_with_ctok(model: str, version: str) -> None:
    """With the extra, Claude is counted by ctok without the frame of a message, and still not called exact."""
    found = count("three words here", model)
    assert (found.tokens, found.exact, found.method) == (6, False, f"estimate:claude:ctok-{version}")


@pytest.mark.usefixtures("ctok")
def test_fits_with_ctok() -> None:
    """The part that fits is found by asking ctok."""
    kept, found = fit("one two three four", 6, "claude-opus-5")
    assert found.tokens <= 6
    assert "one two three four"[:kept].split() == ["one", "two", "three"]


@pytest.mark.usefixtures("ctok")
def test_a_failing_ctok_counts_bytes() -> None:
    """Text that ctok cannot count is counted as bytes, and the count says so."""
    found = count("boom", "claude-opus-5")
    assert (found.tokens, found.method) == (4, "estimate:claude:ctok-4.8+bytes")


def test_a_broken_ctok_counts_bytes(ctok: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A ctok that cannot be imported means bytes and one warning."""
    ctok.write_text("raise ImportError('half installed')", encoding="utf-8")
    assert [count("abc", "claude-opus-5").method for _ in range(2)] == ["bytes", "bytes"]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
