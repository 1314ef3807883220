"""JSON schemas: of a tool's input, of the parameters and results of runs.

Schemas may come from far away. One is read once, and refused then if it is broken, reaches out of itself, or would make
judging a value slow:

- a reference leads to a place or an anchor of the schema itself; nothing is fetched, and nothing in it has a name of
  its own (`$id`) that references could be relative to;
- a pattern is an expression for an engine without backtracking;
- it has at most 256 KiB, is at most 64 deep, and has with its references written out at most 20,000 places.

Values never stand in what is said about them: they may be long, or a secret.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from attrs import field, frozen

from amplifier_hooks.text.escape import clip

if TYPE_CHECKING:
    from collections.abc import Iterator


LARGEST_SCHEMA: Final = 256 * 1024
"""Bytes."""
DEEPEST: Final = 64
LONGEST_CHAIN: Final = 256
MOST_PLACES: Final = 20_000
"""Of a schema with everything written out that it refers to."""
FEW_PLACES: Final = 1_000
"""A schema and a value of so many places are looked through to the end, so that all that is wrong is named."""
LARGEST_PATTERN: Final = 1 << 20
"""Bytes one pattern may take in memory."""
LONGEST_PROBLEM: Final = 400
LONGEST_SENTENCE: Final = 200

REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
"""All lead to one place here: where nothing has a name of its own, how one got there makes no difference."""
ANCHORS: Final = ("$anchor", "$dynamicAnchor")
NAMES: Final = ("$id", "id")
"""A name of a part's own; the second is that of the oldest draft."""
OLDEST: Final = "draft-04"
SINGLE: Final = (
    "not", "if", "then", "else", "items", "additionalItems", "contains", "propertyNames", "additionalProperties",
    "unevaluatedItems", "unevaluatedProperties", "contentSchema",
)  # fmt: skip
LISTED: Final = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
NAMED: Final = ("properties", "patternProperties", "dependentSchemas", "dependencies")


class SchemaError(ValueError):
    """A schema that cannot be used; the sentence says where and why."""


@frozen
class SchemaMistake:
    """One thing a value has wrong: where, by which keyword of the schema, and in words."""

    where: str
    keyword: str
    what: str

    def __str__(self) -> str:
        return f"at {self.where}: {self.what}" if self.where else self.what


@frozen
class Schema:
    """One schema, checked and ready. Raises `SchemaError` for one that is broken or could do harm."""

    document: Any
    _thorough: bool = field(init=False, repr=False, eq=False)
    _validator: Any = field(init=False, repr=False, eq=False)

    @_thorough.default
    def _default_thorough(self) -> bool:
        size, whole = _check_document(self.document)
        return whole and size <= FEW_PLACES

    @_validator.default
    def _build_validator(self) -> Any:
        import jsonschema_rs

        patterns = jsonschema_rs.RegexOptions(size_limit=LARGEST_PATTERN, dfa_size_limit=LARGEST_PATTERN)
        try:
            return jsonschema_rs.validator_for(
                self.document, mask="this value", offline=True, base_uri="urn:schema", pattern_options=patterns
            )
        except jsonschema_rs.ValidationError as problem:
            raise SchemaError(_problem_at(problem.instance_path, problem.message)) from None
        except ValueError as problem:
            raise SchemaError(clip(str(problem), LONGEST_PROBLEM)) from None

    def fits(self, value: object) -> bool:
        """Whether a value is right. Raises `ValueError` for what is no JSON."""
        return bool(self._validator.is_valid(value))

    def problem(self, value: object) -> str | None:
        """What is wrong with a value, and where; None if it fits. What no JSON can hold does not fit."""
        import jsonschema_rs

        try:
            self._validator.validate(value)
        except jsonschema_rs.ValidationError as problem:
            return _problem_at(problem.instance_path, problem.message)
        except ValueError as problem:  # half a character, or nested without end
            return clip(f"it cannot be checked: {problem}", LONGEST_PROBLEM)
        return None

    def mistakes(self, value: object) -> tuple[SchemaMistake, ...]:
        """What a value has wrong; of a large one, or by a schema that refers to itself, the first thing only.

        Raises `ValueError` for what is no JSON.
        """
        import jsonschema_rs

        if self.fits(value):
            return ()
        if self._thorough and _is_small(value):
            return tuple(_mistake(error) for error in self._validator.iter_errors(value))
        try:
            self._validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            return (_mistake(error),)
        return ()


def resolve_reference(root: object, reference: object) -> object:
    """What a reference within a schema leads to, by its place; None where there is nothing."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    found = root
    for step in reference[1:].split("/")[1:]:
        name = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping) and name in found:
            found = found[name]
        elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        else:
            return None
    return found


# -- what is said ----------------------------------------------------------------------------------------------------


def _problem_at(path: list[str | int], message: str) -> str:
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return clip(f"${where}: {message}", LONGEST_PROBLEM)


def _mistake(error: Any) -> SchemaMistake:
    text = error.message.replace("\n", " ")
    text = text if len(text) <= LONGEST_SENTENCE else f"{text[:LONGEST_SENTENCE]}…"
    return SchemaMistake(_pointer(error.instance_path), error.kind.name, text)


def _pointer(path: list[str | int]) -> str:
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in path)[:LONGEST_SENTENCE]


def _is_small(value: object) -> bool:
    waiting, seen = [value], 0
    while waiting:
        seen += 1
        if seen > FEW_PLACES:
            return False
        one = waiting.pop()
        if isinstance(one, Mapping):
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
    return True


# -- how large a schema is, with its references written out ----------------------------------------------------------


def _check_document(document: Any) -> tuple[int, bool]:
    """How many places a schema has, and whether that is all there is to it: it does not refer to itself.

    Raises `SchemaError` for one that is no JSON, too large or too deep, or leads outside.
    """
    if not isinstance(document, dict | bool):
        raise SchemaError(f"a schema is an object, not a {type(document).__name__}")
    try:
        size = len(json.dumps(document, allow_nan=False))
    except (ValueError, TypeError, RecursionError) as problem:
        raise SchemaError(f"a schema that is no JSON: {problem}") from None
    if size > LARGEST_SCHEMA:
        raise SchemaError(f"it has {size:,} bytes; at most {LARGEST_SCHEMA:,} are read")
    return _SchemaSize(document, dict(_anchors(document))).measure()


def _anchors(document: Any) -> Iterator[tuple[str, object]]:
    """The parts that have an anchor, after a look at how deep it goes and whether a part has a name of its own."""
    oldest = isinstance(document, dict) and OLDEST in str(document.get("$schema"))
    seen: set[str] = set()
    waiting = [(document, 1)]
    while waiting:
        part, depth = waiting.pop()
        if depth > DEEPEST:
            raise SchemaError(f"it is nested deeper than {DEEPEST}")
        if isinstance(part, dict):
            for name in NAMES[: 1 + oldest]:
                if isinstance(part.get(name), str) and depth > 1:
                    raise SchemaError(f"{name} is not followed here; point to #/$defs/… with $ref")
            for word in ANCHORS:
                anchor = part.get(word)
                if isinstance(anchor, str):
                    if anchor in seen:
                        raise SchemaError(f"{word} {anchor!r:.80} is there twice; give each its own")
                    seen.add(anchor)
                    yield anchor, part
        inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        waiting += ((one, depth + 1) for one in inner)


class _SchemaSize:
    """A schema with its references written out, each cycle once around."""

    def __init__(self, root: Any, anchors: Mapping[str, object]) -> None:
        self._root = root
        self._anchors = anchors
        self._sizes: dict[int, int] = {}
        self._open: set[int] = set()
        self._whole = True

    def measure(self) -> tuple[int, bool]:
        """How many places it has, and whether those are all."""
        return self._size(self._root), self._whole

    def _size(self, part: object) -> int:
        if not isinstance(part, Mapping):
            return 1
        known = self._sizes.get(id(part))
        if known is not None:
            return known
        if id(part) in self._open:
            self._whole = False
            return 1
        if len(self._open) >= LONGEST_CHAIN:
            raise SchemaError(
                f"it goes on in a chain of more than {LONGEST_CHAIN} parts; point straight at what is meant"
            )
        self._open.add(id(part))
        total = 1 + sum(self._size(inner) for inner in self._parts(part))
        self._open.discard(id(part))
        if total > MOST_PLACES:
            raise SchemaError(f"written out it has more than {MOST_PLACES:,} places; refer to things less often")
        self._sizes[id(part)] = total
        return total

    def _parts(self, part: Mapping[str, Any]) -> Iterator[object]:
        """The schemas a schema consists of, those it refers to included."""
        for word in REFERENCES:
            if isinstance(part.get(word), str):
                yield self._resolve(word, part[word])
        yield from (part[name] for name in SINGLE if isinstance(part.get(name), Mapping))
        for name in LISTED:
            if isinstance(part.get(name), list):
                yield from part[name]
        for name in NAMED:
            if isinstance(part.get(name), Mapping):
                yield from part[name].values()

    def _resolve(self, word: str, target: str) -> object:
        if not target.startswith("#"):
            raise SchemaError(f"{word} {target!r:.80} leads outside; nothing is fetched, so put it under $defs")
        name = unquote(target[1:])
        found = self._anchors.get(name) if name and name[0] != "/" else resolve_reference(self._root, target)
        if found is None:
            raise SchemaError(f"{word} {target!r:.80} points to nothing")
        return found
