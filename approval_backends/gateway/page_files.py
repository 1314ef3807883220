"""The page and its parts, as files of this package. Nothing comes from another server, and none of it is a secret."""

from __future__ import annotations

import gzip
import hashlib
import re
from importlib.resources import files
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from importlib.resources.abc import Traversable


POLICY: Final = (
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data:",  # the icon that carries the count
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",  # no text becomes markup, not even by mistake
    "trusted-types 'none'",
)
HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": "; ".join(POLICY),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
"""Headers of every response, refusals included."""

TYPES: Final[Mapping[str, str]] = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
}
"""The types of files that are served; a file of another type is not found."""

PREFIX: Final = "/assets/"
NAME: Final = re.compile(r"[\w-][\w.-]*(?:/[\w-][\w.-]*)*\Z", re.ASCII)


@frozen
class Asset:
    """One file, ready to be sent."""

    content: bytes
    packed: bytes
    kind: str
    tag: str

    def content_for(self, accepted: str) -> tuple[bytes, dict[str, str]]:
        """Return the bytes for a browser that accepts these encodings, and the headers that go with them.

        A listener in between learns the length, and nothing from that: the files are no secret.
        """
        headers = {"Content-Type": self.kind, "ETag": self.tag, "Vary": "Accept-Encoding"}
        if "gzip" in (offer.partition(";")[0].strip().lower() for offer in accepted.split(",")):
            return self.packed, headers | {"Content-Encoding": "gzip"}
        return self.content, headers


@frozen
class PageResponse:
    """A response, for any server. Its headers are complete but for those of the connection."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def text_response(status: int, text: str, headers: Mapping[str, str] | None = None) -> PageResponse:
    """Return a response with one sentence for people."""
    body = f"{text}\n".encode()
    found = {"Content-Type": "text/plain; charset=utf-8", **HEADERS, "Content-Length": str(len(body))}
    return PageResponse(status, {**found, **(headers or {})}, body)


BY_TOKEN: Final = b'<meta name="sign-in" content="token">'
BY_HOST: Final = b'<meta name="sign-in" content="host">'
"""The line of the page that tells its scripts that the application around it signs approvers in."""


class Assets:
    """The files of a folder, each read once. With `by_host` the page expects no token."""

    def __init__(self, folder: Traversable | None = None, *, by_host: bool = False) -> None:
        self._folder = folder if folder is not None else files("approval_backends").joinpath("web")
        self._by_host = by_host
        self._assets: dict[str, Asset] = {}

    def respond(self, method: str, path: str, tags: Sequence[str], accepted: Sequence[str]) -> PageResponse:
        """Return the response to a GET or HEAD of this path. `tags` and `accepted` are headers as they were sent."""
        if method not in ("GET", "HEAD"):
            return text_response(405, "Only GET.")
        asset = self.find(path)
        if asset is None:
            return text_response(404, "There is nothing here.")
        body, headers = asset.content_for(",".join(accepted))
        if asset.tag in tags:
            return PageResponse(304, {**HEADERS, **headers}, b"")
        headers = {**HEADERS, **headers, "Content-Length": str(len(body))}
        return PageResponse(200, headers, b"" if method == "HEAD" else body)

    def find(self, path: str) -> Asset | None:
        """Return the file at this path; None if there is none."""
        name = "index.html" if path == "/" else path.removeprefix(PREFIX)
        if path != "/" and (not path.startswith(PREFIX) or not NAME.match(name)):
            return None
        if name not in self._assets:
            kind = TYPES.get(PurePosixPath(name).suffix)
            file = self._folder.joinpath(*name.split("/"))
            if kind is None or not file.is_file():
                return None
            content = file.read_bytes()
            if self._by_host:
                content = content.replace(BY_TOKEN, BY_HOST)
            tag = f'W/"{hashlib.sha256(content).hexdigest()[:32]}"'  # weak: it stands for both encodings
            self._assets[name] = Asset(content, gzip.compress(content, mtime=0), kind, tag)
        return self._assets[name]
