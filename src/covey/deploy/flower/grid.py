"""Bytes over Flower by its public interface alone: as records, and over a Grid."""

from collections.abc import Mapping, Sequence

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from covey.deploy.transport import Response

SMALL = 2**20  # bytes of a message that is not cut


def to_record(block: bytes) -> RecordDict:
    """Bytes as Flower carries them: small ones as they are, because every part of a message is a request of its own;
    large ones as arrays, in pieces. Pieces are known by their content: with its head apart, what many sites
    get is kept and sent to the SuperLink once."""
    if len(block) <= SMALL:
        return RecordDict({"covey": ConfigRecord({"block": block})})
    cut = min(8 + int.from_bytes(block[:8], "little"), SMALL)  # where the arrays of a safetensors block begin
    parts = {"head": block[:cut], "body": block[cut:]}
    return RecordDict(
        {"covey": ArrayRecord({name: Array(np.frombuffer(part, np.uint8)) for name, part in parts.items()})}
    )


def from_record(record: RecordDict) -> bytes:
    """The bytes of `to_record`, or a ValueError; Flower reads arrays without pickle."""
    try:
        found = record["covey"]
        if isinstance(found, ConfigRecord):
            block = found["block"]
            if not isinstance(block, bytes):
                raise TypeError("its block is no bytes")
            return block
        return b"".join(found[name].numpy().tobytes() for name in ("head", "body"))
    except Exception as error:  # whatever the other side put into the record
        raise ValueError(f"the message is not covey's ({type(error).__name__}: {error})") from error


def response_of(message: Message, most: int, errors: Mapping[int, str] | None = None) -> Response:
    """What a message holds, or why it holds nothing of ours; `errors` are Flower's by their codes, in words."""
    if message.has_error():
        return Response(error=(errors or {}).get(message.error.code, f"Flower: {message.error.reason}"))
    try:
        answer = from_record(message.content)
    except ValueError as error:
        return Response(error=str(error))
    if len(answer) > most:
        return Response(refused=f"its answer is larger than {most} bytes")
    return Response(answer=answer)


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
