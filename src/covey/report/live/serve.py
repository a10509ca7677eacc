"""Serving the live page: until Ctrl-C, or beside something else."""

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from covey.errors import RunError, UserError

HEAD_SECONDS = 10.0  # for the next request of a connection, once it is open or has had its answer
PER_ADDRESS = 64  # connections of one address


class Hurried(H11Protocol):  # type: ignore[misc]
    """HTTP with time limits: a client that begins a request and does not end it would hold its connection for ever."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self.seen: Any = None  # the last request at the last look
        self.next_look = self.loop.call_later(HEAD_SECONDS, self.look)
        host = self.client[0] if self.client else ""
        if sum(1 for other in self.connections if (other.client or ("",))[0] == host) > PER_ADDRESS:
            transport.close()

    def look(self) -> None:
        """Closes the connection where no request came since the last look, and none is being answered."""
        answering = self.cycle is not None and not self.cycle.response_complete
        if self.cycle is self.seen and not answering:
            self.transport.close()
            return
        self.seen = self.cycle
        self.next_look = self.loop.call_later(HEAD_SECONDS, self.look)

    def connection_lost(self, exc: Exception | None) -> None:
        self.next_look.cancel()
        super().connection_lost(exc)


def listening(host: str, port: int, what: str) -> socket.socket:
    """The port, taken now, so that a mistake is said before anything runs."""
    place = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        place.bind((host, port))
    except OSError as error:
        place.close()
        raise UserError(f"{what} cannot be used: {error.strerror or error}") from error
    return place


def server_of(app: Any, **settings: Any) -> uvicorn.Server:
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http=Hurried,
            log_level="error",
            access_log=False,
            timeout_graceful_shutdown=1,
            server_header=False,
            ws="none",
            **settings,
        )
    )


@contextlib.contextmanager
def in_background(app: Any, port: int, what: str, host: str = "127.0.0.1", **settings: Any) -> Iterator[None]:
    """Serves for the time of the context."""
    place = listening(host, port, what)
    server = server_of(app, **settings)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [place]}, daemon=True)
    thread.start()
    until = time.monotonic() + 30
    while not server.started and thread.is_alive() and time.monotonic() < until:
        time.sleep(0.02)
    if not server.started:
        raise RunError(f"{what}: the page could not be served")
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(timeout=10)
        place.close()
