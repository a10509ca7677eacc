"""Replies that get lost on their way: a request was carried out, its sender does not know, and repeats it.

SuperLink and run are real, the site's client loses the replies that a test names.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("flwr")
from flwr.app import Message
from flwr.proto.fleet_pb2 import PullMessagesRequest
from flwr.proto.message_pb2 import (
    PullObjectRequest,
    PullObjectResponse,
    PushObjectRequest,
    PushObjectResponse,
)
from flwr.proto.node_pb2 import Node
from flwr.supernode.fleet_http_client import FleetHttpClient

from covey.core.codec import from_bytes
from covey.deploy import connection, pieces
from covey.deploy.connection import answer_one, connected, pulled_message
from covey.deploy.door import Door
from covey.deploy.flower.grid import to_record
from covey.deploy.flower_transport import SuperLinkTransport, flower_run
from covey.deploy.mailboxes import Mailboxes
from covey.deploy.site import Site
from covey.deploy.superlink import free_port, superlink
from covey.deploy.transport import Response
from covey.deploy.wire import step_to_plain
from covey.parts.steps.privacy import Privacy
from covey.parts.steps.summaries import LabelSummary
from tests.deploy.one_request import one_request
from tests.deploy.sites_by_hand import sites

ALL = ("PullMessages", "PullObject", "ConfirmMessageReceived", "PushMessages", "PushObject")


@dataclass
class Flaky:
    """A client of the fleet interface: `lose` says of how many requests of each kind the reply gets lost, `fail` of
    how many the SuperLink says that they failed, and `busy` how many pieces its database does not take."""

    client: FleetHttpClient
    lose: Counter[str] = field(default_factory=Counter)
    fail: Counter[str] = field(default_factory=Counter)
    busy: int = 0
    meanwhile: Callable[[], None] = lambda: None  # what happens before the request is repeated

    def __getattr__(self, name: str) -> Callable[[Any], Any]:
        def call(request: Any) -> Any:
            if self.fail[name] > 0:
                self.fail[name] -= 1
                url = httpx.Request("POST", "http://superlink")
                raise httpx.HTTPStatusError("500", request=url, response=httpx.Response(500, request=url))
            if name == "PushObject" and self.busy:
                self.busy -= 1
                return PushObjectResponse(stored=False)
            answer = getattr(self.client, name)(request)
            if self.lose[name] > 0:
                self.lose[name] -= 1
                self.meanwhile()
                raise httpx.ReadError("the line broke")
            return answer

        return call


@dataclass
class Exchange:
    """A server, and a site whose replies may get lost."""

    transport: SuperLinkTransport
    client: FleetHttpClient
    node: Node
    said: list[str] = field(default_factory=list)
    worked: int = 0

    def collected(self, number: str) -> Response | None:
        found = self.transport.collect([number], most=10**8, until=time.monotonic() + 600)
        return found.get(number)

    def ask(self, answer: Callable[[bytes], bytes], question: bytes = b"?", **flaws: Any) -> Response:
        """Asks the site over a line with these flaws; gives what the server gets."""
        self.worked, self.said = 0, []
        early: list[Response] = []
        (number,) = self.transport.send("query.hello", {self.node.node_id: question}, 600)

        def looks() -> None:
            if found := self.collected(number):
                early.append(found)

        def work(block: bytes) -> bytes:
            self.worked += 1
            return answer(block)

        line = Flaky(self.client, meanwhile=looks, **flaws)
        assert answer_one(line, self.node, work, self.said.append)  # type: ignore[arg-type]
        looks()
        assert len(early) == 1, f"{len(early)} answers came: {self.said}"
        assert (+line.lose, +line.fail, line.busy) == ({}, {}, 0), "a flaw was not met"
        return early[0]


@pytest.fixture(scope="module")
def exchange(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exchange]:
    folder, port, boxes = tmp_path_factory.mktemp("link"), free_port(), Mailboxes()
    with (
        superlink(folder, certs=None) as link,
        flower_run(link, dict, boxes) as transport,
        Door(link, None, mailboxes=boxes).opened("127.0.0.1", port),
        connected(f"127.0.0.1:{port}", None, None, folder / "node") as (client, node),
    ):
        yield Exchange(transport, client, node)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "AGAIN", 0.01)
    monkeypatch.setattr(connection, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(connection, "LONGEST_PAUSE", 0.01)


@pytest.mark.parametrize("name", ["PushMessages", "PushObject"])
def test_an_answer_arrives_where_the_reply_to_one_request_was_lost(exchange: Exchange, name: str) -> None:
    """The server looks for the answer before the request is repeated, as it does five times a second."""
    found = exchange.ask(lambda block: b"the answer to " + block, lose=Counter({name: 1}))
    assert (found.answer, exchange.worked, exchange.said) == (b"the answer to ?", 1, [])


def test_a_large_answer_arrives_where_replies_to_its_pieces_were_lost(exchange: Exchange) -> None:
    block = bytes(range(256)) * 2**14  # 4 MB: five pieces and more
    found = exchange.ask(lambda _: block, lose=Counter({"PushObject": 2, "PushMessages": 1}))
    assert (found.answer == block, exchange.worked, exchange.said) == (True, 1, [])


def test_an_answer_arrives_where_the_superlink_failed_for_a_moment(exchange: Exchange) -> None:
    found = exchange.ask(lambda block: b"the answer to " + block, fail=Counter(dict.fromkeys(ALL, 5)))
    assert (found.answer, exchange.worked) == (b"the answer to ?", 1)


def test_a_piece_that_the_superlink_could_not_store_is_sent_again(exchange: Exchange) -> None:
    found = exchange.ask(lambda block: b"the answer to " + block, busy=3)
    assert (found.answer, exchange.said) == (b"the answer to ?", [])


def test_a_question_arrives_where_the_superlink_could_not_store_a_piece(
    exchange: Exchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime, refused = exchange.transport.runtime, [True, True]
    push = runtime.PushObject

    def busy(request: Any) -> Any:
        return PushObjectResponse(stored=False) if refused and refused.pop() else push(request)

    monkeypatch.setattr(runtime, "PushObject", busy)
    assert exchange.ask(lambda block: block, question=b"once more").answer == b"once more"
    assert refused == []


def test_a_second_answer_to_a_question_is_not_taken(exchange: Exchange) -> None:
    """A malicious site changes its mind: the first answer counts."""
    (number,) = exchange.transport.send("query.hello", {exchange.node.node_id: b"?"}, 600)
    pulled = exchange.client.PullMessages(PullMessagesRequest(node=exchange.node))
    run = pulled.messages_list[0].metadata.run_id
    tree = pulled.message_object_trees[0]
    until = time.monotonic() + 600
    question = pulled_message(exchange.client, exchange.node, run, tree, 10**6, until=until)
    settings: dict[str, Any] = {"keep": connection.once, "until": until}
    for block in (b"the first", b"the second"):
        reply = Message(to_record(block), reply_to=question)
        reply.metadata.__dict__["_message_id"] = reply.object_id
        with contextlib.suppress(ValueError):
            pieces.push(exchange.client, exchange.node, run, reply, 0.1, **settings)
    found = exchange.collected(number)
    assert found is not None
    assert found.answer == b"the first"


class Deaf:
    """A SuperLink that does not know the answer's question any more."""

    def PushObject(self, request: PushObjectRequest) -> PushObjectResponse:  # noqa: N802
        return PushObjectResponse(stored=False)

    def PullObject(self, request: PullObjectRequest) -> PullObjectResponse:  # noqa: N802
        return PullObjectResponse(object_found=False)


def test_an_answer_that_nobody_waits_for_is_given_up() -> None:
    with pytest.raises(ValueError, match="nobody waits for this answer any more"):
        pieces.deliver(
            Deaf(),  # type: ignore[arg-type]
            Node(node_id=7),
            1,
            "a piece",
            b"its content",
            "",
            keep=connection.once,
            until=time.monotonic() + 600,
        )


def test_no_budget_is_spent_twice_where_every_reply_is_lost_once(exchange: Exchange, tmp_path: Path) -> None:
    site: Site = sites(tmp_path, budget=1.0)[100]
    step = step_to_plain(LabelSummary(privacy=Privacy(epsilon=0.25)))
    request = one_request(step=step, task={"args": {}})
    found = exchange.ask(site.answer, question=request, lose=Counter(dict.fromkeys(ALL, 1)))
    assert exchange.worked == 1
    assert from_bytes(found.answer)["reply"]["stats"]["epsilon"] == pytest.approx(0.25)
    assert site.account.epsilon == pytest.approx(0.25)
    assert float((tmp_path / "0" / "epsilon").read_text()) == pytest.approx(0.25)
