"""Who and what is refused over real connections: keys, certificates, paths, steps, models, versions, budgets.

The server is this process (SuperLink, door and mailbox), the sites are `covey join`.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

pytest.importorskip("flwr")
import httpx
from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
    RegisterNodeFleetRequest,
)
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.inflatable.inflatable_protobuf_utils import make_push_object_fn_protobuf
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

import covey
from covey.core.codec import from_bytes
from covey.deploy.certs import make_certs, private_key
from covey.deploy.connection import TurnedAway, connected, pulled_message
from covey.deploy.door import Door
from covey.deploy.enrolment import renew, revoke
from covey.deploy.flower.grid import to_record
from covey.deploy.flower_transport import SuperLinkTransport, flower_run
from covey.deploy.site_list import SiteList, listed_sites, write_list
from covey.deploy.superlink import Link, superlink
from covey.deploy.wire import step_to_plain
from covey.parts.steps.privacy import Privacy
from covey.parts.steps.summaries import LabelSummary
from tests.deploy.listed import site_list
from tests.deploy.live_deployment import Deployment
from tests.deploy.one_request import SPEC, one_request


@dataclass
class Server:
    """A server of which every message is written by hand."""

    here: Deployment
    transport: SuperLinkTransport
    inside: str

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.here.port}"

    def ask(self, node: int, **changes: Any) -> dict[str, Any]:
        (number,) = self.transport.send("train.sgd", {node: one_request(**changes)}, 1800)
        until = time.monotonic() + 1800
        while not (found := self.transport.collect([number], most=10**6, until=until)):
            assert time.monotonic() < until, "no answer in 1800 s"
            time.sleep(0.2)
        answer: dict[str, Any] = from_bytes(found[number].answer)
        return answer

    def node(self, seconds: float = 1800) -> int:
        """The first site that is there."""
        until = time.monotonic() + seconds
        while not (nodes := self.transport.nodes()):
            assert time.monotonic() < until, f"no site in {seconds} s"
            time.sleep(0.2)
        return next(iter(nodes))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Deployment(tmp_path_factory.mktemp("live"), sites=2) as here:
        certs = here.folder / "certs"
        with (
            superlink(certs, certs=certs) as link,
            flower_run(link, SiteList(certs).names) as transport,
            Door(link, certs, objection=SiteList(certs).objection).opened("127.0.0.1", here.port),
        ):
            yield Server(here, transport, link.address)


@pytest.fixture(scope="module")
def node(server: Server) -> int:
    """A site with a privacy budget of 1 that trusts the server with its updates, connected."""
    server.here.join(0, "--budget", "1", "--trust-server")
    return server.node()


def fleet_client(server: Server, *, keys: Any = None) -> FleetHttpClient:
    """A client of the fleet interface that knows the CA; without keys it signs nothing."""
    signed = [NodeAuthHttpInterceptor(*keys)] if keys else []
    version = RuntimeVersionHttpInterceptor(component_name="SuperNode")
    ca = str(server.here.folder / "certs" / "ca.crt")
    return FleetHttpClient.from_server_address(server.address, False, ca, [version, *signed])


def link_client(link: Link, secret: Any) -> FleetHttpClient:
    """A site's client that talks to the SuperLink itself."""
    signed = NodeAuthHttpInterceptor(secret, secret.public_key())
    version = RuntimeVersionHttpInterceptor(component_name="SuperNode")
    return FleetHttpClient.from_server_address(link.address, False, str(link.ca), [version, signed])


def refusal(call: Any, request: Any) -> int:
    with pytest.raises(httpx.HTTPStatusError) as caught:
        call(request)
    return caught.value.response.status_code


# ---------------------------------------------------------------------------------------------- who is refused


def test_a_client_without_a_key_is_refused(server: Server, node: int) -> None:
    with fleet_client(server) as client:
        assert refusal(client.PullMessages, PullMessagesRequest(node=Node(node_id=node))) == 401
        assert refusal(client.RegisterNode, RegisterNodeFleetRequest(public_key=b"x")) == 401


def test_a_client_with_an_unregistered_key_is_refused(server: Server, node: int) -> None:
    keys = generate_key_pairs()
    shown = public_key_to_bytes(keys[1])
    with fleet_client(server, keys=keys) as client:
        assert refusal(client.RegisterNode, RegisterNodeFleetRequest(public_key=shown)) == 412
        start = ActivateNodeRequest(public_key=shown, heartbeat_interval=30)
        assert refusal(client.ActivateNode, start) == 412
        # nor may it take another site's messages
        assert refusal(client.PullMessages, PullMessagesRequest(node=Node(node_id=node))) == 401


@pytest.mark.parametrize(("seconds", "welcome"), [(0, True), (-295, True), (-315, False), (15, False)])
def test_a_site_whose_clock_is_wrong_is_refused(
    server: Server, node: int, seconds: float, welcome: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From 305 s behind to 5 s ahead, as docs/site-rules.md tells a site's administrator."""
    clock = "flwr.supernode.node_auth_http_interceptor.now"
    monkeypatch.setattr(clock, lambda: datetime.now(UTC) + timedelta(seconds=seconds))
    secret = private_key(server.here.folder / "certs" / "sites" / "site-0.key")
    request = PullMessagesRequest(node=Node(node_id=node))
    with fleet_client(server, keys=(secret, secret.public_key())) as client:
        if welcome:
            assert not client.PullMessages(request).messages_list
        else:
            assert refusal(client.PullMessages, request) == 401


def test_a_site_that_was_taken_off_the_list_is_refused_from_the_next_start_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_task_id", "_run_id", "_node_id"):  # of this process, which is the other tests' server
        monkeypatch.setattr(TaskIdentity, name, getattr(TaskIdentity, name))
    make_certs(tmp_path, hosts=["127.0.0.1"], sites=["stays", "goes"])
    stays, goes = [site["public_key"] for site in site_list(tmp_path)]
    secret = private_key(tmp_path / "sites" / "goes.key")
    start = ActivateNodeRequest(public_key=goes.encode(), heartbeat_interval=30)
    with superlink(tmp_path, certs=tmp_path) as link:
        with flower_run(link, lambda: {stays: "stays", goes: "goes"}), link_client(link, secret) as client:
            node = client.ActivateNode(start).node_id
            client.DeactivateNode(DeactivateNodeRequest(node_id=node))
        with flower_run(link, lambda: {stays: "stays"}) as transport, link_client(link, secret) as client:
            assert refusal(client.ActivateNode, start) == 412
            assert not transport.nodes()


def test_a_server_starts_again_and_again_after_sites_were_revoked_and_have_expired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a site whose certificate was renewed comes back with the same key."""
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, getattr(TaskIdentity, name))
    make_certs(tmp_path, hosts=["127.0.0.1"], sites=["stays", "revoked", "expired"])
    secrets = {name: private_key(tmp_path / "sites" / f"{name}.key") for name in ("revoked", "expired")}
    keys = {site["name"]: site["public_key"] for site in site_list(tmp_path)}
    said: list[str] = []
    with superlink(tmp_path, certs=tmp_path) as link:
        sites = SiteList(tmp_path)
        with flower_run(link, sites.registered) as transport:
            assert {file.stat().st_mode & 0o777 for file in tmp_path.glob("superlink.*")} == {0o600}
            revoke(tmp_path, "revoked")
            transport.nodes()  # while the server runs
            listed, number = listed_sites(tmp_path)
            past = "2020-01-01T00:00:00+00:00"
            ended = [replace(s, until=past) if s.name == "expired" else s for s in listed]
            write_list(tmp_path, ended, number)
            assert list(sites.names().values()) == ["stays"]
            transport.nodes()
        for _ in range(2):
            again = flower_run(link, sites.registered, say=said.append)
            with again, link_client(link, secrets["revoked"]) as client:
                start = ActivateNodeRequest(public_key=keys["revoked"].encode(), heartbeat_interval=30)
                assert refusal(client.ActivateNode, start) == 412
        renew(tmp_path, ["expired"])
        assert sorted(sites.names().values()) == ["expired", "stays"]
        with flower_run(link, sites.registered, say=said.append) as transport:
            with link_client(link, secrets["expired"]) as client:
                start = ActivateNodeRequest(public_key=keys["expired"].encode(), heartbeat_interval=30)
                client.ActivateNode(start)
            assert list(transport.nodes().values()) == [keys["expired"]]
        assert said == []
        # a list that was written by hand is taken at its word, as far as the SuperLink can still do it
        with flower_run(link, lambda: dict.fromkeys(keys.values(), "somebody"), say=said.append):
            pass
    assert said == ["site somebody was taken off the SuperLink's list for good: it must make a new key"]


def test_join_says_in_one_sentence_why_it_is_refused(server: Server, tmp_path: Path) -> None:
    make_certs(tmp_path / "other", hosts=["127.0.0.1"], sites=["stranger"])
    stranger = str(tmp_path / "other" / "sites" / "stranger.key")
    here = server.here.folder / "certs"
    tries = {
        "no-key": (["--ca", str(here / "ca.crt")], "--key is missing", 2),
        "unregistered": (
            ["--ca", str(here / "ca.crt"), "--key", stranger, "--name", "site-0"],
            f"{server.address} refuses this site: its key is not registered there",
            1,  # the server may mend it
        ),
        "wrong-ca": (
            ["--ca", str(tmp_path / "other" / "ca.crt"), "--key", str(here / "sites" / "site-0.key")],
            f"the certificate of {server.address} is not of --ca",
            2,
        ),
    }
    started = {
        name: server.here.start(
            name, "join", server.address, "--data", "site.py:load", "--state", str(tmp_path / name), *words
        )
        for name, (words, _, _) in tries.items()
    }
    for name, program in started.items():
        _, sentence, code = tries[name]
        assert program.end() == code, program.said()
        assert f"covey: {sentence}" in program.said()
        assert "Traceback" not in program.said()
    # A refusal may pass, so it is tried for a while; whoever waits is told at once.
    assert "its key is not registered there, or another process uses it now; trying again for 75 s" in (
        started["unregistered"].said()
    )


# ---------------------------------------------------------------------------------------------- what is not reachable


@pytest.mark.parametrize(
    "path", ["/v1/control/start-run", "/v1/control/register-node", "/v1/runtime/acquire-task", "/docs", "/"]
)
def test_the_exposed_port_leads_to_the_fleet_interface_only(server: Server, path: str) -> None:
    ca = str(server.here.folder / "certs" / "ca.crt")
    assert httpx.post(f"https://{server.address}{path}", verify=ca).status_code == 404


def test_the_exposed_port_speaks_tls_only(server: Server) -> None:
    with pytest.raises(httpx.TransportError):
        httpx.post(f"http://{server.address}/v1/fleet/pull-messages")


def test_the_superlink_itself_listens_on_loopback_only(server: Server) -> None:
    (link,) = [p for p in psutil.Process().children() if "flower-superlink" in " ".join(p.cmdline())]
    addresses = {c.laddr.ip for c in link.net_connections() if c.status == psutil.CONN_LISTEN}
    assert addresses == {"127.0.0.1"}


# ---------------------------------------------------------------------------------------------- what a site refuses


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"step": {"step": "Steal", "settings": {}}},
            "the step 'Steal' is not known to this site's covey",
        ),
        (
            {"model": {**SPEC.plain(), "name": "spy"}},
            "the model 'spy' is not known to this site's covey",
        ),
        (
            {"covey": "9.9"},
            f"the server has covey 9.9, this site has {covey.__version__}; install the same",
        ),
    ],
)
def test_a_real_site_refuses_in_one_sentence(
    server: Server, node: int, changes: dict[str, Any], sentence: str
) -> None:
    assert server.ask(node, **changes) == {"refused": sentence}


def test_a_real_site_trains_when_asked_properly(server: Server, node: int) -> None:
    assert server.ask(node)["reply"]["vector"].shape == (4810,)


def summary(server: Server, node: int, epsilon: float, run: str) -> dict[str, Any]:
    step = step_to_plain(LabelSummary(privacy=Privacy(epsilon=epsilon)))
    return server.ask(node, step=step, run=run, task={"args": {}})


def test_a_real_sites_noise_is_no_function_of_the_seed_and_its_budget_holds(
    server: Server, node: int
) -> None:
    first, second = (summary(server, node, 0.1, run)["reply"]["stats"] for run in ("a", "b"))
    counts = [next(v for k, v in stats.items() if k != "epsilon") for stats in (first, second)]
    assert list(counts[0]) != list(
        counts[1]
    )  # the same seed, round and client: simulated noise would be equal
    assert summary(server, node, 0.5, "c")["reply"]["stats"]["epsilon"] == pytest.approx(0.7)
    assert "0.7 of the budget of 1 is spent" in summary(server, node, 0.5, "d")["refused"]


# ---------------------------------------------------------------------------------------------- what a site may answer


@dataclass
class Liar:
    """A site that answers with whatever pieces it likes."""

    server: Server
    client: FleetHttpClient
    node: Node

    def asked(self) -> tuple[str, Message]:
        """Has the server ask it something; gives the question's number and the question."""
        (number,) = self.server.transport.send("query.hello", {self.node.node_id: b"a question"}, 600)
        until = time.monotonic() + 1800
        while not (pulled := self.client.PullMessages(PullMessagesRequest(node=self.node))).messages_list:
            assert time.monotonic() < until
            time.sleep(0.1)
        run = message_from_proto(pulled.messages_list[0]).metadata.run_id
        tree = pulled.message_object_trees[0]
        return number, pulled_message(self.client, self.node, run, tree, 10**6, until=time.monotonic() + 1800)

    def answer(self, question: Message, block: bytes, *, pieces: int | None = None) -> None:
        """Announces an answer and sends so many of its pieces (None: all)."""
        reply = Message(to_record(block), reply_to=question)
        reply.metadata.__dict__["_message_id"] = reply.object_id
        taken = self.client.PushMessages(
            PushMessagesRequest(
                node=self.node,
                messages_list=[message_to_proto(remove_content_from_message(reply))],
                message_object_trees=[get_object_tree(reply)],
                clientapp_runtime_list=[0.0],
            )
        )
        run = question.metadata.run_id
        put = make_push_object_fn_protobuf(self.client.PushObject, self.node, run, taken.session_id)
        for number, part in list(get_all_nested_objects(reply).items())[:pieces]:
            put(number, part.deflate())

    def collected(self, number: str, most: int) -> Any:
        return self.server.transport.collect([number], most=most, until=time.monotonic() + 1800).get(number)


@pytest.fixture(scope="module")
def liar(server: Server, node: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Liar]:
    """A second site with a key of its own, of which every message is written by hand."""
    certs = server.here.folder / "certs"
    note = tmp_path_factory.mktemp("liar") / "node"
    with connected(server.address, certs / "ca.crt", private_key(certs / "sites" / "site-1.key"), note) as (
        client,
        mine,
    ):
        yield Liar(server, client, mine)


def test_an_answer_that_is_announced_and_never_sent_holds_nobody_up(liar: Liar) -> None:
    number, question = liar.asked()
    liar.answer(question, b"x" * 1000, pieces=1)
    started = time.monotonic()
    assert [liar.collected(number, 10**6) for _ in range(5)] == [None] * 5
    assert time.monotonic() - started < 1200  # Flower would wait for an hour, and with it the whole round


def test_an_answer_beyond_the_bound_is_refused_before_it_is_put_together(liar: Liar) -> None:
    number, question = liar.asked()
    liar.answer(question, bytes(range(256)) * 2**16)  # 16 MB
    until = time.monotonic() + 1800
    while (found := liar.collected(number, 10**6)) is None:
        assert time.monotonic() < until
    assert found.refused == "its answer is not read: it is larger than 1000000 bytes"


def test_a_thief_with_a_sites_key_is_turned_away_while_the_site_is_there(liar: Liar, tmp_path: Path) -> None:
    """It cannot sign off the site either, whose node has a number of 64 random bits."""
    certs = liar.server.here.folder / "certs"
    stolen = private_key(certs / "sites" / "site-1.key")
    with (
        pytest.raises(TurnedAway, match="another process uses it now"),
        connected(liar.server.address, certs / "ca.crt", stolen, tmp_path / "node"),
    ):
        pass
    assert liar.node.node_id in liar.server.transport.nodes()


def test_a_site_that_is_revoked_is_dropped_by_the_running_server(liar: Liar) -> None:
    assert liar.node.node_id in liar.server.transport.nodes()
    revoke(liar.server.here.folder / "certs", "site-1")
    assert refusal(liar.client.PullMessages, PullMessagesRequest(node=liar.node)) == 401
    assert liar.node.node_id not in liar.server.transport.nodes()
