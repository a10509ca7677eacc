"""What the open port knows of messages on their way: who has mail, who has not confirmed it, and who is gone.

A site looks into its mailbox repeatedly; the answer to a look is held back until there is mail, so that fifty
idle sites cost next to nothing and a message is fetched at once. Flower gives a message out once: if the connection
broke just then, it would be lost. So what was given out is kept, and given again to a site that looks once more before
it has said that it got it. Which questions were answered is seen here as well, so that the SuperLink is not asked
about
all of them five times a second; small pieces that pass are kept for whoever asks for them next. And the SuperLink gives
a message up, for good, as soon as it has missed two heartbeats of its node; while that is near it is not asked, so that
a site whose link was cut for a minute can still answer.
"""

import asyncio
import contextlib
import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

LOOK, GOT_IT = "/v1/fleet/pull-messages", "/v1/fleet/confirm-message-received"
FETCH, STORE = "/v1/fleet/pull-object", "/v1/fleet/push-object"
BEAT, ARRIVE = "/v1/fleet/send-node-heartbeat", "/v1/fleet/activate-node"
ANSWER, LEAVE = "/v1/fleet/push-messages", "/v1/fleet/deactivate-node"
HOLD = 15.0  # seconds that a look may wait: less than a site's patience with an answer
NOTICE = 1.0  # seconds until it is noticed that whoever looks has left
PASS_ON = (
    60.0  # seconds after which a look is passed on though nothing was posted, should that have been missed
)
SURE = 45.0  # seconds after a heartbeat in which the SuperLink, which waits for 60, counts a node as online
GONE = 90.0  # seconds without any request after which a site is not waited for any more
ASK_ALL = 5.0  # seconds after which the SuperLink is asked about every question that waits
FEW_PIECES = 64  # that any answer may have; larger ones come in pieces of 1 MB
OVER = (403, 404)  # what the SuperLink answers about a message whose run has ended
LARGEST = 2**20  # bytes of a piece that is kept: for larger ones one more request does not matter
MOST_KEPT = 32 * 2**20  # bytes of all; the oldest give way
MOST_ANSWERS = 100_000  # numbers that are kept, whatever sites send


@dataclass(frozen=True, kw_only=True)
class Given:
    """An answer to a look, as it was given."""

    status: int
    headers: dict[str, str]
    content: bytes


PROTOBUF = {"content-type": "application/protobuf"}
NO_MESSAGE = Given(status=200, headers=PROTOBUF, content=b"")  # an empty mailbox


class KeptPieces:
    """Small pieces of messages that passed this process, by their numbers; may be used from any thread.

    Flower gives every piece out by a request of its own, and the SuperLink answers one after the other: with many sites
    that is what a round waits for. A piece's number is the SHA-256 of its content, so a copy is as good as the piece.
    """

    def __init__(self, most: int = MOST_KEPT) -> None:
        self.most = most
        self.size = 0
        self.pieces: OrderedDict[str, bytes] = OrderedDict()
        self.lock = threading.Lock()

    def keep(self, number: str, content: bytes) -> None:
        """Keeps a piece that is what its number says."""
        if len(content) > LARGEST or hashlib.sha256(content).hexdigest() != number:
            return
        with self.lock:
            if number not in self.pieces:
                self.size += len(content)
            self.pieces[number] = content
            self.pieces.move_to_end(number)
            while self.size > self.most:
                self.size -= len(self.pieces.popitem(last=False)[1])

    def get(self, number: str) -> bytes | None:
        return self.pieces.get(number)

    def take(self, number: str) -> bytes | None:
        """The piece, which is not kept any longer."""
        with self.lock:
            content = self.pieces.pop(number, None)
            self.size -= len(content or b"")
            return content


class Mailboxes:
    """The mailboxes of all nodes; `posted` may be called from any thread, the rest from the port's event loop."""

    def __init__(self, hold: float = HOLD) -> None:
        self.hold = hold
        self.loop: asyncio.AbstractEventLoop | None = None
        self.full: set[int] = set()  # nodes that were sent something since they last found nothing
        self.looking: dict[int, set[asyncio.Event]] = {}
        self.passed: dict[int, float] = {}  # when a look of each node was last answered by the SuperLink
        self.given: dict[tuple[str, int], Given] = {}  # by key and node, until it says that it got it
        self.beats: dict[int, float] = {}  # when each node's last heartbeat came
        self.keys: dict[int, str] = {}
        self.visits: dict[str, float] = {}  # when a request of each key last came
        self.answered: set[str] = set()  # questions of which an answer was announced
        self.ask_all_at = 0.0
        self.most_pieces = FEW_PIECES
        self.questions = KeptPieces()  # pieces of what sites are asked
        self.answers = KeptPieces()  # pieces of what they answered, until the server has them

    def expect(self, most: int) -> None:
        """Answers of up to that many bytes may come from now on."""
        self.most_pieces = max(self.most_pieces, FEW_PIECES + most // 2**20)

    def posted(self, nodes: Collection[int]) -> None:
        """These nodes have been sent something."""
        if self.loop is not None:
            with contextlib.suppress(RuntimeError):  # the port is closed already
                self.loop.call_soon_threadsafe(self._wake, tuple(nodes))

    def _wake(self, nodes: Collection[int]) -> None:
        self.full.update(nodes)
        for node in nodes:
            for event in self.looking.get(node, ()):
                event.set()

    async def mail(self, node: int, has_left: Callable[[], bool] = lambda: False) -> None:
        """Returns when the node has mail, or after a while; a ConnectionError once whoever looks has left."""
        if node in self.full:
            return
        event = asyncio.Event()
        self.looking.setdefault(node, set()).add(event)
        now = asyncio.get_running_loop().time
        until = now() + self.hold
        try:
            while (left := until - now()) > 0 and not event.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(left, NOTICE)):
                        await event.wait()
                if has_left():
                    raise ConnectionResetError
        finally:
            self.looking[node].discard(event)
            if not self.looking[node]:
                del self.looking[node]

    def again(self, key: str, node: int) -> Given | None:
        """What the node was given last, if it has not said that it got it."""
        return self.given.get((key, node))

    def piece(self, body: bytes) -> Given | None:
        """The answer to a site that asks for a piece of a question, if it is kept here."""
        read = _read("message_pb2.PullObjectRequest", body)
        content = self.questions.get(read.object_id) if read is not None else None
        if content is None:
            return None
        from covey.deploy.flower_insides import message_pb2

        found = message_pb2.PullObjectResponse(
            object_found=True, object_available=True, object_content=content
        )
        return Given(status=200, headers=PROTOBUF, content=found.SerializeToString())

    def is_empty(self, node: int) -> bool:
        """Whether nothing can be there: the SuperLink was asked lately, and nothing was posted since."""
        return node not in self.full and time.monotonic() < self.passed.get(node, -PASS_ON) + PASS_ON

    def emptied(self, node: int) -> bool:
        """A look is passed on now: only what is posted from here on is news. Says whether there was any."""
        full = node in self.full
        self.full.discard(node)
        return full

    def looked(self, key: str, node: int, given: Given, *, full: bool) -> None:
        """What a look that was passed on found; `full`: it was thought that there is mail."""
        if given.status != 200:  # it was not the node's own key, or the SuperLink failed
            self.full |= {node} if full else set()
        elif holds_nothing(given.content):
            self.passed[node] = time.monotonic()
        else:  # and there may be more
            self.full.add(node)
            self.given[(key, node)] = given
            self.passed.pop(node, None)

    def visited(self, key: str, path: str, body: bytes, given: Given) -> None:
        """A request was answered: what it says of where its node is."""
        self.visits[key] = time.monotonic()
        if path == ANSWER and given.status == 200:
            self.announced(body)
        elif path == STORE and given.status == 200:
            self.stored(body, given.content)
        elif path in (ARRIVE, LEAVE):  # the SuperLink may have given up what the node was asked
            self.ask_all_at = 0.0
        elif path == BEAT and given.status != 200 and (node := node_of(path, body)) is not None:
            self.passed.pop(node, None)  # its next look is the SuperLink's affair
        elif path in (FETCH, GOT_IT) and given.status in OVER and (node := node_of(path, body)) is not None:
            self.given.pop((key, node), None)  # a killed server's question: nobody can get it any more
        if path not in (GOT_IT, BEAT, ARRIVE) or given.status != 200:
            return
        node = arrived(given.content) if path == ARRIVE else node_of(path, body)
        if node is None:
            return
        if path == GOT_IT:
            self.given.pop((key, node), None)
        else:
            self.beats[node], self.keys[node] = self.visits[key], key

    def announced(self, body: bytes) -> None:
        """An answer is on its way: the SuperLink knows which question it belongs to."""
        read = _read("fleet_pb2.PushMessagesRequest", body)
        if read is not None and read.messages_list:
            self.answered.add(str(read.messages_list[0].metadata.reply_to_message_id))
        if len(self.answered) > MOST_ANSWERS:  # nobody asked that many questions
            self.answered.clear()
            self.ask_all_at = 0.0

    def stored(self, body: bytes, answer: bytes) -> None:
        """A piece of an answer has come, and the SuperLink has taken it."""
        if len(body) > 2 * LARGEST:
            return
        read = _read("message_pb2.PushObjectRequest", body)
        taken = _read("message_pb2.PushObjectResponse", answer)
        if read is not None and taken is not None and taken.stored:
            self.answers.keep(read.object_id, read.object_content)

    def worth_asking(self, questions: Mapping[str, int]) -> list[str]:
        """Those of the questions (by number, with the node that each went to) of which the SuperLink may have news.

        Of a node that never came through this port it may have at any time.
        """
        if (now := time.monotonic()) >= self.ask_all_at:
            self.ask_all_at = now + ASK_ALL
            return list(questions)
        return [n for n, node in questions.items() if n in self.answered or node not in self.beats]

    def standing(self, node: int) -> Literal["here", "doubtful", "gone"]:
        """Whether the SuperLink may be asked for a node's answer, or the node is not waited for any more.

        Of a node that never came through this port the SuperLink knows best.
        """
        now, beat = time.monotonic(), self.beats.get(node)
        if beat is None or now - beat < SURE:
            return "here"
        seen = max(beat, self.visits.get(self.keys[node], 0.0)) if self.keys[node] else beat
        return "gone" if now - seen > GONE else "doubtful"


def objection_to(body: bytes, most: int) -> str:
    """Why an announced answer, which may have that many pieces, is not passed on; empty if it is.

    Of the node that asks and the one that answers the SuperLink looks at the former only, and it makes a row in its
    database for every piece that is named, while everybody else waits.
    """
    read = _read("fleet_pb2.PushMessagesRequest", body)
    if read is None:
        return ""
    if any(message.metadata.src_node_id != read.node.node_id for message in read.messages_list):
        return "its answer is in another site's name"
    pieces, branches = 0, [read.message_object_trees]
    while branches:
        pieces += len(branch := branches.pop())
        if pieces > most:
            return f"its answer has more than {most} pieces"
        branches += [tree.children for tree in branch]
    return ""


def node_of(path: str, body: bytes) -> int | None:
    """Whose request it is; None where it cannot be read."""
    kind = {
        LOOK: "fleet_pb2.PullMessagesRequest",
        GOT_IT: "message_pb2.ConfirmMessageReceivedRequest",
        FETCH: "message_pb2.PullObjectRequest",
        BEAT: "heartbeat_pb2.SendNodeHeartbeatRequest",
    }[path]
    read = _read(kind, body)
    return None if read is None else int(read.node.node_id)


def arrived(content: bytes) -> int | None:
    """The node that was let in by an answer of the SuperLink."""
    read = _read("fleet_pb2.ActivateNodeResponse", content)
    return None if read is None else int(read.node_id)


def holds_nothing(content: bytes) -> bool:
    """Whether a look found nothing."""
    read = _read("fleet_pb2.PullMessagesResponse", content)
    return read is None or not read.messages_list


def _read(kind: str, data: bytes) -> Any:
    """A message of Flower's protocol; None where the bytes are none. The port is there without Flower, too."""
    from covey.deploy import flower_insides as insides

    module, _, name = kind.partition(".")
    return insides.parsed(getattr(getattr(insides, module), name), data)
