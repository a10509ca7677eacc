"""A message of Flower's as it comes in, piece by piece: bounded before it is put together, and never waited for.

Flower waits up to two hours for pieces that somebody announced and never sent, and one piece may stand in an array
as often as its sender likes. Here whoever collects comes back later, and an array is measured before it is made.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from flwr.app import Array, Message
from flwr.proto.message_pb2 import ObjectTree, PullObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_object import (
    get_object_body,
    get_object_children_ids_from_object_content,
    get_object_type_from_object_content,
    iterate_object_tree,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents


class TooLarge(ValueError):  # noqa: N818
    """What was sent is larger than any honest message could be."""


class Incoming:
    """The pieces of one message; `most` bounds what it may hold in bytes."""

    def __init__(self, tree: ObjectTree, most: int) -> None:
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
        message.metadata.__dict__["_message_id"] = self.number
        return message

    def measure(self, array: bytes) -> None:
        """Refuses an array that names its pieces so often that it grows beyond the bound."""
        children = get_object_children_ids_from_object_content(array)
        order = json.loads(get_object_body(array, Array))["arraychunk_ids"]
        if sum(len(self.pieces[children[place]]) for place in order) > self.most:
            raise TooLarge(f"it is larger than {self.most} bytes")


def fetcher(pull: Callable[[PullObjectRequest], Any], node: Node, run: int) -> Callable[[str], bytes | None]:
    """Gets a piece by its number, or None while it has not come."""

    def fetch(number: str) -> bytes | None:
        answer = pull(PullObjectRequest(node=node, run_id=run, object_id=number))
        if not answer.object_found:
            raise ValueError("a piece of it is gone")
        return bytes(answer.object_content) if answer.object_available else None

    return fetch
