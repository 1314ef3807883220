import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from amplifier_hooks.injection.tokens.choose_counter import count, fit

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
