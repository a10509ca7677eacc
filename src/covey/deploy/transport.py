"""What carries bytes between the server and its sites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

POLL = 0.2  # seconds between two looks at the mailbox


@dataclass(frozen=True, kw_only=True)
class Response:
    """What came back for a message: the answer's bytes, or why there is none (`refused`: why it is not read)."""

    answer: bytes = b""
    error: str = ""
    refused: str = ""


class Transport(Protocol):
    """Carries bytes to nodes and back. Nodes are numbered by the carrier; what they are called is ours."""

    def nodes(self) -> dict[int, str]:
        """The nodes that are connected now, each with the key it proved to have (or an empty text)."""
        ...

    def expect(self, most: int) -> None:
        """Answers of up to so many bytes may come from now on."""
        ...

    def send(self, kind: str, blocks: Mapping[int, bytes], seconds: float) -> dict[str, int]:
        """Sends each node its block; gives a number for each message, and which node it went to."""
        ...

    def collect(self, numbers: Sequence[str], *, most: int, until: float) -> dict[str, Response]:
        """The answers that have come for these messages, each of at most so many bytes; each is given once.

        It returns soon after that time of the monotonic clock, whatever is still on its way.
        """
        ...
