"""A message as Flower sends it, for tests of both ends."""

from __future__ import annotations

from flwr.app import Message
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.task_identity import TaskIdentity

from covey.deploy.flower.grid import to_record

TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1


def sent(block: bytes) -> tuple[ObjectTree, dict[str, bytes]]:
    """A message with that block: what it consists of, and its pieces."""
    question = Message(to_record(b""), dst_node_id=7, message_type="query.hello")
    question.metadata.__dict__["_message_id"] = "1"
    message = Message(to_record(block), reply_to=question)
    message.metadata.__dict__["_message_id"] = message.object_id
    pieces = {number: part.deflate() for number, part in get_all_nested_objects(message).items()}
    return get_object_tree(message), pieces
