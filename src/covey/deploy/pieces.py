"""Flower's messages in pieces, and replies of its HTTP client: what comes is bounded before it is put together and
never waited for; what goes is announced, and each of its pieces is sent until the SuperLink has it.

Flower waits up to two hours for pieces that somebody announced and never sent, and one piece may stand in an array
as often as its sender likes. Here the collector comes back later, and an array is measured before it is made. Its
client follows every redirection, with the request's body, and reads a reply of any length; a malicious server could so
send a site's answers elsewhere, or fill its memory.

A request whose reply was lost has been carried out, and is repeated. The SuperLink then says "not stored", as it also
does when its database was busy and when nobody waits for the answer any more. So a site that is told so looks whether
the piece is there, and continues or tries again.
"""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
from flwr.app import Array, Message

from covey.deploy import flower_insides as insides

AGAIN = 1.0  # seconds before a piece that could not be stored is sent once more

Kept = Callable[
    [Callable[[Any], Any]], Callable[[Any], Any]
]  # a request that is repeated while it is worth it


class TooLarge(ValueError):  # noqa: N818
    """What was sent is larger than any honest message could be."""


class Incoming:
    """The pieces of one message; `most` bounds what it may hold in bytes."""

    def __init__(self, tree: insides.message_pb2.ObjectTree, most: int) -> None:
        self.number = tree.object_id
        self.most = most
        self.missing: list[str] = []
        self.pieces: dict[str, bytes] = {}
        self.size = 0
        named: set[str] = set()
        for part in insides.iterate_object_tree(tree):
            if part.object_id not in named:
                named.add(part.object_id)
                self.missing.append(part.object_id)
            if len(named) > 16 + most // 2**20:  # Flower's own pieces hold 5 MB
                raise TooLarge(f"it has more pieces than {most} bytes need")

    def take(self, fetch: Callable[[str], bytes | None]) -> bool:
        """Takes what is there; says whether the message is complete."""
        while self.missing:
            piece = fetch(self.missing[-1])
            if piece is None:
                return False
            self.size += len(piece)
            if self.size > self.most:
                raise TooLarge(f"it is larger than {self.most} bytes")
            self.pieces[self.missing.pop()] = piece
        return True

    def message(self) -> Message:
        """The message, once it is complete; whatever is wrong with it is a ValueError."""
        try:
            for piece in self.pieces.values():
                if insides.get_object_type_from_object_content(piece) == Array.__qualname__:
                    self.measure(piece)
            message = insides.inflate_object_from_contents(self.number, self.pieces)
            if not isinstance(message, Message):
                raise ValueError(f"it is a {type(message).__name__}, not a message")
        except TooLarge:
            raise
        except Exception as error:  # whatever the other side made of it
            raise ValueError(f"the message is not covey's ({type(error).__name__}: {error})") from error
        return insides.number_it(message, self.number)

    def measure(self, array: bytes) -> None:
        """Refuses an array that names its pieces so often that it grows beyond the bound."""
        children = insides.get_object_children_ids_from_object_content(array)
        order = json.loads(insides.get_object_body(array, Array))["arraychunk_ids"]
        if sum(len(self.pieces[children[place]]) for place in order) > self.most:
            raise TooLarge(f"it is larger than {self.most} bytes")


def fetcher(
    pull: Callable[[insides.message_pb2.PullObjectRequest], Any], node: insides.node_pb2.Node, run: int
) -> Callable[[str], bytes | None]:
    """Gets a piece by its number, or None while it has not come."""

    def fetch(number: str) -> bytes | None:
        answer = pull(insides.message_pb2.PullObjectRequest(node=node, run_id=run, object_id=number))
        if not answer.object_found:
            raise ValueError("a piece of it is gone")
        return bytes(answer.object_content) if answer.object_available else None

    return fetch


def push(
    client: insides.FleetHttpClient,
    node: insides.node_pb2.Node,
    run: int,
    reply: Message,
    seconds: float,
    *,
    keep: Kept,
    until: float,
) -> None:
    """Sends an answer, whose work took `seconds`, until that time of the monotonic clock.

    After a lost connection it continues with the piece that was cut off.
    """
    taken = keep(client.PushMessages)(
        insides.fleet_pb2.PushMessagesRequest(
            node=node,
            messages_list=[insides.message_to_proto(insides.remove_content_from_message(reply))],
            message_object_trees=[insides.get_object_tree(reply)],
            clientapp_runtime_list=[seconds],
        )
    )
    pieces = insides.get_all_nested_objects(reply)
    # An announcement that the server has read already is not taken twice: its repetition asks for no piece at all.
    wanted, session = set(taken.objects_to_push), taken.session_id
    if not wanted:
        wanted, session = set(pieces), ""
    for number, piece in pieces.items():
        if number in wanted:
            deliver(client, node, run, number, piece.deflate(), session, keep=keep, until=until)


def deliver(
    client: insides.FleetHttpClient,
    node: insides.node_pb2.Node,
    run: int,
    number: str,
    content: bytes,
    session: str,
    *,
    keep: Kept,
    until: float,
) -> None:
    """Sends one piece until it is there; a ValueError where nobody waits for it."""
    while True:
        request = insides.message_pb2.PushObjectRequest(
            node=node, run_id=run, object_id=number, object_content=content, session_id=session
        )
        if keep(client.PushObject)(request).stored:
            return
        there = keep(client.PullObject)(
            insides.message_pb2.PullObjectRequest(node=node, run_id=run, object_id=number)
        )
        if there.object_available:  # an earlier attempt got through, and its reply was lost
            return
        if not there.object_found:
            raise ValueError("nobody waits for this answer any more")
        if time.monotonic() > until:
            raise ValueError("it could not be stored in time")
        session = ""  # whichever announcement it belongs to
        time.sleep(AGAIN)


MOST_REPLY = 64 * 2**20  # bytes; messages come in pieces of 1 MB


def bound_replies(client: httpx.Client, most: int = MOST_REPLY) -> None:
    """Makes a client take plain replies of that many bytes at most, from the address that it asked."""
    client.follow_redirects = False
    client.headers["accept-encoding"] = "identity"
    client._transport = BoundedReplies(client._transport, most)
    client._mounts = {
        pattern: None if transport is None else BoundedReplies(transport, most)
        for pattern, transport in client._mounts.items()
    }


class BoundedReplies(httpx.BaseTransport):  # type: ignore[misc]
    """A transport that refuses what no honest server sends; as a `RequestError`, which is not tried again at once."""

    def __init__(self, inner: httpx.BaseTransport, most: int) -> None:
        self.inner = inner
        self.most = most

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = self.inner.handle_request(request)
        why = ""
        if response.is_redirect:
            why = f"it sends this site elsewhere ({response.status_code}), which no site follows"
        elif response.headers.get("content-encoding", "identity") != "identity":
            why = "its reply is packed, which nobody asked for"
        if why:
            response.close()
            raise httpx.RequestError(why, request=request)
        assert isinstance(response.stream, httpx.SyncByteStream)
        response.stream = Bounded(response.stream, self.most, request)
        return response

    def close(self) -> None:
        self.inner.close()


class Bounded(httpx.SyncByteStream):  # type: ignore[misc]
    """The bytes of a reply, up to a bound."""

    def __init__(self, inner: httpx.SyncByteStream, most: int, request: httpx.Request) -> None:
        self.inner = inner
        self.most = most
        self.request = request

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        for piece in self.inner:
            size += len(piece)
            if size > self.most:
                raise httpx.RequestError(f"its reply is larger than {self.most} bytes", request=self.request)
            yield piece

    def close(self) -> None:
        self.inner.close()
