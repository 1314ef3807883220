"""A gateway's service for the page: its files, and a preview of edited arguments."""

from __future__ import annotations

import gzip
from importlib.resources import files
from typing import TYPE_CHECKING

import pytest

from approval_backends.gateway.page_files import TYPES, Assets
from tests.gateways import Caller, asked, gateway, http, served

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from approval_backends.gateway.gateway import Gateway

PAGE = files("approval_backends.web").joinpath("page.js").read_bytes()


@pytest.fixture
async def one() -> AsyncIterator[Gateway]:
    """A gateway."""
    async with gateway() as there:
        yield there


@pytest.mark.rule("WIR-1", "BCK-3")
@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [
        ("", None),
        ("br", None),
        ("gzip, br", "gzip"),
        ("br;q=1.0, GZIP;q=0.8", "gzip"),
        ("deflate\nAccept-Encoding: gzip", "gzip"),
    ],
)
async def test_files_are_packed(one: Gateway, accepted: str, encoding: str | None) -> None:
    """A browser that accepts gzip gets it, any other the plain file; one tag stands for both."""
    lines = f"GET /assets/page.js HTTP/1.1\nHost: 127.0.0.1:{one.port}\nAccept-Encoding: {accepted}\n"
    status, headers, body = await http(one.port, f"{lines}\n")
    assert (status, headers.get("content-encoding"), headers["vary"]) == (200, encoding, "Accept-Encoding")
    assert int(headers["content-length"]) == len(body)
    assert (gzip.decompress(body) if encoding else body) == PAGE
    again = await http(one.port, f"{lines}If-None-Match: {headers['etag']}\nIf-None-Match: x\n\n")
    assert (again[0], again[2]) == (304, b"")


@pytest.mark.rule("WIR-6", "BCK-3")
async def test_preview(one: Gateway) -> None:
    """A preview has the digest of the decision; a refused text comes with the reason."""
    request = asked(arguments={"command": "make", "n": 1})
    await served(one).submit(request)
    async with Caller(one) as mara:
        await mara.attach()
        text = '{"command": "make test", "n": 1}'
        seen = await mara.call("preview", requestId=request.id, digest=request.digest, arguments=text)
        assert [line["kind"] for line in seen["lines"]] == ["del", "add", "same"]
        assert seen["lines"][1]["pieces"] == ['"command": "make', " test", '"']
        for digest, wrong, said in (
            (request.digest, '{"n": 1, "n": 2}', "the key 'n' stands twice"),
            ("another", text, "this is another action"),
        ):
            answer = await mara.ask("_amplifier-hooks/preview", requestId=request.id, digest=digest, arguments=wrong)
            assert answer["error"]["code"] == -32602
            assert said in answer["error"]["message"]
        await mara.decide(request, "allow", arguments=text)
    assert (await served(one).wait(request.id)).digest == seen["digest"]


@pytest.mark.rule("BCK-3", "WIR-1")
async def test_assets(tmp_path: Path) -> None:
    """Files of known types are served as they are, with a tag; anything else is not found."""
    (tmp_path / "deep").mkdir()
    files = {"index.html": "<p>", "page.js": "1", "deep/a.css": "b{}", "secret.py": "x", "deep/noext": "x"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assets = Assets(tmp_path)
    for path in ("/assets/secret.py", "/assets/deep/noext", "/assets/deep", "/assets/", "/assets/../index.html", "/x"):
        assert assets.find(path) is None
    async with gateway(assets=assets) as one:
        host = f"Host: 127.0.0.1:{one.port}"
        for path, name in {"/": "index.html", "/assets/page.js": "page.js", "/assets/deep/a.css": "deep/a.css"}.items():
            status, headers, body = await http(one.port, f"GET {path} HTTP/1.1\n{host}\n\n")
            assert (status, body.decode()) == (200, files[name])
            assert headers["content-type"] == TYPES[f".{name.rpartition('.')[2]}"]
            asking = f"GET {path} HTTP/1.1\n{host}\nIf-None-Match: {headers['etag']}\n\n"
            status, headers, body = await http(one.port, asking)
            assert (status, body, "content-length" in headers) == (304, b"", False)
        with_query = f"GET /?server=evil.example&t=token HTTP/1.1\n{host}\n\n"
        assert (await http(one.port, with_query))[2] == b"<p>"


@pytest.mark.rule("BCK-3", "WIR-1")
async def test_own_page() -> None:
    """The package brings its page, and the page names no file that is missing or on another server."""
    assets = Assets()
    page = assets.find("/")
    assert page is not None
    text = page.content.decode()
    found = [part.split('"')[0] for part in text.split('src="')[1:] + text.split('href="')[1:]]
    assert found
    assert [name for name in found if not name.startswith(("#", "data:")) and assets.find(f"/{name}") is None] == []
