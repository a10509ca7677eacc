"""Flower's messages in pieces: one that comes is bounded before it is put together and never waited for; one that goes
is announced, and each of its pieces is sent until the SuperLink has it.

Flower waits up to two hours for pieces that somebody announced and never sent, and one piece may stand in an array
as often as its sender likes. Here whoever collects comes back later, and an array is measured before it is made.

A request whose reply was lost has been carried out, and is repeated. The SuperLink then says "not stored", as it also
does when its database was busy and when nobody waits for the answer any more. So a site that is told so looks whether
the piece is there, and continues or tries again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from flwr.app import Array, Message

from covey.deploy.flower_insides import (
    FleetHttpClient,
    fleet_pb2,
    get_all_nested_objects,
    get_object_body,
    get_object_children_ids_from_object_content,
    get_object_tree,
    get_object_type_from_object_content,
    inflate_object_from_contents,
    iterate_object_tree,
    message_pb2,
    message_to_proto,
    node_pb2,
    number_it,
    remove_content_from_message,
)

AGAIN = 1.0  # seconds before a piece that could not be stored is sent once more

Kept = Callable[
    [Callable[[Any], Any]], Callable[[Any], Any]
]  # a request that is repeated while it is worth it


class TooLarge(ValueError):  # noqa: N818
    """What was sent is larger than any honest message could be."""


class Incoming:
    """The pieces of one message; `most` bounds what it may hold in bytes."""

    def __init__(self, tree: message_pb2.ObjectTree, most: int) -> None:
        self.number = tree.object_id
        self.most = most
        self.missing: list[str] = []
        self.pieces: dict[str, bytes] = {}
        self.size = 0
        named: set[str] = set()
        for part in iterate_object_tree(tree):
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
                if get_object_type_from_object_content(piece) == Array.__qualname__:
                    self.measure(piece)
            message = inflate_object_from_contents(self.number, self.pieces)
            if not isinstance(message, Message):
                raise ValueError(f"it is a {type(message).__name__}, not a message")
        except TooLarge:
            raise
        except Exception as error:  # whatever the other side made of it
            raise ValueError(f"the message is not covey's ({type(error).__name__}: {error})") from error
        return number_it(message, self.number)

    def measure(self, array: bytes) -> None:
        """Refuses an array that names its pieces so often that it grows beyond the bound."""
        children = get_object_children_ids_from_object_content(array)
        order = json.loads(get_object_body(array, Array))["arraychunk_ids"]
        if sum(len(self.pieces[children[place]]) for place in order) > self.most:
            raise TooLarge(f"it is larger than {self.most} bytes")


def fetcher(
    pull: Callable[[message_pb2.PullObjectRequest], Any], node: node_pb2.Node, run: int
) -> Callable[[str], bytes | None]:
    """Gets a piece by its number, or None while it has not come."""

    def fetch(number: str) -> bytes | None:
        answer = pull(message_pb2.PullObjectRequest(node=node, run_id=run, object_id=number))
        if not answer.object_found:
            raise ValueError("a piece of it is gone")
        return bytes(answer.object_content) if answer.object_available else None

    return fetch


def push(
    client: FleetHttpClient,
    node: node_pb2.Node,
    run: int,
    reply: Message,
    seconds: float,
    *,
    keep: Kept,
    until: float,
) -> None:
    """Sends an answer, of which the work took so many seconds, until that time of the monotonic clock.

    After a break of the line it continues with the piece that broke.
    """
    taken = keep(client.PushMessages)(
        fleet_pb2.PushMessagesRequest(
            node=node,
            messages_list=[message_to_proto(remove_content_from_message(reply))],
            message_object_trees=[get_object_tree(reply)],
            clientapp_runtime_list=[seconds],
        )
    )
    pieces = get_all_nested_objects(reply)
    # An announcement that the server has read already is not taken twice: its repetition asks for no piece at all.
    wanted, session = set(taken.objects_to_push), taken.session_id
    if not wanted:
        wanted, session = set(pieces), ""
    for number, piece in pieces.items():
        if number in wanted:
            deliver(client, node, run, number, piece.deflate(), session, keep=keep, until=until)


def deliver(
    client: FleetHttpClient,
    node: node_pb2.Node,
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
        request = message_pb2.PushObjectRequest(
            node=node, run_id=run, object_id=number, object_content=content, session_id=session
        )
        if keep(client.PushObject)(request).stored:
            return
        there = keep(client.PullObject)(
            message_pb2.PullObjectRequest(node=node, run_id=run, object_id=number)
        )
        if there.object_available:  # an earlier attempt got through, and its reply was lost
            return
        if not there.object_found:
            raise ValueError("nobody waits for this answer any more")
        if time.monotonic() > until:
            raise ValueError("it could not be stored in time")
        session = ""  # whichever announcement it belongs to
        time.sleep(AGAIN)
