"""Host and Origin, compared with the addresses of a server."""

from __future__ import annotations

import pytest

from amplifier_hooks.text.host_names import local_names, turned_away

NAMES = local_names(8438) | {"hooks.example"}
HERE = "127.0.0.1:8438"


@pytest.mark.rule("API-9", "BCK-4")
@pytest.mark.fault("F-API-14", "F-WS-01", "F-WS-02")
@pytest.mark.parametrize(
    ("hosts", "origins", "refused"),
    [
        ([HERE], [], None),
        (["LocalHost:8438"], ["HTTP://localhost:8438"], None),
        (["[::1]:8438"], [], None),
        (["hooks.example"], ["https://hooks.example"], None),
        ([HERE], ["https://hooks.example"], None),
        ([], [], "host"),
        ([""], [], "host"),
        ([HERE, HERE], [], "host"),
        ([HERE, "evil.example"], [], "host"),
        (["127.0.0.1"], [], "host"),
        (["127.0.0.1:80"], [], "host"),
        (["hooks.example:8438"], [], "host"),
        (["evil.example:8438"], ["http://evil.example:8438"], "host"),
        ([HERE], ["null"], "origin"),
        ([HERE], [""], "origin"),
        ([HERE], ["http://127.0.0.1"], "origin"),
        ([HERE], ["http://127.0.0.1:8439"], "origin"),
        ([HERE], ["ftp://127.0.0.1:8438"], "origin"),
        ([HERE], ["http://127.0.0.1:8438", "https://evil.example"], "origin"),
        ([HERE], ["https://evil.example", "http://127.0.0.1:8438"], "origin"),
    ],
)
def test_turned_away(hosts: list[str], origins: list[str], refused: str | None) -> None:
    """A Host is a name of the server with its port, an Origin is a page of such a name, and neither occurs twice."""
    assert turned_away(NAMES, hosts, origins) == refused


@pytest.mark.rule("API-9", "BCK-4")
def test_local_names() -> None:
    """The port follows a name, except that of HTTP, where it may, and at a Unix socket, which has none."""
    assert local_names(8438, "127.0.0.2") == {HERE, "localhost:8438", "[::1]:8438", "127.0.0.2:8438"}
    assert local_names(80) == {*local_names(None), "127.0.0.1:80", "localhost:80", "[::1]:80"}
    assert local_names(None) == {"127.0.0.1", "localhost", "[::1]"}
