"""Small pieces of messages that passed this process, so that the SuperLink need not be asked for them.

Flower gives every piece out by a request of its own, and the SuperLink answers one after the other: with many sites
that is what a round waits for. A piece's number is the SHA-256 of its content, so a copy is as good as the piece.
The SuperLink has all of them as well, for whatever is not kept.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict

LARGEST = 2**20  # bytes of a piece that is kept: for larger ones a request more is no matter
MOST = 32 * 2**20  # bytes of all; the oldest give way


class KeptPieces:
    """Pieces by their numbers; may be used from any thread."""

    def __init__(self, most: int = MOST) -> None:
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
