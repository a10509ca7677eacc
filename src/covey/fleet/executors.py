"""Three ways to get jobs done with bit-identical results: here and now, in threads, in persistent processes."""

import contextlib
import gc
import io
import multiprocessing as mp
import os
import pickle  # only between this process and workers that it started itself: never what comes over a network
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from queue import SimpleQueue
from typing import Any

import numpy as np
import torch
from torch import Tensor

from covey.core import Step
from covey.core.codec import reply_from_bytes, reply_to_bytes, task_from_bytes, task_to_bytes
from covey.errors import UserError
from covey.fleet.client_data import ClientData
from covey.fleet.work import BUNDLE_SAMPLES, Call, Job, Outcome, client_of, do, do_in_phases, outcomes_of
from covey.parts.mix.combine import one_by_one
from covey.training.bench import Bench
from covey.training.bench.base import one_thread
from covey.training.bench.turns import in_turn

MakeBench = Callable[[], Bench]
PHASED = 16  # clients that a thread trains phase by phase, or does in one turn
BRIEF = 1 << 17  # numbers in a job's samples up to which threads take turns at Python
COHORT = 256  # clients whose data are put together at a time; how many are stacked is up to memory


class Serial:
    """One job after another in this process; with `debug` an error is raised where it happens.

    With `wire`, tasks and replies go through bytes, as they would on a network.
    """

    def __init__(self, client_data: ClientData, make_bench: MakeBench, *, wire: bool = False) -> None:
        self.client_data = client_data
        self.bench = make_bench()
        self.wire = wire

    def __call__(self, call: Call, jobs: Sequence[Job]) -> list[Outcome]:
        with one_thread():
            return [outcome for job in jobs for outcome in self._do(call, job)]

    def _do(self, call: Call, job: Job) -> list[Outcome]:
        if not self.wire:
            return do(call, job, self.client_data, self.bench)
        tasks = tuple(task_from_bytes(task_to_bytes(task)) for task in job.tasks)
        outcomes = do(call, replace(job, tasks=tasks), self.client_data, self.bench)
        return [
            replace(outcome, reply=reply_from_bytes(reply_to_bytes(outcome.reply)))
            if outcome.reply
            else outcome
            for outcome in outcomes
        ]

    def close(self) -> None:
        """Nothing to end."""


class Cohort(Serial):
    """Trains many clients at once where the step can, for a GPU; everything else one after another."""

    def __call__(self, call: Call, jobs: Sequence[Job]) -> list[Outcome]:
        done: list[Outcome] = []
        for first in range(0, len(jobs), COHORT):
            part = jobs[first : first + COHORT]
            states = [dict(job.states[0]) for job in part]
            clients = [
                client_of(call, job.ids[0], state, self.client_data, self.bench)
                for job, state in zip(part, states, strict=True)
            ]
            replies = call.step.cohort(clients, [job.tasks[0] for job in part])
            if replies is None:
                self._check(call.step.kind)
                done += super().__call__(call, part)
            else:
                done += outcomes_of(call.step, clients, replies)
        return done

    def _check(self, kind: str) -> None:
        """Whoever asked for mixed precision gets no other one silently."""
        if self.bench.on_torch().stacking.mixed and kind.startswith("train."):
            raise UserError(
                f"engine.precision is 'mixed', but {kind} with this model and these settings cannot be stacked; "
                "allowed: float32"
            )


class Threads:
    """A bench per thread; for benches that release the interpreter lock.

    in_phases: whether these train a cohort with the bits that each client has alone.
    """

    def __init__(
        self, client_data: ClientData, make_bench: MakeBench, workers: int, *, in_phases: bool = False
    ) -> None:
        self.client_data = client_data
        self.in_phases = in_phases
        self.workers = workers
        self.benches: SimpleQueue[Bench] = SimpleQueue()
        for _ in range(workers):
            self.benches.put(make_bench())
        self.threads: list[int] = []  # as the system numbers them
        self.pool = ThreadPoolExecutor(
            workers,
            thread_name_prefix="covey",
            initializer=_begin_thread,
            initargs=(self.threads,),
        )

    def __call__(self, call: Call, jobs: Sequence[Job]) -> list[Outcome]:
        """Every thread takes jobs until none is left, the longest first; this one sleeps until all are done."""
        waiting = deque(sorted(jobs, key=lambda job: -job.weight))
        samples = sum(job.weight for job in jobs) / max(1, len(jobs))
        brief = samples * self.client_data.data.dataset.x[:1].numel() <= BRIEF
        with one_thread():
            shifts = [self.pool.submit(self._work, call, waiting, brief) for _ in range(self.workers)]
            try:
                return [outcome for shift in shifts for outcome in shift.result()]
            finally:
                waiting.clear()  # after an error or an interrupt no thread begins another job

    def each(self, work: Callable[[int], None], places: Sequence[int]) -> None:
        """Calls a function for every place, in as many parts as there are threads."""
        with one_thread():
            parts = [places[k :: self.workers] for k in range(min(self.workers, len(places)))]
            for done in [self.pool.submit(one_by_one, work, part) for part in parts]:
                done.result()

    def _work(self, call: Call, waiting: deque[Job], brief: bool) -> list[Outcome]:
        bench = self.benches.get()
        done: list[Outcome] = []
        in_phases = self.in_phases and type(call.step).cohort is not Step.cohort
        try:
            while jobs := self._taken(waiting, PHASED if in_phases or brief else 1):
                with in_turn() if brief else contextlib.nullcontext():
                    together = in_phases and len(jobs) > 1
                    found = do_in_phases(call, jobs, self.client_data, bench) if together else None
                    in_phases = in_phases and (found is not None or len(jobs) == 1)
                    if found is None:
                        found = [one for job in jobs for one in do(call, job, self.client_data, bench)]
                done += found
        finally:
            self.benches.put(bench)
        return done

    def _taken(self, waiting: deque[Job], most: int) -> list[Job]:
        """The next jobs, fewer towards the end, so that all threads end together."""
        jobs: list[Job] = []
        most = min(most, max(1, len(waiting) // (2 * self.workers)))
        with contextlib.suppress(IndexError):
            while len(jobs) < most and sum(job.weight for job in jobs) < BUNDLE_SAMPLES:
                jobs.append(waiting.popleft())
        return jobs

    def close(self) -> None:
        self.pool.shutdown(cancel_futures=True)
        # Python is done with a thread before the system is. A process forked in between would inherit MKL's memory
        # lock as the dying thread held it, and spin on it for ever.
        for number in self.threads:
            while os.path.exists(f"/proc/self/task/{number}"):
                time.sleep(0.001)


def _begin_thread(threads: list[int]) -> None:
    """What a thread does first: torch counts its own threads for each of ours, so every one must be told."""
    torch.set_num_threads(1)
    threads.append(threading.get_native_id())


class Processes:
    """Persistent worker processes, one torch thread and one model each; a worker that dies is replaced.

    They are forked where the system can, so that the data are shared and not copied.
    """

    def __init__(self, client_data: ClientData, make_bench: MakeBench, workers: int) -> None:
        self.client_data = client_data
        self.make_bench = make_bench
        self.context = mp.get_context("fork" if "fork" in mp.get_all_start_methods() else "spawn")
        self.lines: list[Connection] = []
        self.processes: list[BaseProcess] = []
        for _ in range(workers):
            self._hire()

    def _hire(self, place: int | None = None) -> None:
        ours, theirs = self.context.Pipe()
        # A forked child must not keep the other ends open, or nobody would notice that this process has died.
        others = [*self.lines, ours]
        process = self.context.Process(  # type: ignore[attr-defined]
            target=_worker, args=(theirs, others, self.client_data, self.make_bench), daemon=True
        )
        # What a forked child inherits is never collected there: a library's object may wait for threads that the child
        # does not have (a session of onnxruntime did, for ever).
        gc.freeze()
        try:
            process.start()
        finally:
            gc.unfreeze()
        theirs.close()
        if place is None:
            self.lines.append(ours)
            self.processes.append(process)
        else:
            self.lines[place], self.processes[place] = ours, process

    def __call__(self, call: Call, jobs: Sequence[Job]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        waiting = sorted(jobs, key=lambda job: job.weight)  # the longest is last, and taken first
        common = common_rows(jobs)
        working: dict[Connection, Job] = {}
        told: set[Connection] = set()

        def give(line: Connection) -> None:
            if waiting:
                job = working[line] = waiting.pop()
                news = None if line in told else (call, common)
                told.add(line)
                with contextlib.suppress(OSError):  # a dead worker shows when its answer is awaited
                    line.send_bytes(pack((news, light(job, common))))

        for line in list(self.lines):
            give(line)
        while working:
            for ready in wait(list(working)):
                assert isinstance(ready, Connection)
                job = working.pop(ready)
                line = ready
                try:
                    answer = pickle.loads(line.recv_bytes())
                except (EOFError, OSError):
                    answer = [
                        Outcome(id=i, lost="its worker process died", state=s) for i, s in states_of(job)
                    ]
                    place = self.lines.index(line)
                    self._hire(place)
                    line = self.lines[place]
                if isinstance(answer, BaseException):
                    self.close()
                    raise answer
                outcomes += answer
                give(line)
        return outcomes

    def close(self) -> None:
        for line, process in zip(self.lines, self.processes, strict=True):
            line.close()
            process.join(timeout=1)
            if process.is_alive():
                process.kill()
        self.lines, self.processes = [], []


def states_of(job: Job) -> list[tuple[int, dict[str, Any]]]:
    """Each client of a job with its state."""
    return list(zip(job.ids, job.states, strict=True))


def _worker(
    line: Connection, others: Sequence[Connection], client_data: ClientData, make_bench: MakeBench
) -> None:
    """The life of a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    for other in others:
        other.close()
    torch.set_num_threads(1)
    bench = make_bench()
    call: Call | None = None
    rows: dict[int, Tensor] = {}
    while True:
        try:
            news, job = pickle.loads(line.recv_bytes())
        except (EOFError, OSError):
            return
        if news is not None:
            call, rows = news
        assert call is not None
        try:
            line.send_bytes(pack(do(call, full(job, rows), client_data, bench)))
        except Exception as error:  # debugging: show it where the run was started
            line.send_bytes(pack(error))


# Rows that several clients get are sent to each worker once; in a job's tasks their number stands for them.


Light = tuple[Job, list[int | None]]  # a job without its common rows, and the numbers that stand for them


def common_rows(jobs: Sequence[Job]) -> dict[int, Tensor]:
    """The rows that more than one task has, by number."""
    count: dict[int, int] = {}
    rows: dict[int, Tensor] = {}
    for job in jobs:
        for task in job.tasks[:1] if len(job.ids) > 1 else job.tasks:
            key = _key(task.models)
            count[key] = count.get(key, 0) + 1
            rows[key] = task.models
    return {key: rows[key] for key, uses in count.items() if uses > 1}


def _key(rows: Tensor) -> int:
    return hash((rows.data_ptr(), tuple(rows.shape)))


def light(job: Job, common: dict[int, Tensor]) -> Light:
    """The job without the rows that the worker has; of a bundle only the first task, the others are alike."""
    tasks = job.tasks[:1] if len(job.ids) > 1 else job.tasks
    keys = [key if (key := _key(task.models)) in common else None for task in tasks]
    light = tuple(
        task if key is None else replace(task, models=torch.zeros(0, 0))
        for task, key in zip(tasks, keys, strict=True)
    )
    return replace(job, tasks=light), keys


def full(message: Light, rows: dict[int, Tensor]) -> Job:
    """The job with its rows again."""
    job, keys = message
    tasks = tuple(
        task if key is None else replace(task, models=rows[key])
        for task, key in zip(job.tasks, keys, strict=True)
    )
    return replace(job, tasks=tasks)


class _Pickler(pickle.Pickler):
    """Between our own processes only; tensors go as plain arrays, without torch's file descriptors."""

    def reducer_override(self, value: object) -> Any:
        if isinstance(value, Tensor):
            return torch.from_numpy, (np.ascontiguousarray(value.detach().cpu().numpy()),)
        return NotImplemented


def pack(value: object) -> bytes:
    """Bytes for a worker's pipe."""
    buffer = io.BytesIO()
    _Pickler(buffer, protocol=5).dump(value)
    return buffer.getvalue()


def pack_apart(value: object) -> list[np.ndarray]:
    """The same with every array's bytes apart, uncopied: `pickle.loads(first.data, buffers=others)` gives it back."""
    buffer = io.BytesIO()
    apart: list[memoryview] = []
    _Pickler(buffer, protocol=5, buffer_callback=lambda part: apart.append(part.raw())).dump(value)
    whole: list[memoryview] = [memoryview(buffer.getvalue()), *apart]
    return [np.frombuffer(part, np.uint8) for part in whole]
