"""Hooks that are web services, with real servers on this machine."""

import asyncio
import contextlib
import gzip
import json
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from attrs import define, evolve, field
from standardwebhooks import Webhook

from amplifier_hooks import HookRegistry, SessionCoordinator
from amplifier_hooks.definitions.kinds.webhook import MOST_TENANTS, PUBLIC, AllowedUrls, Circuit, WebhookHook, resolve
from amplifier_hooks.errors import EndpointForbidden, HookFailed, HookUnavailable, InvalidRegistration, InvalidResult
from amplifier_hooks.result import HookResult, Outcome
from amplifier_hooks.testing import RecordingContext

CALL: dict[str, Any] = {"session_id": "s", "tool_name": "Write", "tool_call_id": "c", "tool_input": {"path": "a"}}
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OLD_SECRET = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"


@define
class Request:
    """A request that the service received."""

    line: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """Its body."""
        return json.loads(self.body)


@define
class Service:
    """A service that answers what its script says, and keeps what it was sent."""

    port: int
    seen: list[Request] = field(factory=list)

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}/hook"

    def hook(self, **options: Any) -> WebhookHook:
        """It as a hook, for an operator who allows this machine."""
        reach = AllowedUrls(networks=("127.0.0.0/8",), ports={self.port}, http=True)
        return WebhookHook(**{"url": self.url, "reach": reach, **options})


Script = Callable[[Request, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def serving(script: Script, tls: ssl.SSLContext | None = None) -> AsyncIterator[Service]:
    """A service on loopback."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            request = Request(head[0], headers, body)
            service.seen.append(request)
            await script(request, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls)
    service = Service(server.sockets[0].getsockname()[1])
    try:
        yield service
    finally:
        server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def saying(body: Any, *, status: str = "200 OK", kind: str = "application/json", headers: str = "") -> Script:
    """A script of one fixed answer; an object gets the id of the request, unless it has one."""

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        said = {"id": request.headers["webhook-id"], **body} if isinstance(body, dict) else body
        data = said if isinstance(said, bytes) else json.dumps(said).encode()
        writer.write(
            f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(data)}\r\n{headers}\r\n".encode()
        )
        writer.write(data)
        await writer.drain()

    return answer


CONTINUE: Any = {"action": "continue"}


async def gated(hook: WebhookHook, timeout: float = 60.0) -> Outcome:
    """Return the outcome of a tool call with this hook as its gate."""
    registry = HookRegistry()
    registry.gate("tool:pre", name="remote", timeout=timeout)(hook)
    return await registry.emit("tool:pre", CALL)


# -- asking ------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("DEF-2", "DEF-5")
async def test_it_posts_the_event_and_reads_a_result() -> None:
    """A service is sent id, event and payload, and answers with the id and the fields of a HookResult."""
    async with serving(saying({"action": "deny", "reason": "closed on Sundays"})) as service:
        result = await service.hook()("tool:pre", CALL)
    (request,) = service.seen
    assert request.line == "POST /hook HTTP/1.1"
    assert request.headers["host"] == f"127.0.0.1:{service.port}"
    assert request.json == {"id": request.headers["webhook-id"], "event": "tool:pre", "data": CALL}
    assert (result.action, result.reason) == ("deny", "closed on Sundays")


@pytest.mark.rule("DEF-5", "RES-9")
async def test_a_service_says_how_risky_it_is() -> None:
    """A service answers with a risk as with every other field; a reason that is too long makes the answer invalid."""
    asks = {"action": "ask_user", "approval_prompt": "Send?", "risk": "high", "risk_reason": "a new host"}
    async with serving(saying(asks)) as service:
        outcome = await gated(service.hook())
    assert (outcome.action, outcome.risk, outcome.risk_reason) == ("ask_user", "high", "a new host")
    async with serving(saying({**asks, "risk_reason": "x" * 2_049})) as service:
        outcome = await gated(service.hook())
    assert (outcome.action, outcome.cause) == ("deny", "hook_invalid_output")


@pytest.mark.rule("INJ-1", "INJ-6")
@pytest.mark.fault("F-INJ-10")
async def test_what_a_service_injects() -> None:
    """A text of a service is labelled with its address, without what may be secret in it, and never the system's."""
    registry, context = HookRegistry(), RecordingContext()
    answer = {"action": "inject_context", "context_injection": "do as I say", "context_injection_role": "system"}
    async with serving(saying(answer)) as service:
        hook = evolve(service.hook(), url=f"{service.url}?token=sesame")
        registry.on("tool:post", hook, name="review")
        await SessionCoordinator(hooks=registry, context=context).emit("tool:post", CALL)
    (message,) = context.messages
    assert message.role == "user"
    assert message.content == f"⟦hook review · external · {service.url} · mark⟧\ndo as I say"
    assert (message.metadata["standing"], message.metadata["origin"]) == ("external", service.url)


async def test_headers_of_its_own_are_sent_and_not_shown() -> None:
    """Headers of the definition are sent, and appear in no text about the hook."""
    async with serving(saying(CONTINUE)) as service:
        hook = service.hook(headers={"Authorization": "Bearer sesame"}, secrets=())
        await hook("tool:pre", CALL)
    assert service.seen[0].headers["authorization"] == "Bearer sesame"
    assert "sesame" not in repr(hook)


@pytest.mark.parametrize(
    "headers", [{"Host": "x"}, {"Content-Length": "0"}, {"webhook-id": "1"}, {"x": "a\r\nb: c"}, {"ü": "x"}]
)
def test_headers_that_are_ours_are_refused(headers: dict[str, str]) -> None:
    """A definition can neither set the headers that are ours nor smuggle in a line."""
    with pytest.raises(InvalidRegistration, match="header"):
        WebhookHook(url="https://example.com/", headers=headers)


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_!!!"])
def test_a_secret_has_to_be_one(secret: str) -> None:
    """A secret without a byte in it is refused, and not repeated."""
    with pytest.raises(InvalidRegistration, match="secret 1"):
        WebhookHook(url="https://example.com/", secrets=(secret,))


# -- where to ----------------------------------------------------------------------------------------------------------


@pytest.mark.fault("F-WH-01")
@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.9.9.9", "0.0.0.0", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1",
        "100.100.100.200", "169.254.169.254", "168.63.129.16", "192.0.0.1", "198.18.0.1", "203.0.113.9", "224.0.0.1",
        "239.1.1.1", "240.0.0.1", "255.255.255.255", "::", "::1", "::ffff:8.8.8.8", "::ffff:127.0.0.1", "::8.8.8.8",
        "64:ff9b::808:808", "64:ff9b:1::1", "100::1", "2001::1", "2001:db8::1", "2002:7f00:1::", "fc00::1",
        "fd00:ec2::254", "fe80::1%lo", "fec0::1", "ff02::1", "3fff::1", "5f00::1",
    ],
)  # fmt: skip
async def test_only_public_addresses_are_reached(address: str) -> None:
    """A name that stands for an address that is not plainly public, alone or among others, is sent nothing."""
    for found in ([address], ["8.8.8.8", address]):

        async def resolve(host: str, port: int, found: list[str] = found) -> list[str]:
            return found

        hook = WebhookHook(url="https://hooks.example/x", resolve=resolve)
        with pytest.raises(EndpointForbidden, match="endpoint_forbidden"):
            await hook("tool:pre", CALL)
        assert (await gated(hook)).cause == "hook_unavailable"


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "172.32.0.1", "2606:4700::1111", "2a00:1450::1"])
def test_public_addresses_are(address: str) -> None:
    """Public addresses are reached by https, and plain http only goes where the operator said."""
    assert PUBLIC.choose_address("hooks.example", "https", [address]) == address
    with pytest.raises(EndpointForbidden):
        AllowedUrls(http=True, networks=("10.0.0.0/8",)).choose_address("hooks.example", "http", [address])


@pytest.mark.fault("F-WH-11")
@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/", "ftp://example.com/", "file:///etc/passwd", "https://", "https:///x", "//example.com/",
        "https://user:pass@example.com/", "https://user@example.com/", "https://@example.com/", "https://example.com/#x",
        "https://example.com/#", "https://exa mple.com/", "https://example.com/\tx", "https://example.com\\@evil.com/",
        "https://example.com:22/", "https://example.com:99999/", "https://example.com:x/", "https://exämple.com/",
        "https://example.com/" + "x" * 8192, "", "https://[::1/",
    ],
)  # fmt: skip
def test_odd_urls_are_refused(url: str) -> None:
    """A URL that is not plain https to an allowed port is refused when the hook is made."""
    with pytest.raises(InvalidRegistration, match="webhook URL"):
        WebhookHook(url=url)


async def test_a_name_that_stands_for_nothing_is_not_reached() -> None:
    """A name that stands for no address is forbidden, and one that cannot be resolved has failed."""

    async def nothing(host: str, port: int) -> list[str]:
        return []

    async def lost(host: str, port: int) -> list[str]:
        raise OSError("no such name")

    with pytest.raises(EndpointForbidden):
        await WebhookHook(url="https://hooks.example/", resolve=nothing)("tool:pre", CALL)
    with pytest.raises(HookFailed, match="resolved"):
        await WebhookHook(url="https://hooks.example/", resolve=lost, retry_within=0)("tool:pre", CALL)


@pytest.mark.fault("F-WH-02")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_not_followed(status: int) -> None:
    """A redirect is a failure, wherever it points, and nothing is sent there."""
    async with serving(saying(CONTINUE)) as inside:
        script = saying(CONTINUE, status=f"{status} Elsewhere", headers=f"location: {inside.url}\r\n")
        async with serving(script) as service:
            outcome = await gated(service.hook())
    assert (outcome.cause, len(service.seen), len(inside.seen)) == ("hook_error", 1, 0)


# -- what goes wrong ---------------------------------------------------------------------------------------------------


async def cut(request: Request, writer: asyncio.StreamWriter) -> None:
    """Closes without an answer."""


async def garbage(request: Request, writer: asyncio.StreamWriter) -> None:
    """Speaks no HTTP."""
    writer.write(b"\x16\x03\x01 hello\r\n\r\n")


async def torn(request: Request, writer: asyncio.StreamWriter) -> None:
    """Promises more than it sends."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 900\r\n\r\n{")


@pytest.mark.fault("F-WH-03")
@pytest.mark.parametrize("script", [cut, garbage, torn])
async def test_a_broken_connection_is_a_failure(script: Script) -> None:
    """A connection that ends, or carries something else than HTTP, is the hook's failure, told without its headers."""
    async with serving(script) as service:
        outcome = await gated(service.hook(headers={"Authorization": "sesame"}, retry_within=0))
    assert (outcome.action, outcome.cause) == ("deny", "hook_error")
    assert "sesame" not in (outcome.answers[0].error or "")


@pytest.mark.fault("F-WH-03")
async def test_nobody_there_is_a_failure() -> None:
    """A refused connection is the hook's failure."""
    async with serving(cut) as service:
        hook = service.hook(retry_within=0)
    assert (await gated(hook)).cause == "hook_error"


@pytest.mark.fault("F-WH-03")
@pytest.mark.parametrize(
    ("name", "trusted"), [("hooks.example", True), ("other.example", True), ("hooks.example", False)]
)
async def test_a_certificate_has_to_be_for_the_name(name: str, trusted: bool, tmp_path: Path) -> None:
    """Over TLS the certificate has to be trusted, in force and for the name, though the connection is to an address."""
    certificate, key = make_certificate(tmp_path, name)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(certificate, key)
    trust = ssl.create_default_context(cafile=str(certificate) if trusted else None)

    async def here(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    async with serving(saying(CONTINUE), server) as service:
        reach = AllowedUrls(networks=("127.0.0.0/8",), ports={service.port})
        url = f"https://hooks.example:{service.port}/hook"
        hook = WebhookHook(url=url, reach=reach, verify=trust, resolve=here, retry_within=0)
        outcome = await gated(hook)
    good = name == "hooks.example" and trusted
    assert outcome.cause == (None if good else "hook_error")
    assert len(service.seen) == good
    assert not good or service.seen[0].headers["host"] == f"hooks.example:{service.port}"


@pytest.mark.fault("F-WH-03")
async def test_an_expired_certificate_is_refused(tmp_path: Path) -> None:
    """A certificate that is not in force any more is refused."""
    certificate, key = make_certificate(tmp_path, "hooks.example", days=-1)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(certificate, key)

    async def here(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    async with serving(saying(CONTINUE), server) as service:
        reach = AllowedUrls(networks=("127.0.0.0/8",), ports={service.port})
        url = f"https://hooks.example:{service.port}/hook"
        trust = ssl.create_default_context(cafile=str(certificate))
        hook = WebhookHook(url=url, reach=reach, verify=trust, resolve=here, retry_within=0)
        assert (await gated(hook)).cause == "hook_error"


def make_certificate(folder: Path, name: str, days: int = 1) -> tuple[Path, Path]:
    """A certificate for this name that vouches for itself, and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=2))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    paths = folder / "certificate.pem", folder / "key.pem"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return paths


@pytest.mark.fault("F-WH-04")
@pytest.mark.parametrize(
    "start", [b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n", b"HTTP/1.1 200 OK\r\nx: "]
)
async def test_a_dripping_answer_ends_with_the_time(start: bytes) -> None:
    """An answer that comes byte by byte, in its head or its body, is over when the time is."""

    async def drip(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n" + start)
        while True:
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.02)

    async with serving(drip) as service:
        async with asyncio.timeout(60):
            outcome = await gated(service.hook(), timeout=0.3)
    assert (outcome.action, outcome.cause) == ("deny", "hook_timeout")


@pytest.mark.fault("F-WH-05")
@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd", "gzip, identity"])
async def test_a_content_coding_is_refused(coding: str) -> None:
    """An answer in a content coding, which the request did not ask for, is refused unread."""
    bomb = gzip.compress(b"0" * 10_000_000)
    async with serving(saying(bomb, headers=f"content-encoding: {coding}\r\n")) as service:
        outcome = await gated(service.hook())
    assert service.seen[0].headers["accept-encoding"] == "identity"
    assert outcome.cause == "hook_invalid_output"


@pytest.mark.fault("F-WH-05")
async def test_an_endless_answer_is_cut_off() -> None:
    """An answer that does not end is not read past the limit."""
    sent = count()

    async def pour(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")
        while next(sent) < 100_000:
            writer.write(b"400\r\n" + b" " * 1024 + b"\r\n")
            await writer.drain()

    async with serving(pour) as service:
        assert (await gated(service.hook())).cause == "hook_invalid_output"
    assert next(sent) < 20_000


@pytest.mark.fault("F-WH-06")
@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "application/json"),
        (b"<p>ok</p>", "text/html"),
        (b'{"action": "continue"}', "text/plain"),
        ([CONTINUE], "application/json"),
        ({"action": "allow"}, "application/json"),
        ({}, "application/json"),
        (b'{"action": "deny", "action": "continue"}', "application/json"),
        (b'{"action": "continue", "id": "x"} ', "application/json"),
        (b"null", "application/json"),
    ],
)
async def test_only_the_documented_form_is_an_answer(body: Any, kind: str) -> None:
    """An answer that is empty, of another type, an array, with an unknown or a double action or no id is invalid."""
    async with serving(saying(body, kind=kind)) as service:
        outcome = await gated(service.hook())
    assert (outcome.action, outcome.cause) == ("deny", "hook_invalid_output")


@pytest.mark.fault("F-WH-07")
@pytest.mark.parametrize(("status", "asked"), [(204, 1), (400, 1), (401, 1), (404, 1), (500, 3), (503, 3), (429, 3)])
async def test_other_statuses_are_failures(status: int, asked: int) -> None:
    """Every status but 200 is a failure; what may pass is tried again under the same id."""
    async with serving(saying(b"", status=f"{status} X")) as service:
        outcome = await gated(service.hook())
    assert (outcome.action, outcome.cause) == ("deny", "hook_error")
    assert len(service.seen) == asked
    assert len({(request.headers["webhook-id"], request.body) for request in service.seen}) == 1


@pytest.mark.fault("F-WH-07")
@pytest.mark.parametrize("after", ["86400", "Fri, 01 Jan 2100 00:00:00 GMT", "9" * 400])
async def test_a_long_pause_is_not_waited_for(after: str) -> None:
    """A service that asks to be left alone for longer than there is time is not tried again."""
    async with serving(saying(b"", status="429 Busy", headers=f"retry-after: {after}\r\n")) as service:
        assert (await gated(service.hook())).cause == "hook_error"
    assert len(service.seen) == 1


async def test_a_second_try_may_work() -> None:
    """A service that fails once and then answers has answered."""
    answers = iter([saying(b"", status="503 Busy"), saying({"action": "deny"})])

    async def script(request: Request, writer: asyncio.StreamWriter) -> None:
        await next(answers)(request, writer)

    async with serving(script) as service:
        assert (await service.hook()("tool:pre", CALL)).action == "deny"


@pytest.mark.fault("F-WH-08")
async def test_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Proxies and netrc of the environment are not used, and a cookie that was set does not come back."""
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password sesame\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    async with serving(saying(CONTINUE)) as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        async with serving(saying(CONTINUE, headers="set-cookie: a=b\r\n")) as service:
            hook = service.hook()
            await hook("tool:pre", CALL)
            await hook("tool:pre", CALL)
    assert proxy.seen == []
    assert not any({"authorization", "cookie"} & request.headers.keys() for request in service.seen)


# -- signatures --------------------------------------------------------------------------------------------------------


def signed(secret: str, *, request_id: str | None = None, age: float = 0.0, body: Any = CONTINUE) -> Script:
    """A script that signs its answer."""

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        name = request_id or request.headers["webhook-id"]
        data = json.dumps({"id": request.headers["webhook-id"], **body})
        when = datetime.now(UTC) - timedelta(seconds=age)
        signature = Webhook(secret).sign(name, when, data)
        headers = (
            f"webhook-id: {name}\r\nwebhook-timestamp: {int(when.timestamp())}\r\nwebhook-signature: {signature}\r\n"
        )
        await saying(data.encode(), headers=headers)(request, writer)

    return answer


@pytest.mark.fault("F-WH-09")
async def test_requests_are_signed_with_every_secret() -> None:
    """The raw body is signed with id and time, with both secrets while one replaces the other, and either answers."""
    for answering in (SECRET, OLD_SECRET):
        async with serving(signed(answering)) as service:
            await service.hook(secrets=(SECRET, OLD_SECRET))("tool:pre", CALL)
        (request,) = service.seen
        for secret in (SECRET, OLD_SECRET):
            assert Webhook(secret).verify(request.body, request.headers)["event"] == "tool:pre"


@pytest.mark.fault("F-WH-10")
@pytest.mark.parametrize(
    "script",
    [
        saying(CONTINUE),
        signed(OLD_SECRET),
        signed(SECRET, request_id="msg_another"),
        signed(SECRET, age=3600),
        signed(SECRET, age=-3600),
        signed(SECRET, body={"id": "msg_another"}),
        saying(CONTINUE, headers="webhook-id: x\r\nwebhook-signature: v1\r\nwebhook-timestamp: x\r\n"),
    ],
    ids=["unsigned", "another secret", "another request", "old", "from the future", "another id", "nonsense"],
)
async def test_an_answer_that_proves_nothing_is_invalid(script: Script) -> None:
    """With a secret, only a recent answer to this very request, signed with that secret, is an answer."""
    async with serving(script) as service:
        with pytest.raises(InvalidResult):
            await service.hook(secrets=(SECRET,))("tool:pre", CALL)


# -- a service that is down --------------------------------------------------------------------------------------------


@pytest.mark.fault("F-WH-12")
async def test_a_service_that_is_down_is_left_alone() -> None:
    """After five failures a service is not asked, except once when it has cooled, and other services are."""
    now = [0.0]
    async with serving(saying(b"", status="404 Gone")) as service, serving(saying({"action": "deny"})) as other:
        hook = service.hook(clock=lambda: now[0])
        for _ in range(1_000):
            assert (await gated(hook)).denied
        assert len(service.seen) == 5
        assert (await other.hook()("tool:pre", CALL)).action == "deny"
        now[0] = 31.0
        results = await asyncio.gather(*(hook("tool:pre", CALL) for _ in range(20)), return_exceptions=True)
        assert len(service.seen) == 6
        assert sum(isinstance(result, HookUnavailable) for result in results) == 19


@pytest.mark.fault("F-WH-12")
@pytest.mark.rule("TEN-1", "DEF-5")
async def test_one_tenants_failures_leave_a_service_to_the_others() -> None:
    """A service that one tenant's payloads made fail is left alone for that tenant, and asked for the others."""

    async def script(request: Request, writer: asyncio.StreamWriter) -> None:
        bad = request.json["data"]["tenant_id"] == "acme"
        await (saying(b"", status="404 Gone") if bad else saying({"action": "deny"}))(request, writer)

    async with serving(script) as service:
        hook = service.hook(clock=lambda: 0.0)
        for _ in range(5):
            with pytest.raises(HookFailed):
                await hook("tool:pre", {**CALL, "tenant_id": "acme"})
        with pytest.raises(HookUnavailable, match="failed 5 times"):
            await hook("tool:pre", {**CALL, "tenant_id": "acme"})
        assert (await hook("tool:pre", {**CALL, "tenant_id": "globex"})).action == "deny"
        with pytest.raises(HookUnavailable):
            await hook("tool:pre", {**CALL, "tenant_id": "acme"})


@pytest.mark.rule("TEN-1", "DEF-5")
async def test_a_name_that_hangs_holds_up_its_tenant_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """While lookups of one tenant hang, lookups of others go on: each tenant has resolver threads of its own."""
    release = threading.Event()

    def look_up(host: str, port: int, *_: object) -> list[object]:  # replaces the resolver of the operating system
        if host == "hangs.example":
            release.wait(10)
        return [(0, 0, 0, "", ("192.0.2.1", port))]

    monkeypatch.setattr("amplifier_hooks.definitions.kinds.webhook.socket.getaddrinfo", look_up)
    hanging = [asyncio.create_task(resolve("hangs.example", 443, "acme")) for _ in range(20)]
    try:
        assert await asyncio.wait_for(resolve("quick.example", 443, "globex"), 60) == ["192.0.2.1"]
        assert not any(task.done() for task in hanging)
    finally:
        release.set()
        await asyncio.gather(*hanging)


@pytest.mark.rule("TEN-1")
def test_failures_of_many_tenants_do_not_fill_the_memory() -> None:
    """However many tenants have failures, so many are remembered, and the last ones among them."""
    circuit = Circuit(lambda: 0.0)
    for number in range(3_000):
        for _ in range(5):
            circuit.record_failure(f"tenant{number}")
    with pytest.raises(HookUnavailable):
        circuit.enter("tenant2999")
    circuit.enter("tenant0")
    assert len(circuit) == MOST_TENANTS


async def test_a_service_that_comes_back_is_asked_again() -> None:
    """One answer closes the circuit."""
    now = [0.0]
    answers = iter([*[saying(b"", status="404 Gone")] * 5, *[saying({"action": "deny"})] * 3])

    async def script(request: Request, writer: asyncio.StreamWriter) -> None:
        await next(answers)(request, writer)

    async with serving(script) as service:
        hook = service.hook(clock=lambda: now[0])
        for _ in range(5):
            with pytest.raises(HookFailed):
                await hook("tool:pre", CALL)
        now[0] = 30.0
        results: list[HookResult] = [await hook("tool:pre", CALL) for _ in range(3)]
        assert [result.action for result in results] == ["deny"] * 3
