"""A malicious server at a site's connection: detours, packed and endless replies."""

import contextlib
import gzip
import http.server
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("flwr")
import httpx
from flwr.proto.fleet_pb2 import PullMessagesRequest
from flwr.supernode.fleet_http_client import FleetHttpClient

from covey.deploy.pieces import bound_replies

MOST = 2**20


@contextlib.contextmanager
def server(answer: Callable[[Any], None]) -> Iterator[tuple[str, list[str]]]:
    """A web server that answers as it likes; its address, and who was asked for what."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.path)
            with contextlib.suppress(OSError):  # the site has had enough
                answer(self)

        def do_GET(self) -> None:
            self.do_POST()

        def log_message(self, *_: Any) -> None:
            pass

    there = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=there.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{there.server_port}", asked
    finally:
        there.shutdown()
        there.server_close()


def reply(content: bytes = b"", status: int = 200, **headers: str) -> Callable[[Any], None]:
    def answer(handler: Any) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(content)

    return answer


def asked_of(address: str) -> Any:
    """What a site gets that looks into its mailbox."""
    with FleetHttpClient.from_server_address(address, True, None, []) as client:
        bound_replies(client._client, MOST)
        return client.PullMessages(PullMessagesRequest())


def test_a_plain_reply_is_taken() -> None:
    with server(reply()) as (address, asked):
        assert not asked_of(address).messages_list
    assert asked == ["/v1/fleet/pull-messages"]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_site_is_not_sent_elsewhere(status: int) -> None:
    """With 307 its answer, too, would go there, and without TLS."""
    with (
        server(reply()) as (elsewhere, reached),
        server(reply(status=status, location=f"http://{elsewhere}/inside")) as (address, _),
        pytest.raises(httpx.RequestError, match=rf"it sends this site elsewhere \({status}\)"),
    ):
        asked_of(address)
    assert reached == []


def test_a_packed_reply_is_not_unpacked() -> None:
    """A thousandth of its size would travel."""
    bomb = gzip.compress(bytes(10 * MOST))
    with (
        server(reply(bomb, content_encoding="gzip")) as (address, _),
        pytest.raises(httpx.RequestError, match="its reply is packed"),
    ):
        asked_of(address)


@pytest.mark.parametrize("length", [{}, {"content_length": str(2**40)}])
def test_an_endless_reply_is_given_up(length: dict[str, str]) -> None:
    sent = 0

    def endless(handler: Any) -> None:
        nonlocal sent
        reply(**length)(handler)
        while True:
            handler.wfile.write(bytes(2**16))
            sent += 2**16

    with (
        server(endless) as (address, _),
        pytest.raises(httpx.RequestError, match=f"its reply is larger than {MOST} bytes"),
    ):
        asked_of(address)
    assert sent < 64 * MOST  # what lies in buffers between the two


def test_a_proxy_of_the_environment_is_no_way_around(monkeypatch: pytest.MonkeyPatch) -> None:
    with server(reply(bytes(2 * MOST))) as (address, asked):
        monkeypatch.setenv("HTTP_PROXY", f"http://{address}")
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        with pytest.raises(httpx.RequestError, match="larger than"):
            asked_of("192.0.2.1:9440")
    assert asked == ["http://192.0.2.1:9440/v1/fleet/pull-messages"]
