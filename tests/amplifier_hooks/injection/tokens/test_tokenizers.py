import pytest

from amplifier_hooks.injection.tokens.choose_counter import count, counter_for
from amplifier_hooks.injection.tokens.tokenizers import yardstick

TEXT = "The quick brown fox jumps over the lazy dog."
EXACT = {"o200k_base": 10, "cl100k_base": 10}


@pytest.fixture(autouse=True)
def _without_ctok(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is without the extra `claude`."""
    monkeypatch.setattr("amplifier_hooks.injection.tokens.tokenizers.find_spec", lambda _name: None)


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
    """The estimate for Claude is above what its own tokenizer makes of any kind of text, as ctok has measured it."""
    assert count(text, "claude-opus-4-7").tokens >= most * count(text, "o200k_base").tokens


@pytest.mark.rule("INJ-4")
def test_estimates_stay_below_bytes() -> None:
    """An estimate is never more than the bytes, which no tokenizer of bytes exceeds."""
    assert count("\x01\x02\x03", "claude-opus-4-7").tokens == 3


def test_one_counter_for_a_yardstick() -> None:
    """Models that are measured alike share a counter."""
    assert counter_for("gpt-5") is counter_for("o3")
    assert counter_for("gpt-5") is not counter_for("gpt-4")


def test_a_folder_named_ctok_is_no_ctok(monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that only has the name leaves the estimate as it was."""
    monkeypatch.setattr(
        "amplifier_hooks.injection.tokens.tokenizers.find_spec",
        lambda _name: type("Spec", (), {"origin": None}),
    )
    assert yardstick("claude-opus-4-7").percent == 280
