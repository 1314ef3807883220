"""A node of the grammar comes in; the words that a program would see go out.

Marks stand for what only a run can tell.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar, Final

from attrs import define, field

from amplifier_hooks.impact.places import ANY, NAME, ONE, UNKNOWN, is_secret_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from tree_sitter import Node

SPLIT: Final = "\ue004"
"""A place at which an unquoted expansion falls apart into words."""
OPEN, COMMA, CLOSE = "\ue005", "\ue006", "\ue007"
"""The signs of a brace expansion, as long as nothing quotes them."""
TILDE: Final = "\ue008"
FIRST, LAST = "\ue00a", "\ue00b"
"""Brackets that nothing quotes; the grammar splits a word at them."""
RESERVED: Final = re.compile("[\ue000-\ue00b]")
MOST_WORDS: Final = 256
MOST_NESTED: Final = 8
"""Deepest nesting of `${…}` inside each other that is followed."""

UNQUOTED: Final = {"*": ANY, "?": ONE, "{": OPEN, ",": COMMA, "}": CLOSE, "[": FIRST, "]": LAST}
ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
STRING_ESCAPE: Final = re.compile(r'\\([$`"\\\n])')
BACKQUOTED: Final = re.compile(r"(?<!\\)`((?:[^`\\]|\\.)*)`|(?<!\\)`(.*)", re.DOTALL)
EVALUATED: Final = re.compile(r"[A-Za-z_]\w*\[[^\]]*(?:\$\(|`)")
"""A text that arithmetic runs: the index of an array holds a substitution."""
BRACKET: Final = re.compile(rf"{FIRST}[^{LAST}\s/]+{LAST}")
BRACES: Final = re.compile(f"{OPEN}([^{OPEN}{CLOSE}]*){CLOSE}")
LIVE: Final = re.compile(r"[*?{},\\\[\]]")
SUBSTITUTED: Final = re.compile(rb"[$`\\]|\A[^\"]")
ACTIVE: Final = re.compile(r"[*?{},\\\[\]`]")
"""A sign by which a word becomes another text, or several."""
MARKED: Final = re.compile(f"[{OPEN}{COMMA}{CLOSE}{TILDE}{FIRST}{LAST}]")
RANGE: Final = re.compile(r"\w+\.\.\w+(\.\.\d+)?")
ANSI: Final = re.compile(r"\\(x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{1,4}|U[0-9a-fA-F]{1,8}|[0-7]{1,3}|c.|.)", re.DOTALL)
LETTERS: Final = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "v": "\v"}
NUMBERS: Final = frozenset("?$!#-")
PLAIN_TEXT: Final = frozenset(("string_content", "heredoc_content", "heredoc_body"))


def decode_escapes(text: str) -> str:
    """Return a text with the escapes of `$'…'`, `printf` and `echo -e` decoded."""

    def decoded(match: re.Match[str]) -> str:
        code = match[1]
        if code[0] in "xuU" and len(code) > 1:
            return chr(min(int(code[1:], 16), 0x10FFFF))
        if code[0] in "01234567":
            return chr(int(code, 8) & 0xFF)
        if code[0] == "c" and len(code) > 1:
            return chr(ord(code[1]) & 0x1F)
        return LETTERS.get(code, code if code in "\\'\"?" else match[0])

    return ANSI.sub(decoded, text)


@define
class Expansion:
    """The state that words are expanded in, and what expanding them showed."""

    variables: dict[str, str]
    run: Callable[[Node], str]
    """Follows the commands of a substitution, and returns their output as far as that is known."""
    script: Callable[[str], str]
    """Follows a text of commands that the grammar leaves unread, and returns their output."""
    assign: Callable[[str, str], None]
    """Gives a variable its value."""
    splits: bool = True
    depth: int = 0
    """Nesting of `${…}` inside each other."""
    secrets: list[str] = field(factory=list)
    """Variables with secret names whose values the words hold."""

    def words(self, node: Node) -> list[str]:
        """Return the words that a node becomes: none, one, or several."""
        text = self.text(node)
        if text.isascii():
            return [text]  # no mark in it
        words = [word for word in text.split(SPLIT) if word] if SPLIT in text else [text]
        words = words if len(words) <= MOST_WORDS else [UNKNOWN]
        return [plain for word in words for plain in _braced(word)]

    def value(self, node: Node) -> str:
        """Return the text of a node that does not fall apart, as the value of an assignment does."""
        return self.text(node).replace(SPLIT, " ").translate(LITERAL)

    def text(self, node: Node, *, quoted: bool = False) -> str:
        """Return the text of a node, with marks."""
        if (known := self.TEXTS.get(node.type)) is not None:
            return known(self, node, quoted)
        if not node.named_child_count:
            return self._plain_word(node, quoted)
        self.visit(node)
        return UNKNOWN

    def _plain_word(self, node: Node, quoted: bool) -> str:  # noqa: FBT001
        text = self.backquoted(source(node)) if node.type == "word" else source(node)
        return text if quoted else _unquoted(text)

    def backquoted(self, text: str) -> str:
        """Return a text with the output of the commands between backquotes, which the grammar leaves in some texts."""
        return BACKQUOTED.sub(lambda match: self.script(match[1] or match[2] or ""), text) if "`" in text else text

    def _substituted(self, node: Node, quoted: bool) -> str:  # noqa: FBT001
        return self._output(self.run(node), quoted=quoted)

    def _process(self, node: Node) -> str:
        self.run(node)
        return "/dev/fd/63"

    def _number(self, node: Node) -> str:
        self.visit(node)
        return NAME

    def visit(self, node: Node) -> None:
        """Follow every substitution below a node whose text does not matter."""
        waiting = node.named_children[::-1]
        while waiting:
            child = waiting.pop()
            if child.type in ("command_substitution", "process_substitution"):
                self.run(child)
            else:
                waiting += child.named_children[::-1]

    def _joined(self, node: Node, *, quoted: bool) -> str:
        return "".join(self.text(child, quoted=quoted) for child in node.children)

    def string(self, node: Node) -> str:
        """Return the text of a node between double quotes, or of a here-document.

        The grammar drops blanks between expansions, so the gaps are copied.
        """
        whole = node.text or b""
        if node.type == "string" and not SUBSTITUTED.search(whole):
            return _plain(whole[1:-1].decode("utf-8", "replace"))
        start = node.start_byte
        parts: list[str] = []
        place = start
        document = node.type == "heredoc_body"
        for child in node.children:
            if (first := child.start_byte) != place:
                parts.append(self._gap(whole[place - start : first - start], document=document))
            place, kind = child.end_byte, child.type
            if kind in PLAIN_TEXT:
                part = self.backquoted(source(child)) if document else source(child)
                parts.append(_plain(STRING_ESCAPE.sub(_unescape, part) if "\\" in part else part))
            elif kind not in ('"', '$"', "$"):
                parts.append(self.text(child, quoted=True))
            elif kind == "$":
                parts.append("$")
        parts.append(self._gap(whole[place - start :], document=document))
        return "".join(parts)

    def _gap(self, gap: bytes, *, document: bool) -> str:
        text = gap.decode("utf-8", "replace")
        return _plain(self.backquoted(text) if document else text)

    def _variable(self, name: str, *, quoted: bool) -> str:
        if name == "@" and self.variables.get(name) == "":
            return SPLIT
        if name in self.variables:
            return self._output(self.variables[name], quoted=quoted)
        if name[:1] in NUMBERS:
            return NAME
        if is_secret_name(name):
            self.secrets.append(name)
        return UNKNOWN

    def _expansion(self, node: Node, *, quoted: bool) -> str:
        """Return the value of `${…}`. Forms that cut or replace keep the value's mark, not its text."""
        if self.depth >= MOST_NESTED:
            return self.script(UNKNOWN)
        self.depth += 1
        try:
            return self._expanded(node, quoted=quoted)
        finally:
            self.depth -= 1

    def _expanded(self, node: Node, *, quoted: bool) -> str:
        names = ("variable_name", "special_variable_name", "subscript")
        name = next((child for child in node.named_children if child.type in names), None)
        operators = [child.type for child in node.children if not child.is_named and child.type != "}"][1:2]
        self.visit(node)
        for child in node.named_children:
            if child.type in ("regex", "word") and ("$(" in source(child) or "`" in source(child)):
                self.script(f"echo {source(child)}")
        if name is None or operators == ["#"]:
            return UNKNOWN if name is None else NAME
        key = source(name if name.type != "subscript" else name.child_by_field_name("name") or name)
        given = "".join(self.text(child, quoted=True) for child in node.named_children if child != name)
        operator = operators[0] if operators else ""
        if operator == "!" and name.type != "subscript":
            self.secrets.append(f"!{key}")
        if operator in (":+", "+"):
            return given
        value = self._variable(key, quoted=True)
        if operator == "@" and value != NAME:
            return self.script(f'echo "{value}"')
        if operator in ("=", ":="):
            self.assign(key, value if value and value != UNKNOWN else given)
        if operator in (":-", "-", ":=", "="):
            return self._output(value or given, quoted=quoted)
        if not operator:
            return self._output(value, quoted=quoted)
        return NAME if value == NAME else UNKNOWN

    def _output(self, value: str, *, quoted: bool) -> str:
        if quoted or SPLIT in value:
            return value
        if not self.splits and re.search(r"\S", value):
            return UNKNOWN
        return re.sub(r"[ \t\n]+", SPLIT, value)

    TEXTS: ClassVar[dict[str, Callable[[Expansion, Node, bool], str]]] = {
        **dict.fromkeys(("word", "extglob_pattern", "regex", "variable_name", "special_variable_name"), _plain_word),
        **dict.fromkeys(
            ("string_content", "heredoc_content", "heredoc_body"), lambda _, node, __: _plain(source(node))
        ),
        **dict.fromkeys(("string", "translated_string"), lambda self, node, _: self.string(node)),
        "raw_string": lambda _, node, __: _plain(source(node)[1:-1]),
        "ansi_c_string": lambda _, node, __: _plain(decode_escapes(source(node)[2:-1])),
        "simple_expansion": lambda self, node, quoted: self._variable(source(node)[1:], quoted=quoted),
        "expansion": lambda self, node, quoted: self._expansion(node, quoted=quoted),
        "command_substitution": _substituted,
        "process_substitution": lambda self, node, _: self._process(node),
        "arithmetic_expansion": lambda self, node, _: self._number(node),
        "brace_expression": lambda _, __, ___: NAME,
        "concatenation": lambda self, node, quoted: self._joined(node, quoted=quoted),
        "array": lambda self, node, _: SPLIT.join(self.text(child) for child in node.named_children),
    }


LITERAL: Final = str.maketrans({OPEN: "{", COMMA: ",", CLOSE: "}", TILDE: "~", FIRST: "[", LAST: "]"})


def source(node: Node) -> str:
    """Return the text of a node as it is written."""
    return (node.text or b"").decode("utf-8", "replace")


def _plain(text: str) -> str:
    """Return a text in which no sign of the shell is live: a glob, a brace or a tilde inside quotes is only text."""
    return TILDE + text[1:] if text.startswith("~") else text


def _unescape(match: re.Match[str]) -> str:
    return "" if match[1] == "\n" else match[1]


def _unquoted(text: str) -> str:
    if not LIVE.search(text):
        return text
    parts = re.split(r"(\\.)", text, flags=re.DOTALL)
    return "".join(
        (part[1:] if part[1:] != "\n" else "")
        if part.startswith("\\") and part[1:]
        else "".join(UNQUOTED.get(sign, sign) for sign in part)
        for part in parts
    )


def _braced(word: str) -> list[str]:
    """Return the words of a brace expansion, innermost braces first; other braces are only text."""
    if not MARKED.search(word):
        return [word]
    word = BRACKET.sub(ANY, word)
    waiting: list[str] = ["./" + word if word.startswith(TILDE) else word]
    done: list[str] = []
    while waiting and len(waiting) + len(done) <= MOST_WORDS:
        one = waiting.pop()
        match = next((found for found in BRACES.finditer(one) if COMMA in found[1] or RANGE.fullmatch(found[1])), None)
        if match is None:
            done.append(one.translate(LITERAL))
        else:
            choices = match[1].split(COMMA) if COMMA in match[1] else [NAME]
            waiting += [one[: match.start()] + choice + one[match.end() :] for choice in reversed(choices)]
    return done if not waiting else [UNKNOWN]
