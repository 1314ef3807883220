"""The tables of programs, tools and files: every example of a row is a test."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amplifier_hooks.impact.inline_code import quick_test
from amplifier_hooks.impact.places import sensitive_rows
from amplifier_hooks.impact.program_rows import FAMILIES, program_rows, read_row
from amplifier_hooks.impact.tables import load_table
from amplifier_hooks.impacts import KINDS, MEANINGS
from tests.cases import each

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amplifier_hooks.impact.program_rows import Row
    from tests.amplifier_hooks.impact.conftest import Predict


def rows() -> list[Row]:
    """Return every row of a program once, subcommands included."""
    waiting, found = list(program_rows().values()), {}
    while waiting:
        row = waiting.pop()
        if id(row) not in found:
            found[id(row)] = row
            waiting += row.verbs.values()
    return list(found.values())


def examples() -> Iterator[tuple[str, str]]:
    """Yield the examples of all rows."""
    for row in rows():
        yield from row.examples.items()
    for entry in load_table("inline_code")["code"]:
        yield from entry.get("examples", {}).items()


@pytest.mark.rule("IMP-4")
@each(("command", "kinds"), sorted(examples()))
def test_every_example_of_a_row_has_exactly_its_kinds(command: str, kinds: str, predict: Predict) -> None:
    """Every example of a row has exactly its kinds."""
    assert predict(command).kinds == frozenset(kinds.split())


@pytest.mark.rule("IMP-4")
def test_every_program_of_a_family_has_an_example() -> None:
    """Every program of a family has an example."""
    without = [name for family in FAMILIES for name, entry in load_table(family).items() if not entry.get("examples")]
    assert without == []


@pytest.mark.rule("IMP-4")
def test_every_kind_in_a_row_is_a_kind() -> None:
    """Every kind in a row is a kind."""
    named = {kind for row in rows() for kind in (*row.kinds, *row.otherwise)}
    assert named <= set(KINDS)
    assert set(MEANINGS) == set(KINDS)


@pytest.mark.rule("IMP-4")
def test_a_row_with_a_key_that_rows_do_not_have_is_refused() -> None:
    """A row with a key that rows do not have is refused."""
    with pytest.raises(ValueError, match="no key 'operand'"):
        read_row({"operand": "reads"})


@pytest.mark.rule("IMP-5")
@pytest.mark.parametrize(
    ("path", "secret", "guarded"),
    [
        ("/home/dev/shop/.env", True, False),
        ("/home/dev/shop/.ENV.local", True, False),
        ("/home/dev/shop/.env.example", False, False),
        ("/home/dev/.ssh/config", True, True),
        ("/home/dev/.ssh/known_hosts", False, True),
        ("/home/dev/.aws", True, True),
        ("/home/dev/shop/.git/hooks/pre-commit", False, True),
        ("/home/dev/shop/.github/workflows/ci.yml", False, True),
        ("/home/dev/shop/src/app.py", False, False),
        ("/proc/self/environ", True, False),
        ("/home/dev/.claude/.credentials.json", True, False),
        ("/home/dev/.config", True, False),
        ("/home/dev/.config/other/x", False, False),
        ("/dev/sda1", True, True),
        ("/home/dev/shop/.venv/bin/python", False, True),
        ("/home/dev/shop/.venv/lib/x.py", False, False),
    ],
)
def test_one_table_names_secret_and_guarded_files(path: str, secret: bool, guarded: bool) -> None:
    """One table names secret and guarded files."""
    found = sensitive_rows(path, "/home/dev")
    assert (any(row.secret for row in found), any(row.guarded for row in found)) == (secret, guarded)


@pytest.mark.rule("IMP-5")
@pytest.mark.parametrize(
    "path", ["amplifier-hooks.yaml", ".claude/settings.local.json", ".codex/config.toml", ".gemini/settings.json"]
)
def test_a_row_says_if_a_file_can_switch_our_hook_off(path: str) -> None:
    """A row says if a file can switch our hook off."""
    assert any(row.hook for row in sensitive_rows(f"/home/dev/shop/{path}", "/home/dev"))


@pytest.mark.rule("IMP-7")
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(data=st.data())
def test_a_quick_test_passes_every_match(data: st.DataObject) -> None:
    """Code that an expression of a row matches passes the quick test of that expression, and that of the row."""
    row = data.draw(st.sampled_from(load_table("inline_code")["code"]))
    patterns, any_case = tuple(row["patterns"]), row.get("any_case", False)
    pattern = data.draw(st.sampled_from(patterns))
    expression = re.compile(pattern, re.IGNORECASE if any_case else 0)
    code = data.draw(st.from_regex(expression, alphabet=st.characters(min_codepoint=32, max_codepoint=126)))
    assert quick_test((pattern,), any_case=any_case)(code)
    assert quick_test(patterns, any_case=any_case)(code)
