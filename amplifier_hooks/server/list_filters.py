"""Filters and pages of the API's lists: query parameters come in; a cursor to the next page goes out.

A cursor marks the beginning of the next page; its content is opaque to clients.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Annotated, Any, Final

from fastapi import Query

from amplifier_hooks.events import canonical
from amplifier_hooks.server.problem_details import Problem

LONGEST: Final = 512

Cursor = Annotated[
    str | None, Query(max_length=LONGEST, description="The `next` of the page before, with the same filters.")
]
Limit = Annotated[int, Query(ge=1, le=1_000, description="Items of a page, at most.")]

TenantFilter = Annotated[
    str | None,
    Query(max_length=100, description="Only items of this tenant; '' is the system. By default all you can see."),
]
EventFilter = Annotated[str | None, Query(min_length=1, max_length=100, description="Only items of this event.")]
NameFilter = Annotated[
    str | None, Query(min_length=1, max_length=300, description="Only items of the hook with this name.")
]


def cursor_of(tenant: str, filters: list[Any], *place: int | str) -> str:
    """Return a cursor for a caller's tenant and filters that begins after a place."""
    text = json.dumps([tenant, filters, *place], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_cursor(cursor: str, tenant: str, filters: list[Any]) -> tuple[int, str]:
    """Return the place at which a page begins. Raises `Problem`: 404 for another tenant's cursor, 400 if invalid."""
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        whose, given, at, name = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        wrong = type(at) is not int or not isinstance(name, str) or abs(at) >= 2**63 or not name.isascii()
    except (ValueError, TypeError, binascii.Error, RecursionError):
        wrong, whose, given, at, name = True, tenant, filters, 0, ""
    if wrong or "\x00" in name:
        raise Problem(400, "bad_cursor", "the cursor is invalid; begin again without one")
    if whose != tenant:
        raise Problem(404, "not_found", "there is no such page")
    if given != filters:
        raise Problem(400, "bad_cursor", "the cursor belongs to other filters; begin again without one")
    return at, name


def wanted_event(name: str | None) -> str | None:
    """Return the canonical name of an event in any spelling, without NUL, which no store can hold."""
    return None if name is None else canonical(name).replace("\x00", "\\x00")
