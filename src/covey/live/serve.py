"""Serving the live page: until Ctrl-C, or beside something else."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import uvicorn

from covey.errors import RunError, UserError


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
