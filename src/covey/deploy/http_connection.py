"""HTTP/1.1 with an unknown client: every part of a request has a bound on its size and on the time it may take, and its
head, before any body, carries a key and a signed time.
"""

import asyncio
import contextlib
import socket
import ssl
import time
from base64 import b64decode
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

PIECE = 2**16  # bytes that are read or written at a time


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What the port grants.

    strangers, per_address: connections that have shown no key yet, in all and of one address (of IPv6: of one
    network). per_key: connections of one key. at_a_time: requests of one key that the SuperLink, which works on one
    after the other, has before it. head_bytes, head_seconds: of a request's head, TLS included.
    idle_seconds: between two requests. pause_seconds: between two pieces of a body or of an answer.
    slowest: bytes per second that a body must bring on average. body_bytes, all_bytes: of one body, and of all
    that are held at a time, of which one key has a quarter at most.
    """

    strangers: int = 512
    per_address: int = 64
    per_key: int = 16
    at_a_time: int = 4
    head_bytes: int = 16 * 2**10
    head_seconds: float = 10.0
    idle_seconds: float = 120.0
    pause_seconds: float = 30.0
    slowest: int = 4096
    body_bytes: int = 32 * 2**20  # Flower cuts arrays into pieces of 5 MB
    all_bytes: int = 256 * 2**20


class HttpConnection:
    """HTTP/1.1 on one connection, with a limit on how long each part of it may take."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limits: Limits) -> None:
        import h11

        self.h11 = h11
        self.wire = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.head_bytes)
        self.reader, self.writer, self.limits = reader, writer, limits

    async def event(self, until: float) -> Any:
        """What comes next on the wire before that time of the monotonic clock."""
        while (event := self.wire.next_event()) is self.h11.NEED_DATA:
            async with asyncio.timeout(max(0.0, until - time.monotonic())):
                self.wire.receive_data(await self.reader.read(PIECE))
        return event

    async def head(self, idle: float) -> Any:
        """The head of the next request, `idle` seconds for its first byte; None when there is no more."""
        if not self.wire.trailing_data[0]:
            async with asyncio.timeout(idle):
                self.wire.receive_data(await self.reader.read(PIECE))
        event = await self.event(time.monotonic() + self.limits.head_seconds)
        return event if isinstance(event, self.h11.Request) else None

    async def body(self, hold: Callable[[int], None]) -> bytes:
        """The body of the request; every piece is held before it is kept."""
        pieces: list[bytes] = []
        size, began = 0, time.monotonic()
        if self.wire.they_are_waiting_for_100_continue:
            await self.write(self.wire.send(self.h11.InformationalResponse(status_code=100, headers=[])))
        while True:
            pause = self.limits.pause_seconds
            slow = began + pause + size / self.limits.slowest
            event = await self.event(min(time.monotonic() + pause, slow))
            if not isinstance(event, self.h11.Data):
                return b"".join(pieces)
            size += len(event.data)
            hold(len(event.data))
            pieces.append(bytes(event.data))

    async def answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
        named = [*headers.items(), ("content-length", str(len(content)))]
        await self.write(self.wire.send(self.h11.Response(status_code=status, headers=named)))
        for start in range(0, len(content), PIECE):
            await self.write(self.wire.send(self.h11.Data(data=content[start : start + PIECE])))
        await self.write(self.wire.send(self.h11.EndOfMessage()))

    async def write(self, data: bytes | None) -> None:
        self.writer.write(data or b"")
        async with asyncio.timeout(self.limits.pause_seconds):
            await self.writer.drain()

    def has_left(self) -> bool:
        """Whether the other side has closed the connection."""
        return self.reader.at_eof()

    async def linger(self) -> None:
        """Reads a little of what still comes, so that the other side can read why it was refused."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                if self.writer.can_write_eof():
                    self.writer.write_eof()
                for _ in range(16):
                    if not await self.reader.read(PIECE):
                        break

    def next(self) -> bool:
        """Whether another request may follow."""
        if self.wire.our_state is not self.h11.DONE or self.wire.their_state is not self.h11.DONE:
            return False
        self.wire.start_next_cycle()
        return True


async def streams(
    sock: socket.socket, tls: ssl.SSLContext | None, seconds: float
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Reader and writer of a connection that was just taken."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=PIECE, loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    wait = {"ssl_handshake_timeout": seconds} if tls else {}
    transport, _ = await loop.connect_accepted_socket(lambda: protocol, sock, ssl=tls, **wait)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


KEY, TIME, SIGNATURE = "flwr-public-key", "flwr-timestamp", "flwr-signature"
BEHIND, AHEAD = 305.0, 5.0  # seconds that a site's clock may be wrong, as Flower has it
MOST_HEADS = 100_000  # of one key that are remembered: some 300 requests per second
LOG_IN = ("/v1/fleet/register-node", "/v1/fleet/activate-node")


class UsedHeads:
    """The signed times that were shown, for as long as they could be shown again: a head is good for one request.

    Whoever could read inside TLS could otherwise send it again. Kept by key, so that one that sends many displaces only
    its own.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.by_key: dict[str, OrderedDict[str, float]] = {}

    def take(self, key: str, signed: str) -> bool:
        """Uses a head; says whether it was new."""
        now, used = self.clock(), self.by_key.setdefault(key, OrderedDict())
        while used and (len(used) >= MOST_HEADS or next(iter(used.values())) < now - BEHIND - AHEAD):
            used.popitem(last=False)
        if signed in used:
            return False
        used[signed] = now
        return True


class Refusal(Exception):  # noqa: N818
    """Why a request is answered with an error, and by whom it was sent as far as is known."""

    def __init__(self, status: int, why: str, key: str = "") -> None:
        super().__init__(why)
        self.status = status
        self.key = key


def check_signature(headers: Mapping[str, str], path: str, objection: Callable[[str], str]) -> str:
    """The key (PEM) that signed the request's head; a refusal where it is not on the list or the signature is wrong.

    `objection` says why a key may not join, or nothing. It is asked first: without a key nobody can make this machine
    compute.
    """
    try:
        shown = b64decode(headers[KEY], validate=True).decode("ascii")
        signature = b64decode(headers[SIGNATURE], validate=True)
        signed = headers[TIME]
        age = (datetime.now(UTC) - datetime.fromisoformat(signed)).total_seconds()
    except (KeyError, ValueError, TypeError) as error:
        raise Refusal(401, "it is not signed") from error
    if why := objection(shown):
        # The site tells a wrong clock from an unknown key by the status, as with Flower itself.
        raise Refusal(412 if path in LOG_IN else 401, why, shown)
    if not -AHEAD < age < BEHIND:
        late = f"{abs(age):.0f} s {'behind' if age > 0 else 'ahead'}"
        raise Refusal(
            401, f"its clock is {late}; at most {BEHIND:.0f} s behind or {AHEAD:.0f} s ahead", shown
        )
    if not is_signed(shown, signed, signature):
        raise Refusal(401, "its signature is not that of its key", shown)
    return shown


def is_signed(key: str, text: str, signature: bytes) -> bool:
    """Whether the text was signed with the private half of the key."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        public = serialization.load_pem_public_key(key.encode())
        public.verify(signature, text.encode("ascii"), ec.ECDSA(hashes.SHA256()))
    except (InvalidSignature, ValueError):
        return False
    return True
