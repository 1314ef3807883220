import re
import subprocess
import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase

import pytest
import regex
from hypothesis import assume, given
from hypothesis import strategies as st

from amplifier_hooks.errors import HookError, InvalidRegistration
from amplifier_hooks.text.matching import ANY, MatchTimedOut, compile_matcher, translate_glob

names = st.text("abcXYZ019_-.:/@", min_size=1, max_size=12)
pytestmark = pytest.mark.rule("REG-4")


@pytest.mark.fault("F-HD-20")
@pytest.mark.parametrize(
    ("spec", "matched", "others"),
    [
        (None, ["Write", "mcp__x__y", ""], []),
        ("*", ["Write", "mcp__x__y", ""], []),
        ("Bash", ["Bash"], ["BashOutput", "bash", "Bash\n", "mcp__x__Bash", "", "MyBash"]),
        ("Write|Edit", ["Write", "Edit"], ["Write|Edit", "WriteEdit", "NotebookEdit", "Edit\n"]),
        (["Write", "Edit"], ["Write", "Edit"], ["write", "Write,Edit"]),
        ("my-tool", ["my-tool"], ["my", "tool", "my_tool"]),
        ("fs.read", ["fs.read"], ["fs_read", "fsxread"]),
        ("mcp__*", ["mcp__x__y", "mcp__"], ["mcp_x", "xmcp__y", "MCP__x"]),
        ("Ba?h", ["Bash", "Bath"], ["Bah", "Baash", "Bash\n", "bash"]),
        ("[A-C]x", ["Ax", "Cx"], ["Dx", "ax", "Ax\n"]),
        ("[!a]x", ["bx"], ["ax"]),
        ("My[ ]tool", ["My tool"], ["Mytool"]),
        ("fs[.]*", ["fs.read"], ["fsread"]),
        ("*tool", [".tool", "tool"], ["tools"]),
        ("a*|a*|b", ["ax", "b"], ["bx"]),
        ("Write|mcp__*", ["Write", "mcp__x"], ["Writes", "xmcp__"]),
        (["Write|Edit", "mcp__*"], ["Edit", "mcp__x"], ["Bash"]),
        ("re:mcp__(a|b)__.+", ["mcp__a__x"], ["mcp__c__x", "mcp__a__", "xmcp__a__x"]),
        ("re:^Bash$", ["Bash"], ["Bash\n", "BashOutput", "bash"]),
        ("re:(?i)bash", ["Bash", "BASH"], ["BashOutput"]),
        (re.compile("bash", re.IGNORECASE), ["Bash"], ["Bash2"]),
        (re.compile(r"\w", re.ASCII), ["a"], ["é"]),
        (re.compile(r"\w"), ["a", "é"], []),
    ],
)
def test_what_matches(spec: str | list[str] | re.Pattern[str] | None, matched: list[str], others: list[str]) -> None:
    """Each spelling matches whole names, with case, and no other name."""
    matcher = compile_matcher(spec)
    assert [name for name in matched + others if matcher.matches(name)] == matched


@pytest.mark.fault("F-HD-20")
@pytest.mark.parametrize(
    ("spec", "advice"),
    [
        ("Write,Edit", "'Write|Edit'"),
        ("Write, Edit", "'Write|Edit'"),
        ("", "'*'"),
        ([], "'*'"),
        ([""], "'*'"),
        ("a||b", "'*'"),
        ("a|", "'*'"),
        ("|a", "'*'"),
        (" Bash", "'Write|Edit'"),
        ("Bash\n", "'Write|Edit'"),
        ("Write | Edit", "'Write|Edit'"),
        ("Write Edit", "'Write|Edit'"),
        ("Write.*", "'re:Write.*'"),
        ("^Bash$", "'re:^Bash$'"),
        ("(a|b)", "'re:(a|b)'"),
        (r"\w+", r"'re:\\w+'"),
        ("mcp__.+", "'re:mcp__.+'"),
        ("a{1,2}", "'re:a{1,2}'"),
        ("Write|re:Edit.", "one regular expression"),
        (["re:Edit."], "one regular expression"),
        ("[ab", "'re:[ab'"),
        ("[]x", "'re:[]x'"),
        ("!Bash", "'re:!Bash'"),
        ("[z-a]x", "turn the range"),
        ("x" * 513, "more than 512"),
        ("re:", "needs a pattern"),
        ("re: Bash", "needs a pattern"),
        ("re:(a", "is not a regular expression"),
        ("re:" + "x" * 513, "longer than 512"),
        (re.compile(b"Bash"), "needs a pattern of text"),
        (7, "is not text"),
        (b"Bash", "is not text"),
        (["Bash", 7], "is not text"),
    ],
)
def test_mistakes_are_refused(spec: str, advice: str) -> None:
    """A spelling that would never match as meant is refused, with the way to write it."""
    with pytest.raises(InvalidRegistration, match=re.escape(advice)):
        compile_matcher(spec)


@given(names, names)
def test_a_name_matches_itself_only(name: str, other: str) -> None:
    """A plain name accepts one tool."""
    assume(name != other and not name.startswith("re:"))
    matcher = compile_matcher(name)
    assert matcher.matches(name)
    assert not matcher.matches(other)
    assert not matcher.matches(name + "\n")


@given(st.lists(names.filter(lambda name: not name.startswith("re:")), min_size=1), names)
def test_a_list_is_the_union(listed: Sequence[str], name: str) -> None:
    """A list accepts every name that one of its items accepts, as a string with `|` does."""
    expected = any(compile_matcher(one).matches(name) for one in listed)
    assert compile_matcher(listed).matches(name) is compile_matcher("|".join(listed)).matches(name) is expected


@given(st.text(max_size=8) | st.text("aW|*?[]!.-,^$ (", max_size=8))
def test_accepted_or_refused(spec: str) -> None:
    """Every text gives a matcher that answers, or a refusal."""
    try:
        matcher = compile_matcher(spec)
    except InvalidRegistration:
        return
    assert isinstance(matcher.matches("Write"), bool)


def test_time_limit() -> None:
    """A pattern that backtracks without end fails within the limit, with its own error."""
    spec = "re:(a+)+b|(a|aa)+c"
    with pytest.raises(MatchTimedOut, match="50 ms") as caught:
        compile_matcher(spec).matches("a" * 200)
    assert isinstance(caught.value, HookError)
    assert (caught.value.spec, caught.value.limit) == (spec, 0.05)


def test_many_stars() -> None:
    """A glob with as many stars as fit answers at once."""
    assert not compile_matcher("*a" * 255 + "b").matches("a" * 2000 + "bc")
    assert not regex.fullmatch(translate_glob("/" + "*a" * 255 + "b", path=True), "/" + "a" * 2000 + "bc", timeout=0.05)


@given(st.text("ab*?[]!-/", max_size=8), st.text("ab/-!", max_size=6))
def test_globs_as_in_python(glob: str, name: str) -> None:
    """A glob matches the names that Python's own `fnmatch` matches."""
    try:
        matched = regex.fullmatch(translate_glob(glob), name) is not None
    except regex.error:  # a range that is turned around
        matched = False
    assert matched is fnmatchcase(name, glob)


@pytest.mark.parametrize(
    ("glob", "matched", "others"),
    [
        ("/a/**", ["/a", "/a/", "/a/b", "/a/.b/c"], ["/ab", "/"]),
        ("/**/.env", ["/.env", "/a/b/.env", "//a/.env"], ["/a.env", "/.env/a"]),
        ("/a/**/b", ["/a/b", "/a/x/y/b"], ["/ab", "/a/xb"]),
        ("/a/*", ["/a/b", "/a/.b", "/a/b\nc"], ["/a", "/a/", "/a/b/c"]),
        ("/a/x?[!y]", ["/a/xaz"], ["/a/x/z", "/a/xa/", "/a/xay"]),
        (r"/a\*/[b/c]", ["/a*/[b/c]"], ["/ab/c", "/a*/b"]),
        ("/[[:digit:]]", ["/1"], ["/:", "/d"]),
    ],
)
def test_globs_over_paths(glob: str, matched: list[str], others: list[str]) -> None:
    """In a path only `**` matches a slash, also no folder at all, and brackets end within their name."""
    found = [path for path in matched + others if regex.fullmatch(translate_glob(glob, path=True), path)]
    assert found == matched


@pytest.mark.parametrize(
    "pattern", ["((a{500}){500}){500}", "(" * 100 + "a" + ")+" * 100, "a{999999}", "a{0}(b{999}){999}"]
)
def test_patterns_that_eat_memory(pattern: str) -> None:
    """Nested repeats are refused before compilation, which would take all memory."""
    with pytest.raises(InvalidRegistration, match="repeats too much"):
        compile_matcher(f"re:{pattern}")


def test_spec_is_kept() -> None:
    """A matcher keeps its spelling, and compares by it."""
    assert compile_matcher(["Write", "mcp__*"]).spec == "Write|mcp__*"
    assert compile_matcher(re.compile("a.")).spec == "re:a."
    assert compile_matcher("Write") == compile_matcher("Write") != compile_matcher("Edit")
    assert compile_matcher(None) is compile_matcher("*") is ANY


def test_engines_load_on_first_use() -> None:
    """Neither importing the module nor matching plain names loads an engine."""
    program = (
        "import sys; from amplifier_hooks.text.matching import compile_matcher\n"
        "assert compile_matcher('Write|Edit').matches('Edit')\n"
        "assert not {'regex'} & sys.modules.keys(), 'too early'"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
