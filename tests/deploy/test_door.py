"""The open port: who gets in, for how long, with how much; a small web server stands in for the SuperLink."""

import contextlib
import gc
import re
import socket
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("flwr")
import httpx

from covey.deploy import http_connection
from covey.deploy.certs import make_certs
from covey.deploy.door import Door, place_of
from covey.deploy.http_connection import Limits
from covey.deploy.superlink import Link, free_port
from covey.errors import UserError
from tests.deploy.door_by_hand import PATH, Behind, Port, open_port

HALF = b"POST /v1/fleet/x HTTP/1.1\r\nhost: x\r\n"


def until(happens: Callable[[], bool], seconds: float = 300.0) -> None:
    """Waits for an event; the seconds are only for a machine on which it never comes."""
    end = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < end, f"it did not happen in {seconds:.0f} s"
        time.sleep(0.02)


def is_closed(sock: socket.socket) -> bool:
    """Waits until the other side ends the connection."""
    sock.settimeout(300)
    with contextlib.suppress(ConnectionError):
        while sock.recv(2**16):
            pass
    return True


def post(here: Port, path: str = PATH, *, headers: dict[str, str] | None = None, body: bytes = b"") -> int:
    url = f"http://127.0.0.1:{here.port}{path}"
    return httpx.post(url, content=body, headers=headers, timeout=300).status_code


def test_who_signs_with_a_key_on_the_list_is_passed_on() -> None:
    with open_port() as here:
        assert here.site(bytes(8 * 2**20))[0] == f"200 got {8 * 2**20}"
    (visit,) = here.seen
    assert (visit.key, visit.path, visit.status, visit.why) == (here.key, PATH, 200, "")
    assert (visit.received, visit.sent) == (8 * 2**20, len(f"got {8 * 2**20}"))


def test_a_connection_carries_many_requests() -> None:
    with open_port() as here, httpx.Client(timeout=300) as client:
        url = f"http://127.0.0.1:{here.port}{PATH}"
        said = [client.post(url, content=bytes(n), headers=here.signed()).text for n in (1, 0, 70_000)]
    assert said == ["got 1", "got 0", "got 70000"]


def test_it_is_known_how_many_connections_a_key_has() -> None:
    with open_port() as port:
        first, second = port.connect(), port.connect()
        for connection in (first, second):
            connection.sendall(port.head(0))
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
        assert port.counts == [1, 2]
        first.close()
        second.close()
        until(lambda: port.counts == [1, 2, 1, 0])


def test_who_is_refused_learns_why_by_the_status_and_the_log_by_a_sentence() -> None:
    with open_port() as here, open_port() as other:
        foreign = other.signed()
        wrong = {**here.signed(), "flwr-signature": foreign["flwr-signature"]}
        answers = [
            post(here),
            post(here, headers=foreign),
            post(here, "/v1/fleet/activate-node", headers=foreign),
            post(here, headers=here.signed(late=400)),
            post(here, headers=here.signed(late=-600)),
            post(here, headers=wrong),
            post(here, "/v1/control/start-run", headers=here.signed()),
        ]
        assert answers == [401, 401, 412, 401, 401, 401, 404]
        seconds = re.compile(r"(?<=clock is )\d+")
        assert [seconds.sub("N", visit.why) for visit in here.seen] == [
            "it is not signed",
            "its key is not on the list",
            "its key is not on the list",
            "its clock is N s behind; at most 305 s behind or 5 s ahead",
            "its clock is N s ahead; at most 305 s behind or 5 s ahead",
            "its signature is not that of its key",
            "it is no path of the fleet interface",
        ]
        behind, ahead = (int(seconds.findall(here.seen[place].why)[0]) for place in (3, 4))
        assert behind >= 400  # a busy machine takes its time between signing and reading
        assert 5 < ahead <= 600
        assert here.seen[1].key == other.key  # the log can name it


def test_a_signed_head_is_good_for_one_request() -> None:
    """Whoever could read inside TLS could send it again for 305 s, with another body or to another path."""
    with open_port() as here:
        head = here.signed()
        answers = [
            post(here, headers=head),
            post(here, headers=head, body=b"another"),
            post(here, "/v1/fleet/pull-messages", headers=head),
            post(here, headers=here.signed()),  # the site itself signs anew
        ]
        assert answers == [200, 503, 503, 200]
        until(lambda: len(here.seen) == 4)  # it is written down after it was answered
        assert [visit.why for visit in here.seen] == ["", *["its signed head was sent before"] * 2, ""]
        assert here.seen[1].key == here.key


def test_heads_are_remembered_while_they_are_good_and_in_bounded_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_connection, "MOST_HEADS", 100)
    now = [0.0]
    heads = http_connection.UsedHeads(clock=lambda: now[0])
    assert [heads.take("a", "12:00"), heads.take("b", "12:00"), heads.take("a", "12:00")] == [
        True,
        True,
        False,
    ]
    now[0] = 309.0
    assert not heads.take("a", "12:00")
    for number in range(1000):
        heads.take("a", str(number))
    assert len(heads.by_key["a"]) == 100
    assert not heads.take("b", "12:00")  # another key that sends many makes nobody else's be forgotten
    now[0] = 311.0
    heads.take("b", "12:05")
    assert list(heads.by_key["b"]) == ["12:05"]


def test_half_a_head_costs_a_connection_for_a_while_and_shuts_nobody_out() -> None:
    with open_port(head_seconds=5.0, per_address=20) as here, contextlib.ExitStack() as stack:
        socks = [stack.enter_context(here.connect()) for _ in range(100)]
        for sock in socks:
            with contextlib.suppress(OSError):  # the first ones have given way already
                sock.sendall(HALF)
        assert here.site()[0] == "200 got 9"
        assert all(is_closed(sock) for sock in socks)


def test_strangers_give_way_and_sites_stay() -> None:
    with open_port(strangers=5, per_address=100) as here, httpx.Client(timeout=300) as site:
        url = f"http://127.0.0.1:{here.port}{PATH}"
        site.post(url, headers=here.signed())
        site_port = site._transport._pool.connections[0]  # type: ignore[attr-defined]
        strangers = [here.connect() for _ in range(6)]
        assert is_closed(strangers[0])
        assert site.post(url, headers=here.signed()).text == "got 0"
        assert site._transport._pool.connections == [site_port]  # type: ignore[attr-defined]
        for sock in strangers:
            sock.close()


def test_a_body_is_not_read_before_its_key_is_known() -> None:
    with open_port() as here:
        sock = here.connect()
        sock.sendall(here.head(30 * 2**20, signed=False))
        assert sock.recv(100).startswith(b"HTTP/1.1 401")
        sock.close()


def test_a_body_that_stops_before_its_end_is_given_up_and_what_it_held_is_free_again() -> None:
    limits = {"pause_seconds": 3.0, "all_bytes": 4 * 2**20, "body_bytes": 2**20}
    with open_port(**limits) as here:
        stopped = here.connect()
        stopped.sendall(here.head(2**20) + bytes(2**20 - 1))
        assert is_closed(stopped)
        assert here.site(bytes(2**20))[0] == f"200 got {2**20}"


def test_all_bodies_together_are_bounded_and_one_key_has_a_quarter() -> None:
    with open_port(all_bytes=4 * 2**20, body_bytes=2**20) as here:
        first = here.connect()
        first.sendall(here.head(2**20) + bytes(2**19))
        until(lambda: here.site(bytes(2**20))[0].startswith("503"))
        assert here.seen[-1].why == "too many bodies are held at a time"
        first.close()
        until(lambda: here.site(bytes(2**20))[0].startswith("200"))


def test_a_body_that_drips_is_given_up() -> None:
    with open_port(pause_seconds=1.0, slowest=2**20) as here:
        sock = here.connect()
        sock.sendall(here.head(1000))
        with contextlib.suppress(OSError):
            for _ in range(1000):
                sock.sendall(b"x")
                time.sleep(0.1)
            raise AssertionError("it was read to its end")
        sock.close()


@pytest.mark.parametrize("size", [32 * 2**20 + 1, 10**12])
def test_the_door_takes_no_more_than_flower_sends_in_one_piece(size: int) -> None:
    with open_port() as here:
        sock = here.connect()
        sock.sendall(here.head(size))
        assert sock.recv(100).startswith(b"HTTP/1.1 413")
        sock.close()


def test_a_body_without_a_length_is_bounded_as_well() -> None:
    with open_port(body_bytes=2**16) as here:
        url = f"http://127.0.0.1:{here.port}{PATH}"
        pieces = iter([bytes(2**14)] * 3)
        assert httpx.post(url, content=pieces, headers=here.signed(), timeout=300).text == f"got {3 * 2**14}"
        sock = here.connect()
        head = here.head(0).replace(b"content-length: 0", b"transfer-encoding: chunked")
        sock.sendall(head + (b"4000\r\n" + bytes(2**14) + b"\r\n") * 5)
        assert sock.recv(100).startswith(b"HTTP/1.1 413")
        sock.close()


def test_one_key_has_a_bounded_number_of_connections() -> None:
    with open_port(per_key=2) as here:
        sites = [httpx.Client(timeout=300) for _ in range(3)]
        url = f"http://127.0.0.1:{here.port}{PATH}"
        assert [site.post(url, headers=here.signed()).status_code for site in sites] == [200, 200, 429]
        for site in sites:
            site.close()


def test_a_site_that_asks_without_end_leaves_the_others_their_turn() -> None:
    """The SuperLink works on one request after the other: forty of one site would be before everybody else's."""
    inside: list[str] = []
    go_on = threading.Event()

    class Slow(Behind):
        def do_POST(self) -> None:  # noqa: N802
            inside.append(self.headers["flwr-public-key"])
            go_on.wait(300)
            super().do_POST()

    with open_port(behind=Slow, per_key=40) as here:
        other = Port(here.port, None)
        here.keys.add(other.key)
        flood = [threading.Thread(target=here.site) for _ in range(40)]
        for thread in flood:
            thread.start()
        until(lambda: len(inside) >= Limits().at_a_time)
        honest = threading.Thread(target=other.site)
        honest.start()
        until(lambda: len(set(inside)) == 2)  # it does not wait for those before it
        assert len(inside) == Limits().at_a_time + 1
        go_on.set()
        for thread in (*flood, honest):
            thread.join(300)
    assert len(inside) == 41  # nobody's request is dropped
    assert all(visit.status == 200 for visit in here.seen)


def test_a_superlink_that_is_away_is_a_503() -> None:
    port = free_port()
    with Door(Link(address="127.0.0.1:1", ca=None), None).opened("127.0.0.1", port):
        assert httpx.post(f"http://127.0.0.1:{port}{PATH}", timeout=300).status_code == 503


def test_tls_and_an_idle_connection(tmp_path: Path) -> None:
    make_certs(tmp_path, hosts=["127.0.0.1"], sites=[])
    with open_port(certs=tmp_path, head_seconds=5.0, idle_seconds=1.0) as here:
        silent = here.connect()  # it never begins TLS
        assert here.site()[0] == "200 got 9"
        assert is_closed(silent)


def test_an_insecure_door_opens_on_loopback_only_and_a_taken_port_is_one_sentence() -> None:
    link = Link(address="127.0.0.1:1", ca=None)
    with (
        pytest.raises(UserError, match="--insecure works only on loopback"),
        Door(link, None).opened("0.0.0.0", 1),
    ):
        pass
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with (
            pytest.raises(UserError, match="cannot be used: Address"),
            Door(link, None).opened("127.0.0.1", port),
        ):
            pass


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:192.0.2.7", "::ffff:192.0.2.7"),
    ],
)
def test_one_ipv6_network_counts_as_one_address(address: str, place: str) -> None:
    assert place_of(address) == place


@pytest.fixture
def bodies() -> Iterator[Callable[[], float]]:
    """Megabytes of bodies that something refers to, whatever the C library does; no circle is collected meanwhile."""

    def held() -> float:
        ours = [tracemalloc.Filter(True, http_connection.__file__)]
        return sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces(ours).traces) / 2**20

    gc.disable()
    tracemalloc.start()
    yield held
    tracemalloc.stop()
    gc.enable()


@pytest.mark.parametrize(
    "size", [30, 20]
)  # megabytes of 20: a whole body, which is answered, and one that stalls
def test_memory_goes_back_when_nobody_has_the_bodies_any_more(
    size: int, bodies: Callable[[], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[float] = []
    monkeypatch.setattr("covey.deploy.door.give_back_memory", lambda: left.append(bodies()))
    with open_port(pause_seconds=0.5, body_bytes=30 * 2**20) as here:
        while not left:  # a machine that is too busy may take less of each
            with here.connect() as sock, contextlib.suppress(OSError):
                sock.sendall(here.head(size * 2**20))
                sock.sendall(bytes(20 * 2**20))
                if size == 20:
                    assert sock.recv(100).startswith(b"HTTP/1.1 200")
                else:
                    is_closed(sock)
    assert max(left) < 1, "it was still held when memory was given back"


def test_a_body_is_not_kept_for_one_who_does_not_read_the_answer(bodies: Callable[[], float]) -> None:
    class Long(Behind):
        def do_POST(self) -> None:  # noqa: N802
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-length", str(16 * 2**20))
            self.end_headers()
            self.wfile.write(bytes(16 * 2**20))

    with open_port(behind=Long, pause_seconds=300.0) as here, here.connect() as sock:
        sock.sendall(here.head(10 * 2**20) + bytes(10 * 2**20))
        assert sock.recv(100).startswith(b"HTTP/1.1 200")
        assert bodies() < 1
