"""Write the reference from the code: public names, errors, and commands.

    uv run scripts/reference.py                say which pages in docs/reference/ would change
    uv run scripts/reference.py --write        write them
    uv run scripts/reference.py --site FOLDER  write the pages of the site, where each front door has a page of entries

The repository has the pages that are worth reading in a clone: the list of public names, the errors, and the commands.
A test compares them with the code. The entries of all names are several times as long and change with every docstring,
so only the site has them.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import re
import sys
import tomllib
from collections import Counter
from enum import Enum
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, get_overloads

import typer.main
from attrs import NOTHING
from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from types import ModuleType

ROOT: Final = Path(__file__).parent.parent
FOLDER: Final = ROOT / "docs" / "reference"
WRITTEN: Final = "<!-- Written by scripts/reference.py from the code. -->\n"
PACKAGES: Final = ("amplifier_hooks", "approval_backends")
ERRORS: Final = ("amplifier_hooks.errors", "amplifier_hooks.storage.database", "approval_backends.errors")
ADAPTERS: Final = "amplifier_hooks.adapters."
"""Front doors that need the SDK of their name. Only the site needs the SDKs; the pages of the repository do not."""
WHOLE: Final = ("amplifier_hooks.errors", "amplifier_hooks.events", "amplifier_hooks.payloads")
"""Front doors without `__all__`: all that they define is public, but names with a leading underscore."""
FIRST: Final = ("amplifier_hooks", "approval_backends")
"""The front doors that stand before all others."""
MEMORY: Final = re.compile(r" at 0x[0-9a-f]+")
MODULES: Final = re.compile(r"\b(?:[a-z_]\w*\.)+(?=[A-Za-z_])")
STARS: Final[dict[Any, str]] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
SHARED: Final[dict[str, str]] = tomllib.loads((Path(__file__).parent / "parameters.toml").read_text("utf-8"))
"""Meanings of parameters that many functions take, by name and type, as in `clock: Clock`."""
RETURNS: Final = re.compile(r"\b(?:[Rr]eturn|[Yy]ield)s? ")
RETURNED: Final = "->"
"""Key of the sentence about a return value, beside those of the parameters."""
SHORT: Final = 80
"""Characters of a signature that stays on one line, and of a constant that is shown whole."""


class Parts(NamedTuple):
    """A docstring in parts."""

    text: str
    parameters: dict[str, str]
    raises: tuple[str, ...]


class Field(NamedTuple):
    """A parameter or an attribute: its name, type, default and meaning."""

    name: str
    type: str
    default: str
    meaning: str


def main() -> None:
    """Write the pages, or name those that differ from the code."""
    parser = argparse.ArgumentParser(description="Write the reference.")
    parser.add_argument("--write", action="store_true", help="write the pages")
    parser.add_argument("--site", type=Path, metavar="FOLDER", help="write the pages of the site into this folder")
    given = parser.parse_args()
    folder = given.site or FOLDER
    new = site_pages() if given.site else pages()
    changed = [name for name, text in new.items() if text != there(folder / name)]
    if changed and not given.write and not given.site:
        sys.exit(f"{', '.join(changed)} differ from the code; write them: uv run scripts/reference.py --write")
    folder.mkdir(parents=True, exist_ok=True)
    for name in changed:
        (folder / name).write_text(new[name], encoding="utf-8")


def there(path: Path) -> str:
    """Return the text of a page, or nothing."""
    return path.read_text(encoding="utf-8") if path.exists() else ""


def pages() -> dict[str, str]:
    """Return the pages of the repository by their file names, without links to pages that only the site has."""
    texts = {name: "\n".join(lines()) for name, lines in LISTS.items()}
    return {name: re.sub(r"\[(`[^`]+`)\]\(\w+(?:\.\w+)*\.md[^)]*\)", r"\1", text) for name, text in texts.items()}


def site_pages() -> dict[str, str]:
    """Return the pages of the site by their file names."""
    entries = {f"{door}.md": "\n".join(front_door(door)) for door in doors()}
    return entries | {name: "\n".join(lines()) for name, lines in LISTS.items()}


@cache
def doors() -> dict[str, list[str]]:
    """Return the front doors with their public names in alphabetical order."""
    found = {}
    for file in sorted(file for package in PACKAGES for file in (ROOT / package).glob("**/*.py")):
        door = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        text = file.read_text("utf-8")
        names = re.search(r"^__all__ = (\[.*?\])", text, re.MULTILINE | re.DOTALL)
        if names or door in WHOLE:
            listed = ast.literal_eval(names[1]) if names else defined_names(text)
            found[door] = sorted(listed, key=str.lower)
    return {name: found[name] for name in sorted(found, key=lambda name: (name not in FIRST, name))}


def defined_names(source: str) -> Iterator[str]:
    """Yield the names that a module defines, without those with a leading underscore."""
    for node in ast.parse(source).body:
        named = node.target if isinstance(node, ast.AnnAssign) else node
        name = str(getattr(named, "id", getattr(named, "name", "_")))
        if not name.startswith("_"):
            yield name


@cache
def homes() -> dict[str, str]:
    """Return the address of each public name's entry. A name of several front doors has its entry in the first."""
    return {
        name: f"{door}.md#{anchor(name)}"
        for door, names in reversed(doors().items())
        for name in reversed(names)
        if name not in constants(door)
    }


@cache
def constants(door: str) -> frozenset[str]:
    """Return the names of a front door that are neither classes nor functions. Adapters have none."""
    if door.startswith(ADAPTERS):
        return frozenset()
    things = {name: getattr(importlib.import_module(door), name) for name in doors()[door]}
    return frozenset(
        name for name, thing in things.items() if not inspect.isclass(thing) and not inspect.isroutine(thing)
    )


# -- what can be imported ----------------------------------------------------------------------------------------------


def index() -> Iterator[str]:
    """Return the lines of the page that lists every public name."""
    yield "# Public names\n"
    yield WRITTEN
    yield "Every public name by its front door; any other name may change at any time.\n"
    yield "The site, built by `just docs`, has an entry for each, with parameters, return values and errors.\n"
    for door, names in doors().items():
        yield f"## [`{door}`]({door}.md)\n"
        yield f"{first_sentence(door)}\n"
        yield "| name | meaning |\n| --- | --- |"
        for name in names:
            if name not in constants(door):
                yield f"| {linked(name)} | {cell(first_sentence(door, name))} |"
        yield ""
        if constants(door):
            yield "Constants: " + ", ".join(f"`{name}`" for name in names if name in constants(door)) + "\n"


def first_sentence(door: str, name: str = "") -> str:
    """Return the first sentence about a front door, or about a name of it. An adapter needs no SDK for that."""
    if not door.startswith(ADAPTERS):
        module = importlib.import_module(door)
        return sentence(inspect.getdoc(getattr(module, name) if name else module))
    tree = ast.parse((ROOT / f"{door.replace('.', '/')}.py").read_text("utf-8"))
    kinds = (ast.ClassDef, ast.FunctionDef)
    node = next((node for node in tree.body if isinstance(node, kinds) and node.name == name), tree)
    return sentence(ast.get_docstring(node))


def front_door(door: str) -> Iterator[str]:
    """Return the lines of a front door's page: first its functions and classes, then its constants."""
    module = importlib.import_module(door)
    yield f"# `{door}`\n"
    yield WRITTEN
    yield f"{prose(inspect.getdoc(module) or '', '')}\n"
    values, shared = [], set()
    for name in doors()[door]:
        thing = getattr(module, name)
        shared |= {*own_bases(thing)} & shared_bases() if inspect.isclass(thing) else set()
        if name in constants(door):
            values.append((name, thing))
        elif homes()[name].startswith(f"{door}.md"):
            yield from entry(name, thing)
        else:
            yield f"## `{name}`\n"
            yield f"Also in {linked(homes()[name].partition('.md')[0])}: {linked(name)}.\n"
    for base in sorted(shared, key=by_name):
        yield from entry(base.__name__, base)
    if values:
        meanings = below_names(ast.parse(inspect.getsource(module)).body)
        yield "## Constants\n"
        yield "| name | value | meaning |\n| --- | --- | --- |"
        for name, value in values:
            yield f"| `{name}` | {code(shortened(value))} | {cell(meanings.get(name, ''))} |"
        yield ""


def entry(name: str, thing: Any) -> Iterator[str]:
    """Return the lines of one name's entry: its signature, its docstring, its parameters and its members."""
    yield f"## `{name}`\n"
    if not inspect.isclass(thing):
        yield from described(name, thing, own=name)
        return
    parts = docstring(thing)
    fields = [] if is_protocol(thing) else parameters(thing, parts)
    if not is_protocol(thing):
        yield f"```python\n{name}{called(thing)}\n```\n"
    yield f"{prose(parts.text, name)}\n"
    for base in private_bases(thing):
        if inspect.isabstract(base):
            yield f"{prose(docstring(base).text, name)}\n"
    inherited = [linked(base.__name__) for base in thing.__mro__[1:] if is_public(base)]
    inherited += [f"[`{base.__name__}`](#{anchor(base.__name__)})" for base in own_bases(thing) if is_shared(base)]
    if inherited:
        yield f"Based on {', '.join(inherited)}.\n"
    yield from table("parameter", fields)
    yield from raised(parts, name)
    settings = getattr(thing, "Settings", None)
    if inspect.isclass(settings) and issubclass(settings, BaseModel):
        yield from table("setting", parameters(settings, docstring(settings)))
    inside = members(thing)
    yield from table("attribute", attributes(thing, inside, {field.name for field in fields}))
    for member, value in sorted(inside.items()):
        function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if inspect.isfunction(function) and function.__doc__ and not member.startswith("_"):
            yield f"### `{name}.{member}`\n"
            bound = getattr(thing, member) if isinstance(value, classmethod) else function
            call = f"{'await ' if inspect.iscoroutinefunction(function) else ''}{member}"
            above = meanings_above(thing, member)
            yield from described(call, bound, own=name, options=parts.parameters, inherited=above)


def described(
    call: str,
    function: Any,
    *,
    own: str,
    options: Mapping[str, str] | None = None,
    inherited: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """Return the lines about a function or method: signature, docstring, parameters, return value, errors.

    `options` has the meanings of the parameters of its class, which a method such as `child` takes, too, and
    `inherited` those of the method that it implements.
    """
    parts = docstring(function)
    above = {**(inherited or {}), **((options or {}) if "Unpack[" in str(inspect.signature(function)) else {})}
    parts = parts._replace(parameters={**above, **parts.parameters})
    yield f"```python\n{call}{called(function)}\n```\n"
    yield f"{prose(parts.text, own)}\n"
    yield from table("parameter", parameters(function, parts))
    forms = get_overloads(function) or [function]
    returns = [inspect.signature(form).return_annotation for form in forms]
    returned = [type_text(one) for one in returns if one not in (inspect.Signature.empty, None, "None", NoneType)]
    if returned:
        kind = re.sub(r"^(?:Steps|Coroutine)\[(?:Any, Any, )?(.*)\]$", r"\1", returned[0])
        told = "" if RETURNS.search(parts.text) else above.get(RETURNED) or SHARED.get(f"-> {kind}", "")
        yield f"**Returns** {' or '.join(f'`{one}`' for one in returned)}{told and f': {told}'}\n"
    yield from raised(parts, own)


def raised(parts: Parts, own: str) -> Iterator[str]:
    """Return the lines about the errors."""
    if len(parts.raises) == 1:
        yield f"**Raises** {prose(parts.raises[0], own)}\n"
    elif parts.raises:
        yield "**Raises**\n"
        yield from (f"- {prose(one, own)}" for one in parts.raises)
        yield ""


def table(title: str, fields: Iterable[Field]) -> Iterator[str]:
    """Return the lines of a table of parameters or attributes, without columns that would be empty."""
    fields = list(fields)
    columns = [True, any(field.type for field in fields), any(field.default for field in fields)]
    columns.append(any(field.meaning for field in fields))
    if columns[-1]:  # without any meaning, the signature has it all
        yield '<div class="fields" markdown>\n'
        yield row(columns, title, "type", "default", "meaning")
        yield row(columns, *["---"] * 4)
        for name, kind, default, meaning in fields:
            yield row(columns, code(name), code(kind), code(default), cell(meaning))
        yield "\n</div>\n"


def row(columns: list[bool], *cells: str) -> str:
    """Return one row, with the cells of the columns that are there."""
    return f"| {' | '.join(text for text, there in zip(cells, columns, strict=True) if there)} |"


# -- members -----------------------------------------------------------------------------------------------------------


def own_bases(thing: type) -> list[type]:
    """Return the classes of this project that a class is made of and that are not public, the farthest first."""
    ours = [base for base in thing.__mro__[:0:-1] if base.__module__.partition(".")[0] in PACKAGES]
    return [base for base in ours if not is_public(base)]


@cache
def shared_bases() -> frozenset[type]:
    """Return the private bases of several public classes, which have one entry on each page that needs it."""
    public = [getattr(importlib.import_module(home.partition(".md")[0]), name) for name, home in homes().items()]
    bases = Counter(base for thing in public if inspect.isclass(thing) for base in own_bases(thing))
    return frozenset(base for base, number in bases.items() if number > 1)


def is_shared(thing: type) -> bool:
    """Return True for a private base of several public classes."""
    return thing in shared_bases()


def private_bases(thing: type) -> list[type]:
    """Return the private bases whose members stand in the entry of this class alone."""
    return [base for base in own_bases(thing) if not is_shared(base)]


def is_public(thing: type) -> bool:
    """Return True for a class of a front door."""
    door = homes().get(thing.__name__, "").partition(".md")[0]
    return bool(door) and getattr(importlib.import_module(door), thing.__name__) is thing


def members(thing: type) -> dict[str, Any]:
    """Return the members of a class, with those of its private bases."""
    return {name: value for part in (*private_bases(thing), thing) for name, value in vars(part).items()}


def attributes(thing: type, inside: dict[str, Any], taken: set[str]) -> Iterator[Field]:
    """Yield the public attributes and properties with a docstring that are no parameters."""
    texts = {name: text for part in (*private_bases(thing), thing) for name, text in field_texts(part).items()}
    found: dict[str, Field] = {}
    for name, text in texts.items():
        found[name] = Field(name, type_text(annotation_of(thing, name)), "", text)
    for name, value in inside.items():
        function = getattr(value, "fget", None) or getattr(value, "func", None)
        if inspect.isfunction(function) and function.__doc__ and not isinstance(value, classmethod | staticmethod):
            kind = inspect.signature(function).return_annotation
            found[name] = Field(name, "" if kind is inspect.Signature.empty else type_text(kind), "", summary(function))
    yield from (found[name] for name in sorted(found) if not name.startswith("_") and name not in taken)


def meanings_above(thing: type, member: str) -> dict[str, str]:
    """Return the meanings of a method's parameters that others give: the fields of its class if it makes an instance.

    So do the methods of this name in its bases, the nearest first, and before all others those in a port that it
    implements.
    """
    found: dict[str, str] = {}
    if isinstance(members(thing).get(member), classmethod):
        for part in reversed(thing.__mro__):
            found |= field_texts(part)
    for base in (*ports(), *reversed(thing.__mro__[1:])):
        if member in vars(base):
            parts = docstring(vars(base)[member])
            found |= parts.parameters
            if returned := returned_part(parts.text):
                found[RETURNED] = returned[0].upper() + returned[1:]
    return found


def returned_part(text: str) -> str:
    """Return the first part of a docstring's text that begins with "Return", without that word, or nothing."""
    parts = (part for one in sentences(text) for part in one.split("; "))
    return next((part.partition(" ")[2] for part in parts if RETURNS.match(part)), "")


@cache
def ports() -> tuple[type, ...]:
    """Return the protocols that hosts and backends implement, also without being based on them."""
    modules = map(importlib.import_module, ("approval_backends.stores.approval_store", "amplifier_hooks.ports"))
    things = [thing for module in modules for thing in vars(module).values()]
    return tuple(thing for thing in things if inspect.isclass(thing) and is_protocol(thing))


def annotation_of(thing: type, name: str) -> object:
    """Return the annotation of an attribute, from the class that has it."""
    return next((vars(part)["__annotations__"][name] for part in thing.__mro__ if name in own_annotations(part)), "")


def own_annotations(part: type) -> dict[str, Any]:
    """Return the annotations of exactly this class."""
    annotations: dict[str, Any] = vars(part).get("__annotations__", {})
    return annotations


# -- docstrings --------------------------------------------------------------------------------------------------------


def docstring(thing: Any) -> Parts:
    """Return the docstring in parts: text, parameters below `Args:`, and the sentences that begin with `Raises`."""
    text = inspect.getdoc(thing) or ""
    if inspect.isclass(thing) and "__doc__" not in vars(thing):
        text = ""
    before, args, after = text.partition("Args:\n")
    arguments: dict[str, str] = {}
    if args:
        block, _, rest = re.sub(r"\n\n(?=\S)", "\0", after, count=1).partition("\0")
        for name, meaning in re.findall(r"^    (\w+): (.*(?:\n     +.*)*)", block, re.MULTILINE):
            arguments[name] = " ".join(meaning.split())
        before = f"{before}{rest}"
    paragraphs: list[str] = []
    raises: list[str] = []
    for paragraph in re.split(r"\n\n", before):
        if "```" in before or paragraph.startswith(("    ", "- ", "|", ">>>")):
            paragraphs.append(paragraph)
            continue
        kept: list[str] = []
        for one in sentences(paragraph):
            (raises if one.startswith("Raises `") else kept).append(one)
        if kept:
            paragraphs.append(" ".join(kept))
    return Parts("\n\n".join(paragraphs).strip(), arguments, tuple(one.removeprefix("Raises ") for one in raises))


def sentences(paragraph: str) -> list[str]:
    """Return the sentences of a paragraph."""
    return re.split(r"(?<=[.!?]) (?=[A-Z`])", " ".join(paragraph.split()))


def named_in_prose(name: str, text: str) -> str:
    """Return the part of a docstring's text that is about this parameter: the first one whose subject is its name."""
    subject = re.compile(rf"(?:(?:An?|The|While|With|Without|Unless) )?(?:`\w+`(?:,| and) )*`{name}`")
    parts = (part for one in sentences(text) for part in one.removesuffix(".").split("; "))
    found = next((part for part in parts if subject.match(part)), "")
    return f"{found[:1].upper()}{found[1:]}." if found else ""


def sentence(text: str | None) -> str:
    """Return the first sentence of a docstring."""
    return sentences((text or "").split("\n\n", maxsplit=1)[0])[0]


def summary(thing: Any) -> str:
    """Return the first paragraph of a docstring, as one line."""
    return " ".join((inspect.getdoc(thing) or "").split("\n\n", maxsplit=1)[0].split())


@cache
def field_texts(thing: type) -> dict[str, str]:
    """Return the texts below the fields of a class, by name; of a model, the descriptions of its fields."""
    if thing.__module__.partition(".")[0] not in PACKAGES:
        return {}
    tree = module_tree(thing.__module__)
    body = next(node.body for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == thing.__name__)
    texts = below_names(body)
    if issubclass(thing, BaseModel):
        texts |= {name: field.description for name, field in thing.model_fields.items() if field.description}
    return texts


@cache
def module_tree(name: str) -> ast.Module:
    """Return the syntax tree of a module."""
    return ast.parse(inspect.getsource(importlib.import_module(name)))


def below_names(body: list[ast.stmt]) -> dict[str, str]:
    """Return the texts that stand below assignments, by the name that is assigned."""
    found: dict[str, str] = {}
    for node, below in pairwise(body):
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str):
            targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
            text = " ".join(below.value.value.split())
            found |= {target.id: text for target in targets if isinstance(target, ast.Name)}
    return found


# -- signatures --------------------------------------------------------------------------------------------------------


def parameters(thing: Any, parts: Parts) -> list[Field]:
    """Return the parameters of a class or function, each with its meaning as far as docstrings have one."""
    texts: dict[str, str] = {}
    if inspect.isclass(thing):
        if issubclass(thing, Enum):
            return []
        for part in reversed(thing.__mro__):
            if part.__module__.partition(".")[0] in PACKAGES:
                texts |= {name.lstrip("_"): text for name, text in field_texts(part).items()}
                texts |= docstring(part).parameters
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return []
    fields = []
    for parameter, text in spelled_out(signature, sys.modules[thing.__module__]):
        if parameter.name in ("self", "cls"):
            continue
        kind = "" if parameter.annotation is parameter.empty else type_text(parameter.annotation)
        default = "" if parameter.default in (parameter.empty, NOTHING) else shortened(parameter.default)
        meaning = parts.parameters.get(parameter.name) or text or texts.get(parameter.name, "")
        meaning = meaning or named_in_prose(parameter.name, parts.text) or SHARED.get(f"{parameter.name}: {kind}", "")
        fields.append(Field(STARS.get(parameter.kind, "") + parameter.name, kind, default, meaning))
    return fields


def called(thing: Any) -> str:
    """Return the signature: on one line if that is short, else an argument a line."""
    if inspect.isclass(thing) and issubclass(thing, Enum):
        return ""
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return "(…)"
    given = [one for one, _ in spelled_out(signature, sys.modules[thing.__module__])]
    given = [one.replace(annotation=annotation(one.annotation)) for one in given if one.name not in ("self", "cls")]
    signature = signature.replace(parameters=given, return_annotation=annotation(signature.return_annotation))
    whole = plain(str(signature))
    if len(thing.__name__) + len(whole) <= SHORT:
        return whole
    _, arrow, end = whole.rpartition(") -> ")  # a struct has no return annotation
    lines, starred = [], False
    for parameter in given:
        starred = starred or parameter.kind is parameter.VAR_POSITIONAL
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            starred = True
            lines.append("    *,")
        lines.append(f"    {plain(str(parameter))},")
    return "\n".join(["(", *lines, f") -> {end}" if arrow else ")"])


def spelled_out(signature: inspect.Signature, module: ModuleType) -> Iterator[tuple[inspect.Parameter, str]]:
    """Yield the parameters, with those of a table of options in its place, each with the text of its option."""
    for parameter in signature.parameters.values():
        options = re.fullmatch(r"Unpack\[(\w+)\]", str(parameter.annotation))
        if options is None:
            yield parameter, ""
            continue
        chosen = named_in(module, options[1])
        texts = option_texts(chosen)
        for name, kind in chosen.__annotations__.items():
            hint = getattr(kind, "__forward_arg__", kind)
            yield inspect.Parameter(name, parameter.KEYWORD_ONLY, default=NOTHING, annotation=hint), texts.get(name, "")


def named_in(module: ModuleType, name: str) -> Any:
    """Return a class that a module defines or imports, also where it imports the class for type checkers only."""
    for node in ast.walk(module_tree(module.__name__)):
        if isinstance(node, ast.ImportFrom) and any(one.name == name for one in node.names):
            return getattr(importlib.import_module(node.module or ""), name)
    return vars(module)[name]


def option_texts(options: Any) -> dict[str, str]:
    """Return the texts below the options of a table, with those of the tables that it extends."""
    texts: dict[str, str] = {}
    for node in module_tree(options.__module__).body:
        if isinstance(node, ast.ClassDef) and node.name == options.__name__:
            for base in node.bases:
                if isinstance(base, ast.Name) and base.id != "TypedDict":
                    texts |= option_texts(named_in(sys.modules[options.__module__], base.id))
            texts |= below_names(node.body)
    return texts


def annotation(value: object) -> object:
    """Return an annotation for a signature: a text without quotes in it, or nothing."""
    return value if value is inspect.Signature.empty else type_text(value)


def type_text(value: object) -> str:
    """Return a type as it is written in code, without the modules of its names."""
    text = value if isinstance(value, str) else inspect.formatannotation(value)
    text = re.sub(r"ForwardRef\('([^']*)'[^)]*\)", r"\1", text)
    text = re.sub(r"<function (\w+)[^>]*>", r"\1", text)
    return MODULES.sub("", text)


def shortened(value: object) -> str:
    """Return a default or a constant as code, without parts that differ from run to run."""
    text = plain(repr(value))
    return text if len(text) <= SHORT else f"{text[:SHORT]}…"


def plain(text: str) -> str:
    """Return a signature without the quotes of annotations and without parts that differ from run to run."""
    text = re.sub(r"(: |-> )'((?:[^'\\]|\\.)*)'", r"\1\2", text)
    text = re.sub(r'(: |-> )"((?:[^"\\]|\\.)*)"', r"\1\2", text)
    text = re.sub(r"<(?:built-in )?function (\w+)[^>]*>", r"\1", text).replace("<factory>", "…")
    return MEMORY.sub("", text).replace("NOTHING", "…")


def is_protocol(thing: Any) -> bool:
    """Return True if the class is a protocol, which others implement."""
    return bool(getattr(thing, "_is_protocol", False))


# -- what can be raised ------------------------------------------------------------------------------------------------


def errors() -> Iterator[str]:
    """Return the lines of the page that has the tree of errors."""
    yield "# Errors\n"
    yield WRITTEN
    yield "Every error that the packages raise, and below each the errors of its kind.\n"
    for module in ERRORS:
        yield f"## `{module}`\n"
        own = importlib.import_module(module)
        classes = [thing for thing in vars(own).values() if inspect.isclass(thing) and thing.__module__ == module]
        found = [thing for thing in classes if issubclass(thing, BaseException)]
        for root in sorted((thing for thing in found if not set(thing.__bases__) & {*found}), key=by_name):
            yield from branch(root, found, 0)
        yield ""


def branch(root: type, classes: list[type], depth: int) -> Iterator[str]:
    """Return the line of an error, and below it the lines of its kinds."""
    yield f"{'    ' * depth}- {linked(root.__name__)}: {sentence(inspect.getdoc(root))}"
    for child in sorted((thing for thing in classes if root in thing.__bases__), key=by_name):
        yield from branch(child, classes, depth + 1)


def by_name(thing: type) -> str:
    """Return the key by which errors are sorted."""
    return thing.__name__


# -- what can be typed -------------------------------------------------------------------------------------------------


def command() -> Iterator[str]:
    """Return the lines of the page that has every command with its help."""
    cli = importlib.import_module("amplifier_hooks.cli.app")
    root = typer.main.get_command(cli.app)
    yield "# The command\n"
    yield WRITTEN
    yield "Every command with its help, as `--help` shows it.\n"
    yield from helped(root, "amplifier-hooks", None)


def helped(part: Any, name: str, parent: Any) -> Iterator[str]:
    """Return the lines of one command's help, and of the commands below it."""
    width = {"terminal_width": 88, "max_content_width": 88}
    context = part.make_context(name, [], parent=parent, resilient_parsing=True, **width)
    words = context.command_path
    yield f"## {words}\n"
    text = "\n".join(line.rstrip() for line in context.get_help().splitlines())
    yield f"```text\n{text}\n```\n"
    for child in getattr(part, "commands", {}).values():
        if not child.hidden:
            yield from helped(child, child.name, context)


LISTS: Final = {"python.md": index, "errors.md": errors, "command.md": command}
"""Pages of the repository."""


# -- Markdown ----------------------------------------------------------------------------------------------------------


def anchor(title: str) -> str:
    """Return the address of a heading within its page."""
    return re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-")


def linked(name: str) -> str:
    """Return the name of a front door or of one of its classes and functions as code, with a link to it."""
    address = f"{name}.md" if name in doors() else homes().get(name)
    return f"[`{name}`]({address})" if address else f"`{name}`"


def prose(text: str, own: str) -> str:
    """Return the text of a docstring, with links to the entries of the public names in it; blocks of code stay."""
    if "```" in text:
        return text
    return re.sub(r"(?<![\[`])`(\w+)`", lambda found: found[0] if found[1] == own else linked(found[1]), text)


def code(text: str) -> str:
    """Return a text as code in a cell, or nothing."""
    return f"`{cell(text)}`" if text else ""


def cell(text: str) -> str:
    """Return a text that stays in its cell."""
    return text.replace("|", "\\|")


if __name__ == "__main__":
    main()
