"""For a simulator with a loop of its own: every round waits for its turn, and answers with what it took."""

from __future__ import annotations

import os
import sys

from benchmarks.meter import Meter


class Gate:
    """Call it where a round begins, and `close` after the last one.

    The answers get the process's standard output for themselves: what the simulator prints goes to standard error.
    """

    def __init__(self) -> None:
        self._answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self._meter: Meter | None = None

    def __call__(self) -> None:
        self.close()
        if not sys.stdin.readline():
            raise SystemExit
        self._meter = Meter()

    def close(self) -> None:
        if self._meter is not None:
            print(self._meter.answer(), file=self._answers, flush=True)
