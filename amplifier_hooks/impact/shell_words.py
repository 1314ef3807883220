"""A node of the grammar comes in; the words that a program would see go out, with marks for what only a run can tell.

A here-document is one text. The grammar ends it at more lines than a shell does: behind blanks, before other text, and
after a word that it reads up to a blank alone. Commands between the two ends would count as text, or text as commands,
so a document that shells may end elsewhere has a sentence that says so.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, Final

from attrs import define, field

from amplifier_hooks.impact.places import ANY, NAME, ONE, UNKNOWN, is_secret_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tree_sitter import Node

    from amplifier_hooks.impact.shell import ShellState, ShellWalk


SPLIT: Final = "\ue004"
"""A place at which an unquoted expansion falls apart into words."""
OPEN, COMMA, CLOSE = "\ue005", "\ue006", "\ue007"
"""The signs of a brace expansion, as long as nothing quotes them."""
TILDE: Final = "\ue008"
FIRST, LAST = "\ue00a", "\ue00b"
"""Brackets that nothing quotes; the grammar splits a word at them."""
RESERVED: Final = re.compile("[\ue000-\ue00b]")
MOST_WORDS: Final = 256
MOST_BRACKETS: Final = 64
"""Most brackets in one word that is read."""
MOST_NESTED: Final = 8
"""Deepest nesting of `${…}` inside each other that is followed."""

UNQUOTED: Final = {"*": ANY, "?": ONE, "{": OPEN, ",": COMMA, "}": CLOSE, "[": FIRST, "]": LAST}
QUOTED: Final = re.compile(r"(\\.)", re.DOTALL)
STRING_ESCAPE: Final = re.compile(r'\\([$`"\\\n])')
BACKQUOTED: Final = re.compile(r"(?<!\\)`((?:[^`\\]|\\.)*)`|(?<!\\)`(.*)", re.DOTALL)
INDEX: Final = re.compile(r"\w\[")
"""The beginning of the index of an array."""
BRACKET: Final = re.compile(rf"{FIRST}[^{LAST}\s/]+{LAST}")
BRACES: Final = re.compile(f"{OPEN}([^{OPEN}{CLOSE}]*){CLOSE}")
LIVE: Final = re.compile(r"[*?{},\\\[\]]")
SUBSTITUTED: Final = re.compile(r"[$`\\]|\A[^\"]")
ACTIVE: Final = re.compile(r"[*?{},\\\[\]`]")
"""A sign by which a word becomes another text, or several."""
MARKED: Final = re.compile(f"[{OPEN}{COMMA}{CLOSE}{TILDE}{FIRST}{LAST}]")
BLANKS: Final = re.compile(r"[ \t\n]+")
RANGE: Final = re.compile(r"\w+\.\.\w+(\.\.\d+)?")
ANSI: Final = re.compile(r"\\(x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{1,4}|U[0-9a-fA-F]{1,8}|[0-7]{1,3}|c.|.)", re.DOTALL)
LETTERS: Final = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "v": "\v"}
NUMBERS: Final = frozenset("?$!#-")
PLAIN_TEXT: Final = frozenset(("string_content", "heredoc_content", "heredoc_body"))


def is_evaluated(text: str) -> bool:
    """Return True if arithmetic runs a part of a text: the index of an array holds a substitution."""
    if "[" not in text or not ("$(" in text or "`" in text):
        return False
    indices = [part[match.end() :] for part in text.split("]") if (match := INDEX.search(part))]
    return any("$(" in index or "`" in index for index in indices)


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


def literal_word(kind: str, text: str) -> str | None:
    """Return the one word that a node with this text becomes, or None if the shell may expand a part of it."""
    if kind == "word":
        return None if ACTIVE.search(text) else text
    if kind == "raw_string" or (kind == "string" and not SUBSTITUTED.search(text)):
        return text[1:-1] if text.isascii() and text[1:2] != "~" else None
    return None


@define
class Expansion:
    """The state that words are expanded in, and what expanding them showed."""

    walk: ShellWalk
    state: ShellState
    depth: int = 0
    """Nesting of `${…}` inside each other."""
    secrets: list[str] = field(factory=list)
    """Variables with secret names whose values the words hold."""

    def run(self, node: Node) -> str:
        """Follow the commands of a substitution, and return their output as far as that is known."""
        inner = self.state.copy()
        self.walk.depth += self.depth
        try:
            return "".join(self.walk.visit(child, inner, UNKNOWN) for child in node.named_children).rstrip("\n")
        finally:
            self.walk.depth -= self.depth

    def script(self, text: str) -> str:
        """Follow a text of commands that the grammar leaves unread, and return their output."""
        return self.walk.script(text, self.state.copy(), UNKNOWN)

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
        text = self.backquoted(self.walk.source(node)) if node.type == "word" else self.walk.source(node)
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
        place, end = node.start_byte, node.end_byte
        if node.type == "string" and not SUBSTITUTED.search(whole := self.walk.text[place:end]):
            return _plain(whole[1:-1])
        parts: list[str] = []
        document = node.type == "heredoc_body"
        for child in node.children:
            if (first := child.start_byte) != place:
                parts.append(self._gap(self.walk.text[place:first], document=document))
            place, kind = child.end_byte, child.type
            if kind in PLAIN_TEXT:
                part = self.backquoted(self.walk.source(child)) if document else self.walk.source(child)
                parts.append(_plain(STRING_ESCAPE.sub(_unescape, part) if "\\" in part else part))
            elif kind not in ('"', '$"', "$"):
                parts.append(self.text(child, quoted=True))
            elif kind == "$":
                parts.append("$")
        if place != end:
            parts.append(self._gap(self.walk.text[place:end], document=document))
        return "".join(parts)

    def _gap(self, text: str, *, document: bool) -> str:
        return _plain(self.backquoted(text) if document else text)

    def _variable(self, name: str, *, quoted: bool) -> str:
        if name == "@" and self.state.variables.get(name) == "":
            return SPLIT
        if name in self.state.secrets:
            self.secrets.append(self.state.secrets[name])
        if name in self.state.variables:
            return self._output(self.state.variables[name], quoted=quoted)
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
            if child.type in ("regex", "word") and ("$(" in self.walk.source(child) or "`" in self.walk.source(child)):
                self.script(f"echo {self.walk.source(child)}")
        if name is None or operators == ["#"]:
            return UNKNOWN if name is None else NAME
        key = self.walk.source(name if name.type != "subscript" else name.child_by_field_name("name") or name)
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
            self.walk.assign(key, value if value and value != UNKNOWN else given, self.state)
        if operator in (":-", "-", ":=", "="):
            return self._output(value or given, quoted=quoted)
        if not operator:
            return self._output(value, quoted=quoted)
        return NAME if value == NAME else UNKNOWN

    def _output(self, value: str, *, quoted: bool) -> str:
        if quoted or SPLIT in value:
            return value
        if not self.state.splits and value.strip():
            return UNKNOWN
        return BLANKS.sub(SPLIT, value)

    TEXTS: ClassVar[dict[str, Callable[[Expansion, Node, bool], str]]] = {
        **dict.fromkeys(("word", "extglob_pattern", "regex", "variable_name", "special_variable_name"), _plain_word),
        **dict.fromkeys(
            ("string_content", "heredoc_content", "heredoc_body"), lambda self, node, _: _plain(self.walk.source(node))
        ),
        **dict.fromkeys(("string", "translated_string"), lambda self, node, _: self.string(node)),
        "raw_string": lambda self, node, _: _plain(self.walk.source(node)[1:-1]),
        "ansi_c_string": lambda self, node, _: _plain(decode_escapes(self.walk.source(node)[2:-1])),
        "simple_expansion": lambda self, node, quoted: self._variable(self.walk.source(node)[1:], quoted=quoted),
        "expansion": lambda self, node, quoted: self._expansion(node, quoted=quoted),
        "command_substitution": _substituted,
        "process_substitution": lambda self, node, _: self._process(node),
        "arithmetic_expansion": lambda self, node, _: self._number(node),
        "brace_expression": lambda _, __, ___: NAME,
        "concatenation": lambda self, node, quoted: self._joined(node, quoted=quoted),
        "array": lambda self, node, _: SPLIT.join(self.text(child) for child in node.named_children),
    }


LITERAL: Final = str.maketrans({OPEN: "{", COMMA: ",", CLOSE: "}", TILDE: "~", FIRST: "[", LAST: "]"})


def _plain(text: str) -> str:
    """Return a text in which no sign of the shell is live: a glob, a brace or a tilde inside quotes is only text."""
    return TILDE + text[1:] if text.startswith("~") else text


def _unescape(match: re.Match[str]) -> str:
    return "" if match[1] == "\n" else match[1]


def _unquoted(text: str) -> str:
    if not LIVE.search(text):
        return text
    parts = QUOTED.split(text)
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
    if word.count(FIRST) > MOST_BRACKETS:
        return [UNKNOWN]
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


# -- here-documents ---------------------------------------------------------------------------------------------------

DOCUMENT_START: Final = re.compile(r"""<<-?[ \t]*(['"]?)(\w+)\1""")
"""A here-document with the word of its end."""
END_WORD: Final = re.compile(r"(\\?)([\w.-]+)|'([ -&(-\[\]-~]*)'|\"([ !#%-\[\]-_a-~]*)\"", re.ASCII)
"""A word behind `<<` that every shell and the grammar read in the same way."""
TABS: Final = r"\t*"
BEHIND: Final = re.compile(r"[ \t\n;&|<>()]|\Z")
"""The end of a word for every shell."""


def end_documents(text: str) -> str:
    """Return a text with an end for each here-document that has none, as a shell reads it."""
    lines = {line.lstrip("\t") for line in text.split("\n")}
    open_ends = [mark[2] for mark in DOCUMENT_START.finditer(text) if mark[2] not in lines]
    return "\n".join((text, *open_ends))


def find_misread(root: Node, text: str, *, joined: bool) -> str:
    """Return why shells may read a here-document in another way than the tree says; an empty text if none does.

    `joined` says that lines of the text were joined at a backslash, which shells do in some documents only.
    """
    redirects = list(_redirects(root, text))
    if any(one.end_byte > other.start_byte for one, other in pairwise(redirects)):
        return "here-documents that begin on one line"
    return next((flaw for one in redirects if (flaw := _misread(one, text, joined=joined))), "")


def _redirects(root: Node, text: str) -> Iterator[Node]:
    """Yield the redirects to documents in the order of the text."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.type == "heredoc_redirect":
            yield node
        waiting += [
            child for child in reversed(node.named_children) if text.find("<<", child.start_byte, child.end_byte) >= 0
        ]


def _has_line(text: str, line: str) -> bool:
    return re.search(f"{line}$", text, re.MULTILINE) is not None


def _misread(redirect: Node, text: str, *, joined: bool) -> str:
    parts = {child.type: child for child in redirect.children}
    if not {"heredoc_start", "heredoc_body", "heredoc_end"} <= parts.keys():
        return "a here-document without an end"
    start, end = parts["heredoc_start"], parts["heredoc_end"]
    word = END_WORD.fullmatch(text, start.start_byte, start.end_byte)
    if word is None or not BEHIND.match(text, start.end_byte):
        return "the end of a here-document is no plain word"
    line = rf"^{TABS if '<<-' in parts else ''}{re.escape(word[2] or word[3] or word[4])}"
    first = text.find("\n", start.end_byte) + 1
    found = re.compile(rf"{line}($|\))", re.MULTILINE).search(text, first)
    if found is None or found.start(1) != end.end_byte or (found[1] and _has_line(text[found.start(1) :], line)):
        return "a here-document that shells end elsewhere"
    if word[2] and not word[1]:  # Shells join the lines of a document whose word has no quotes.
        lines = text[first - 1 : found.start()]
        whole = lines.replace("\n \\\n", "\n").replace("\\\n", "")  # the walk puts that blank before the backslash
        joins = lines.endswith("\\\n") or ("\\\n" in lines and _has_line(whole, line))
        return "lines of a here-document that shells join" if joins else ""
    return "lines of a here-document that no shell joins" if joined else ""
