"""The limits of one gateway, with their defaults."""

from __future__ import annotations

from attrs import frozen


@frozen(kw_only=True)
class GatewayLimits:
    """Counts, and times in seconds.

    `strangers` unauthenticated clients may be connected; of more, the oldest has to go, so that no client can keep the
    others out by coming first. `queued` messages, or so many bytes of them, may wait for a slow client. The rate limit
    of a client is `rate` messages a second, and `at_once` of them after a pause.
    """

    clients: int = 32
    strangers: int = 64
    authenticate_within: float = 5.0
    lifetime: float = 12 * 3_600.0
    queued: int = 256
    queued_bytes: int = 1024 * 1024
    rate: float = 50.0
    at_once: int = 100
    ping_every: float = 20.0
    stop_within: float = 2.0
