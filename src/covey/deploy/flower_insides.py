"""All of Flower that is not among its public names (`flwr.app`, `flwr.clientapp`, `flwr.serverapp`): nobody else
imports it.

`tests/deploy/test_flower_insides.py` tries every name by itself and says what breaks when Flower changes it.
"""

# ruff: noqa: F401
# mypy: implicit-reexport

from typing import Any

from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.cli.build import build_fab_from_files
from flwr.common.constant import HEARTBEAT_DEFAULT_INTERVAL, ErrorCode, SubStatus
from flwr.common.serde import fab_to_proto, message_from_proto, message_to_proto, run_from_proto
from flwr.proto import control_pb2, fleet_pb2, heartbeat_pb2, message_pb2, node_pb2, runtime_pb2
from flwr.supercore.constant import NodeStatus, TaskType
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.fab import Fab
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_body,
    get_object_children_ids_from_object_content,
    get_object_tree,
    get_object_type_from_object_content,
    iterate_object_tree,
)
from flwr.supercore.inflatable.inflatable_utils import ObjectPushError, inflate_object_from_contents
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes
from flwr.supercore.retry import RetryInvoker, make_simple_http_retry_invoker
from flwr.supercore.run import RunNotRunningException
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid import HttpGrid
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor
from google.protobuf.message import DecodeError


def number_it(message: Message, number: str = "") -> Message:
    """Gives a message its number, which Flower does only within a run of its own: the digest of what it holds."""
    message.metadata.__dict__["_message_id"] = number or message.object_id
    return message


def identified() -> None:
    """Lets a process that no SuperLink has started make messages: they name a run, a task and a node."""
    for name in ("task_id", "run_id", "node_id"):
        try:
            getattr(TaskIdentity, name)
        except RuntimeError:
            setattr(TaskIdentity, name, 1)


def runtime_of(grid: HttpGrid) -> RuntimeHttpClient:
    """The requests of a run's server, which its Grid makes for itself alone."""
    return grid._runtime_client


def retry_of(grid: HttpGrid) -> RetryInvoker:
    """How often, and for how long, a Grid repeats a request."""
    return grid._retry_invoker


def http_of(client: FleetHttpClient | RuntimeHttpClient) -> Any:
    """The HTTP client under one of Flower's: how long it waits and what it takes is set there."""
    return client._client


def parsed(kind: Any, data: bytes) -> Any:
    """A message of Flower's protocol; None where the bytes are none."""
    try:
        return kind.FromString(data)
    except DecodeError:
        return None
