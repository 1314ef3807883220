"""A shell command comes in; the impacts of everything it would run go out, and nothing runs.

The grammar of tree-sitter-bash reads the command. A walk follows it as the shell would: `cd`, variables, loops,
functions, pipes, here-documents, substitutions, commands inside arguments, and scripts that the command itself writes
and runs. A part that the walk cannot follow is `unreadable`.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, Final

from attrs import define, field, frozen

from amplifier_hooks.impact.places import (
    ANY,
    BUILT,
    CONNECTION,
    NAME,
    SOCKETS,
    UNKNOWN,
    Places,
    decides_loading,
    is_secret_name,
    names_of,
    show,
    tells_outward,
    written_language,
)
from amplifier_hooks.impact.program_rows import ProgramRun, program_name, program_rows, run_program
from amplifier_hooks.impact.shell_builtins import BuiltinCall, find_builtin
from amplifier_hooks.impact.shell_words import (
    RESERVED,
    SPLIT,
    Expansion,
    end_documents,
    find_misread,
    is_evaluated,
    literal_word,
)
from amplifier_hooks.impacts import CommandRun, Impact

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tree_sitter import Language, Node

    from amplifier_hooks.impacts import ImpactKind

LONGEST: Final = 1 << 20
"""Most bytes of a command that is read."""
LONG: Final = 1 << 16
MOST_SIGNS: Final = 8_000
"""Most special characters of a command that is read."""
MOST_PARSER_STEPS: Final = 512
"""Most hundreds of steps of the parser in all texts of one walk."""
PART: Final = 512
"""Bytes of a command that the parser gets at once."""
MOST_READS: Final = 4
"""Most times that the parser gets each part, on average."""
FREE_READS: Final = 64
"""Reads that do not count, so that a short text with an error is read."""
MOST_STEPS: Final = 4_000
"""Most parts that one walk follows, every turn of a loop counted."""
MOST_NODES: Final = 20_000
"""Most nodes of the grammar in one text."""
DEEPEST: Final = 60
"""Deepest nesting of commands."""
MOST_TURNS: Final = 32
"""Most turns of one loop that are followed with a value each."""
MOST_FOLDERS: Final = 4
"""Most folders that a command may be in before it counts as being anywhere."""
MOST_CALLS: Final = 2
"""Most calls of one function inside itself."""
LONGEST_OUTPUT: Final = 65_536

SIGNS: Final = re.compile(r"[|&;<>(){}$`\[]")
NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]+")
LETTER, NO_LETTER = "Z", "\x01"
"""Signs that stand for characters outside ASCII: no word of the shell's grammar holds them."""
JOINED: Final = re.compile(r"(?<=\w)\\\n(?=\w)")
"""The end of a line that a backslash takes away, inside a word."""
BEFORE_BACKSLASH: Final = re.compile(r"(?<!\\)((?:\\\\)*\n)(?=\\)")
"""The end of a line before a backslash, which the grammar overlooks unless a blank stands between them."""
SHEBANG: Final = re.compile(r"#!\s*(?:/usr/bin/env\s+(?:-S\s+)?)?(?:\S*/)?(\w[\w.+-]*)")
SHELLS: Final = frozenset(("sh", "bash", "zsh", "dash", "ksh", "fish", "ash"))
REDIRECTS: Final = frozenset(("file_redirect", "herestring_redirect", "heredoc_redirect"))
DOCUMENT: Final = frozenset(("heredoc_start", "heredoc_body", "heredoc_end", "file_descriptor"))
STATEMENTS: Final = frozenset(
    [
        "pipeline",
        "command",
        "list",
        "redirected_statement",
        "subshell",
        "compound_statement",
        "if_statement",
        "while_statement",
        "for_statement",
        "c_style_for_statement",
        "case_statement",
        "function_definition",
        "variable_assignment",
        "variable_assignments",
        "declaration_command",
        "unset_command",
        "test_command",
        "negated_command",
        "ERROR",
    ]
)
PARTS: Final = {
    **dict.fromkeys(STATEMENTS, "statement"),
    **dict.fromkeys(REDIRECTS, "redirect"),
    "command_name": "program",
    "variable_assignment": "assignment",
    "comment": "comment",
}
"""The parts of a command by the types of their nodes; any other node is a word."""
LANGUAGES: Final = {
    "python": "python",
    "python3": "python",
    "node": "javascript",
    "ruby": "ruby",
    "perl": "perl",
    "php": "php",
}
TESTS: Final = ("[", "((", "test ", "false", "grep ", "! ")
"""Beginnings of commands whose answer decides if the rest of a list runs."""
LOADS_NOTHING: Final = re.compile(
    r"|cat|less( -R)?|more|true|echo|:|vim?|nano|emacs|code --wait|(/bin/)?(ba|z)?sh|gcc|g\+\+|clang(\+\+)?|cc|0|1|"
    r"(--max-old-space-size=\d+|--no-warnings|--enable-source-maps|--experimental-vm-modules|-mod=\w+|-v|-j ?\d+|"
    r"-[DW] ?[\w=]+|-O\w|-g|-C target-cpu=native|-F|-R|-X|-S|https?://(localhost|127\.0\.0\.1)[:/\w]*| )+"
)
"""Values that start no program and load no file."""
PLACES_IN_VALUE: Final = re.compile(r"[^\s:=,'\"]+")
ASSIGNING: Final = frozenset(("read", "mapfile", "readarray", "getopts", "printf", "let"))
"""Builtins that give variables a value."""
BACKGROUND: Final = ("&>", "&>>")
"""Redirects of bash. Other shells read an `&`, and then a redirect that begins another command."""
FOLLOWED: Final = CommandRun((), (), frozenset())
"""The place of a command that is still followed."""
OPERATORS: Final = {
    ">": "writes",
    ">>": "writes",
    ">|": "writes",
    "&>": "writes",
    "&>>": "writes",
    "<>": "writes",
    ">&": "writes",
    "<": "reads",
    "<&": "reads",
}


@frozen
class FunctionBody:
    """The node of a function's body, and the text that it is a part of."""

    node: Node
    text: str


@define
class ShellState:
    """The state of one shell: its folder, or the folders that it may be in; its variables and functions."""

    folders: tuple[str, ...]
    variables: dict[str, str]
    functions: dict[str, FunctionBody | str] = field(factory=dict)
    """The bodies of functions, and the texts behind aliases."""
    splits: bool = True
    secrets: dict[str, str] = field(factory=dict)
    """Variables that hold the value of a variable with a secret's name, each with that name."""

    def copy(self) -> ShellState:
        """Return the state of a subshell."""
        return ShellState(self.folders, dict(self.variables), dict(self.functions), self.splits, dict(self.secrets))

    def enter(self, folders: Sequence[str]) -> None:
        """Be in one of these folders; of too many, in any folder at all."""
        found = tuple(dict.fromkeys(folders))
        self.folders = found if len(found) <= MOST_FOLDERS else (*found[:MOST_FOLDERS], UNKNOWN)

    def give(self, arguments: Sequence[str]) -> None:
        """Give the shell or a function its arguments: `$1` to `$9`, `$@` and `$*`."""
        given = [*arguments, *[""] * 9][:9]
        self.variables |= {str(place): value for place, value in enumerate(given, start=1)}
        self.variables["@"], self.variables["*"] = SPLIT.join(arguments), " ".join(arguments)

    def join(self, other: ShellState) -> None:
        """Take over what another branch may have left: a variable that differs could be anything."""
        self.enter((*self.folders, *other.folders))
        for name in self.variables.keys() | other.variables.keys():
            if self.variables.get(name) != other.variables.get(name):
                self.variables[name] = UNKNOWN
        self.functions = other.functions | self.functions
        self.secrets = other.secrets | self.secrets
        self.splits = self.splits and other.splits


@cache
def load_grammar() -> Language:
    """Return the grammar of the shell, loaded once."""
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Language(tree_sitter_bash.language())


@define
class Parser:
    """A parser of texts of the shell that stops after a number of steps in all of them."""

    steps: int = MOST_PARSER_STEPS
    """Hundreds of steps that are left; each text counts as one more."""

    def parse(self, text: str) -> Node | None:
        """Return the root of a text's tree, in which places count characters, or None if the grammar takes too long.

        Behind an error the grammar's scanner may look for the end of a word in the whole rest of the text, at every
        sign, and many pipes or errors make each step slow. So the parser gets the text in parts, each as often as it
        asks, and an end after too many of them; and it stops after too many steps.

        The grammar's scanner looks characters up in tables of the C library that end at 255 or depend on the locale: a
        sign such as U+FFFFF behind a brace ended the process. So the parser gets a sign of ASCII for every other
        character.
        """
        if self._stops():
            return None
        grammar = load_grammar()
        import tree_sitter

        code = (text if text.isascii() else NOT_ASCII.sub(_stand_in, text)).encode()
        reads = FREE_READS + MOST_READS * (len(code) // PART)

        def read(place: int, _point: object) -> bytes:
            nonlocal reads
            reads -= 1
            return code[place : place + PART] if reads > 0 else b""

        try:
            tree = tree_sitter.Parser(grammar).parse(read, progress_callback=self._stops)
        except ValueError:  # as the parser says that it stopped
            return None
        return tree.root_node if reads > 0 else None

    def parse_ended(self, text: str) -> tuple[str, Node | None]:
        """Return a text, with an end for each here-document if the grammar needs it, and the root of its tree."""
        root = self.parse(text)
        if root is not None and root.has_error and (ended := end_documents(text)) != text:
            return ended, self.parse(ended)
        return text, root

    def _stops(self, *_state: object) -> bool:
        self.steps -= 1
        return self.steps < 0


def _stand_in(match: re.Match[str]) -> str:
    return "".join(LETTER if sign.isalpha() else NO_LETTER for sign in match[0])


def _has_too_many_words(text: str) -> bool:
    """Return True if a long text has more words than nodes that are read; a here-document may have many lines."""
    lines = [] if len(text) <= LONG else text.split("\n") if "<<" in text else [text]
    return any(sum(line.count(sign) for sign in " \t\n'\"") > MOST_NODES for line in lines if len(line) > MOST_NODES)


@define
class ShellWalk:
    """One walk through a command."""

    places: Places
    impacts: dict[Impact, None] = field(factory=dict)
    whole: str = ""
    """The whole command."""
    text: str = ""
    """The text whose nodes are visited."""
    depth: int = 0
    steps: int = 0
    parser: Parser = field(factory=Parser)
    called: set[str] = field(factory=set)
    calling: list[str] = field(factory=list)
    loaded: set[tuple[str, str]] = field(factory=set)
    """Files with their contents that this command wrote, and that it has run or a program may have loaded."""
    commands: list[CommandRun] = field(factory=list)
    kinds: set[ImpactKind] = field(factory=set)
    """The kinds of the command that is followed, without those of commands that it starts."""
    entered: list[str] = field(factory=list)
    """The folders that this command goes to by itself."""
    outer: int = -1
    """The place of this command among the commands."""

    def add(self, kind: ImpactKind, place: str = "", reason: str = "") -> None:
        """Add an impact, once."""
        self.note(Impact(kind, place, reason))

    def note(self, *impacts: Impact) -> None:
        """Add impacts, each once."""
        for one in impacts:
            self.impacts[one] = None
            self.kinds.add(one.kind)

    def follow(self, command: str, folder: str) -> None:
        """Add the impacts of a whole command that starts in a folder."""
        self.whole = command
        state = self._first_state(folder)
        self.script(command, state, UNKNOWN)
        for name in list(state.functions):
            if name not in self.called:
                state.variables |= dict.fromkeys(("@", "*", *"123456789"), UNKNOWN)
                self.call(name, [UNKNOWN], state, UNKNOWN)

    def follow_words(self, words: list[str], folder: str) -> None:
        """Add the impacts of a program with its arguments, which no shell reads."""
        self.whole = " ".join(words)
        self.command([RESERVED.sub(UNKNOWN, word) for word in words], self._first_state(folder), UNKNOWN)

    def _first_state(self, folder: str) -> ShellState:
        home = self.places.policy.home
        variables = {
            "HOME": home,
            "PWD": folder,
            "OLDPWD": UNKNOWN,
            "TMPDIR": self.places.policy.temporary[0],
            "@": "",
            "*": "",
        }
        return ShellState((folder,), variables | dict.fromkeys("123456789", ""))

    def script(self, text: str, state: ShellState, stdin: str) -> str:
        """Follow a text of shell commands, and return what is known of its output."""
        text = RESERVED.sub(UNKNOWN, text) if self.depth == 0 and not text.isascii() else text
        if text.strip() in ("", UNKNOWN) or len(text) > LONGEST or self.depth > DEEPEST:
            if text.strip():
                self.add(
                    "unreadable" if text.strip() != UNKNOWN else "runs_unread",
                    "",
                    "only a run tells the commands" if len(text) <= LONGEST else "too long to be read",
                )
                self._record([UNKNOWN], state)
            return UNKNOWN
        used_up = self.parser.steps < 0  # counting the signs of a long text takes a millisecond
        if used_up or (len(text) > MOST_SIGNS and len(SIGNS.findall(text)) > MOST_SIGNS) or _has_too_many_words(text):
            return self._give_up("too many parts to be read", state)
        if UNKNOWN in text and self.depth:
            self.add("runs_unread", show(text[:80]), "only a run tells the commands")
        self.depth += 1
        outer = self.text
        try:
            written, text = text, JOINED.sub("", text) if "\\\n" in text else text
            joined = written != text
            text = BEFORE_BACKSLASH.sub(r"\1 ", text) if "\n\\" in text else text
            text, root = self.parser.parse_ended(text)
            if root is None or root.descendant_count > MOST_NODES:
                return self._give_up("too many parts to be read", state)
            if root.has_error:
                self._give_up("the shell's grammar does not read it", state)
            if "\0" in text:
                self._give_up("a sign that some shells drop", state)
            if joined and ("#" in text or "'" in text):
                self._give_up("lines that shells join neither in a comment nor between single quotes", state)
            if "<<" in text and (misread := find_misread(root, text, joined=joined)):
                self._give_up(misread, state)
            self.text = text
            return self.visit(root, state, stdin)
        finally:
            self.depth -= 1
            self.text = outer

    def visit(self, node: Node, state: ShellState, stdin: str) -> str:
        """Follow a node of the grammar, and return what is known of its output."""
        self.steps += 1
        if self.steps > MOST_STEPS or self.depth > DEEPEST:
            return self._give_up("too many parts to be followed", state)
        self.depth += 1
        try:
            return self.VISITS.get(node.type, ShellWalk._sequence)(self, node, state, stdin)
        finally:
            self.depth -= 1

    def source(self, node: Node) -> str:
        """Return the text of a node as it is written."""
        return self.text[node.start_byte : node.end_byte]

    # -- words ---------------------------------------------------------------------------------------------------------

    def _words(self, nodes: Sequence[Node], state: ShellState) -> tuple[list[str], list[str]]:
        expansion: Expansion | None = None
        words: list[str] = []
        for node in nodes:
            if (literal := literal_word(node.type, self.source(node))) is not None:
                words.append(literal)
                continue
            expansion = expansion or Expansion(self, state)
            words += expansion.words(node)
        return words, expansion.secrets if expansion else []

    # -- structure -----------------------------------------------------------------------------------------------------

    def _sequence(self, node: Node, state: ShellState, stdin: str) -> str:
        output: list[str] = []
        for child in node.named_children:
            if child.type == "ERROR":
                self.add("unreadable", show(self.source(child)[:80]), "the shell's grammar does not read it")
            output.append(self.visit(child, state, stdin))
        text = "".join(output)
        return text if len(text) <= LONGEST_OUTPUT else UNKNOWN

    def _words_only(self, node: Node, state: ShellState, stdin: str) -> str:
        del stdin
        if node.type == "unset_command":
            self._record(self.source(node).split(), state)
        Expansion(self, state).visit(node)
        self.refuse_evaluated(self.source(node))
        return ""

    def refuse_evaluated(self, *texts: str) -> None:
        """Add `runs_unread` for a text that arithmetic of the shell would run."""
        if any(map(is_evaluated, texts)):
            self.add("runs_unread", "arithmetic", "a command in the index of an array")

    def _redirect(self, node: Node, state: ShellState, stdin: str) -> str:
        """Follow a redirect without a command, as in `$(<file)`."""
        self._outputs([node], state, "")
        return self._input([node], (), state, stdin)

    def _nothing(self, node: Node, state: ShellState, stdin: str) -> str:
        del node, state, stdin
        return ""

    def _list(self, node: Node, state: ShellState, stdin: str) -> str:
        first, *rest = node.named_children
        output = self.visit(first, state, stdin)
        either = any(child.type == "||" for child in node.children) or self.source(first).startswith(TESTS)
        before = state.copy() if either else None
        for child in rest:
            output += self.visit(child, state, stdin)
        if before is not None:
            state.join(before)
        return output

    def _pipeline(self, node: Node, state: ShellState, stdin: str) -> str:
        for child in node.named_children:
            stdin = self.visit(child, state.copy(), stdin)
        return stdin

    def _subshell(self, node: Node, state: ShellState, stdin: str) -> str:
        return self._sequence(node, state.copy(), stdin)

    def _redirected(self, node: Node, state: ShellState, stdin: str) -> str:
        """Follow a statement with its redirects.

        The grammar keeps all that stands behind `<<EOF` inside the redirect, and takes the arguments behind a redirect
        for more targets of it.
        """
        redirects = node.children_by_field_name("redirect")
        behind = [child for one in redirects if one.type == "heredoc_redirect" for child in one.named_children]
        inner = [child for child in behind if child.type in REDIRECTS]
        targets = [one.children_by_field_name("destination") for one in (*redirects, *inner)]
        self._refuse_parted(state, *targets)
        arguments = [word for words in targets for word in words[1:]]
        arguments += [child for child in behind if child.type not in REDIRECTS | DOCUMENT | STATEMENTS]
        if arguments and any(child.type in BACKGROUND for one in (*redirects, *inner) for child in one.children):
            self._give_up("a command of its own where the shell is no bash", state, show(self.source(node)[:80]))
        body, ahead = node.child_by_field_name("body"), ""
        before = state
        while body is not None and body.type == "list":  # The grammar gives a list the redirects of its last command.
            *first, last = body.named_children
            ahead += "".join(self.visit(child, state, stdin) for child in first)
            before = state.copy() if any(child.type == "||" for child in body.children) else before
            body = last
        stdin = self._input(redirects, inner, state, stdin)
        opened = state.copy()  # The shell opens files before the statement runs, which may change the folder.
        if body is not None and body.type == "command":
            output = self._command(body, state, stdin, arguments)
        else:
            if arguments:
                self.add("unreadable", show(self.source(node)[:80]), "words behind a redirect")
            output = self.visit(body, state, stdin) if body is not None else stdin
        output = self._outputs([*redirects, *inner], opened, output)
        for child in behind:
            if child.type == "pipeline":
                for part in child.named_children:
                    output = self.visit(part, state.copy(), output)
            elif child.type in STATEMENTS:
                output += self.visit(child, state, UNKNOWN)
        if before is not state:
            state.join(before)
        return ahead + output

    def _input(self, redirects: Sequence[Node], inner: Sequence[Node], state: ShellState, stdin: str) -> str:
        for one in (*redirects, *inner):
            if one.type == "heredoc_redirect":
                body = next((child for child in one.children if child.type == "heredoc_body"), None)
                stdin = self._document(one, body, state)
            elif one.type == "herestring_redirect":
                stdin = self._given_text(one.named_children[-1:], state)
            elif one.type == "file_redirect" and any(child.type == "<" for child in one.children):
                stdin = self._read_file(one, state)
        return stdin

    def _given_text(self, nodes: Sequence[Node], state: ShellState) -> str:
        """Return the text that `<<<` gives to a program, which may print it."""
        expansion = Expansion(self, state)
        text = "".join(map(expansion.value, nodes))
        for secret in dict.fromkeys(expansion.secrets):
            self.add("reads_secret", f"${secret}", "a variable with a secret's name")
        return f"{text}\n"

    def _document(self, redirect: Node, body: Node | None, state: ShellState) -> str:
        if body is None:
            return ""
        start = next((self.source(child) for child in redirect.children if child.type == "heredoc_start"), "")
        if start[:1] in "'\"\\" and start:
            return self.source(body)
        return Expansion(self, state).string(body)

    def _read_file(self, redirect: Node, state: ShellState) -> str:
        text = UNKNOWN
        for word in self._words(redirect.children_by_field_name("destination")[:1], state)[0]:
            for folder in state.folders:
                path = self.places.absolute(word, folder)
                if path.startswith(SOCKETS):
                    self.add("network_sends", show(path), CONNECTION)
                elif path not in names_of("devices") and not path.startswith("/dev/fd/"):
                    self.note(self.places.reads(path))
                    text = self.places.written.get(path, UNKNOWN)
        return text

    def _outputs(self, redirects: Sequence[Node], state: ShellState, output: str) -> str:
        """Add the files that redirects write, and return the output that is left for a pipe."""
        for one in redirects:
            parts = {child.type: child for child in reversed(one.children)} if one.type == "file_redirect" else {}
            operator = next((kind for kind in parts if kind in OPERATORS), "")
            if OPERATORS.get(operator) != "writes":
                continue
            descriptor = self.source(parts["file_descriptor"]) if "file_descriptor" in parts else "1"
            for word in self._words(one.children_by_field_name("destination")[:1], state)[0]:
                if operator in (">&", "<&") and (word.isdigit() or word == "-"):
                    continue
                for folder in state.folders:
                    path = self.places.absolute(word, folder)
                    self.note(*self.places.writes(path, output if descriptor == "1" else ""))
                    if descriptor == "1" and path not in ("/dev/stdout", "/dev/stderr", "/dev/tty"):
                        output = "" if folder == state.folders[-1] else output
        return output

    def _for(self, node: Node, state: ShellState, stdin: str) -> str:
        name = self.source(node.child_by_field_name("variable") or node)
        body = node.child_by_field_name("body")
        values, secrets = self._words(node.children_by_field_name("value"), state)
        if not any(child.type == "in" for child in node.children):
            values = [state.variables.get("@", UNKNOWN)]
        self._forget_assigned(body, state)
        output = ""
        for value in values if 0 < len(values) <= MOST_TURNS else [UNKNOWN]:
            self.assign(name, value, state)
            if secrets:
                state.secrets[name] = secrets[0]
            if body is not None:
                output += self.visit(body, state, stdin)
        return output

    def _loop(self, node: Node, state: ShellState, stdin: str) -> str:
        self._forget_assigned(node, state)
        before = state.copy()
        output = self._sequence(node, state, stdin)
        state.join(before)  # The body may not run at all.
        return output

    def _forget_assigned(self, body: Node | None, state: ShellState) -> None:
        """Forget the variables that a loop assigns: a later turn may find any value."""
        waiting = [body] if body is not None else []
        while waiting:
            node = waiting.pop()
            if node.type == "variable_assignment" and (name := node.child_by_field_name("name")) is not None:
                state.variables[self.source(name)] = UNKNOWN
            elif node.type == "command":
                program, *words = self.source(node).split() or [""]
                if program == "shift":
                    state.give([UNKNOWN] * 9)
                elif program in ASSIGNING:
                    state.variables |= dict.fromkeys(words, UNKNOWN)
            waiting += node.named_children

    def _branches(self, node: Node, state: ShellState, stdin: str) -> str:
        """Follow every branch of `if`, from the state that the conditions leave."""
        output, taken = "", state.copy()
        for child in node.named_children:
            if child.type in ("elif_clause", "else_clause"):
                other = state.copy()
                output += self._branches(child, other, stdin)
                taken.join(other)
            else:
                output += self.visit(child, taken, stdin)
        state.join(taken)
        return output

    def _case(self, node: Node, state: ShellState, stdin: str) -> str:
        output, before = "", state.copy()
        for child in node.named_children:
            if child.type != "case_item":
                Expansion(self, state).text(child)
                continue
            branch = before.copy()
            values = child.children_by_field_name("value")
            for part in child.named_children:
                if part in values:
                    Expansion(self, branch).text(part)
                else:
                    output += self.visit(part, branch, stdin)
            state.join(branch)
        return output

    def _function(self, node: Node, state: ShellState, stdin: str) -> str:
        redirects = node.children_by_field_name("redirect")
        self._input(redirects, (), state, stdin)
        self._outputs(redirects, state, UNKNOWN)
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is not None and body is not None:
            state.functions[self.source(name)] = FunctionBody(body, self.text)
        return ""

    def _assignment(self, node: Node, state: ShellState, stdin: str) -> str:
        del stdin
        self._record([self._assign(node, state, state)], state)
        return ""

    def _assign(self, node: Node, state: ShellState, given: ShellState) -> str:
        """Give a variable of `given` the value that it has in `state`, and return the words of the assignment."""
        expansion = Expansion(self, state)
        name, value = self._assigned(node, state, expansion)
        self.assign(name, value, given)
        if expansion.secrets:
            given.secrets[name] = expansion.secrets[0]
        return f"{name}={value}"

    def _assigned(self, node: Node, state: ShellState, expansion: Expansion) -> tuple[str, str]:
        name, given = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name is None:
            return "", UNKNOWN
        value = expansion.value(given) if given is not None else ""
        if name.type == "subscript":
            expansion.visit(name)
            return self.source(name.child_by_field_name("name") or name), UNKNOWN
        key = self.source(name)
        if not key.isascii():
            self.add("unreadable", show(key), "a name that some shells take for a variable")
        if any(child.type == "+=" for child in node.children):
            value = state.variables.get(key, UNKNOWN) + value
        return key, value

    def assign(self, name: str, value: str, state: ShellState) -> None:
        """Give a variable a value. Some variables decide what later commands load."""
        if name == "IFS":
            state.splits = False
        self.refuse_evaluated(name, value)
        if decides_loading(name) and (name == "PATH" or not LOADS_NOTHING.fullmatch(value.strip())):
            self._add_loading(name, value, state)
        if name:
            state.variables[name] = value
            state.secrets.pop(name, None)

    def _add_loading(self, name: str, value: str, state: ShellState) -> None:
        """Add `environment`, unless the value adds nothing but folders of the project or the system."""
        if name in names_of("loading_paths"):
            parts = PLACES_IN_VALUE.findall(value)
            folder = state.folders[0]
            if all(self.places.runs(self.places.absolute(part, folder)).kind == "runs_project" for part in parts):
                return
            self.add("environment", name, show(value[:80]))
            return
        if name == "PATH" and UNKNOWN in value and value != UNKNOWN:
            added = [part for part in value.split(":") if part != UNKNOWN and part]
            if all(
                part.startswith(tuple(names_of("system_folders"))) or self._is_program_folder(part, state)
                for part in added
            ):
                return
        self.add("environment", name, show(value[:80]))

    def _is_program_folder(self, part: str, state: ShellState) -> bool:
        path = self.places.absolute(part, state.folders[0])
        home = self.places.policy.home
        return path.startswith(f"{home}/") and (path.endswith(("/bin", "/sbin", "/shims", "/Scripts")))

    def _declaration(self, node: Node, state: ShellState, stdin: str) -> str:
        del stdin
        self._record(self.source(node).split(), state)
        word = node.children[0].type if node.children else ""
        letters, names = "", []
        for child in node.named_children:
            if child.type == "variable_assignment":
                self._assign(child, state, state)
                names.append("")
            else:
                text = "".join(self._words([child], state)[0])
                name, joined, value = text.partition("=")
                if joined:
                    self.assign(name, value, state)
                elif text.startswith("-") and "n" in text and word != "export":
                    self.add("unreadable", text, "another name for a variable")
                letters, names = (letters + text, names) if text[:1] in ("-", "+") else (letters, [*names, name])
        if word in ("export", "declare", "typeset", "readonly") and not names and "f" not in letters.lower():
            self.add("reads_secret", "environment", "the whole environment")
        for name in names if "p" in letters else ():
            if is_secret_name(name):
                self.add("reads_secret", f"${name}", "a variable with a secret's name")
        return ""

    # -- commands ------------------------------------------------------------------------------------------------------

    def _refuse_parted(self, state: ShellState, *lists: Sequence[Node]) -> None:
        """Add `unreadable` for one word that the grammar takes for two, before a backslash behind a quote."""
        if any(one.end_byte == other.start_byte for words in lists for one, other in pairwise(words)):
            self._give_up("a word that the grammar parts before a backslash", state)

    def _command(self, node: Node, state: ShellState, stdin: str, more: Sequence[Node] = ()) -> str:
        """Follow one command; `more` are arguments that stand behind its redirects."""
        program: Node | None = None
        assignments, redirects, statements, words = [], [], [], []
        for child in node.children:
            kind = PARTS.get(child.type, "word")
            if kind == "word":
                words.append(child)
            elif kind == "program":
                program = child
            elif kind == "assignment":
                assignments.append(child)
            elif kind == "redirect":
                redirects.append(child)
            elif kind == "statement":
                statements.append(child)  # `time (…)`
        arguments = [] if program is None else [*program.named_children, *words, *more]
        if "\\" in self.text:
            self._refuse_parted(state, arguments)
        if not assignments:
            return self._simple_command(arguments, redirects, statements, state, stdin)
        given = state.copy()
        assigned = [self._assign(child, state, given) for child in assignments]
        before = dict(given.variables)
        output = self._simple_command(arguments, redirects, statements, given, stdin, assigned=assigned)
        # Changes of the command itself stay: the folder after `A=1 cd x`, the variable after `IFS= read -r x`.
        changed = {name: value for name, value in given.variables.items() if before.get(name) != value}
        state.folders, state.functions = given.folders, given.functions
        state.variables |= changed
        return output

    def _simple_command(
        self,
        arguments: Sequence[Node],
        redirects: Sequence[Node],
        statements: Sequence[Node],
        state: ShellState,
        stdin: str,
        *,
        assigned: Sequence[str] = (),
    ) -> str:
        """Follow a command with its redirects; `assigned` are the assignments in front of the program."""
        opened = state
        if redirects:
            stdin = self._input(redirects, (), state, stdin)
            opened = state.copy()
        words, secrets = self._words(arguments, state)
        if secrets and words and words[0].rpartition("/")[2] in names_of("printers"):
            for secret in dict.fromkeys(secrets):
                self.add("reads_secret", f"${secret}", "a variable with a secret's name")
        if secrets and words and (words[0] in state.functions or words[0] == "set"):
            state.secrets |= dict.fromkeys(("@", "*", *"123456789"), secrets[0])
        for child in statements:
            self.visit(child, state, stdin)
        output = self.command(words, state, stdin, assigned) if words else ""
        if assigned and not words:
            self._record(assigned, state)
        return self._outputs(redirects, opened, output) if redirects else output

    def command(self, words: list[str], state: ShellState, stdin: str, assigned: Sequence[str] = ()) -> str:
        """Add the impacts of one program with its arguments, and return what is known of its output.

        `assigned` are the assignments in front of the program.
        """
        self.steps += 1
        if self.depth > DEEPEST or self.steps > MOST_STEPS:
            return self._give_up("nested too deeply", state)
        self.depth += 1
        kept, place, start = (self.kinds, self.entered, self.outer), len(self.commands), state.folders
        self.commands.append(FOLLOWED)
        self.kinds, self.entered, self.outer = set(), [], place
        try:
            return self._program(words, state, stdin)
        finally:
            self.depth -= 1
            self.commands[place] = CommandRun(
                (*assigned, *words), start, frozenset(self.kinds), kept[2], tuple(self.entered)
            )
            self.kinds, self.entered, self.outer = kept

    def _record(self, words: Sequence[str], state: ShellState) -> None:
        """Keep one command; the mark UNKNOWN stands for commands that only a run can tell."""
        self.commands.append(CommandRun(tuple(words), state.folders, frozenset(), self.outer))

    def _give_up(self, reason: str, state: ShellState, place: str = "") -> str:
        """Add `unreadable` for commands that only a run can tell, and return what is known of their output."""
        self.add("unreadable", place, reason)
        self._record([UNKNOWN], state)
        return UNKNOWN

    def _program(self, words: list[str], state: ShellState, stdin: str) -> str:
        name, arguments = words[0], words[1:]
        if not name.isascii() and (UNKNOWN in name or ANY in name or NAME in name):
            self.add("unreadable", show(name), "only a run tells the program")
            self.add("runs_unread", show(name), "only a run tells the program")
            return UNKNOWN
        if name in state.functions:
            return self.call(name, arguments, state, stdin)
        base = program_name(name)
        if "/" in name and not self._is_installed(name, state):
            return self.run_file(name, state, "", arguments, stdin)
        if (builtin := find_builtin(base)) is not None:
            if base != "echo":
                self.refuse_evaluated(*arguments)
            return builtin(BuiltinCall(self, arguments, state, stdin))
        if (row := program_rows().get(base)) is not None:
            return run_program(ProgramRun(self, state, base, arguments, stdin, row))
        if base in self.places.policy.trusted_programs:
            self.add("runs_project", base, "a program that the policy trusts")
        elif base:
            self.add("unknown_program", show(base), "no table names it")
        return UNKNOWN

    def _is_installed(self, name: str, state: ShellState) -> bool:
        """Return True if a path names a program of the system, or one that the project has installed."""
        path = self.places.absolute(name, state.folders[0])
        folder, _, base = path.rpartition("/")
        if any(path.startswith(f"{one}/") for one in names_of("programs")):
            return base in program_rows() or find_builtin(base) is not None
        local = folder.endswith(("/node_modules/.bin", "/venv/bin", "/.venv/bin", "/env/bin", "/vendor/bin"))
        return local and base in program_rows() and self.places.runs(path).kind == "runs_project"

    def call(self, name: str, arguments: list[str], state: ShellState, stdin: str) -> str:
        """Follow a function of the command with its arguments."""
        self.called.add(name)
        if self.calling.count(name) > MOST_CALLS:
            self.add("unreadable", name, "a function that calls itself")
            return UNKNOWN
        body = state.functions[name]
        kept = {key: state.variables.get(key) for key in ("@", "*", *"123456789")}
        state.give(arguments)
        self.calling.append(name)
        outer = self.text
        try:
            if not isinstance(body, str):
                self.text = body.text
                return self.visit(body.node, state, stdin)
            del state.functions[name]
            return self.script(f'{body} "$@"', state, stdin)
        finally:
            self.calling.pop()
            self.text = outer
            state.functions[name] = body
            for key, value in kept.items():
                state.variables[key] = UNKNOWN if value is None else value

    def run_file(self, text: str, state: ShellState, language: str, arguments: list[str], stdin: str) -> str:
        """Add the impact of running a file; one that this command wrote is followed."""
        base = text.rpartition("/")[2]
        for folder in state.folders:
            path = self.places.absolute(text, folder)
            content = self.places.written.get(path)
            if content == BUILT:
                self.add("runs_project", show(text), "built from the project")
                continue
            if content is not None and content != UNKNOWN:
                self._run_written(path, content, language, state, stdin)
                continue
            if path.startswith(("/dev/fd/", "/dev/stdin")):
                self.add("runs_unread", show(text), "only a run tells the code")
                continue
            self.note(self.places.runs(path))
        if tells_outward(base, *(word.rpartition("/")[2] for word in arguments[:3])):
            self.add("service_writes", show(base), "the name of the script or target")
        if (row := program_rows().get(base)) is not None and row.verbs:
            run_program(ProgramRun(self, state, base, arguments, stdin, row))
        return UNKNOWN

    def load_written(self, state: ShellState) -> None:
        """Add the impacts of code that this command wrote and that a program with code of the project may load."""
        for path, content in list(self.places.written.items()):
            language = written_language(path)
            if not language or content == BUILT or path in self.places.coded or (path, content) in self.loaded:
                continue
            self.loaded.add((path, content))
            if content == UNKNOWN or language == "settings":
                self.add("runs_unread", show(path), "a file that the command itself writes")
            else:
                self._run_written(path, content, language, state, UNKNOWN)

    def _run_written(self, path: str, content: str, language: str, state: ShellState, stdin: str) -> None:
        match = SHEBANG.match(content)
        program = language or (match[1] if match else "shell")
        program = "shell" if program in SHELLS else LANGUAGES.get(program, program)
        if path in self.calling:
            self.add("unreadable", show(path), "a script that runs itself")
        elif program == "shell":
            self.loaded.add((path, content))  # programs that the script starts may load it, too
            self.calling.append(path)
            self.script(content, state.copy(), stdin)
            self.calling.pop()
        else:
            from amplifier_hooks.impact.inline_code import read_code

            self.note(*read_code(content, program, self.places, state.folders[0]))

    VISITS: ClassVar[dict[str, Callable[[ShellWalk, Node, ShellState, str], str]]] = {
        "list": _list,
        "pipeline": _pipeline,
        "subshell": _subshell,
        "redirected_statement": _redirected,
        "for_statement": _for,
        "c_style_for_statement": _loop,
        "while_statement": _loop,
        "if_statement": _branches,
        "case_statement": _case,
        "function_definition": _function,
        "variable_assignment": _assignment,
        "declaration_command": _declaration,
        "unset_command": _words_only,
        "test_command": _words_only,
        "command": _command,
        "file_redirect": _redirect,
        "comment": _nothing,
    }
