"""A process that performs runs of a study one after another: it is told which on its input, and tells how they go.

Both ways are lines of JSON. When its input ends, the study's process is gone, and so this one ends, too: whatever it
was doing continues from its last checkpoint when the study does.
"""

import json
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from covey.core.round import RoundEnd, Watcher
from covey.errors import UserError
from covey.runs.compare import in_one_sentence
from covey.runs.config import resolve
from covey.runs.run import Interrupted, run_or_resume
from covey.runs.study.plan import without_nothing
from covey.terminal import main_numbers

TellParent = Callable[[dict[str, Any]], None]


def main() -> None:
    channel = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # the output of the user's own code is no message
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the study runs in the background
    jobs: queue.Queue[dict[str, Any]] = queue.Queue()
    threading.Thread(target=_listen, args=(sys.stdin, jobs), daemon=True).start()
    lock = threading.Lock()

    def tell(message: dict[str, Any]) -> None:
        with lock:
            channel.write(json.dumps(message) + "\n")
            channel.flush()

    try:
        tell({"ready": os.getpid()})
        while True:
            do(jobs.get(), tell)
    except (KeyboardInterrupt, BrokenPipeError):
        os._exit(130)


def _listen(lines: TextIO, jobs: queue.Queue[dict[str, Any]]) -> None:
    for line in lines:
        jobs.put(json.loads(line))
    os._exit(0)


def do(job: dict[str, Any], tell: TellParent) -> None:
    """One run, and how it ended."""
    begun = False

    def watch(end: RoundEnd) -> None:
        nonlocal begun
        begun = True
        tell({"round": end.state.round, "rounds": end.rounds, "text": main_numbers(end)})

    try:
        config = resolve(without_nothing(job["tables"]))
        watchers: list[Watcher] = [watch]
        if "trial" in job:
            from covey.runs.study.trials import pruning

            watchers.append(pruning(**job["trial"]))
        done = run_or_resume(
            config, Path(job["folder"]), watchers=watchers, say=lambda text: tell({"say": text}), report=False
        )
        tell({"done": done.summary.plain()["last"]})
    except Interrupted as interrupted:
        tell({"interrupted": str(interrupted)})
        if not interrupted.pruned:
            raise KeyboardInterrupt from None
    except Exception as error:  # the other runs are worth having
        refused = isinstance(error, UserError) and not begun
        tell({"failed": in_one_sentence(error), "refused": refused})


if __name__ == "__main__":
    main()
