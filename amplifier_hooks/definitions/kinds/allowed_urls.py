"""URLs and addresses that a webhook may reach: a URL or resolved addresses come in; an address or an error goes out.

A host name is resolved once, every one of its addresses has to be allowed, and the connection goes to one of exactly
these addresses: no second lookup happens between the check and the request. A table here defines public addresses,
because the standard library's definition differs between versions and lets translation prefixes reach local hosts.
"""

from __future__ import annotations

from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from socket import inet_aton
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult, urlsplit

from attrs import field, frozen

from amplifier_hooks.errors import EndpointForbidden, InvalidRegistration

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from ipaddress import IPv4Network, IPv6Network


LONGEST_URL: Final = 2048

NOT_PUBLIC: Final = tuple(
    ip_network(text)
    for text in (
        "0.0.0.0/8",  # this network, and this host
        "10.0.0.0/8",
        "100.64.0.0/10",  # carrier-grade NAT
        "127.0.0.0/8",
        "168.63.129.16/32",  # a cloud's own services, on an address that looks public
        "169.254.0.0/16",  # link-local, metadata services among it
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.88.99.0/24",  # relays into IPv6
        "192.168.0.0/16",
        "192.175.48.0/24",
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
        "2001::/23",  # Teredo and other protocols
        "2001:db8::/32",
        "2002::/16",  # 6to4: an IPv4 address in disguise
        "2620:4f:8000::/48",
        "3fff::/20",  # documentation
    )
)
GLOBAL_UNICAST: Final = ip_network("2000::/3")
"""All public IPv6. Mapped and translated IPv4, loopback, local and multicast addresses lie outside of it."""

PORTS: Final = {"http": 80, "https": 443}


def _networks(texts: Iterable[str]) -> tuple[IPv4Network | IPv6Network, ...]:
    return tuple(ip_network(text) for text in texts)


def _ports(numbers: Iterable[int]) -> frozenset[int]:
    return frozenset(numbers)


def _hosts(texts: Iterable[str]) -> frozenset[str]:
    return frozenset(text.lower() if text.rpartition(":")[2].isdigit() else f"{text.lower()}:80" for text in texts)


@frozen(kw_only=True)
class AllowedUrls:
    """The URLs an operator lets webhooks reach. By default these are https on port 443 of public addresses.

    `networks` are allowed besides, such as `127.0.0.0/8` for a service on this machine; `http` allows plain HTTP to
    these networks only. `http_hosts` are hosts, each with a port or with port 80, that are allowed plain HTTP at
    whatever address they have.
    """

    networks: tuple[IPv4Network | IPv6Network, ...] = field(default=(), converter=_networks)
    ports: frozenset[int] = field(default=(443,), converter=_ports)
    http: bool = False
    http_hosts: frozenset[str] = field(default=(), converter=_hosts)

    def check_url(self, url: str) -> SplitResult:
        """Return the parts of an allowed URL. Raises `InvalidRegistration` with the reason for any other URL."""
        problem = next(self._url_problems(url), None)
        if problem is not None:
            raise InvalidRegistration(f"webhook URL {_origin_of(url)!r:.120}: {problem}")
        return urlsplit(url)

    def _url_problems(self, url: str) -> Iterator[str]:
        if len(url) > LONGEST_URL:
            yield f"it has {len(url):,} characters; at most {LONGEST_URL:,} are sent"
        if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
            yield "write it in printable ASCII, without blanks and backslashes; encode what is not"
        try:
            parts = urlsplit(url)
            port = parts.port or PORTS.get(parts.scheme)
        except ValueError as error:
            yield f"{error}"
            return
        schemes = ("https", "http") if self.http else ("https",)
        named = parts.scheme == "http" and f"{parts.hostname}:{port}" in self.http_hosts
        if parts.scheme not in schemes and not named:
            yield f"its scheme is {parts.scheme!r}; use {' or '.join(schemes)}"
        if not parts.hostname:
            yield "it names no host"
        elif not named and (own := [one for one in addresses_of(url) if not self._allows(one, parts.scheme)]):
            yield f"{own[0]} is neither public nor in a network that the operator allowed"
        if "@" in parts.netloc:
            yield "it holds credentials; send them in a header"
        if "#" in url:
            yield "it has a fragment, which is never sent"
        if port not in self.ports and not named:
            yield f"port {port} is not among those allowed ({', '.join(map(str, sorted(self.ports)))})"

    def choose_address(self, host: str, scheme: str, found: Iterable[str]) -> str:
        """Return the address to connect to, one of a host's resolved addresses.

        Raises `EndpointForbidden` if any of them is forbidden: a host with allowed and forbidden addresses is a trap.
        """
        addresses = [ip_address(text.partition("%")[0]) for text in found]
        named = scheme == "http" and any(one.rpartition(":")[0] == host for one in self.http_hosts)
        for address in addresses:
            if not named and not self._allows(address, scheme):
                raise EndpointForbidden(host, str(address))
        if not addresses:
            raise EndpointForbidden(host, "no address")
        return str(addresses[0])

    def _allows(self, address: IPv4Address | IPv6Address, scheme: str) -> bool:
        if any(address in network for network in self.networks):
            return True
        return scheme == "https" and is_public(address)


def _origin_of(url: str) -> str:
    """Return the scheme and the host of a URL; messages show nothing else, as the rest may be a secret."""
    scheme, mark, rest = url.partition("://")
    host = rest.partition("?")[0].partition("#")[0].partition("/")[0].rpartition("@")[2]
    return f"{scheme}://{host}" if mark else "(no scheme)"


def addresses_of(url: str) -> list[IPv4Address | IPv6Address]:
    """Return the addresses that a URL's host stands for without a lookup: `localhost`, or an address in any spelling.

    A URL that cannot be read, or has another host, has none.
    """
    try:
        name = (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:
        return []
    if name == "localhost" or name.endswith(".localhost"):
        return [ip_address("127.0.0.1")]
    with suppress(ValueError):
        return [ip_address(name.partition("%")[0])]
    with suppress(OSError):
        return [ip_address(inet_aton(name))]
    return []


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Return True if an address is public."""
    if isinstance(address, IPv6Address) and address not in GLOBAL_UNICAST:
        return False
    return not any(address in network for network in NOT_PUBLIC if network.version == address.version)


PUBLIC: Final = AllowedUrls()
