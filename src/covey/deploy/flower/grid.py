"""Messages over a Flower Grid, by its public interface alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flwr.app import Message
from flwr.serverapp import Grid

from covey.deploy.records import response_of, to_record
from covey.deploy.transport import Response


class GridTransport:
    """A `Transport` on a Grid. Whole messages are pulled before they are measured, and nodes have no keys here: who
    may join is for the SuperLink to say."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid

    def nodes(self) -> dict[int, str]:
        return dict.fromkeys(self.grid.get_node_ids(), "")

    def expect(self, most: int) -> None:
        """Nothing can be refused before it has come."""

    def send(self, kind: str, blocks: Mapping[int, bytes], seconds: float) -> dict[str, int]:
        messages = [
            Message(to_record(block), dst_node_id=node, message_type=kind, ttl=seconds)
            for node, block in blocks.items()
        ]
        numbers = self.grid.push_messages(messages)
        return {number: node for number, node in zip(numbers, blocks, strict=False) if number}

    def collect(self, numbers: Sequence[str], *, most: int, until: float) -> dict[str, Response]:  # noqa: ARG002
        came = self.grid.pull_messages(numbers)
        return {message.metadata.reply_to_message_id: response_of(message, most) for message in came}
