"""The Host and Origin of a request, compared with the addresses of its server. Pure: headers are arguments.

A page can make its browser send requests to this server, but cannot make it lie about Host and Origin. So these two
headers keep other pages out: by name and port, and each at most once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


LOCAL: Final = ("127.0.0.1", "localhost", "[::1]")
HTTP: Final = 80
"""Default port, which requests leave out."""


def local_names(port: int | None, *more: str) -> frozenset[str]:
    """Return the Host values that mean this machine at a port or, without a port, at a Unix socket."""
    names = (*LOCAL, *more)
    with_port = frozenset(f"{name}:{port}" for name in names if port is not None)
    return with_port | frozenset(names) if port in (None, HTTP) else with_port


def turned_away(
    names: Collection[str], hosts: Sequence[str], origins: Sequence[str]
) -> Literal["host", "origin"] | None:
    """Return the header for which a request is refused, or None. `names` are the server's names, in lower case.

    `hosts` and `origins` hold all values that were sent. A Host is required; an Origin may be missing.
    """
    if len(hosts) != 1 or hosts[0].lower() not in names:
        return "host"
    for origin in origins:
        scheme, _, host = origin.lower().partition("://")
        if len(origins) > 1 or scheme not in ("http", "https") or host not in names:
            return "origin"
    return None
