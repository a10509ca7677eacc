"""Strangers at the open port: whatever they send or do not send, a site with a key is answered meanwhile."""

from __future__ import annotations

import contextlib
import socket
import tempfile
import time
from pathlib import Path

from tests.hostile.frame import Outcome, attempt, broke, held

SLOW = 90.0  # seconds that a busy machine may take over what happens at once
HALF = b"POST /v1/fleet/push-object HTTP/1.1\r\nhost: x\r\n"


def prepare() -> None:
    """What all tries import, once."""
    import httpx
    import psutil

    import tests.deploy.door_by_hand  # noqa: F401

    assert httpx, psutil


def memory() -> float:
    """Megabytes that this process holds now."""
    import psutil

    return float(psutil.Process().memory_info().rss) / 2**20


def closed(sock: socket.socket, seconds: float) -> bool:
    """Whether the other side ends the connection within that time."""
    sock.settimeout(seconds)
    try:
        while sock.recv(2**16):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


@attempt("1,010 half-sent heads that stay open", seconds=300)
def half_heads() -> Outcome:
    from tests.deploy.door_by_hand import open_port

    with open_port(head_seconds=4.0) as here, contextlib.ExitStack() as stack:
        for _ in range(1010):
            stack.enter_context(here.connect()).sendall(HALF)
        answer, seconds = here.site()
        last = here.connect()
        last.sendall(HALF)
        gone = closed(last, SLOW)
        if not answer.startswith("200") or seconds > SLOW or not gone:
            return broke(f"a site got {answer!r} after {seconds:.1f} s; half a head is closed: {gone}")
        return held(f"a site is answered in {seconds:.2f} s; half a head is closed after 4 s")


@attempt("heads that come one byte at a time", seconds=300)
def dripping_heads() -> Outcome:
    from tests.deploy.door_by_hand import open_port

    with open_port(head_seconds=3.0) as here:
        sock, began = here.connect(), time.monotonic()
        try:
            for byte in HALF * 20:  # some 300 s
                sock.sendall(bytes([byte]))
                time.sleep(0.3)
        except OSError:
            return held(f"closed after {time.monotonic() - began:.1f} s; its bytes last for 300")
        return broke("it could continue for as long as it liked")


@attempt("1,010 connections that never begin TLS", seconds=300)
def no_handshake() -> Outcome:
    from covey.deploy.certs import make_certs
    from tests.deploy.door_by_hand import open_port

    folder = Path(tempfile.mkdtemp())
    make_certs(folder, hosts=["127.0.0.1"], sites=[])
    with open_port(certs=folder, head_seconds=4.0) as here, contextlib.ExitStack() as stack:
        for _ in range(1010):
            stack.enter_context(here.connect())
        answer, seconds = here.site()
        if not answer.startswith("200") or seconds > SLOW:
            return broke(f"a site got {answer!r} after {seconds:.1f} s")
        return held(f"a site is answered over TLS in {seconds:.2f} s")


@attempt("40 bodies of 30 MB without a key that stop before their end")
def strangers_bodies() -> Outcome:
    from tests.deploy.door_by_hand import open_port

    with open_port() as here, contextlib.ExitStack() as stack:
        piece, before = bytes(2**20), memory()
        for _ in range(40):
            sock = stack.enter_context(here.connect())
            with contextlib.suppress(OSError):
                sock.sendall(here.head(30 * 2**20, signed=False))
                for _ in range(29):
                    sock.sendall(piece)
        grown = memory() - before
        answer, _ = here.site()
        said = f"{grown:.0f} MB are held; a site gets {answer!r}"
        return held(said) if grown < 60 and answer.startswith("200") else broke(said)


@attempt("40 bodies of 30 MB with a stolen key that stop before their end", seconds=300)
def stolen_key() -> Outcome:
    from tests.deploy.door_by_hand import open_port

    with open_port(pause_seconds=4.0) as here, contextlib.ExitStack() as stack:
        piece, before, socks = bytes(2**20), memory(), []
        for _ in range(40):
            sock = stack.enter_context(here.connect())
            socks.append(sock)
            with contextlib.suppress(OSError):
                sock.sendall(here.head(30 * 2**20))
                for _ in range(29):
                    sock.sendall(piece)
        grown = memory() - before
        gone = all(closed(sock, SLOW) for sock in socks)
        said = f"{grown:.0f} MB are held at most, all connections are closed after their pause: {gone}"
        return held(said) if grown < 200 and gone else broke(said)


@attempt("12 bodies of 30 MB of several stolen keys: what is held when they were given up", seconds=300)
def given_back() -> Outcome:
    from tests.deploy.door_by_hand import Port, open_port

    with open_port(pause_seconds=3.0) as here, contextlib.ExitStack() as stack:
        piece, before, most, socks = bytes(2**20), memory(), 0.0, []
        for number in range(12):
            other = Port(here.port, None) if number % 3 == 0 else other  # noqa: F821
            here.keys.add(other.key)
            sock = stack.enter_context(here.connect())
            socks.append(sock)
            with contextlib.suppress(OSError):
                sock.sendall(other.head(30 * 2**20))
                for _ in range(29):
                    sock.sendall(piece)
            most = max(most, memory() - before)
        gone = all(closed(sock, SLOW) for sock in socks)
        until = time.monotonic() + SLOW
        while memory() - before > 30 and time.monotonic() < until:
            time.sleep(0.1)
        left = memory() - before
    said = f"{most:.0f} MB are held at most, {left:.0f} MB after all are closed"
    return held(said) if gone and left <= 30 else broke(said)


@attempt("a head of 10 MB, a body that says it has 10 GB, bytes that are no HTTP", seconds=300)
def oversized() -> Outcome:
    from tests.deploy.door_by_hand import open_port

    with open_port() as here:
        answers = []
        for content in (
            HALF + b"x: " + b"y" * 10 * 2**20,
            here.head(10 * 2**30),
            b"\x16\x03\x01" * 100 + b"\r\n\r\n",
        ):
            sock = here.connect()
            with contextlib.suppress(OSError):
                sock.sendall(content)
            answers.append(closed(sock, SLOW))
        good, _ = here.site()
        said = f"all are closed: {answers}; a site gets {good!r}"
        return held(said) if all(answers) and good.startswith("200") else broke(said)


@attempt("300 connections that are cut in the middle of head, body or answer")
def disconnects() -> Outcome:
    import io
    import logging

    from tests.deploy.door_by_hand import open_port

    log = io.StringIO()
    logging.getLogger().addHandler(logging.StreamHandler(log))
    with open_port() as here, contextlib.redirect_stderr(log):
        for number in range(300):
            sock = here.connect()
            sock.sendall(
                here.head(1000)[: 20 + number] if number % 3 else here.head(1000) + b"x" * (number % 1000)
            )
            sock.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0"
            )  # a reset, not a goodbye
            sock.close()
        good, _ = here.site()
        faults = [visit for visit in here.seen if visit.status == 500]
    text = log.getvalue()
    said = f"{len(faults)} errors, {text.count('Traceback')} tracebacks in the log; a site gets {good!r}"
    return (
        held(said) if not faults and not text and good.startswith("200") else broke(f"{said} {text[-300:]}")
    )
