"""A run in progress, read off the end of its journal: only what is new is read, and only the lines that are shown."""

import math
import os
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from covey.errors import UserError
from covey.files import open_regular
from covey.folder.rows import parse_line
from covey.terminal import printable

# As the journal writes them: [round, seconds, bytes, client, group, split, metric, value]
OVERALL, GROUP, BUSY = b", -1, -1, ", b', "groups", "group", ', b', "fleet", "busy", '
MOST = 600  # points of a curve
PIECE = 2**22  # bytes that are read at once
LONGEST = 2**16  # bytes of a line


@dataclass(kw_only=True, eq=False)
class Following:
    """What the journal has told so far."""

    path: Path
    read: int = 0
    behind: bool = False  # whether the journal continues after what was read
    rest: bytes = b""
    round: int = 0
    seconds: float = 0.0
    sent: int = 0
    messages: int = 0
    last: dict[str, float] = field(default_factory=dict)
    curves: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    groups: dict[int, int] = field(default_factory=dict)  # client -> group
    busy: dict[int, int] = field(default_factory=dict)  # round -> devices that worked
    replied: dict[int, int] = field(default_factory=dict)

    def catch_up(self, until: float = math.inf) -> bool:
        """Reads what is new, as far as it comes by then; whether there was anything.

        A journal that became shorter is read anew; one that is damaged is said.
        """
        before = self.read
        try:
            with open_regular(self.path) as file:
                size = os.fstat(file.fileno()).st_size
                if size < self.read:
                    self.__init__(path=self.path)  # type: ignore[misc]
                file.seek(self.read)
                while self.read < size:
                    self._read(file.read(min(PIECE, size - self.read)))
                    if time.monotonic() > until:
                        break
        except FileNotFoundError:
            return False
        except OSError as error:
            raise UserError(
                f"{self.path} is damaged: it cannot be read: {error.strerror or error}"
            ) from error
        self.behind = self.read < size
        return self.read != before

    def _read(self, new: bytes) -> None:
        self.read += len(new)
        *lines, self.rest = (self.rest + new).split(b"\n")
        if len(self.rest) > LONGEST:
            raise UserError(f"{self.path} is damaged: a line of it has more than {LONGEST:,} bytes")
        for line in lines:
            if OVERALL in line or GROUP in line or BUSY in line:
                self._take(line)

    def _take(self, line: bytes) -> None:
        record = parse_line(line)
        if record is None or any(isinstance(part, int) and abs(part) >= 2**63 for part in record):
            raise UserError(
                f"{self.path} is damaged: {printable(line[:60].decode(errors='replace'))!r} is none of its lines"
            )
        round, seconds, sent_bytes, client, group, split, metric, value = record
        if round < 0 or value is None or not math.isfinite(value):
            return
        if split == "groups":
            self.groups[client] = group
        elif client >= 0:
            self.busy[round] = self.busy.get(round, 0) + (metric == "busy")
        elif split == "fleet":
            self.messages += int(value) if metric.startswith("messages:") else 0
            if metric == "replied":
                self.replied[round] = int(value)
        else:
            name = f"{split}/{metric}"
            self.last[name] = value
            curve = self.curves.setdefault(name, [])
            curve.append((round, value))
            if len(curve) > 2 * MOST:
                del curve[1:-1:2]
        self.round, self.seconds, self.sent = max(self.round, round), seconds, sent_bytes

    def group_sizes(self) -> dict[int, int]:
        return dict(sorted(Counter(self.groups.values()).items()))

    def detail(self) -> Mapping[str, Any]:
        """All that the page draws of a run in progress."""
        recent = sorted(self.busy or self.replied)[-60:]
        working = {r: self.busy.get(r, self.replied.get(r, 0)) for r in recent}
        return {"curves": self.curves, "groups": self.group_sizes(), "working": working}
