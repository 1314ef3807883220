"""The answer keeps the commands of a call and the paths that it touches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from amplifier_hooks.impact.places import UNKNOWN

if TYPE_CHECKING:
    from tests.amplifier_hooks.impact.conftest import Predict

pytestmark = pytest.mark.rule("IMP-8")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("git status && rm 'a b' | tail -3", [("git", "status"), ("rm", "a b"), ("tail", "-3")]),
        ("A=1 make; B=2", [("A=1", "make"), ("B=2",)]),
        ("sh -c 'rm a'", [("sh", "-c", "rm a"), ("rm", "a")]),
        ("x=st; git ${x}atus", [("x=st",), ("git", "status")]),
        ("rm {a,b}", [("rm", "a", "b")]),
        ("f() { rm $1; }; f a", [("f", "a"), ("rm", "a")]),
        ("rm $X", [("rm", UNKNOWN)]),
        ('sh -c "$X"', [("sh", "-c", UNKNOWN), (UNKNOWN,)]),
        ("if", [(UNKNOWN,)]),
        ("a" * (1 << 21), [(UNKNOWN,)]),
    ],
    ids=lambda value: str(value)[:30],
)
def test_every_command_is_kept_with_its_words(command: str, words: list[tuple[str, ...]], predict: Predict) -> None:
    """Every command is kept with the words that its program would get; an unread one is a mark."""
    assert [one.words for one in predict(command).commands] == words


def test_a_command_knows_its_folder_its_kinds_and_the_command_that_starts_it(predict: Predict) -> None:
    """A command has its folders, its own kinds, and the place of the command that starts it."""
    cd, timeout, rm, git = predict("cd src && timeout 5 rm -r x; git -C /etc status").commands
    assert (timeout.folders, rm.folders) == (("/home/dev/shop/src",), ("/home/dev/shop/src",))
    assert [list(one.kinds) for one in (cd, timeout, rm)] == [[], [], ["deletes_many"]]
    assert (timeout.outer, rm.outer, git.outer) == (-1, 1, -1)
    assert git.entered == ("/etc",)


@pytest.mark.parametrize(
    ("command", "path"),
    [
        ("cat .env", "/home/dev/shop/.env"),
        ("cd src; echo x > a", "/home/dev/shop/src/a"),
        ("rm ~/x", "/home/dev/x"),
        ("ls $'.\\x65nv'", "/home/dev/shop/.env"),
        ("python -c \"open('/etc/x')\"", "/etc/x"),
        ("cat a/$X", f"/home/dev/shop/a/{UNKNOWN}"),
    ],
)
def test_every_path_that_is_touched_is_kept(command: str, path: str, predict: Predict) -> None:
    """Every path that a command reads, lists, writes, deletes or runs is kept as an absolute one."""
    assert path in predict(command).paths


def test_redirects_and_assignments_belong_to_no_command(predict: Predict) -> None:
    """The kinds of redirects and assignments are kept apart from those of commands."""
    assert predict("ls > /etc/x").loose == {"writes_outside"}
    assert predict("LD_PRELOAD=x; ls").loose == {"environment"}
    assert predict("rm a").loose == frozenset()
