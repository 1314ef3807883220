"""A JSON schema and a value come in; the value's mistakes go out.

The values are inputs of tools, and parameters and results of runs. A schema may come from an untrusted source.
`Schema` refuses one that is broken, refers to anything outside, or would make the check of a value slow:

- a reference leads to a place or an anchor of the schema itself; nothing is fetched, and no part has an `$id`, to which
  references could be relative;
- a pattern is an expression for an engine without backtracking;
- a schema has at most 256 KiB, is at most 64 deep, and has at most 20,000 places with its references expanded.

Messages never contain values, because a value may be long, or a secret.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from attrs import field, frozen

from amplifier_hooks.errors import MissingExtra
from amplifier_hooks.text.escape import clip

if TYPE_CHECKING:
    from collections.abc import Iterator


LARGEST_SCHEMA: Final = 256 * 1024
"""Most bytes of a schema."""
DEEPEST: Final = 64
LONGEST_CHAIN: Final = 256
MOST_PLACES: Final = 20_000
"""Most places of a schema with its references expanded."""
FEW_PLACES: Final = 1_000
"""Most places of a schema and of a value for which all mistakes are listed, not only the first."""
LARGEST_PATTERN: Final = 1 << 20
"""Most bytes of memory for one pattern."""
LONGEST_PROBLEM: Final = 400
LONGEST_SENTENCE: Final = 200

REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
"""Keywords of references. They are equivalent here, because without `$id` a target does not depend on the way to it."""
ANCHORS: Final = ("$anchor", "$dynamicAnchor")
NAMES: Final = ("$id", "id")
"""Keywords that name a part; the second is that of the oldest draft."""
OLDEST: Final = "draft-04"
SINGLE: Final = (
    "not", "if", "then", "else", "items", "additionalItems", "contains", "propertyNames", "additionalProperties",
    "unevaluatedItems", "unevaluatedProperties", "contentSchema",
)  # fmt: skip
LISTED: Final = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
NAMED: Final = ("properties", "patternProperties", "dependentSchemas", "dependencies")


class SchemaError(ValueError):
    """A schema that cannot be used; the message states the place and the reason."""


@frozen
class SchemaMistake:
    """One mistake of a value: its place, the schema's keyword, and a message."""

    where: str
    keyword: str
    what: str

    def __str__(self) -> str:
        return f"at {self.where}: {self.what}" if self.where else self.what


@frozen
class Schema:
    """One schema, checked and compiled.

    Its constructor raises `SchemaError` for a broken or harmful schema, and `MissingExtra`.
    """

    document: Any
    _thorough: bool = field(init=False, repr=False, eq=False)
    _validator: Any = field(init=False, repr=False, eq=False)

    @_thorough.default
    def _default_thorough(self) -> bool:
        size, whole = _check_document(self.document)
        return whole and size <= FEW_PLACES

    @_validator.default
    def _build_validator(self) -> Any:
        jsonschema_rs = MissingExtra.load("jsonschema_rs", "a JSON schema", "schemas")
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
        """Return True if a value fits the schema. Raises `ValueError` if it is not JSON."""
        return bool(self._validator.is_valid(value))

    def problem(self, value: object) -> str | None:
        """Return the first mistake of a value and its place, or None if it fits. Only JSON values can fit."""
        import jsonschema_rs

        try:
            self._validator.validate(value)
        except jsonschema_rs.ValidationError as problem:
            return _problem_at(problem.instance_path, problem.message)
        except ValueError as problem:  # half a character, or nested without end
            return clip(f"it cannot be checked: {problem}", LONGEST_PROBLEM)
        return None

    def mistakes(self, value: object) -> tuple[SchemaMistake, ...]:
        """Return the mistakes of a value, but only the first for a large value or schema, or a recursive schema.

        Raises `ValueError` if the value is not JSON.
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
    """Return the part to which a reference by place leads within a schema, or None if there is none."""
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


# -- messages --------------------------------------------------------------------------------------------------------


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


# -- the size of a schema, with its references expanded --------------------------------------------------------------


def _check_document(document: Any) -> tuple[int, bool]:
    """Return the number of places of a schema, and True if it does not refer to itself.

    Raises `SchemaError` for a schema that is not JSON, is too large or too deep, or refers to anything outside.
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
    """Yield the parts that have an anchor. Raises `SchemaError` for a too deep schema, or an `$id` within it."""
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
    """The size of a schema with its references expanded, each cycle once."""

    def __init__(self, root: Any, anchors: Mapping[str, object]) -> None:
        self._root = root
        self._anchors = anchors
        self._sizes: dict[int, int] = {}
        self._open: set[int] = set()
        self._whole = True

    def measure(self) -> tuple[int, bool]:
        """Return the number of places, and True if the schema has no cycle."""
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
        """Yield the schemas of which a schema consists, including those to which it refers."""
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
