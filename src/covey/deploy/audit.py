"""An audit trail: JSON lines that are only ever appended, each with a time and the hash of the line before.

A line's own hash is the SHA-256 of its bytes before `, "hash":`, so that any language can check it. Whoever can write
the file could write all of it anew: the head of a site's trail is told to the server and stands in the server's, and
the other way round, so that two parties would have to agree on that. Every line has a random part (`salt`): from its
hash nobody can find out by trying what it says.
"""

import hashlib
import json
import math
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from covey.errors import RunError, UserError, user_error
from covey.files import append, read_whole
from covey.terminal import printable

AUDIT_FILE = "audit.jsonl"  # in a site's folder, and in a run folder
NOTHING = "0" * 64  # stands before the first line
HASH = b', "hash": "'
FIRST = b'{"n": 1,'
TORN = "torn"  # the event of a line that says what a killed process left of the line before it
MOST_WAITING = 10_000  # lines that wait for a disk


class Trail:
    """A trail that is written; one process at a time has it, its threads share it."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self.path = path
        self.clock = clock
        self.waiting: list[tuple[float, str, dict[str, Any]]] = []
        self.head = ""  # the hash of the last line; empty before the file was looked at
        self.count = 0
        self.lock = threading.Lock()
        if path.exists():
            try:
                for _ in checked_lines(path):
                    pass
            except RunError as error:
                raise UserError(f"{error}; move it away, and a new one begins") from error

    def note(self, event: str, **facts: Any) -> None:
        """Appends a line, which is on the disk when this returns; until there is a folder, lines wait.

        An OSError where it cannot be written: it is tried again with the next.
        """
        with self.lock:
            self.waiting.append((self.clock(), event, facts))
            del self.waiting[:-MOST_WAITING]
            if not self.path.parent.exists():
                return
            torn = b"" if self.head else self._look()
            lines, head, count = b"", self.head, self.count
            for at, what, told in self.waiting:
                line = written(count + 1, at, what, told, head)
                lines, head, count = lines + line, hash_in(line), count + 1
            self.head = ""  # should the disk fill up within a line
            append(self.path, torn + lines)
            with open(self.path, "rb") as file:
                os.fsync(file.fileno())
            self.head, self.count, self.waiting = head, count, []

    def _look(self) -> bytes:
        """Finds the end of the file; returns what to write first where a killed process left part of a line."""
        self.head, self.count = NOTHING, 0
        torn, ended = b"", True
        for line in checked_lines(self.path) if self.path.exists() else ():
            self.head, self.count, torn, ended = line.hash, line.number, line.torn, line.ended
        if not torn:
            return b"" if ended else b"\n"
        found = {"bytes": len(torn), "sha256": hashlib.sha256(torn).hexdigest()}
        said = written(self.count + 1, self.clock(), TORN, found, self.head)
        self.head, self.count = hash_in(said), self.count + 1
        return b"\n" + said


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line of a trail that was checked; `torn`: what follows the last line without being one.

    ended: by a line break, which a killed process may not have written.
    """

    number: int
    facts: Mapping[str, Any]
    hash: str
    torn: bytes = b""
    ended: bool = True


def written(number: int, at: float, event: str, facts: Mapping[str, Any], head: str) -> bytes:
    """A line as it stands in the file."""
    stamp = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    said = {name: printable(value) if isinstance(value, str) else value for name, value in facts.items()}
    plain = {
        "n": number,
        "time": stamp,
        "event": event,
        **said,
        "salt": secrets.token_hex(16),
        "before": head,
    }
    body = json.dumps(plain, allow_nan=False).encode()[:-1]
    return body + HASH + hashlib.sha256(body).hexdigest().encode() + b'"}\n'


def hash_in(line: bytes) -> str:
    return line.rpartition(HASH)[2][:64].decode()


def checked_lines(path: Path) -> Iterator[Line]:
    """The lines of a trail, one after the other, each checked against the one before; one sentence where it breaks."""
    with user_error(f"{path} cannot be read"):
        pieces = read_whole(path).split(b"\n")
    last, torn, ended = Line(number=0, facts={}, hash=NOTHING), b"", True
    for place, piece in enumerate(pieces, 1):
        facts = parsed(piece)
        if facts is None:
            torn = b"\n".join(filter(None, (torn, piece)))
            continue
        line = Line(number=last.number + 1, facts=facts, hash=hash_in(piece))
        check(path, place, piece, line, last, torn)
        if last.number:
            yield last
        last, torn, ended = line, b"", place < len(pieces)
    if not last.number and not FIRST.startswith(torn[: len(FIRST)]):
        raise RunError(f"{path} is not an audit trail: its first line is none of covey's")
    yield replace(last, torn=torn, ended=ended)


def check(path: Path, place: int, piece: bytes, line: Line, last: Line, torn: bytes) -> None:
    """Raises one sentence where a line is not what was written, or does not follow the one before."""
    body = piece.rpartition(HASH)[0]
    why = ""
    if hashlib.sha256(body).hexdigest() != line.hash:
        why = "its hash is not that of what it says: it was changed"
    elif line.facts.get("before") != last.hash or line.facts.get("n") != line.number:
        why = "it does not follow the line before it: lines were changed, added or removed"
    elif torn and (
        line.facts.get("event") != TORN or line.facts.get("sha256") != hashlib.sha256(torn).hexdigest()
    ):
        why = "what stands before it is no line of covey's"
    if why:
        raise RunError(f"{path} is broken at line {place}: {why}")


def parsed(piece: bytes) -> dict[str, Any] | None:
    """What a line says; None where it is no whole line."""
    try:
        facts = json.loads(piece)
    except (ValueError, RecursionError):
        return None
    return facts if isinstance(facts, dict) else None


def names_and_sizes(value: Any, name: str = "") -> dict[str, Any]:
    """What a message tells, as names and sizes: of an array its shape, of a text its length, of a number 1."""
    if isinstance(value, Mapping):
        found: dict[str, Any] = {}
        for key, part in value.items():
            found |= names_and_sizes(part, f"{name}.{key}" if name else str(key))
        return found
    if isinstance(value, Tensor | np.ndarray):
        return {name: list(value.shape)}
    if isinstance(value, str | bytes | list | tuple):
        return {name: len(value)} if len(value) else {}
    return {} if value is None else {name: 1}


def finite_value(value: float) -> float | str:
    """A number as JSON has it; a loss that no noise bounds is a word."""
    return round(value, 6) if math.isfinite(value) else "unbounded"
