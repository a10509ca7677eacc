"""The open port: passes the fleet interface on to the SuperLink, for those who hold a key, in bounded time and memory.

A stranger costs one connection for a few seconds; a body is read only after its head was signed with a key on the
list. Where there are too many strangers the one that came first is dropped, so that they cannot shut anybody out.
"""

import asyncio
import contextlib
import ipaddress
import resource
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

from covey.deploy.http_connection import (
    TIME,
    HttpConnection,
    Limits,
    Refusal,
    UsedHeads,
    check_signature,
    streams,
)
from covey.deploy.mailboxes import ANSWER, FETCH, LOOK, NO_MESSAGE, Given, Mailboxes, node_of, objection_to
from covey.deploy.superlink import LOOPBACK, Link
from covey.errors import RunError, UserError
from covey.training.bench.freed_memory import give_back_memory

FLEET = "/v1/fleet/"  # all that a site may reach; the control and runtime interfaces stay on loopback
HOP = ("host", "connection", "content-length", "transfer-encoding", "content-encoding", "keep-alive")


@dataclass(frozen=True, kw_only=True)
class Visit:
    """One request as the log and the status see it; `why` says why it was refused."""

    key: str
    path: str
    status: int
    received: int
    sent: int
    why: str = ""


@dataclass(eq=False)
class Guest:
    """A connection: where it comes from, and the key that it has shown."""

    address: str
    sock: socket.socket
    key: str = ""
    shown: bool = False


@dataclass(eq=False)
class Door:
    """The connections of the port; everything here runs in one event loop.

    link: to the SuperLink. certs: with the server's certificate; none: without TLS. objection: why a public key may not
    join now, or nothing. mailboxes: where a look into an empty one is answered when there is mail. connections: told
    how many a key has whenever that changes.
    """

    link: Link
    certs: Path | None
    _: KW_ONLY
    objection: Callable[[str], str] | None = None
    limits: Limits = Limits()
    seen: Callable[[Visit], None] = lambda _: None
    mailboxes: Mailboxes | None = None
    connections: Callable[[str, int], None] = lambda _key, _count: None

    def __post_init__(self) -> None:
        import httpx

        link, certs = self.link, self.certs
        self.tls: ssl.SSLContext | None = None
        if certs is not None:
            self.tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            self.tls.load_cert_chain(certs / "server.crt", certs / "server.key")
        self.guests: dict[asyncio.Task[None], Guest] = {}
        self.held: Counter[str] = Counter()  # bytes of bodies by key
        self.freed = 0  # bytes of bodies since memory was last given back
        self.heads = UsedHeads()
        self.turns: dict[str, asyncio.Semaphore] = {}  # of every key on the list that has come
        self.client = httpx.AsyncClient(
            base_url=f"{'https' if link.ca else 'http'}://{link.address}",
            verify=str(link.ca) if link.ca else True,
            timeout=300,  # messages are given out once: a reply that is not waited for would be lost
            limits=httpx.Limits(keepalive_expiry=2),  # before the SuperLink, which closes after 5 s
            trust_env=False,
        )

    # ------------------------------------------------------------------------------------------ who is let in

    @contextlib.contextmanager
    def opened(self, host: str, port: int) -> Iterator[None]:
        """Opens the port for the time of the context."""
        more_descriptors()
        listener = listening(host, port, secure=self.certs is not None)
        loop = asyncio.new_event_loop()
        stop = asyncio.Event()
        thread = threading.Thread(
            target=lambda: loop.run_until_complete(self.run(listener, stop)), daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join(timeout=10)
            listener.close()
            if thread.is_alive():
                raise RunError(f"the door at {host}:{port} could not be closed")
            loop.close()

    async def run(self, listener: socket.socket, stop: asyncio.Event) -> None:
        """Takes connections until it is stopped."""
        if self.mailboxes is not None:
            self.mailboxes.loop = asyncio.get_running_loop()
        accepting = asyncio.create_task(self.accept(listener))
        await stop.wait()
        for task in (accepting, *self.guests):
            task.cancel()
        await asyncio.gather(accepting, *self.guests, return_exceptions=True)
        await self.client.aclose()

    async def accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, peer = await loop.sock_accept(listener)
            except OSError:  # no file descriptors for now, or it has left already
                await asyncio.sleep(0.1)
                continue
            guest = Guest(place_of(peer[0]), sock)
            self.make_room(guest.address)
            task = asyncio.create_task(self.serve(guest))
            self.guests[task] = guest
            task.add_done_callback(self.forget)

    def make_room(self, address: str) -> None:
        """Ends the connection of the stranger that came first, of this address or of all, where it is one too many."""
        strangers = {task: guest for task, guest in self.guests.items() if not guest.shown}
        near = [task for task, guest in strangers.items() if guest.address == address]
        if len(near) >= self.limits.per_address:
            self.dismiss(near[0])
        elif len(strangers) >= self.limits.strangers:
            self.dismiss(next(iter(strangers)))

    def count(self, key: str) -> int:
        """How many connections a key has."""
        return sum(other.key == key and other.shown for other in self.guests.values())

    def dismiss(self, task: asyncio.Task[None]) -> None:
        self.guests.pop(task, None)
        task.cancel()

    def forget(self, task: asyncio.Task[None]) -> None:
        guest = self.guests.pop(task, None)
        if guest is not None and guest.shown:
            self.connections(guest.key, self.count(guest.key))
        if not task.cancelled() and (error := task.exception()):
            self.seen(Visit(key="", path="", status=500, received=0, sent=0, why=f"{type(error).__name__}"))
        self.give_back()

    # ------------------------------------------------------------------------------------------ one connection

    async def serve(self, guest: Guest) -> None:
        """Answers the requests of a connection; a client that leaves in the middle needs no answer."""
        import h11

        writer = None
        with contextlib.suppress(OSError, TimeoutError, h11.ProtocolError):
            try:
                async with asyncio.timeout(self.limits.head_seconds):
                    reader, writer = await streams(guest.sock, self.tls, self.limits.head_seconds)
                talk = HttpConnection(reader, writer, self.limits)
                while await self.exchange(talk, guest):
                    self.give_back()
            finally:
                if writer is not None:
                    writer.transport.abort()
                guest.sock.close()

    async def exchange(self, talk: HttpConnection, guest: Guest) -> bool:
        """One request and its answer; says whether the connection continues."""
        head = await talk.head(self.limits.idle_seconds if guest.shown else self.limits.head_seconds)
        if head is None:
            return False
        path = head.target.decode("ascii", "replace")
        headers = {name.decode(): value.decode("latin-1") for name, value in head.headers}
        key, size = "", 0
        try:
            if not is_open(path):
                raise Refusal(404, "it is no path of the fleet interface")
            key = self.admit(guest, headers, path)
            if int(headers.get("content-length", 0)) > self.limits.body_bytes:
                raise Refusal(413, f"its body is larger than {self.limits.body_bytes} bytes")
            with self.holding(key) as hold:
                body = await talk.body(hold)
                size = len(body)
                try:
                    given = await self.given(key, head.method.decode(), path, headers, body, talk.has_left)
                finally:
                    del body  # it is no longer counted: not kept for a client that reads its answer slowly
        except Refusal as no:
            refused = Visit(
                key=key or no.key, path=path, status=no.status, received=size, sent=0, why=str(no)
            )  # and not the refusal, whose traceback has the body
        else:
            await talk.answer(given.status, given.headers, given.content)
            sent = len(given.content)
            self.seen(Visit(key=key, path=path, status=given.status, received=size, sent=sent))
            return talk.next()
        self.seen(refused)
        await talk.answer(refused.status, {"connection": "close"}, b"")
        await talk.linger()
        return False

    def admit(self, guest: Guest, headers: dict[str, str], path: str) -> str:
        """The key that signed the request, or a refusal; without a list of keys everybody is let in."""
        if self.objection is None:
            guest.shown = True
            return ""
        guest.key = check_signature(headers, path, self.objection)
        if not self.heads.take(guest.key, headers[TIME]):  # a site signs anew when it tries again
            raise Refusal(503, "its signed head was sent before", guest.key)
        if not guest.shown:
            mine = self.count(guest.key)
            if mine >= self.limits.per_key:
                raise Refusal(429, f"its key has {mine} connections already", guest.key)
            guest.shown = True
            self.connections(guest.key, mine + 1)
        return guest.key

    @contextlib.contextmanager
    def holding(self, key: str) -> Iterator[Callable[[int], None]]:
        """Counts the bytes of a body against what may be held in all, and gives them back."""
        mine, most = 0, self.limits.all_bytes

        def hold(size: int) -> None:
            nonlocal mine
            if mine + size > self.limits.body_bytes:
                raise Refusal(413, f"its body is larger than {self.limits.body_bytes} bytes", key)
            share = most // 4 if self.objection is not None else most
            if self.held[key] + size > share or self.held.total() + size > most:
                raise Refusal(503, "too many bodies are held at a time", key)
            mine += size
            self.held[key] += size

        try:
            yield hold
        finally:
            self.held[key] -= mine
            self.held += Counter()  # keys that hold nothing are dropped
            self.freed += mine

    def give_back(self) -> None:
        """After a request: has the system take back what more than one body took, where no other is held."""
        if self.freed > self.limits.body_bytes and not self.held:
            self.freed = 0
            give_back_memory()

    async def given(
        self,
        key: str,
        method: str,
        path: str,
        headers: dict[str, str],
        body: bytes,
        has_left: Callable[[], bool] = lambda: False,
    ) -> Given:
        """The answer to a request: what the SuperLink says, a look into a mailbox when there is something in it."""
        boxes = self.mailboxes
        node = node_of(path, body) if boxes is not None and path == LOOK else None
        if boxes is None:
            async with self.turn(key):
                return await self.passed_on(method, path, headers, body)
        if path == ANSWER and (why := objection_to(body, boxes.most_pieces)):
            raise Refusal(401, why, key)
        if path == FETCH and (piece := boxes.piece(body)) is not None:
            boxes.visited(key, path, body, piece)
            return piece
        if node is not None:
            if (before := boxes.again(key, node)) is not None:
                return before
            await boxes.mail(node, has_left)
            if self.objection is not None and (why := self.objection(key)):
                raise Refusal(401, why, key)  # it was shut out meanwhile
            if boxes.is_empty(node):
                boxes.visited(key, path, body, NO_MESSAGE)
                return NO_MESSAGE
        full = node is not None and boxes.emptied(node)
        async with self.turn(key):
            answer = await self.passed_on(method, path, headers, body)
        if node is not None:
            boxes.looked(key, node, answer, full=full)
        boxes.visited(key, path, body, answer)
        return answer

    def turn(self, key: str) -> contextlib.AbstractAsyncContextManager[Any]:
        """A site's turn at the SuperLink: one that asks without end gets few requests in, the others theirs."""
        if self.objection is None:
            return contextlib.nullcontext()
        return self.turns.setdefault(key, asyncio.Semaphore(self.limits.at_a_time))

    async def passed_on(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Given:
        """What the SuperLink answers."""
        import httpx

        kept = [(name, value) for name, value in headers.items() if name not in HOP]
        try:
            answer = await self.client.request(method, path, content=body, headers=kept)
        except httpx.TransportError as error:
            raise Refusal(503, f"the SuperLink does not answer ({type(error).__name__})") from error
        answer.stream = httpx.ByteStream(
            b""
        )  # it holds the answer, which holds the request's body: a reference cycle
        kept_of_answer = {name: value for name, value in answer.headers.items() if name not in HOP}
        return Given(status=answer.status_code, headers=kept_of_answer, content=answer.content)


def place_of(address: str) -> str:
    """Whose connections are counted together: an IPv4 address, or the IPv6 network of 64 bits that one site has."""
    there = ipaddress.ip_address(address.partition("%")[0])
    if there.version == 6 and there.ipv4_mapped is None:
        return str(ipaddress.ip_network((int(there) >> 64 << 64, 64)))
    return address


def is_open(path: str) -> bool:
    """Whether a path belongs to the fleet interface, spelt plainly: no dots, no escapes that could lead elsewhere."""
    return path.startswith(FLEET) and path.isascii() and all(c.isalnum() or c in "/-_" for c in path)


def listening(host: str, port: int, *, secure: bool) -> socket.socket:
    """The socket of the port; without keys and TLS for this machine only."""
    if not secure and host not in LOOPBACK:
        raise UserError(
            f"--insecure works only on loopback; --host is {host!r}, allowed: {', '.join(LOOPBACK)}"
        )
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(1024)
    except OSError as error:
        listener.close()
        raise UserError(f"--host {host} --port {port} cannot be used: {error.strerror}") from error
    listener.setblocking(False)
    return listener


def more_descriptors() -> None:
    """As many open files as the system allows this process: every connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 2**16)), hard))
