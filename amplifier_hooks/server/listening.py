"""Listening: a Unix socket that only its owner can use, and a port of this machine for those who bear a token."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Final

import uvicorn

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from fastapi import FastAPI

__all__ = ["bound", "listening", "loopback"]


BACKLOG: Final = 256


class Server(uvicorn.Server):
    """One that leaves signals to whoever runs it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Nothing is captured."""
        yield


@asynccontextmanager
async def listening(app: FastAPI, listener: socket.socket) -> AsyncIterator[None]:
    """Serve at this socket, for as long as the block lasts; it is closed then."""
    server = Server(uvicorn.Config(app, log_level="warning", lifespan="off", access_log=False))
    task = asyncio.create_task(server.serve([listener]))
    try:
        yield
    finally:
        server.should_exit = True
        await task
        listener.close()


def loopback(port: int) -> socket.socket:
    """A port of this machine. Raises `OSError` when it is taken."""
    listener = socket.socket()
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # small answers would wait
        listener.bind(("127.0.0.1", port))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def answers(path: Path) -> bool:
    """Whether somebody listens there."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(os.fspath(path))
        except OSError:
            return False
    return True


def bound(path: Path) -> socket.socket:
    """A socket in a folder that is its owner's alone.

    One that a server left behind when it was killed is replaced; one that answers is not. Raises `OSError`.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = path.parent.stat()
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise PermissionError(f"others can put files into {path.parent}; name a socket in a folder of your own")
    if answers(path):
        raise FileExistsError(f"another server answers at {path}")
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    try:
        before = os.umask(0o177)
        try:
            listener.bind(os.fspath(path))
            listener.listen(BACKLOG)  # whoever asks from here on is kept waiting, and not turned away
        finally:
            os.umask(before)
    except OSError:
        listener.close()
        raise
    return listener
