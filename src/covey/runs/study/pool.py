"""Several runs at once, each in a process of its own; a process that dies takes only its own run with it."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from covey.files import VARIABLE, usable_cores
from covey.runs.study.plan import StudyJob
from covey.terminal import Many

WORKER_SECONDS = 60.0  # seconds that interrupted runs have to write their checkpoints


@dataclass(frozen=True, kw_only=True)
class JobOutcome:
    """How a run ended: with its last numbers, or with what went wrong in one sentence, or it was stopped early.

    refused: it failed before its first round, because its settings do not go together.
    """

    last: Mapping[str, float] = field(default_factory=dict)
    failed: str = ""
    refused: bool = False
    stopped: bool = False


@dataclass(kw_only=True, eq=False)
class Worker:
    """A process, and the run it makes at present."""

    process: subprocess.Popen[str]
    job: StudyJob | None = None
    errors: list[str] = field(default_factory=list)  # the last lines that it printed


Ended = Callable[[StudyJob, JobOutcome], None]
JobExtras = Callable[[StudyJob], Mapping[str, Any]]


def run_jobs(
    jobs: Iterator[StudyJob],
    *,
    processes: int,
    show: Many,
    ended: Ended,
    extra: JobExtras = lambda _: {},
) -> None:
    """Performs all runs, `processes` at a time; the next is taken from `jobs` only when a process is free for it.

    Ctrl-C lets every run write its checkpoint, and is raised again.
    """
    events: queue.Queue[tuple[Worker, dict[str, Any] | None]] = queue.Queue()
    workers: set[Worker] = set()
    waiting = _Lookahead(jobs)
    said: set[str] = set()
    try:
        while True:
            while len(workers) < processes and waiting:
                workers.add(_start(events, max(1, usable_cores() // processes), waiting.take()))
            if not workers:
                return
            worker, message = events.get()
            if message is None:  # its output has ended
                workers.discard(worker)
                worker.process.wait()
                if worker.job is not None:
                    ended(worker.job, JobOutcome(failed=_death(worker)))
                    show.done(worker.job.title, "failed")
                continue
            job = worker.job
            if "ready" in message:
                _send(worker, extra)
            elif job is None:
                continue
            elif "round" in message:
                show.round(job.title, message["round"], message["rounds"], message["text"])
            elif "say" in message:
                if message["say"] not in said:  # what is true of all runs is said once
                    show.say(f"{job.title}: {message['say']}")
                said.add(message["say"])
            else:
                worker.job = None
                outcome = _outcome(message)
                show.done(job.title, outcome.failed or ("stopped early" if outcome.stopped else ""))
                ended(job, outcome)
                if waiting:
                    worker.job = waiting.take()
                    _send(worker, extra)
                else:
                    worker.process.stdin.close()  # type: ignore[union-attr]
    except KeyboardInterrupt:
        _interrupt(workers)
        raise
    finally:
        for worker in workers:
            worker.process.kill()
            worker.process.wait()


class _Lookahead:
    """An iterator that knows whether there is more, without taking it before it is wanted."""

    def __init__(self, jobs: Iterator[StudyJob]) -> None:
        self.jobs, self.next = jobs, None

    next: StudyJob | None

    def __bool__(self) -> bool:
        self.next = self.next or next(self.jobs, None)
        return self.next is not None

    def take(self) -> StudyJob:
        job = self.next or next(self.jobs)
        self.next = None
        return job


def _start(events: queue.Queue[tuple[Worker, dict[str, Any] | None]], cores: int, job: StudyJob) -> Worker:
    process = subprocess.Popen(
        [sys.executable, "-m", "covey.runs.study.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            VARIABLE: str(cores),
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
            "PYTHONPATH": os.pathsep.join(sys.path),  # modules beside a program are found there, too
        },
        start_new_session=True,  # Ctrl-C reaches it through the study, in its turn
    )
    worker = Worker(process=process, job=job)

    def listen() -> None:
        for line in process.stdout or ():
            events.put((worker, json.loads(line)))
        events.put((worker, None))

    def keep_errors() -> None:
        for line in process.stderr or ():
            worker.errors.append(line.rstrip())
            del worker.errors[:-20]

    threading.Thread(target=listen, daemon=True).start()
    threading.Thread(target=keep_errors, daemon=True).start()
    return worker


def _send(worker: Worker, extra: JobExtras) -> None:
    job = worker.job
    if job is None or worker.process.stdin is None:
        return
    message = {"tables": dict(job.config.tables), "folder": str(job.folder), **extra(job)}
    try:
        worker.process.stdin.write(json.dumps(message) + "\n")
        worker.process.stdin.flush()
    except BrokenPipeError:
        pass  # it has died, which its output will tell


def _outcome(message: Mapping[str, Any]) -> JobOutcome:
    if "done" in message:
        return JobOutcome(last={name: value for name, value in message["done"].items() if value is not None})
    return JobOutcome(
        failed=message.get("failed", ""),
        refused=message.get("refused", False),
        stopped="interrupted" in message,
    )


def _death(worker: Worker) -> str:
    code = worker.process.returncode
    if code == -signal.SIGKILL:
        return "its process was killed, by the system if memory ran out"
    said = f": {worker.errors[-1]}" if worker.errors else ""
    return f"its process ended with code {code}{said}"


def _interrupt(workers: set[Worker]) -> None:
    """Every run may write its checkpoint."""
    for worker in workers:
        worker.process.send_signal(signal.SIGINT)
    until = time.monotonic() + WORKER_SECONDS
    for worker in workers:
        try:
            worker.process.wait(timeout=max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            continue
