"""Small pieces of messages stay at the port, so that the SuperLink is asked for none of them."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("flwr")
from flwr.proto.message_pb2 import (
    PullObjectRequest,
    PullObjectResponse,
    PushObjectRequest,
    PushObjectResponse,
)

from covey.deploy.connection import answer_one, connected
from covey.deploy.door import Door
from covey.deploy.flower_transport import SuperLinkTransport, flower_run
from covey.deploy.mailboxes import ANSWER, FETCH, GOT_IT, LARGEST, LOOK, STORE, Given, KeptPieces, Mailboxes
from covey.deploy.superlink import free_port, superlink


def number_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def kept(*contents: bytes, most: int = 100) -> KeptPieces:
    pieces = KeptPieces(most)
    for content in contents:
        pieces.keep(number_of(content), content)
    return pieces


def test_a_piece_is_kept_under_the_number_of_its_content_only() -> None:
    pieces = kept(b"a")
    pieces.keep(number_of(b"a"), b"b")  # a liar's
    assert (pieces.get(number_of(b"a")), pieces.get(number_of(b"b"))) == (b"a", None)


def test_the_oldest_pieces_give_way_and_large_ones_are_not_kept() -> None:
    pieces = kept(bytes(60), b"1" * 30, bytes(60), b"2" * 30)  # the first one is new again
    assert [len(content) for content in pieces.pieces.values()] == [60, 30]
    assert (pieces.size, pieces.get(number_of(b"1" * 30))) == (90, None)
    assert kept(bytes(LARGEST + 1), most=10**9).size == 0


def test_what_was_taken_is_not_kept_any_longer() -> None:
    pieces = kept(b"a")
    assert [pieces.take(number_of(b"a")) for _ in range(2)] == [b"a", None]
    assert pieces.size == 0


def test_only_pieces_that_the_superlink_has_stored_are_kept_for_the_server() -> None:
    boxes = Mailboxes()
    for content, stored, status in ((b"a", True, 200), (b"b", False, 200), (b"c", True, 403)):
        body = PushObjectRequest(object_id=number_of(content), object_content=content).SerializeToString()
        answer = PushObjectResponse(stored=stored).SerializeToString()
        boxes.visited("k", STORE, body, Given(status=status, headers={}, content=answer))
    boxes.visited("k", STORE, b"\xff", Given(status=200, headers={}, content=b"\xff"))  # no request at all
    assert list(boxes.answers.pieces) == [number_of(b"a")]


def test_a_site_is_given_pieces_of_questions_and_none_of_another_sites_answer() -> None:
    boxes = Mailboxes()
    boxes.questions.keep(number_of(b"a"), b"a")
    boxes.answers.keep(number_of(b"b"), b"b")
    asked = [PullObjectRequest(object_id=number_of(c)).SerializeToString() for c in (b"a", b"b")]
    given, nothing, unread = (boxes.piece(body) for body in (*asked, b"\xff"))
    assert (nothing, unread) == (None, None)
    assert given is not None
    assert PullObjectResponse.FromString(given.content).object_content == b"a"


class Exchange:
    """A server and a site, with a count of what both ask the SuperLink."""

    def __init__(self, transport: SuperLinkTransport, client: Any, node: Any) -> None:
        self.transport, self.client, self.node = transport, client, node
        self.asked: Counter[str] = Counter()

    def answer_to(self, question: bytes) -> bytes:
        """What the site, which answers what it was asked, says."""
        self.asked.clear()
        (number,) = self.transport.send("query.hello", {self.node.node_id: question}, 600)
        assert answer_one(self.client, self.node, lambda block: block, lambda _: None)
        found = self.transport.collect([number], most=10**8, until=float("inf"))
        return found[number].answer


@pytest.fixture
def exchange(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Exchange]:
    boxes, port = Mailboxes(), free_port()
    with (
        superlink(tmp_path, certs=None) as link,
        flower_run(link, dict, boxes) as transport,
        Door(link, None, mailboxes=boxes).opened("127.0.0.1", port),
        connected(f"127.0.0.1:{port}", None, None, tmp_path / "node") as (client, node),
    ):
        made = Exchange(transport, client, node)
        passed_on, pull = Door.passed_on, transport.runtime.PullObject

        async def counted(self: Door, method: str, path: str, *rest: Any) -> Given:
            made.asked[path] += 1
            return await passed_on(self, method, path, *rest)

        def pulled(request: Any) -> Any:
            made.asked["pull by the server"] += 1
            return pull(request)

        monkeypatch.setattr(Door, "passed_on", counted)
        monkeypatch.setattr(transport.runtime, "PullObject", pulled)
        yield made


def test_an_exchange_asks_the_superlink_for_no_piece(exchange: Exchange) -> None:
    assert exchange.answer_to(b"how are you?") == b"how are you?"
    del exchange.asked["/v1/fleet/send-node-heartbeat"]
    assert exchange.asked == {LOOK: 1, GOT_IT: 1, ANSWER: 1, STORE: 3}
    large = bytes(range(256)) * 2**13  # 2 MB: in pieces of a megabyte, which are not kept
    assert exchange.answer_to(large) == large
    assert exchange.asked[FETCH] > 0
    assert exchange.asked["pull by the server"] > 0
