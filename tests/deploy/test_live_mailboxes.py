"""Looks into mailboxes at the open port: held until there is mail, given again until it was got, and who is gone."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

pytest.importorskip("flwr")
from flwr.proto.fleet_pb2 import (
    ActivateNodeResponse,
    PullMessagesRequest,
    PullMessagesResponse,
    PushMessagesRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, Message, Metadata, PullObjectRequest
from flwr.proto.node_pb2 import Node

from covey.deploy import mailboxes as module
from covey.deploy.door import Door
from covey.deploy.http_connection import Refusal
from covey.deploy.mailboxes import ANSWER, ARRIVE, BEAT, FETCH, GOT_IT, LEAVE, LOOK, Given, Mailboxes
from covey.deploy.superlink import Link

NODE = Node(node_id=7)
LOOKS = PullMessagesRequest(node=NODE).SerializeToString()
GOT = ConfirmMessageReceivedRequest(node=NODE).SerializeToString()
MAIL = PullMessagesResponse(messages_list=[Message()]).SerializeToString()


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(module, "time", made)
    return made


class Behind(Door):
    """A door whose SuperLink answers from a list and then finds nothing."""

    def __init__(self, boxes: Mailboxes, answers: list[bytes], objection: Callable[[str], str]) -> None:
        link = Link(address="127.0.0.1:1", ca=None)
        super().__init__(link, None, objection=objection, mailboxes=boxes)
        self.answers = answers
        self.asked: list[str] = []

    async def passed_on(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Given:
        self.asked.append(path)
        content = self.answers.pop(0) if path == LOOK and self.answers else b""
        return Given(status=200, headers={}, content=content)

    async def look(self, key: str = "k") -> bytes:
        return (await self.given(key, "POST", LOOK, {}, LOOKS)).content


def in_door(
    work: Callable[[Behind], Awaitable[Any]],
    *,
    hold: float = 30.0,
    answers: list[bytes] | None = None,
    objection: Callable[[str], str] = lambda _: "",
) -> Any:
    async def main() -> Any:
        boxes = Mailboxes(hold)
        boxes.loop = asyncio.get_running_loop()
        async with asyncio.timeout(600):
            return await work(Behind(boxes, answers or [], objection))

    return asyncio.run(main())


def test_a_look_waits_for_mail_and_is_answered_when_it_comes() -> None:
    async def work(door: Behind) -> None:
        waiting = asyncio.create_task(door.look())
        await asyncio.sleep(0.05)
        assert (waiting.done(), door.asked) == (False, [])  # an idle site costs the SuperLink nothing
        door.answers.append(MAIL)
        await asyncio.to_thread(door.mailboxes.posted, [7])  # type: ignore[union-attr]
        assert await waiting == MAIL

    in_door(work, hold=600)


def test_a_look_ends_when_whoever_looks_has_left() -> None:
    async def killed() -> None:
        with pytest.raises(ConnectionResetError):
            await Mailboxes(hold=600).mail(7, lambda: True)

    asyncio.run(killed())


def test_mail_of_another_node_wakes_nobody() -> None:
    async def work(door: Behind) -> list[str]:
        waiting = asyncio.create_task(door.look())
        await asyncio.to_thread(door.mailboxes.posted, [8])  # type: ignore[union-attr]
        await asyncio.sleep(0.05)
        waiting.cancel()
        return door.asked

    assert in_door(work, hold=600) == []


def test_without_mail_a_look_is_passed_on_after_a_while() -> None:
    assert in_door(lambda door: door.look(), hold=0.01, answers=[MAIL]) == MAIL


def test_idle_looks_are_answered_at_the_port_and_passed_on_once_a_minute(clock: Clock) -> None:
    async def work(door: Behind) -> None:
        for _ in range(4):
            assert await door.look() == b""
        assert door.asked == [LOOK]  # the first: there could be mail from before this server began
        clock.now += module.PASS_ON
        await door.look()
        assert door.asked == [LOOK] * 2
        door.answers.append(MAIL)
        door.mailboxes.posted([7])  # type: ignore[union-attr]
        await asyncio.sleep(0)
        assert await door.look() == MAIL  # at once

    in_door(work, hold=0.01)


def test_a_refused_heartbeat_or_look_makes_the_superlink_be_asked_again(clock: Clock) -> None:
    boxes = Mailboxes()
    empty, refused = (Given(status=status, headers={}, content=b"") for status in (200, 401))
    boxes.looked("k", 7, empty, full=False)
    assert boxes.is_empty(7)
    boxes.visited("k", BEAT, SendNodeHeartbeatRequest(node=NODE).SerializeToString(), refused)
    assert not boxes.is_empty(7)
    boxes.looked("k", 7, empty, full=False)
    boxes.full = {7}
    boxes.looked("another key", 7, refused, full=boxes.emptied(7))  # whose mailbox it is not
    assert not boxes.is_empty(7)
    boxes.looked("another key", 8, refused, full=boxes.emptied(8))
    assert boxes.full == {7}  # made-up numbers take no memory


def test_two_messages_are_fetched_one_after_the_other_without_a_pause() -> None:
    other = PullMessagesResponse(messages_list=[Message(), Message()]).SerializeToString()

    async def work(door: Behind) -> list[bytes]:
        door.mailboxes.posted([7])  # type: ignore[union-attr]
        await asyncio.sleep(0)
        found = [await door.look()]
        await door.given("k", "POST", GOT_IT, {}, GOT)
        return [*found, await door.look()]

    assert in_door(work, hold=600, answers=[MAIL, other]) == [MAIL, other]


def test_what_was_given_is_given_again_until_it_was_got() -> None:
    async def work(door: Behind) -> None:
        assert await door.look() == MAIL
        assert await door.look() == MAIL  # the first answer was lost on its way
        assert door.asked == [LOOK]
        assert (await door.look("another key")) == b""  # it is nobody else's
        await door.given("k", "POST", GOT_IT, {}, GOT)
        assert await door.look() == b""

    in_door(work, hold=0.01, answers=[MAIL])


@pytest.mark.parametrize("path", [FETCH, GOT_IT])
@pytest.mark.parametrize("status", [403, 404])
def test_what_belongs_to_a_run_that_has_ended_is_not_given_again(path: str, status: int) -> None:
    """A site would ask for it without end, and never see what the server that came back asks it."""
    fetch = PullObjectRequest(node=NODE).SerializeToString() if path == FETCH else GOT

    async def work(door: Behind) -> None:
        assert await door.look() == MAIL
        assert door.mailboxes is not None
        door.mailboxes.visited("k", path, fetch, Given(status=503, headers={}, content=b""))
        assert await door.look() == MAIL  # the SuperLink was away: the message is still there
        door.mailboxes.visited("k", path, fetch, Given(status=status, headers={}, content=b""))
        assert await door.look() == b""

    in_door(work, hold=0.01, answers=[MAIL])


def test_a_site_that_is_shut_out_while_it_waits_gets_no_mail() -> None:
    out: list[str] = []

    async def work(door: Behind) -> None:
        waiting = asyncio.create_task(door.look())
        await asyncio.sleep(0.01)
        out.append("its key is revoked")
        door.mailboxes.posted([7])  # type: ignore[union-attr]
        with pytest.raises(Refusal, match="revoked"):
            await waiting

    in_door(work, hold=600, answers=[MAIL], objection=lambda _: out[0] if out else "")


def test_bodies_that_are_no_requests_are_the_superlinks_affair() -> None:
    async def work(door: Behind) -> list[str]:
        for path in (LOOK, GOT_IT, BEAT, ARRIVE):
            await door.given("k", "POST", path, {}, b"\xff\xff no protobuf")
        return door.asked

    assert in_door(work, hold=600) == [LOOK, GOT_IT, BEAT, ARRIVE]


def beat(boxes: Mailboxes) -> None:
    body = SendNodeHeartbeatRequest(node=NODE).SerializeToString()
    boxes.visited("k", BEAT, body, Given(status=200, headers={}, content=b""))


def test_a_node_that_misses_heartbeats_is_doubted_and_then_gone(clock: Clock) -> None:
    boxes = Mailboxes()
    assert boxes.standing(7) == "here"  # never seen at this port: the SuperLink knows
    beat(boxes)
    ages = {30.0: "here", 50.0: "doubtful", 80.0: "doubtful", 100.0: "gone"}
    for age, state in ages.items():
        clock.now = 1000.0 + age
        assert boxes.standing(7) == state
    beat(boxes)
    assert boxes.standing(7) == "here"


def test_any_request_is_a_sign_of_life(clock: Clock) -> None:
    boxes = Mailboxes()
    beat(boxes)
    clock.now = 1085.0
    boxes.visited("k", "/v1/fleet/push-object", b"", Given(status=200, headers={}, content=b""))
    clock.now = 1150.0
    assert boxes.standing(7) == "doubtful"  # the SuperLink would still give it up


def test_a_node_that_signs_on_again_is_here(clock: Clock) -> None:
    boxes = Mailboxes()
    beat(boxes)
    clock.now = 5000.0
    content = ActivateNodeResponse(node_id=7).SerializeToString()
    boxes.visited("k", ARRIVE, b"", Given(status=200, headers={}, content=content))
    assert boxes.standing(7) == "here"


def test_a_refused_heartbeat_is_none(clock: Clock) -> None:
    boxes = Mailboxes()
    beat(boxes)
    clock.now = 1200.0
    body = SendNodeHeartbeatRequest(node=NODE).SerializeToString()
    boxes.visited("", BEAT, body, Given(status=401, headers={}, content=b""))
    assert boxes.standing(7) == "gone"


def answer_to(number: str, source: int = 7) -> bytes:
    head = Message(metadata=Metadata(reply_to_message_id=number, src_node_id=source))
    return PushMessagesRequest(node=NODE, messages_list=[head]).SerializeToString()


def test_the_superlink_is_asked_about_what_was_answered_and_about_all_now_and_then(clock: Clock) -> None:
    boxes, questions, taken = Mailboxes(), {"a": 7, "b": 7}, Given(status=200, headers={}, content=b"")
    beat(boxes)
    assert boxes.worth_asking(questions) == ["a", "b"]
    assert boxes.worth_asking(questions) == []
    boxes.visited("k", ANSWER, answer_to("b"), taken)
    boxes.visited("k", ANSWER, b"\xff no protobuf", taken)
    assert boxes.worth_asking(questions) == ["b"]
    boxes.visited("k", LEAVE, b"", taken)  # the SuperLink gives up what the node was asked
    assert boxes.worth_asking(questions) == ["a", "b"]
    assert boxes.worth_asking({"c": 8}) == ["c"]  # of a node that never came through this port
    clock.now += module.ASK_ALL
    assert boxes.worth_asking(questions) == ["a", "b"]


def test_a_site_that_announces_answers_to_nothing_takes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_ANSWERS", 10)
    boxes = Mailboxes()
    for number in range(100):
        boxes.visited("k", ANSWER, answer_to(str(number)), Given(status=200, headers={}, content=b""))
        assert len(boxes.answered) <= 10


def test_an_answer_in_another_sites_name_is_refused() -> None:
    async def work(door: Behind) -> list[str]:
        await door.given("k", "POST", ANSWER, {}, answer_to("a"))
        with pytest.raises(Refusal, match="its answer is in another site's name"):
            await door.given("k", "POST", ANSWER, {}, answer_to("a", source=8))
        return door.asked

    assert in_door(work) == [ANSWER]


@pytest.mark.parametrize("deep", [True, False])
def test_an_answer_that_names_more_pieces_than_any_model_has_is_refused(deep: bool) -> None:
    """The SuperLink would work on it for minutes, and nobody else would be answered."""
    from flwr.proto.fleet_pb2 import PushMessagesRequest
    from flwr.proto.message_pb2 import ObjectTree

    many = [ObjectTree(object_id=str(number)) for number in range(module.FEW_PIECES)]
    trees = [ObjectTree(children=many)] if deep else many + many[:1]
    honest = PushMessagesRequest(message_object_trees=many)
    hostile = PushMessagesRequest(message_object_trees=trees)

    async def work(door: Behind) -> list[str]:
        await door.given("k", "POST", ANSWER, {}, honest.SerializeToString())
        with pytest.raises(Refusal, match=f"its answer has more than {module.FEW_PIECES} pieces"):
            await door.given("k", "POST", ANSWER, {}, hostile.SerializeToString())
        assert door.mailboxes is not None
        door.mailboxes.expect(2**20)  # a megabyte is one more
        await door.given("k", "POST", ANSWER, {}, hostile.SerializeToString())
        return door.asked

    assert in_door(work) == [ANSWER, ANSWER]


def test_holding_is_shorter_than_a_sites_patience() -> None:
    from covey.deploy import connection

    assert module.HOLD < connection.CONNECTION_SECONDS / 2
