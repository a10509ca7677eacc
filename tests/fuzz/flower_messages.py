"""Flower's messages as strangers make them: bodies at the open port, and messages in pieces."""

from __future__ import annotations

from typing import Any

from flwr.proto.fleet_pb2 import PullMessagesRequest, PullMessagesResponse, PushMessagesRequest
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import Message as Head
from flwr.proto.message_pb2 import ObjectTree, PullObjectRequest, PushObjectRequest, PushObjectResponse
from flwr.proto.node_pb2 import Node
from hypothesis import strategies as st

from covey.deploy.flower.grid import from_record
from covey.deploy.mailboxes import (
    ANSWER,
    ARRIVE,
    BEAT,
    FETCH,
    GOT_IT,
    LOOK,
    STORE,
    Given,
    Mailboxes,
    holds_nothing,
    node_of,
    objection_to,
)
from covey.deploy.pieces import Incoming
from tests.deploy.flower_pieces import sent

SMALL = sent(b"an answer")
LARGE = sent(bytes(range(256)) * 5000)
BOXES = Mailboxes()
STORED = PushObjectResponse(stored=True).SerializeToString()


def packed() -> st.SearchStrategy[tuple[str, bytes]]:
    """A path and a body."""
    from tests.fuzz.frame import damaged

    right = [
        PullMessagesRequest(node=Node(node_id=7)).SerializeToString(),
        SendNodeHeartbeatRequest(node=Node(node_id=7), heartbeat_interval=30).SerializeToString(),
        PullMessagesResponse(messages_list=[Head()]).SerializeToString(),
        PushMessagesRequest(messages_list=[Head()], message_object_trees=[SMALL[0]]).SerializeToString(),
        PullObjectRequest(node=Node(node_id=7), object_id=SMALL[0].object_id).SerializeToString(),
        *(PushObjectRequest(object_id=n, object_content=c).SerializeToString() for n, c in SMALL[1].items()),
    ]
    bodies = st.binary(max_size=120) | st.one_of(*map(damaged, right)) | st.sampled_from(right)
    return st.tuples(st.sampled_from([LOOK, GOT_IT, BEAT, ANSWER, FETCH, STORE]), bodies)


def read(case: tuple[str, bytes]) -> str:
    """What the port makes of it; what it remembers is bounded by keys and nodes, which are bounded here."""
    path, body = case
    node = node_of(path if path not in (ANSWER, STORE) else LOOK, body)
    holds_nothing(body)
    objection_to(body, 64)
    BOXES.piece(body)
    BOXES.visited("k", ARRIVE, b"", Given(status=200, headers={}, content=body))
    BOXES.visited("k", path, body, Given(status=200, headers={}, content=STORED))
    BOXES.beats.clear()
    BOXES.keys.clear()
    return "not readable" if node is None else "read"


def parcels() -> st.SearchStrategy[tuple[Any, dict[str, bytes]]]:
    """A message of which one piece was changed, is another one's, or is missing."""
    from tests.fuzz.frame import damaged

    def changed(whole: tuple[ObjectTree, dict[str, bytes]]) -> st.SearchStrategy[Any]:
        tree, pieces = whole
        numbers = st.sampled_from(list(pieces))
        other = st.sampled_from([piece[:2000] for piece in pieces.values()]).flatmap(damaged)
        swapped = st.sampled_from(list(pieces.values())) | other | st.binary(max_size=60)
        return st.builds(lambda number, piece: (tree, {**pieces, number: piece}), numbers, swapped)

    return changed(SMALL) | changed(LARGE)


def opened(case: tuple[Any, dict[str, bytes]]) -> str:
    """A message that is put together from what came."""
    tree, pieces = case
    try:
        incoming = Incoming(tree, 2**22)
        assert incoming.take(pieces.get)
        from_record(incoming.message().content)
    except ValueError:
        return "refused"
    return "read"
