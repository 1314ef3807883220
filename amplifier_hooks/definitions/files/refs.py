"""`$ref`: a part of a file with what it refers to in it.

What stands beside a `$ref` stands over what it refers to, and within `config` key by key.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from amplifier_hooks.definitions.files.open_files import FILE_ENDINGS, OpenedFiles, Page, nearest, wrong
from amplifier_hooks.definitions.invalid_definitions import Spot, meant

if TYPE_CHECKING:
    from amplifier_hooks.text.strict_yaml import KeyPath


REF: Final = "$ref"
WHAT: Final = {"hooks": "a hook", "library": "what a ready-made hook is set to", "definitions": "a named part"}


@frozen(eq=False)
class Written:
    """A mapping, and where each part of it was written, in whichever file."""

    value: dict[str, Any]
    spots: dict[KeyPath, Spot]

    def spot(self, *part: str | int) -> Spot:
        """Where a part was written."""
        return nearest(self.spots, part)


def read_part(
    files: OpenedFiles, page: Page, key: str, name: str | int, chain: tuple[Spot, ...] = ()
) -> Written | None:
    """A hook, a ready-made hook's settings or a named part. None where what it needs is known to be wrong.

    Raises `InvalidDefinitions`, also for a `$ref` that leads in a circle.
    """
    value, spot, spots = page.said(key)[name], page.spot(key, name), page.spots(key, name)
    if value is None and key == "library":
        value = {}
    if not isinstance(value, dict):
        raise wrong(spot, f"{WHAT[key]} is a mapping, not {value!r:.40}")
    if spot in chain:
        circle = " → ".join(map(str, [*chain[chain.index(spot) :], spot]))
        raise wrong(chain[-1], f"{REF!r} leads in a circle: {circle}; take one of them out")
    own = {part: item for part, item in value.items() if part != REF}
    if REF not in value:
        return Written(own, spots)
    base = _referred(files, page, value[REF], nearest(spots, (REF,)), (*chain, spot))
    if base is None:
        return None
    merged = {**base.value, **own}
    configs = (base.value.get("config"), own.get("config"))
    if all(isinstance(config, dict) for config in configs):
        merged["config"] = {**base.value["config"], **own["config"]}
    return Written(merged, {**base.spots, **spots})


def _referred(files: OpenedFiles, page: Page, to: object, at: Spot, chain: tuple[Spot, ...]) -> Written | None:
    """The named part that a `$ref` leads to."""
    file, mark, name = to.partition("#/definitions/") if isinstance(to, str) else ("", "", "")
    if not mark or not name:
        raise wrong(at, f"{REF!r} is {to!r:.60}; write '#/definitions/name' or 'file.yaml#/definitions/name'")
    target: Page | None = page
    if file:
        path = Path(file)
        if path.is_absolute() or path.suffix not in FILE_ENDINGS or not file.isprintable():
            raise wrong(at, f"{REF!r} names {file!r:.60}; name a YAML or JSON file by its path from this one")
        target = files.page(page.path.parent / path, at)
    if target is None:
        return None
    named = target.said("definitions") or {}
    if name not in named:
        raise wrong(at, f"{REF!r} names {name!r:.60}, which {target.path} does not define; {meant(name, named)}")
    return read_part(files, target, "definitions", name, chain)
