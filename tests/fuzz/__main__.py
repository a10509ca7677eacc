"""`python -m tests.fuzz SECONDS [SEED]`: configurations for half of the time, and a count of what became of them.

In the other half, the files of every reader, command lines and messages on the wire, in turn.

Each seed has a process of its own, so that one that dies, or works without end, is counted and the next seed begins.
"""

from __future__ import annotations

import multiprocessing as mp
import reprlib
import signal
import sys
import time
import warnings
from collections import Counter
from multiprocessing.connection import Connection
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz import commands, readers, wire
from tests.fuzz.frame import HEAD, fuzz
from tests.fuzz.outcomes import carried_out, read
from tests.fuzz.strategies import configurations

AT_ONCE = 200  # examples of one seed
IN_TURN = 250  # cases of every other subject at a time
CPU_SECONDS = 60.0  # of one configuration; longer ones ask for much work, which is no fault
LONG = f"accepted, cut after {CPU_SECONDS:.0f} CPU seconds"
SHORT = reprlib.Repr()
SHORT.maxdict, SHORT.maxstring, SHORT.maxlevel = 30, 80, 5


def one_seed(number: int, line: Connection) -> None:
    """Tells each configuration before it is tried, and what became of it."""
    warnings.simplefilter("ignore")

    def one(tables: dict[str, Any]) -> None:
        line.send(("tried", SHORT.repr(tables)))  # some are too deep to be sent
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)  # its signal ends the process
        result, config = read(tables)
        line.send(("became", result if config is None else f"accepted, {carried_out(config)}"))

    quick = settings(
        max_examples=AT_ONCE,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    quick(seed(number)(given(configurations(["digits"]))(one)))()
    line.send(None)


def main(seconds: float, first: int) -> int:
    """Fuzzes; 1 where there was a fault."""
    return max(configured(seconds / 2, first), in_turn(seconds / 2, first))


def in_turn(seconds: float, first: int) -> int:
    """Some cases of every other subject, again and again until the time is over."""
    end, number, faults = time.monotonic() + seconds, first, list[str]()
    print(HEAD)
    while time.monotonic() < end:
        for subjects in (readers.subjects, commands.subjects, wire.subjects):
            faults += fuzz(subjects(), IN_TURN, number, say=lambda line: print(line, flush=True))
        number += 1
    print("\n".join(faults[:40]) or "no fault")
    return int(bool(faults))


def configured(seconds: float, first: int) -> int:
    """Configurations; 1 where there was a fault."""
    counts: Counter[str] = Counter()
    examples: dict[str, str] = {}
    end = time.monotonic() + seconds
    number = first
    context = mp.get_context("fork")

    def count(result: str, tables: str) -> None:
        counts[result] += 1
        if "fault" in result or result == LONG:
            examples.setdefault(result, tables)

    while time.monotonic() < end:
        ours, theirs = context.Pipe()
        process = context.Process(target=one_seed, args=(number, theirs))
        process.start()
        theirs.close()
        tables = ""
        while ours.poll(max(0.0, end - time.monotonic())):
            try:
                told = ours.recv()
            except EOFError:
                process.join()
                cut = process.exitcode == -signal.SIGPROF
                count(LONG if cut else f"fault: the process died with code {process.exitcode}", tables)
                break
            if told is None:
                break
            what, text = told
            if what == "tried":
                tables = text
            else:
                count(text, tables)
        process.kill()
        process.join()
        number += 1
        print(
            f"{sum(counts.values())} configurations, {len(examples)} kinds noted", file=sys.stderr, flush=True
        )
    print(f"{sum(counts.values())} configurations, seeds {first} to {number - 1}")
    for result, times in counts.most_common():
        print(f"{times:7} {result} {examples.get(result, '')}".rstrip())
    return 1 if set(examples) - {LONG} else 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
