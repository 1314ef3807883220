"""Write the reference in docs/reference/ from the code: public names, errors, and commands.

    uv run scripts/reference.py          say which pages would change
    uv run scripts/reference.py --write  write them

A test compares the pages with the code.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer.main
from attrs import NOTHING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

FOLDER = Path(__file__).parent.parent / "docs" / "reference"
WRITTEN = "<!-- Written by scripts/reference.py from the code. -->\n"
DOORS = (
    "amplifier_hooks",
    "amplifier_hooks.ports",
    "amplifier_hooks.testing",
    "approval_backends",
    "approval_backends.testing",
)
PACKAGES = ("amplifier_hooks", "approval_backends")
ERRORS = ("amplifier_hooks.errors", "amplifier_hooks.storage.database", "approval_backends.errors")
MEMORY = re.compile(r" at 0x[0-9a-f]+")
SHORT = 100
"""Characters of a signature that stays on one line."""


def main() -> None:
    """Write the pages, or name those that differ from the code."""
    parser = argparse.ArgumentParser(description="Write the reference.")
    parser.add_argument("--write", action="store_true", help="write the pages")
    write = parser.parse_args().write
    changed = [name for name, text in pages().items() if text != there(name)]
    for name in changed:
        if write:
            FOLDER.mkdir(parents=True, exist_ok=True)
            (FOLDER / name).write_text(pages()[name], encoding="utf-8")
        print(name)
    if changed and not write:
        sys.exit("these pages are not as the code is; write them: uv run scripts/reference.py --write")


def there(name: str) -> str:
    """A page as it is, or nothing."""
    path = FOLDER / name
    return path.read_text(encoding="utf-8") if path.exists() else ""


def pages() -> dict[str, str]:
    """Every page by its file name."""
    return {
        "python.md": "\n".join(python()),
        "errors.md": "\n".join(errors()),
        "command.md": "\n".join(command()),
    }


# -- what can be imported ----------------------------------------------------------------------------------------------


def python() -> Iterator[str]:
    """Return the page of the front doors: each name with its entry."""
    yield "# What can be imported\n"
    yield WRITTEN
    yield "A name that is not in `__all__` of its module may change at any time.\n"
    for door in DOORS:
        module = importlib.import_module(door)
        yield f"## `{door}`\n"
        yield f"{sentence(module)}\n"
        for name in sorted(module.__all__, key=str.lower):
            thing = getattr(module, name)
            if inspect.isclass(thing) or callable(thing):
                yield from about(name, thing)


def about(name: str, thing: Any) -> Iterator[str]:
    """Return the entry of one name: its signature, its docstring, and its methods."""
    yield f"### `{name}`\n"
    if not is_protocol(thing):
        yield f"```text\n{name}{called(thing)}\n```\n"
    yield f"{paragraph(thing)}\n"
    if inspect.isclass(thing):
        members = {name: value for part in (*private_bases(thing), thing) for name, value in vars(part).items()}
        rows = [row for member, value in sorted(members.items()) for row in method(member, value)]
        if rows:
            yield "| method | |\n| --- | --- |"
            yield from rows
            yield ""
        for base in filter(inspect.isabstract, private_bases(thing)):
            yield f"{inspect.getdoc(base)}\n"


def private_bases(thing: type) -> list[type]:
    """Return the classes of this project that a class is made of, and that stand nowhere else on the page."""
    doors = [importlib.import_module(door) for door in DOORS]
    public = [getattr(door, name) for door in doors for name in door.__all__]
    ours = [base for base in thing.__mro__[:0:-1] if base.__module__.partition(".")[0] in PACKAGES]
    return [base for base in ours if base not in public]


def method(name: str, value: Any) -> Iterator[str]:
    """One row for a public method or property that says what it does."""
    if name.startswith("_"):
        return
    function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
    if isinstance(function, property) and function.__doc__:
        yield f"| `{name}` | {cell(sentence(function))} |"
    elif inspect.isfunction(function) and function.__doc__:
        yield f"| `{name}()` | {cell(sentence(function))} |"


# -- what can be raised ------------------------------------------------------------------------------------------------


def errors() -> Iterator[str]:
    """The tree of errors."""
    yield "# What can be raised\n"
    yield WRITTEN
    for module in ERRORS:
        yield f"## `{module}`\n"
        own = importlib.import_module(module)
        classes = [thing for thing in vars(own).values() if inspect.isclass(thing) and thing.__module__ == module]
        raised = [thing for thing in classes if issubclass(thing, BaseException)]
        for root in sorted((thing for thing in raised if not set(thing.__bases__) & {*raised}), key=by_name):
            yield from branch(root, raised, 0)
        yield ""


def branch(root: type, classes: list[type], depth: int) -> Iterator[str]:
    """An error, and below it those that are one of its kind."""
    yield f"{'  ' * depth}- `{root.__name__}`: {sentence(root)}"
    for child in sorted((thing for thing in classes if root in thing.__bases__), key=by_name):
        yield from branch(child, classes, depth + 1)


def by_name(thing: type) -> str:
    """The order in which errors stand."""
    return thing.__name__


# -- what can be typed -------------------------------------------------------------------------------------------------


def command() -> Iterator[str]:
    """Every command with its help."""
    cli = importlib.import_module("amplifier_hooks.cli.app")
    root = typer.main.get_command(cli.app)
    yield "# What can be typed\n"
    yield WRITTEN
    yield from helped(root, "amplifier-hooks", None)


def helped(part: Any, name: str, parent: Any) -> Iterator[str]:
    """One command's help, and that of those below it."""
    width = {"terminal_width": 88, "max_content_width": 88}
    context = part.make_context(name, [], parent=parent, resilient_parsing=True, **width)
    words = context.command_path
    yield f"## {words}\n"
    text = "\n".join(line.rstrip() for line in context.get_help().splitlines())
    yield f"```text\n{text}\n```\n"
    for child in getattr(part, "commands", {}).values():
        if not child.hidden:
            yield from helped(child, child.name, context)


# -- words -------------------------------------------------------------------------------------------------------------


def paragraph(thing: Any) -> str:
    """The first paragraph of a docstring, as one line."""
    return " ".join((inspect.getdoc(thing) or "").split("\n\n", maxsplit=1)[0].split())


def sentence(thing: Any) -> str:
    """Its first sentence."""
    return re.split(r"(?<=[.!?]) (?=[A-Z`])", paragraph(thing), maxsplit=1)[0]


def cell(text: str) -> str:
    """Text that stays in its cell."""
    return text.replace("|", "\\|")


def called(thing: Callable[..., Any]) -> str:
    """Return the signature: on one line if that is short, else an argument a line."""
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return "(…)"
    signature = signature.replace(parameters=[*spelled_out(signature, sys.modules[thing.__module__])])
    whole = plain(str(signature))
    if len(whole) <= SHORT:
        return whole
    _, arrow, end = whole.rpartition(") -> ")  # a struct has no return annotation
    lines, starred = [], False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            starred = True
            lines.append("    *,")
        lines.append(f"    {plain(str(parameter))},")
    return "\n".join(["(", *lines, f") -> {end}" if arrow else ")"])


def spelled_out(signature: inspect.Signature, module: ModuleType) -> Iterator[inspect.Parameter]:
    """Yield the parameters, with those of a table of options in its place."""
    for parameter in signature.parameters.values():
        table = re.fullmatch(r"Unpack\[(\w+)\]", str(parameter.annotation))
        if table is None:
            yield parameter
        else:
            for name, kind in vars(module)[table[1]].__annotations__.items():
                annotation = kind.__forward_arg__
                yield inspect.Parameter(name, parameter.KEYWORD_ONLY, default=NOTHING, annotation=annotation)


def plain(text: str) -> str:
    """Return a signature without the quotes of annotations and without parts that differ from run to run."""
    text = re.sub(r"(: |-> )'((?:[^'\\]|\\.)*)'", r"\1\2", text)
    return MEMORY.sub("", text).replace("NOTHING", "…")


def is_protocol(thing: Any) -> bool:
    """Return True if the class is a protocol, which others implement."""
    return bool(getattr(thing, "_is_protocol", False))


if __name__ == "__main__":
    main()
