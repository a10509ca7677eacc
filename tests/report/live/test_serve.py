"""Connections to the live page that only hold a place: they are closed, and others are answered meanwhile."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("uvicorn")
from covey.report.live import serve
from covey.report.live.serve import in_background

HALF = b"GET /quick HTTP/1.1\r\nhost: x"
WHOLE = HALF + b"\r\n\r\n"


class App:
    """Answers /quick at once, and /slow when it may."""

    def __init__(self) -> None:
        self.may, self.begun = threading.Event(), threading.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        while scope["path"] == "/slow" and not self.may.is_set():
            self.begun.set()
            await asyncio.sleep(0.01)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
        await send({"type": "http.response.body", "body": b"done"})


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> App:
    monkeypatch.setattr(serve, "HEAD_SECONDS", 0.2)
    monkeypatch.setattr(serve, "PER_ADDRESS", 8)
    return App()


@pytest.fixture
def port(app: App) -> Iterator[int]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number = int(probe.getsockname()[1])
    with in_background(app, number, "the test's port"):
        yield number


def connection(port: int, said: bytes = b"") -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port), timeout=600)
    made.sendall(said)
    return made


def answer(made: socket.socket) -> bytes:
    """All that comes until the other side closes; waits for ever where it does not."""
    found = b""
    with contextlib.suppress(ConnectionResetError):  # closed before all was read
        while piece := made.recv(1000):
            found += piece
    return found


def answered(port: int, said: bytes) -> bytes:
    """What is answered to a request; a machine that was too busy to send it within the limit sends it again."""
    while not (found := answer(connection(port, said))):
        pass
    return found


@pytest.mark.parametrize("said", [b"", HALF], ids=["nothing", "half a head"])
def test_who_asks_nothing_is_closed(port: int, said: bytes) -> None:
    assert answer(connection(port, said)) == b""


def test_who_begins_a_second_request_and_does_not_end_it_is_closed(port: int) -> None:
    assert answered(port, WHOLE + HALF).count(b"done") == 1


def test_an_answer_that_takes_long_is_waited_for(port: int, app: App) -> None:
    slow = [connection(port, WHOLE.replace(b"quick", b"slow"))]
    while not app.begun.wait(1.0):  # too busy to send it within the limit
        slow.append(connection(port, WHOLE.replace(b"quick", b"slow")))
    assert answer(connection(port)) == b""  # one limit later
    assert answer(connection(port)) == b""  # and another
    app.may.set()
    assert any(answer(one).endswith(b"done") for one in slow)


def test_one_address_has_so_many_connections_and_no_more(port: int) -> None:
    held = [connection(port, HALF) for _ in range(50)]
    assert [answer(one) for one in held] == [b""] * 50
    assert answered(port, WHOLE).endswith(b"done")
