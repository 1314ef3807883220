"""A hook that is a web service: an event goes out as one signed POST; a signed answer comes back.

Signatures follow Standard Webhooks in both directions: the service signs its answer over the id of the request, so an
answer can be neither forged nor replayed. While a secret is being replaced, the hook has both, the new one first: it
signs requests with both, and accepts an answer signed with either.

A circuit breaker spares a service that is down: after `FAILURES` failures in a row the hook sends nothing for `COOLING`
seconds, then tries once. Each tenant has its own count, so a payload of one tenant that breaks the service does not
take the service away from the others.

`AllowedUrls` are the addresses that a webhook may reach. A host name is resolved once, every one of its addresses has
to be allowed, and the connection goes to one of exactly these addresses: no second lookup happens between the check and
the request. A table here defines public addresses, because the standard library's definition differs between versions
and lets translation prefixes reach local hosts.
"""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache, lru_cache, partial
from importlib import import_module
from importlib.util import find_spec
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from socket import inet_aton
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import SplitResult, urlsplit
from uuid import uuid4

from attrs import Factory, define, field, frozen

from amplifier_hooks.definitions.kinds.event_codec import LARGEST_ANSWER, NATIVE, Codec
from amplifier_hooks.errors import (
    EndpointForbidden,
    HookError,
    HookFailed,
    HookUnavailable,
    InvalidRegistration,
    InvalidResult,
    MissingExtra,
)
from amplifier_hooks.foreign_code import DaemonPool

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
    from ipaddress import IPv4Network, IPv6Network
    from urllib.parse import SplitResult

    import httpx2

    from amplifier_hooks.result import HookResult


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


FAILURES: Final = 5
"""Failures in a row after which the circuit opens."""
COOLING: Final = 30.0
"""Seconds for which the circuit stays open before one call may try again."""
MOST_TENANTS: Final = 1_024
"""Tenants whose failures are counted, at most; beyond that, the one whose last failure is oldest is dropped."""


@define
class TenantFailures:
    """Failures in a row of one tenant's calls."""

    failures: int = 0
    until: float = 0.0
    """Time at which an open circuit lets one call through."""


@define(eq=False)
class Circuit:
    """Circuit breaker of one service. Call `enter` before a request, then `record_success` or `record_failure`."""

    clock: Callable[[], float]
    _rows: dict[str, TenantFailures] = field(factory=dict, init=False)
    """Failures by tenant; a tenant whose last call succeeded has no entry."""

    def __len__(self) -> int:
        """Return the number of tenants with failures."""
        return len(self._rows)

    def enter(self, tenant: str = "") -> None:
        """Raise `HookUnavailable` while the circuit is open for a tenant; once it has cooled, let one call through."""
        row = self._rows.get(tenant)
        if row is None or row.failures < FAILURES:
            return
        now = self.clock()
        if now < row.until:
            raise HookUnavailable(f"it failed {row.failures} times in a row; tried again in {row.until - now:.0f} s")
        row.until = now + COOLING

    def record_success(self, tenant: str = "") -> None:
        """Record that the service answered, and close the circuit."""
        self._rows.pop(tenant, None)

    def record_failure(self, tenant: str = "") -> None:
        """Record that the service did not answer, and open the circuit after `FAILURES` of these in a row."""
        row = self._rows.pop(tenant, None) or TenantFailures()
        row.failures += 1
        if row.failures >= FAILURES:
            row.until = self.clock() + COOLING
        self._rows[tenant] = row  # as the last one
        if len(self._rows) > MOST_TENANTS:
            del self._rows[next(iter(self._rows))]


WEBHOOK_TIMEOUT: Final = 10.0
"""Default timeout of a service in seconds, all tries together."""

TRIES: Final = 3
FIRST_WAIT: Final = 0.1
"""Seconds before the second try; four times as long before the third."""

WORTH_A_RETRY: Final = frozenset({429, 500, 502, 503, 504})

MOST_RESOLVERS: Final = 256
"""Tenants that have resolver threads of their own, at most."""

OURS: Final = ("host", "content-", "transfer-", "accept", "connection", "webhook-")
"""Prefixes of headers that a definition cannot set."""

JSON: Final = "application/json"

WITH_A_REQUEST: Final = ("anyio.lowlevel", "anyio._backends._asyncio")
"""Modules that httpx2 would import on the event loop, with the first request."""


def _checked_headers(given: Mapping[str, str]) -> dict[str, str]:
    for name, value in given.items():
        if name.lower().startswith(OURS):
            raise InvalidRegistration(f"webhook header {name!r:.60}: it is set by us; leave it out")
        if not name.isascii() or not (name + value).isprintable():
            raise InvalidRegistration(f"webhook header {name!r:.60}: a name or a value that no header can have")
    return dict(given)


def _checked_secrets(given: Iterable[str]) -> tuple[str, ...]:
    from standardwebhooks.webhooks import EmptyWebhookSecretError

    secrets = (given,) if isinstance(given, str) else tuple(given)
    for number, secret in enumerate(secrets, start=1):
        try:
            _webhook(secret)
        except (ValueError, EmptyWebhookSecretError):
            raise InvalidRegistration(f"webhook secret {number}: write whsec_ and some base64 after it") from None
    return secrets


class Retryable(HookFailed):
    """A failure that may pass. `after` is the wait in seconds that the service asks for."""

    def __init__(self, problem: str, after: float = 0.0) -> None:
        self.after = after
        super().__init__(problem)


@lru_cache(maxsize=MOST_RESOLVERS)
def _resolver(_tenant: str) -> DaemonPool:
    """Return the threads that resolve one tenant's host names: a lookup that hangs delays no other work or tenant."""
    return DaemonPool(4, "amplifier-hooks-resolver")


async def resolve(host: str, port: int, tenant: str = "") -> list[str]:
    """Resolve a host name in the threads of a tenant, and return its addresses. Raises `OSError` if it has none."""
    found = await _resolver(tenant).run(socket.getaddrinfo, host, port, 0, socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


@frozen(kw_only=True)
class WebhookHook:
    """A web service as a handler: register it with a timeout, by default `WEBHOOK_TIMEOUT`. Raises `MissingExtra`.

    It follows no redirects, and uses neither proxies nor netrc nor cookies of the environment. A service that failed
    several times in a row for a tenant gets no requests of that tenant for a while. A request that failed for a passing
    reason is repeated under its id, within `retry_within` seconds.
    """

    url: str
    secrets: tuple[str, ...] = field(default=(), converter=_checked_secrets, repr=False)
    headers: Mapping[str, str] = field(factory=dict, converter=_checked_headers, repr=False)
    reach: AllowedUrls = PUBLIC
    method: str = "POST"
    codec: Codec = NATIVE
    retry_within: float = WEBHOOK_TIMEOUT
    verify: ssl.SSLContext | None = field(default=None, repr=False)
    """TLS context with the trusted certificates; None trusts those of the operating system."""
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))
    resolve: Callable[[str, int], Awaitable[list[str]]] | None = None
    """Resolver of host names; None uses the operating system's, in threads of each tenant."""
    parts: SplitResult = field(init=False, repr=False)
    circuit: Circuit = field(init=False, repr=False, default=Factory(lambda self: Circuit(self.clock), takes_self=True))

    def __attrs_pre_init__(self) -> None:
        if not (find_spec("httpx2") and find_spec("standardwebhooks")):
            raise MissingExtra("a hook that is a web service", "http")

    @property
    def origin(self) -> str:
        """Origin of the hook's texts: the URL without its query, which may hold a secret."""
        return f"{self.parts.scheme}://{self.parts.netloc}{self.parts.path}"

    @parts.default
    def _parts(self) -> SplitResult:
        return self.reach.check_url(self.url)

    async def __call__(self, event: str, data: Mapping[str, Any]) -> HookResult:
        """Ask the service about one event.

        Raises `HookUnavailable` while the circuit is open or if the address is not allowed, `InvalidResult` for an
        answer that is malformed or not signed, `HookFailed` for every other failure. Cancelling drops the connection.
        """
        request_id = f"msg_{uuid4().hex}"
        answer = await self.exchange(request_id, self.codec.question(event, data, request_id), _tenant_of(data))
        return self.codec.reply(event, data, answer, request_id)

    async def exchange(self, request_id: str, body: bytes, tenant: str = "") -> bytes:
        """Send a body under an id, for a tenant, and return the body of the answer. Raises as a call does."""
        self.circuit.enter(tenant)
        try:
            answer = await self._ask_with_retries(request_id, body, tenant)
        except (HookError, asyncio.CancelledError):  # cancelled: the service took too long for its caller
            self.circuit.record_failure(tenant)
            raise
        self.circuit.record_success(tenant)
        return answer

    async def _ask_with_retries(self, request_id: str, body: bytes, tenant: str) -> bytes:
        """Send a request, repeat it after failures that may pass, and return the body of the answer."""
        end = self.clock() + self.retry_within
        wait = FIRST_WAIT
        for left in reversed(range(TRIES)):
            try:
                return await self._send_once(request_id, body, tenant)
            except Retryable as failure:
                pause = max(wait, failure.after)
                if not left or self.clock() + pause >= end:
                    raise
            await asyncio.sleep(pause)
            wait *= 4
        raise AssertionError("unreachable")

    async def _send_once(self, request_id: str, body: bytes, tenant: str) -> bytes:
        trusted = await _resolver(tenant).run(_ssl_context)
        import httpx2  # in that thread, the first time

        host, scheme = self.parts.hostname or "", self.parts.scheme
        port = self.parts.port or (443 if scheme == "https" else 80)
        try:
            found = await (partial(resolve, tenant=tenant) if self.resolve is None else self.resolve)(host, port)
        except OSError as error:
            raise Retryable(f"its name cannot be resolved ({type(error).__name__})") from None
        address = self.reach.choose_address(host, scheme, found)
        target = httpx2.URL(self.url).copy_with(host=address, port=port)
        headers = {**self.headers, **self._signed_headers(request_id, body), "host": self.parts.netloc}
        try:
            async with (
                httpx2.AsyncClient(
                    trust_env=False,
                    follow_redirects=False,
                    timeout=None,
                    verify=self.verify or trusted,  # the chain's deadline covers the whole request
                ) as client,
                client.stream(
                    self.method, target, content=body, headers=headers, extensions={"sni_hostname": host}
                ) as response,
            ):
                return await self._read(response, request_id)
        except httpx2.TransportError as error:
            raise Retryable(f"it cannot be reached ({type(error).__name__})") from None
        except httpx2.HTTPError as error:
            raise HookFailed(f"its answer cannot be read ({type(error).__name__})") from None

    async def _read(self, response: httpx2.Response, request_id: str) -> bytes:
        if response.status_code in WORTH_A_RETRY:
            raise Retryable(f"it answered with status {response.status_code}", _retry_after(response.headers))
        if response.status_code != 200:  # noqa: PLR2004  # the only status with an answer
            raise HookFailed(f"it answered with status {response.status_code}; only 200 is an answer")
        if response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
            raise InvalidResult("an answer in a content coding that was not asked for: send it as it is")
        if response.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
            raise InvalidResult(f"an answer that is not called {JSON}: say so in its content type")
        body = b""
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > LARGEST_ANSWER:
                raise InvalidResult(f"an answer of more than {LARGEST_ANSWER:,} bytes: keep it short")
        if self.secrets:
            self._verify_answer(response.headers, body, request_id)
        return body

    def _signed_headers(self, request_id: str, body: bytes) -> dict[str, str]:
        headers = {"content-type": JSON, "accept": JSON, "accept-encoding": "identity", "webhook-id": request_id}
        now = self.now()
        headers["webhook-timestamp"] = str(int(now.timestamp()))
        if self.secrets:
            text = body.decode("utf-8")
            headers["webhook-signature"] = " ".join(
                _webhook(secret).sign(request_id, now, text) for secret in self.secrets
            )
        return headers

    def _verify_answer(self, headers: Mapping[str, str], body: bytes, request_id: str) -> None:
        """Raise `InvalidResult` unless the answer is signed, recent, and belongs to this request."""
        if headers.get("webhook-id") != request_id:
            raise InvalidResult("an answer to another request: return the request's own webhook-id")
        for secret in self.secrets:
            try:
                _webhook(secret).verify(body, dict(headers), json_parse=False)
            except Exception:  # noqa: BLE001, S112  # any failure of the check proves nothing
                continue
            return
        raise InvalidResult("an answer that is not signed with our secret, or not recently: sign it like the request")


def _tenant_of(data: Mapping[str, Any]) -> str:
    tenant = data.get("tenant_id")
    return tenant if isinstance(tenant, str) else ""


def _webhook(secret: str) -> Any:
    from standardwebhooks import Webhook

    return Webhook(secret)


@cache
def _ssl_context() -> ssl.SSLContext:
    """Return a TLS context with the operating system's certificates, read once; import the modules of a request.

    Call it in a thread: the first call takes longer than other hooks may wait.
    """
    import httpx2

    for name in WITH_A_REQUEST:
        with suppress(ImportError):
            import_module(name)
    return httpx2.create_ssl_context(trust_env=False)


def _retry_after(headers: Mapping[str, str]) -> float:
    """Return the seconds that `Retry-After` asks for; a date, which no deadline of ours could meet, is infinity."""
    asked = headers.get("retry-after")
    if asked is None:
        return 0.0
    return float(asked) if asked.isascii() and asked.isdigit() and len(asked) < 10 else float("inf")  # noqa: PLR2004  # digits
