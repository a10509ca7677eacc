"""Flower's insides, name by name: what covey relies on, and what breaks when a version of Flower changes it."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, Message, RecordDict

from covey.deploy import flower_insides as insides
from covey.deploy.flower.grid import to_record
from covey.deploy.flower_transport import APP

ROOT = Path(__file__).parents[2]
PUBLIC = re.compile(r"flwr(\.(app|clientapp|clientapp\.mod|serverapp|serverapp\.strategy))?")
KEY = "-----BEGIN PUBLIC KEY-----"


def message(content: RecordDict | None = None) -> Message:
    insides.TaskIdentity.task_id, insides.TaskIdentity.run_id, insides.TaskIdentity.node_id = 1, 1, 1
    question = Message(content or to_record(b"x"), dst_node_id=7, message_type="query.hello")
    return insides.number_it(question)


def pieces_of(one: Message) -> dict[str, bytes]:
    return {number: part.deflate() for number, part in insides.get_all_nested_objects(one).items()}


def an_array() -> tuple[Message, bytes]:
    import numpy as np

    one = message(RecordDict({"x": ArrayRecord({"a": Array(np.arange(3))})}))
    found = [
        piece
        for piece in pieces_of(one).values()
        if insides.get_object_type_from_object_content(piece) == Array.__qualname__
    ]
    return one, found[0]


def fields(module: Any, **kinds: str) -> None:
    """Every message of the protocol has these fields."""
    for kind, names in kinds.items():
        assert set(names.split()) <= set(getattr(module, kind).DESCRIPTOR.fields_by_name), kind


def takes(function: Callable[..., Any], *names: str) -> None:
    assert set(names) <= set(inspect.signature(function).parameters)


def methods(made: type, *names: str) -> None:
    assert [name for name in names if not callable(getattr(made, name, None))] == []


def test_a_message_goes_to_pieces_and_back() -> None:
    one = message()
    numbers = [tree.object_id for tree in insides.iterate_object_tree(insides.get_object_tree(one))]
    assert set(numbers) == set(pieces_of(one))
    assert numbers[-1] == one.object_id == one.metadata.message_id
    again = insides.inflate_object_from_contents(one.object_id, pieces_of(one))
    assert again.content["covey"]["block"] == b"x"


def check_control() -> None:
    fields(
        insides.control_pb2,
        ListNodesRequest="",
        ListNodesResponse="nodes_info",
        RegisterNodeRequest="public_key name",
        UnregisterNodeRequest="node_id",
        StartRunRequest="fab",
        StartRunResponse="run_id",
    )


def check_fleet() -> None:
    fields(
        insides.fleet_pb2,
        RegisterNodeFleetRequest="public_key",
        UnregisterNodeFleetRequest="node_id",
        ActivateNodeRequest="public_key heartbeat_interval",
        ActivateNodeResponse="node_id",
        DeactivateNodeRequest="node_id",
        PullMessagesRequest="node",
        PullMessagesResponse="messages_list message_object_trees",
        PushMessagesRequest="node messages_list message_object_trees clientapp_runtime_list",
        PushMessagesResponse="objects_to_push session_id",
    )


def check_message() -> None:
    fields(
        insides.message_pb2,
        PullObjectRequest="node run_id object_id",
        PullObjectResponse="object_found object_available object_content",
        PushObjectRequest="node run_id object_id object_content session_id",
        PushObjectResponse="stored",
        ConfirmMessageReceivedRequest="node run_id message_object_id",
        ObjectTree="object_id children",
        Metadata="src_node_id reply_to_message_id",
    )


def check_runtime() -> None:
    fields(
        insides.runtime_pb2,
        AcquireTaskRequest="supported_task_types",
        AcquireTaskResponse="token task",
        PullAppMessagesRequest="message_ids",
        PullAppMessagesResponse="messages_list message_object_trees",
        PullTaskInputRequest="",
        PullTaskInputResponse="task_id run context",
        PushTaskOutputRequest="sub_status details",
        SendTaskHeartbeatRequest="",
    )


def check_run() -> None:
    from flwr.proto.run_pb2 import Run

    assert insides.run_from_proto(Run(run_id=5)).run_id == 5


def check_number() -> None:
    one = message()
    assert one.metadata.message_id == one.object_id


def check_grid(part: Callable[[Any], Any], name: str) -> None:
    grid = insides.HttpGrid("127.0.0.1:1", True, None, token="t")
    assert callable(getattr(part(grid), name))
    takes(insides.HttpGrid, "runtime_api_address", "insecure", "root_certificates", "token")
    methods(insides.HttpGrid, "set_run", "get_nodes", "push_messages", "pull_messages", "close")


def check_http() -> None:
    with insides.FleetHttpClient.from_server_address("127.0.0.1:1", True, None, []) as client:
        assert {"timeout", "follow_redirects", "headers", "_transport", "_mounts"} <= set(
            dir(insides.http_of(client))
        )


def check_identity() -> None:
    code = (
        "from covey.deploy.flower_insides import identified; identified();"
        "from flwr.app import Message, RecordDict; Message(RecordDict(), dst_node_id=1, message_type='train')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def check_retry() -> None:
    retry = insides.make_simple_http_retry_invoker()
    assert isinstance(retry, insides.RetryInvoker)
    assert {"max_time", "max_tries"} <= set(vars(retry))
    assert callable(retry.should_giveup)


def check_heart() -> None:
    takes(insides.HeartbeatSender, "heartbeat_fn")
    methods(insides.HeartbeatSender, "start", "stop")


def check_keys() -> None:
    private, public = insides.generate_key_pairs()
    assert insides.public_key_to_bytes(public).decode().startswith(KEY)
    assert private.curve.name == "secp384r1"


def check_signed_head() -> None:
    from types import SimpleNamespace

    import httpx

    from covey.deploy.http_connection import check_signature

    asked = SimpleNamespace(request=httpx.Request("POST", "http://x/v1/fleet/pull-messages"))
    insides.NodeAuthHttpInterceptor(*insides.generate_key_pairs()).intercept(asked, lambda seen: seen)
    assert check_signature(asked.request.headers, "/v1/fleet/pull-messages", lambda _: "").startswith(KEY)


def check_fab() -> None:
    content = insides.build_fab_from_files(APP)[0]
    sent = insides.fab_to_proto(insides.Fab(hash_str="", content=content, verifications={}))
    assert sent.content == content


def check_array_body() -> None:
    import json

    _, piece = an_array()
    order = json.loads(insides.get_object_body(piece, Array))["arraychunk_ids"]
    assert len(order) == len(insides.get_object_children_ids_from_object_content(piece)) == 1


CLIENTS = {
    "ControlHttpClient": "ListNodes RegisterNode UnregisterNode StartRun from_server_address close",
    "FleetHttpClient": "RegisterNode UnregisterNode ActivateNode DeactivateNode SendNodeHeartbeat PullMessages "
    "PushMessages PullObject PushObject ConfirmMessageReceived from_server_address",
    "RuntimeHttpClient": "AcquireTask PullTaskInput PushTaskOutput SendTaskHeartbeat PullMessages PullObject "
    "ConfirmMessageReceived from_server_address close",
}

# Every name: how it is tried, and what does not work without it.
NAMES: dict[str, tuple[Callable[[], object], str]] = {
    "HEARTBEAT_DEFAULT_INTERVAL": (
        lambda: insides.HEARTBEAT_DEFAULT_INTERVAL == 30 or pytest.fail("mailboxes.SURE, GONE"),
        "how long a dead site counts as online: SURE and GONE in mailboxes.py follow from it",
    ),
    "ControlHttpClient": (
        lambda: methods(insides.ControlHttpClient, *CLIENTS["ControlHttpClient"].split()),
        "the SuperLink is not told who may join, and no run begins",
    ),
    "DecodeError": (
        lambda: insides.parsed(insides.node_pb2.Node, b"\xff") is None,
        "broken bytes end the port",
    ),
    "ErrorCode": (
        lambda: (
            [getattr(insides.ErrorCode, n) for n in ("NODE_UNAVAILABLE", "MESSAGE_UNAVAILABLE")]
            + [insides.ErrorCode.REPLY_MESSAGE_UNAVAILABLE]
        ),
        "why a site did not answer is not said in words",
    ),
    "Fab": (check_fab, "no run begins: it has to have an app"),
    "FleetHttpClient": (
        lambda: methods(insides.FleetHttpClient, *CLIENTS["FleetHttpClient"].split()),
        "no site connects",
    ),
    "HeartbeatSender": (check_heart, "sites and runs count as dead after a minute"),
    "HttpGrid": (lambda: check_grid(insides.runtime_of, "PullMessages"), "the server has no mailbox"),
    "NodeAuthHttpInterceptor": (
        check_signed_head,
        "the port refuses every site: no signed head that it can check",
    ),
    "NodeStatus": (
        lambda: insides.NodeStatus.UNREGISTERED == "unregistered" or pytest.fail("another word"),
        "a server with a revoked site does not start again",
    ),
    "ObjectPushError": (
        lambda: issubclass(insides.ObjectPushError, Exception) or pytest.fail("no exception"),
        "a busy database ends the run",
    ),
    "RetryInvoker": (check_retry, "a SuperLink that is away for a second ends the run"),
    "RunNotRunningException": (
        lambda: issubclass(insides.RunNotRunningException, BaseException) or pytest.fail("no exception"),
        "a stopped run is a traceback",
    ),
    "RuntimeHttpClient": (
        lambda: methods(insides.RuntimeHttpClient, *CLIENTS["RuntimeHttpClient"].split()),
        "the server cannot act for its run",
    ),
    "RuntimeVersionHttpInterceptor": (
        lambda: takes(insides.RuntimeVersionHttpInterceptor, "component_name"),
        "the SuperLink refuses requests that do not say their version",
    ),
    "SubStatus": (
        lambda: (insides.SubStatus.COMPLETED, insides.SubStatus.FAILED),
        "runs never end at the SuperLink",
    ),
    "TaskIdentity": (message, "no message can be made outside of a process that Flower started"),
    "TaskType": (lambda: insides.TaskType.SERVER_APP, "the server does not get its run"),
    "build_fab_from_files": (check_fab, "no run begins: it has to have an app"),
    "control_pb2": (check_control, "the SuperLink is not told who may join, and no run begins"),
    "fab_to_proto": (check_fab, "no run begins"),
    "fleet_pb2": (check_fleet, "no site connects, and the port cannot read whose request it is"),
    "generate_key_pairs": (check_keys, "--insecure sites do not connect"),
    "get_all_nested_objects": (lambda: pieces_of(message()), "no answer leaves a site"),
    "get_object_body": (check_array_body, "an array is not measured before it is made"),
    "get_object_children_ids_from_object_content": (
        check_array_body,
        "an array is not measured before it is made",
    ),
    "get_object_tree": (lambda: insides.get_object_tree(message()).object_id, "no answer is announced"),
    "get_object_type_from_object_content": (an_array, "an array is not measured before it is made"),
    "heartbeat_pb2": (
        lambda: fields(insides.heartbeat_pb2, SendNodeHeartbeatRequest="node heartbeat_interval"),
        "sites count as dead after a minute",
    ),
    "http_of": (check_http, "a site waits for ever, follows redirections, and reads replies of any size"),
    "identified": (check_identity, "Flower's strategies do not run inside covey's loop"),
    "inflate_object_from_contents": (test_a_message_goes_to_pieces_and_back, "no message is read"),
    "iterate_object_tree": (test_a_message_goes_to_pieces_and_back, "no message is read"),
    "make_simple_http_retry_invoker": (check_retry, "a SuperLink that is away for a second ends the run"),
    "message_from_proto": (
        lambda: insides.message_from_proto(insides.message_to_proto(message())).metadata.ttl,
        "a site does not know until when its answer is waited for",
    ),
    "message_pb2": (check_message, "no piece of a message travels"),
    "message_to_proto": (lambda: insides.message_to_proto(message()), "no answer is announced"),
    "node_pb2": (lambda: fields(insides.node_pb2, Node="node_id"), "no request says whose it is"),
    "number_it": (check_number, "answers have no number"),
    "parsed": (
        lambda: (
            insides.parsed(
                insides.node_pb2.Node, insides.node_pb2.Node(node_id=3).SerializeToString()
            ).node_id
        ),
        "the port cannot read whose request it is",
    ),
    "public_key_to_bytes": (check_keys, "a site's key is not the one on the list"),
    "remove_content_from_message": (
        lambda: insides.remove_content_from_message(message()).metadata.message_id,
        "an answer is announced with all that it holds",
    ),
    "retry_of": (lambda: check_grid(insides.retry_of, "invoke"), "a dead SuperLink is tried for ever"),
    "run_from_proto": (check_run, "the mailbox does not know its run"),
    "runtime_of": (
        lambda: check_grid(insides.runtime_of, "PullObject"),
        "answers are read without a bound on their size",
    ),
    "runtime_pb2": (check_runtime, "the server cannot act for its run"),
}


@pytest.mark.parametrize("name", NAMES)
def test_each_name_is_what_covey_takes_it_for(name: str) -> None:
    check, breaks = NAMES[name]
    try:
        check()
    except Exception as error:
        raise AssertionError(f"{name} of this Flower is another: {breaks}") from error


def test_every_name_is_tried_and_all_of_them_are_in_one_file() -> None:
    here = {name for name in vars(insides) if not name.startswith("__")}
    assert set(NAMES) == here - {"Any", "Message", "annotations"}
    found = set()
    for file in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [part.name for part in node.names] if isinstance(node, ast.Import) else []
            if any(name.split(".")[0] == "flwr" and not PUBLIC.fullmatch(name) for name in names):
                found.add(file.name)
    assert found == {"flower_insides.py"}
