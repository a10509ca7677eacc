"""What the open port knows of messages on their way: who has mail, who never said that it got it, and who is gone.

A site looks into its mailbox again and again; the answer to a look is held back until there is mail, so that fifty
idle sites cost next to nothing and a message is fetched at once. Flower gives a message out once: where the line
broke just then, it would be lost. So what was given out is kept, and given again to a site that looks once more before
it has said that it got it. And the SuperLink gives a message up, for good, as soon as it has missed two heartbeats of
its node; while that is near it is not asked, so that a site whose link was cut for a minute can still answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

LOOK, GOT_IT = "/v1/fleet/pull-messages", "/v1/fleet/confirm-message-received"
BEAT, ARRIVE = "/v1/fleet/send-node-heartbeat", "/v1/fleet/activate-node"
HOLD = 15.0  # seconds that a look may wait: less than a site's patience with an answer
SURE = 45.0  # seconds after a heartbeat in which the SuperLink, which waits for 60, counts a node as online
GONE = 90.0  # seconds without any request after which a site is not waited for any more


@dataclass(frozen=True, kw_only=True)
class Given:
    """An answer to a look, as it was given."""

    status: int
    headers: dict[str, str]
    content: bytes


class Mailboxes:
    """The mailboxes of all nodes; `posted` may be called from any thread, the rest from the port's event loop."""

    def __init__(self, hold: float = HOLD) -> None:
        self.hold = hold
        self.loop: asyncio.AbstractEventLoop | None = None
        self.full: set[int] = set()  # nodes that were sent something since they last found nothing
        self.looking: dict[int, set[asyncio.Event]] = {}
        self.given: dict[tuple[str, int], Given] = {}  # by key and node, until it says that it got it
        self.beats: dict[int, float] = {}  # when each node's last heartbeat came
        self.keys: dict[int, str] = {}
        self.visits: dict[str, float] = {}  # when a request of each key last came

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

    async def mail(self, node: int) -> None:
        """Returns when the node has mail, or after a while."""
        if node in self.full:
            return
        event = asyncio.Event()
        self.looking.setdefault(node, set()).add(event)
        try:
            async with asyncio.timeout(self.hold):
                await event.wait()
        except TimeoutError:
            pass
        finally:
            self.looking[node].discard(event)
            if not self.looking[node]:
                del self.looking[node]

    def again(self, key: str, node: int) -> Given | None:
        """What the node was given last, if it has not said that it got it."""
        return self.given.get((key, node))

    def emptied(self, node: int) -> None:
        """A look is passed on now: only what is posted from here on is news."""
        self.full.discard(node)

    def found(self, key: str, node: int, given: Given) -> None:
        """The node was given something, and there may be more."""
        self.full.add(node)
        self.given[(key, node)] = given

    def visited(self, key: str, path: str, body: bytes, given: Given) -> None:
        """A request was answered: what it says of where its node is."""
        self.visits[key] = time.monotonic()
        if path not in (GOT_IT, BEAT, ARRIVE) or given.status != 200:
            return
        node = arrived(given.content) if path == ARRIVE else node_of(path, body)
        if node is None:
            return
        if path == GOT_IT:
            self.given.pop((key, node), None)
        else:
            self.beats[node], self.keys[node] = self.visits[key], key

    def standing(self, node: int) -> Literal["here", "doubtful", "gone"]:
        """Whether the SuperLink may be asked for a node's answer, or the node is not waited for any more.

        Of a node that never came through this port the SuperLink knows best.
        """
        now, beat = time.monotonic(), self.beats.get(node)
        if beat is None or now - beat < SURE:
            return "here"
        seen = max(beat, self.visits.get(self.keys[node], 0.0)) if self.keys[node] else beat
        return "gone" if now - seen > GONE else "doubtful"


def node_of(path: str, body: bytes) -> int | None:
    """Whose request it is; None where it cannot be read."""
    from flwr.proto import fleet_pb2, heartbeat_pb2, message_pb2

    kind = {
        LOOK: fleet_pb2.PullMessagesRequest,
        GOT_IT: message_pb2.ConfirmMessageReceivedRequest,
        BEAT: heartbeat_pb2.SendNodeHeartbeatRequest,
    }[path]
    read = _read(kind, body)
    return None if read is None else int(read.node.node_id)


def arrived(content: bytes) -> int | None:
    """The node that was let in by an answer of the SuperLink."""
    from flwr.proto.fleet_pb2 import ActivateNodeResponse

    read = _read(ActivateNodeResponse, content)
    return None if read is None else int(read.node_id)


def is_empty(content: bytes) -> bool:
    """Whether a look found nothing."""
    from flwr.proto.fleet_pb2 import PullMessagesResponse

    read = _read(PullMessagesResponse, content)
    return read is None or not read.messages_list


def _read(kind: Any, data: bytes) -> Any:
    from google.protobuf.message import DecodeError

    try:
        return kind.FromString(data)
    except DecodeError:
        return None
