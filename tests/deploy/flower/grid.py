"""A Grid in this process: every message goes straight to a node's ClientApp."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from covey.deploy.flower_insides import identified, number_it


class HereGrid:
    """`app(place)` is the ClientApp of the node at that place; nodes have large numbers, as Flower's do."""

    def __init__(self, app: Callable[[int], ClientApp], nodes: int, folder: Path) -> None:
        identified()
        self.apps = {1000 + 7 * place: app(place) for place in range(nodes)}
        self.place = {node: place for place, node in enumerate(self.apps)}
        self.nodes, self.folder = nodes, folder
        self.away: set[int] = set()
        self.sent: list[tuple[int, str]] = []
        self.number = itertools.count()

    def get_node_ids(self) -> Iterable[int]:
        return [node for node in self.apps if node not in self.away]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        assert timeout is None or timeout > 0
        return [reply for message in messages if (reply := self.answer(message)) is not None]

    def answer(self, message: Message) -> Message | None:
        node = message.metadata.dst_node_id
        number_it(message, str(next(self.number)))
        self.sent.append((self.place[node], message.metadata.message_type))
        if node in self.away:
            return None
        config: dict[str, Any] = {
            "partition-id": self.place[node],
            "num-partitions": self.nodes,
            "state": str(self.folder / f"{self.place[node]}"),
        }
        context = Context(run_id=1, node_id=node, node_config=config, state=RecordDict(), run_config={})
        try:
            return self.apps[node](message, context)
        except Exception as error:  # as a SuperNode does
            from flwr.app import Error

            return Message(Error(code=0, reason=str(error)), reply_to=message)
