"""A URL or a host comes in; the kind of connection goes out."""

from __future__ import annotations

import re
from typing import Final

from amplifier_hooks.impact.places import GUARD, MARKS, NAME, UNKNOWN, show
from amplifier_hooks.impacts import Impact, ImpactPolicy

HOST: Final = re.compile(r"^(?:[a-z][a-z0-9+.-]*://)?(?:[^@/]*@)?(\[[^\]]+\]|[^:/?#]*)(?::(\d+))?", re.IGNORECASE)
LOCAL: Final = re.compile(r"localhost|.*\.localhost|127(\.\d+){3}|0\.0\.0\.0|\[::1?\]|::1|host\.docker\.internal")
ENGINES: Final = {
    "2375": "the port of a container engine",
    "2376": "the port of a container engine",
    "6443": "the port of a cluster",
    "10250": "the port of a cluster",
}
SECRET: Final = re.compile(
    r"AKIA[0-9A-Z]{16}|gh[pousr]_\w{20,}|sk-[\w-]{20,}|xox[abpr]-[\w-]{10,}|eyJ[\w-]{20,}\.|-----BEGIN|"
    r"AIza[\w-]{30,}|glpat-[\w-]{15,}"
)


def url_impact(url: str, policy: ImpactPolicy, *, sends: bool = False) -> Impact:
    """Return the impact of a connection.

    Data in a request counts as sent, and so does text in the name of a host that only a run can tell.
    """
    match = HOST.match(url.strip().replace("\\", "/"))
    host, port = (match[1].lower(), match[2]) if match else ("", None)
    place = show(host or url)
    if url.lower().startswith("file:"):
        return Impact("reads", place)
    if LOCAL.fullmatch(host) or (set(host) & set(MARKS) and _is_guarded(port, policy)):
        return _local_impact(host, port, place, policy)
    if UNKNOWN in host or NAME in host:
        exact = host in (UNKNOWN, NAME)
        return Impact("network_sends" if sends or not exact else "network_new", place, "only a run tells the host")
    if sends or SECRET.search(url):
        return Impact("network_sends", place, "data in the request")
    known = any(host == one or (one.startswith(".") and host.endswith(one)) for one in policy.trusted_hosts)
    return Impact("network_known" if known else "network_new", place)


def _local_impact(host: str, port: str | None, place: str, policy: ImpactPolicy) -> Impact:
    """Return the impact of a connection to this machine."""
    reason = GUARD if _is_guarded(port, policy) else ENGINES.get(port or "")
    if reason is None:
        return Impact("network_local", place)
    return Impact("service_writes", show(f"{host}:{port}"), reason, unguards=reason == GUARD)


def _is_guarded(port: str | None, policy: ImpactPolicy) -> bool:
    return any(str(one) == port for one in policy.guarded_ports)


def is_remote(text: str) -> bool:
    """Return True if a text names a file on another machine, as in `host:path`."""
    return bool(re.match(r"[\w.@-]+:", text))


def remote_host(text: str) -> str:
    """Return the host of a text like `user@host:path`."""
    return text.partition(":")[0].rpartition("@")[2]
