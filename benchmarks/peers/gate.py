"""For a simulator with a loop of its own: every round waits for its turn, and answers with what it took."""

from __future__ import annotations

import os
import sys

from benchmarks.meter import Meter


class Gate:
    """Call it where a round begins, and `close` after the last one.

    The answers get the process's standard output for themselves: what the simulator prints goes to standard error.
    A run that is timed as a whole neither waits nor answers; it tells its accuracies.
    """

    def __init__(self, *, waits: bool = True) -> None:
        self.waits = waits
        self._answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self._meter: Meter | None = None

    def __call__(self) -> None:
        if not self.waits:
            return
        self.close()
        if not sys.stdin.readline():
            raise SystemExit
        self._meter = Meter()

    def tell(self, accuracy: float) -> None:
        """The accuracy after a round, between 0 and 1."""
        print(f"{accuracy:.4f}", file=self._answers, flush=True)

    def close(self) -> None:
        if self._meter is not None:
            print(self._meter.answer(), file=self._answers, flush=True)
