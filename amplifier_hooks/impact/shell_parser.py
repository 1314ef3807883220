"""A shell command comes in; its simple commands and its redirects go out, and nothing runs.

No other module uses tree-sitter, whose grammar of bash also reads broken commands. The text of a word is known if the
shell expands nothing in it; for every other word there is only its spelling.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from attrs import field, frozen

from amplifier_hooks.errors import MissingExtra

if TYPE_CHECKING:
    from tree_sitter import Node


LONGEST: Final = 16_384
"""Most characters of a command that is read, without its here-documents (`<<EOF`)."""
MOST_SIGNS: Final = 1_000
"""Most special characters of a command that is read: endless nesting would take the parser's stack, and much time."""

SIGNS: Final = re.compile(r"[|&;<>(){}$`\[]")
DOCUMENT: Final = re.compile(r"<<(-?)[ \t]*(['\"]?)(\w+)\2")

WRITING: Final = frozenset((">", ">>", ">|", "&>", "&>>", "<>"))
ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
ESCAPED_IN_STRING: Final = re.compile(r'\\([$`"\\])')
PATTERN: Final = re.compile(r"(?<!\\)[*?\[]")
BRACES: Final = re.compile(r"(?<!\\)[{}]")


@frozen
class Word:
    """One word of a command. `text` is the word that the program would see, or None if only a run could tell."""

    source: str
    text: str | None


@frozen
class SimpleCommand:
    """A program and its arguments."""

    words: tuple[Word, ...]


@frozen
class Redirect:
    """A redirect of output: its operator (`>`, `>>`, …) and its target."""

    operator: str
    target: Word


@frozen
class ShellReading:
    """The parts of a command, in the order of its text."""

    commands: tuple[SimpleCommand, ...] = ()
    redirects: tuple[Redirect, ...] = ()
    whole: bool = field(default=True)
    """True if the reader understood the whole command."""


class ShellReader:
    """A reader of commands. Its constructor raises `MissingExtra` if the grammar is not installed."""

    def __init__(self) -> None:
        try:
            import tree_sitter
            import tree_sitter_bash
        except ModuleNotFoundError:
            raise MissingExtra("reading a shell command", "shell") from None
        self._parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))

    def read(self, command: str) -> ShellReading:
        """Return the simple commands of a text, nested ones included. A text that is too long is not read."""
        command, whole = _without_documents(command)
        if len(command) > LONGEST or sum(1 for _ in SIGNS.finditer(command)) > MOST_SIGNS:
            return ShellReading(whole=False)
        root = self._parser.parse(command.encode("utf-8", "replace")).root_node
        commands: list[SimpleCommand] = []
        redirects: list[Redirect] = []
        waiting = [root]
        while waiting:
            node = waiting.pop()
            if node.type == "command":
                words = [_word(child) for child in _arguments(node)]
                if words:
                    commands.append(SimpleCommand(tuple(words)))
            elif node.type == "file_redirect":
                redirects += _redirects_of(node)
            waiting += reversed(node.children)
        return ShellReading(tuple(commands), tuple(redirects), whole and not root.has_error)


def _without_documents(command: str) -> tuple[str, bool]:
    """Return the command without the bodies of its here-documents, and True if that loses no command.

    The bodies are data and may be long. A body in which the shell would run commands stays, but the parser may miss
    commands in it.
    """
    if "<<" not in command:
        return command, True
    kept: list[str] = []
    lines = iter(command.split("\n"))
    whole = True
    for line in lines:
        kept.append(line)
        for indent, quote, end in DOCUMENT.findall(line):
            body: list[str] = []
            closed = False
            for inner in lines:
                closed = (inner.lstrip("\t") if indent else inner) == end
                if closed:
                    break
                body.append(inner)
            expands = not quote and any("$(" in inner or "`" in inner for inner in body)
            whole = whole and closed and not expands
            kept += body if expands or not closed else []
            kept += [end] if closed else []
    return "\n".join(kept), whole


def _arguments(command: Node) -> list[Node]:
    """Return the nodes of a command's words, its program first."""
    name = command.child_by_field_name("name")
    if name is None:
        return []
    return [*name.children[:1], *command.children_by_field_name("argument")]


def _redirects_of(node: Node) -> list[Redirect]:
    operator = next((child.type for child in node.children if child.type in WRITING), None)
    target = node.child_by_field_name("destination")
    if operator is None or target is None:
        return []
    return [Redirect(operator, _word(target))]


def _word(node: Node) -> Word:
    return Word(_source(node), _text(node))


def _source(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")


def _text(node: Node) -> str | None:
    source = _source(node)
    if node.type in ("word", "number"):
        return None if PATTERN.search(source) or BRACES.search(source) else ESCAPED.sub(r"\1", source)
    if node.type == "raw_string":
        return source[1:-1]
    if node.type == "string":
        plain = all(child.type in ('"', "string_content") for child in node.children)
        return ESCAPED_IN_STRING.sub(r"\1", source[1:-1]) if plain else None
    if node.type == "concatenation":
        parts = [_text(child) for child in node.children]
        return None if None in parts else "".join(part for part in parts if part is not None)
    return None
