"""A node of the grammar comes in; the words that a program would see go out, with marks for what only a run can tell."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

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
RESERVED: Final = re.compile("[\ue000-\ue009]")
MOST_WORDS: Final = 256

UNQUOTED: Final = {"*": ANY, "?": ONE, "{": OPEN, ",": COMMA, "}": CLOSE}
ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
STRING_ESCAPE: Final = re.compile(r'\\([$`"\\\n])')
BRACKET: Final = re.compile(r"\[[^\]\s/]+\]")
BRACES: Final = re.compile(f"{OPEN}([^{OPEN}{CLOSE}]*){CLOSE}")
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
    splits: bool = True
    secrets: list[str] = field(factory=list)
    """Variables with secret names whose values the words hold."""

    def words(self, node: Node) -> list[str]:
        """Return the words that a node becomes: none, one, or several."""
        text = self.text(node)
        words = [word for word in text.split(SPLIT) if word] if SPLIT in text else [text]
        return [plain for word in words[:MOST_WORDS] for plain in _braced(word)]

    def value(self, node: Node) -> str:
        """Return the text of a node that does not fall apart, as the value of an assignment does."""
        return self.text(node).replace(SPLIT, " ").translate(LITERAL)

    def text(self, node: Node, *, quoted: bool = False) -> str:
        """Return the text of a node, with marks."""
        kind = node.type
        if kind in ("word", "extglob_pattern", "regex", "variable_name", "special_variable_name"):
            return source(node) if quoted else _unquoted(source(node))
        if kind == "raw_string":
            return _plain(source(node)[1:-1])
        if kind == "ansi_c_string":
            return _plain(decode_escapes(source(node)[2:-1]))
        if kind in ("string", "translated_string"):
            return self.string(node)
        if kind == "simple_expansion":
            return self._variable(source(node)[1:], quoted=quoted)
        if kind == "expansion":
            return self._expansion(node, quoted=quoted)
        if kind == "command_substitution":
            return self._output(self.run(node), quoted=quoted)
        if kind == "process_substitution":
            self.run(node)
            return "/dev/fd/63"
        if kind == "arithmetic_expansion":
            self.visit(node)
            return NAME
        if kind == "concatenation":
            return self._joined(node, quoted=quoted)
        if kind == "array":
            return SPLIT.join(self.text(child) for child in node.named_children)
        if kind in PLAIN_TEXT:
            return _plain(source(node))
        if kind == "brace_expression":
            return NAME
        if not node.named_child_count:
            return source(node) if quoted else _unquoted(source(node))
        self.visit(node)
        return UNKNOWN

    def visit(self, node: Node) -> None:
        """Follow every substitution below a node whose text does not matter."""
        for child in node.named_children:
            if child.type in ("command_substitution", "process_substitution"):
                self.run(child)
            else:
                self.visit(child)

    def _joined(self, node: Node, *, quoted: bool) -> str:
        return "".join(self.text(child, quoted=quoted) for child in node.children)

    def string(self, node: Node) -> str:
        """Return the text of a node between double quotes, or of a here-document. The grammar drops blanks between expansions, so the gaps are copied."""
        whole = node.text or b""
        start = node.start_byte
        parts: list[str] = []
        place = start
        for child in node.children:
            gap = whole[place - start : child.start_byte - start].decode("utf-8", "replace")
            parts.append(_plain(gap))
            place = child.end_byte
            if child.type in PLAIN_TEXT:
                parts.append(_plain(STRING_ESCAPE.sub(_unescape, source(child))))
            elif child.type not in ('"', '$"', "$"):
                parts.append(self.text(child, quoted=True))
            elif child.type == "$":
                parts.append("$")
        parts.append(_plain(whole[place - start :].decode("utf-8", "replace")))
        return "".join(parts)

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
        name = next(
            (
                child
                for child in node.named_children
                if child.type in ("variable_name", "special_variable_name", "subscript")
            ),
            None,
        )
        operators = [child.type for child in node.children if not child.is_named]
        operator = next((one for one in operators if one not in ("${", "}")), "")
        if name is None:
            self.visit(node)
            return UNKNOWN
        key = source(name) if name.type != "subscript" else source(name.child_by_field_name("name") or name)
        if name.type == "subscript":
            self.visit(name)
        others = [child for child in node.named_children if child != name]
        given = "".join(self.text(child, quoted=True) for child in others)
        if operators[1:2] == ["#"]:
            return NAME
        if operator in (":+", "+"):
            return given
        if operator in (":-", "-", ":=", "="):
            value = self.variables.get(key)
            if value is None:
                if is_secret_name(key):
                    self.secrets.append(key)
                return UNKNOWN
            return self._output(value or given, quoted=quoted)
        if not operator and name.type != "subscript":
            return self._variable(key, quoted=quoted)
        value = self._variable(key, quoted=True)
        if name.type == "subscript" and not operator:
            return self._output(value, quoted=quoted)
        return NAME if value == NAME else UNKNOWN

    def _output(self, value: str, *, quoted: bool) -> str:
        if quoted or SPLIT in value:
            return value
        if not self.splits and re.search(r"\S", value):
            return UNKNOWN
        return re.sub(r"[ \t\n]+", SPLIT, value)


LITERAL: Final = str.maketrans({OPEN: "{", COMMA: ",", CLOSE: "}", TILDE: "~"})


def source(node: Node) -> str:
    """Return the text of a node as it is written."""
    return (node.text or b"").decode("utf-8", "replace")


def _plain(text: str) -> str:
    """Return a text in which no sign of the shell is live: a glob, a brace or a tilde inside quotes is only text."""
    return TILDE + text[1:] if text.startswith("~") else text


def _unescape(match: re.Match[str]) -> str:
    return "" if match[1] == "\n" else match[1]


def _unquoted(text: str) -> str:
    text = BRACKET.sub(ANY, text) if "[" in text and "\\" not in text else text
    parts = re.split(r"(\\.)", text, flags=re.DOTALL)
    return "".join(
        (part[1:] if part[1:] != "\n" else "")
        if part.startswith("\\") and len(part) == 2
        else "".join(UNQUOTED.get(sign, sign) for sign in part)
        for part in parts
    )


def _braced(word: str) -> list[str]:
    """Return the words of a brace expansion, innermost braces first; other braces are only text."""
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
