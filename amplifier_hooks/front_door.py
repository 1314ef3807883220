"""A package's public names, each loaded from its module on first use.

Importing a front door is cheap: the command, the bridge and the plain data of a hook need few of its names.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def load_on_use(package: str, homes: "Mapping[str, tuple[str, ...]]") -> "Callable[[str], object]":
    """Return the `__getattr__` of `package`; `homes` lists the names that each module below the package defines."""
    home_of = {name: home for home, names in homes.items() for name in names}

    def load(name: str) -> object:
        if name == "__version__":
            from importlib.metadata import version  # imports as slowly as all the rest

            return version("amplifier-hooks")
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{home_of[name]}"), name)
        setattr(import_module(package), name, value)  # the next use does not call this function
        return value

    return load
