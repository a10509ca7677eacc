"""An answer on its way to the server: it is announced, and then each of its pieces is sent until the SuperLink has it.

A request whose reply was lost has been carried out, and is repeated. The SuperLink then says "not stored", as it also
does when its database was busy and when nobody waits for the answer any more. So a site that is told so looks whether
the piece is there, and continues or tries again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.proto.message_pb2 import PullObjectRequest, PushObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supernode.fleet_http_client import FleetHttpClient

AGAIN = 1.0  # seconds before a piece that could not be stored is sent once more

Kept = Callable[
    [Callable[[Any], Any]], Callable[[Any], Any]
]  # a request that is repeated while it is worth it


def push(
    client: FleetHttpClient,
    node: Node,
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
        PushMessagesRequest(
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
    node: Node,
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
        request = PushObjectRequest(
            node=node, run_id=run, object_id=number, object_content=content, session_id=session
        )
        if keep(client.PushObject)(request).stored:
            return
        there = keep(client.PullObject)(PullObjectRequest(node=node, run_id=run, object_id=number))
        if there.object_available:  # an earlier attempt got through, and its reply was lost
            return
        if not there.object_found:
            raise ValueError("nobody waits for this answer any more")
        if time.monotonic() > until:
            raise ValueError("it could not be stored in time")
        session = ""  # whichever announcement it belongs to
        time.sleep(AGAIN)
