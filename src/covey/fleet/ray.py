"""Simulation on many machines: the jobs of the local engine, done by actors on a Ray cluster with bit-identical
results.

The samples lie in Ray's object store, one copy per node that its actors share; rows that several clients get are put
there once per round. An actor that is lost is replaced, and what it was doing is done again.
"""

from __future__ import annotations

import hashlib
import os
import pickle  # only between this process and actors that it started itself, on a cluster that the user trusts
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from covey.errors import RunError, UserError, importing
from covey.fleet.client_data import ClientData
from covey.fleet.executors import Light, common_rows, full, light, pack, pack_apart, states_of
from covey.fleet.ray_data import SharedData
from covey.fleet.work import Call, Job, Outcome, do
from covey.training.bench import Bench
from covey.training.bench.choose import choose_bench
from covey.training.frozen import Frozen
from covey.training.objective import Objective
from covey.training.rows import BufferPolicy
from covey.version import __version__

CHUNKS = 4  # messages an actor in each call: enough to even out unequal clients, few enough to cost little
TRIES = 3  # times that a job is begun before it counts as lost
# seconds to wait for a worker while none works: machines may have to be started, images pulled
RAY_SECONDS = 3600.0
SAY_EVERY = 30.0  # seconds after which a wait is worth a line
PAUSE = 5.0  # seconds before a worker is asked for again where the machine has no memory for it
# Ray's own patience with workers and messages, which a busy machine needs; read by the processes that it starts.
BUSY = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_register_timeout_seconds": "600",
    "RAY_gcs_server_request_timeout_seconds": "300",
    # Workers are as important as the run itself: at Ray's own niceness of 15 any other program comes first, and they
    # starve.
    "RAY_worker_niceness": "0",
}
# A cluster of this machine alone is reached from nowhere else: whoever reaches one can run code on it.
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}


@dataclass(frozen=True, kw_only=True, eq=False)
class BenchSpec:
    """How an actor makes its bench: the trainer is decided where the run was started, for all actors.

    The model is hollow: its frozen part lies in the node's object store, where all its actors read it.
    """

    model: nn.Module
    frozen: Mapping[str, np.ndarray]
    objective: Objective
    shape: tuple[int, ...]
    buffers: BufferPolicy
    lanes: bool
    device: str

    def __call__(self) -> Bench:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the store's memory is read-only, and nobody writes to it
            Frozen.from_arrays(self.frozen, self.model).put_into(self.model)
        make, info = choose_bench(
            self.model,
            self.objective,
            self.shape,
            buffers=self.buffers,
            lanes=self.lanes,
            device=self.device,
        )
        if (info["trainer"] == "lanes") != self.lanes:
            raise RunError(
                f"a Ray worker cannot use the lanes trainer ({info['why']}); set engine.lanes=false"
            )
        return make()


class Hand:
    """An actor: the data of all clients as views into its node's object store, and one model per bench."""

    def __init__(self, main: np.ndarray, *arrays: np.ndarray) -> None:
        torch.set_num_threads(1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the store's memory is read-only, and nobody writes to samples
            data: ClientData | SharedData = pickle.loads(main.data, buffers=arrays)
        self.client_data = data.load() if isinstance(data, SharedData) else data
        self.benches: dict[int, Bench] = {}

    def version(self) -> str:
        """Tells that the actor is ready, and for which covey."""
        return __version__

    def work(
        self,
        call: Call,
        bench: tuple[int, list[Any]],
        messages: bytes,
        keys: Sequence[int],
        *rows: np.ndarray,
    ) -> bytes:
        """Does some jobs; `rows` are those that `keys` stand for in them."""
        import ray

        number, spec = bench
        if number not in self.benches:
            self.benches[number] = ray.get(spec[0])()
        known = {key: torch.from_numpy(row.copy()) for key, row in zip(keys, rows, strict=True)}
        jobs = [full(message, known) for message in pickle.loads(messages)]
        return pack(
            [outcome for job in jobs for outcome in do(call, job, self.client_data, self.benches[number])]
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Chunk:
    """Jobs that travel together, and how often they were begun."""

    jobs: Sequence[Job]
    tries: int = 0


@dataclass(frozen=True, eq=False)
class CrewExecutor:
    """A crew in use, with one bench; closing it leaves the crew to the other fleets."""

    crew: Crew
    bench: tuple[int, list[Any]]

    def __call__(self, call: Call, jobs: Sequence[Job]) -> list[Outcome]:
        return self.crew.do(call, jobs, self.bench)

    def close(self) -> None:
        """The crew is closed by the fleet that made it."""


class Crew:
    """The actors of a run, shared by all fleets on the same clients."""

    def __init__(
        self,
        client_data: ClientData | SharedData,
        *,
        address: str,
        workers: int,
        gpus: float = 0.0,
        environment: dict[str, Any] | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.say = say
        self.ray, self.started = connect(address, workers, say, environment)
        self.workers = workers or places(self.ray.cluster_resources(), gpus)
        self.nodes = len([node for node in self.ray.nodes() if node["Alive"]])
        # Where Ray was there before, the workers' environment is theirs alone.
        own = {"runtime_env": environment} if environment and not self.started else {}
        self.actor = self.ray.remote(num_cpus=1, num_gpus=gpus, max_restarts=0, **own)(Hand)
        # The parts are arguments of their own, because only those are taken from the store without a copy.
        self.data = [self.ray.put(part) for part in pack_apart(client_data)]
        self.rows: dict[bytes, Any] = {}
        self.round = -1
        self.benches = 0
        self.idle: list[Any] = []
        self.coming: dict[Any, Any] = {}
        self.failures = 0  # actors that never came to work
        self.hungry = 0.0  # seconds for which Ray has ended every actor for lack of memory
        for _ in range(self.workers):
            self.hire()

    def hire(self) -> None:
        """Asks for one more actor; where the cluster has no room now, it comes later."""
        actor = self.actor.remote(*self.data)
        self.coming[actor.version.remote()] = actor

    def executor(self, spec: BenchSpec) -> CrewExecutor:
        """Workers with that bench."""
        self.benches += 1
        return CrewExecutor(self, (self.benches, [self.ray.put(spec)]))

    def do(self, call: Call, jobs: Sequence[Job], bench: tuple[int, list[Any]]) -> list[Outcome]:
        """The outcomes of all jobs, in whatever order they come."""
        outcomes: list[Outcome] = []
        common = common_rows(jobs)
        stored = self.store(call.round, common)
        told = self.ray.put(call)
        waiting = cut(jobs, CHUNKS * self.workers)
        working: dict[Any, tuple[Any, Chunk]] = {}
        try:
            while waiting or working:
                while waiting and self.idle:
                    actor, chunk = self.idle.pop(), waiting.pop()
                    messages: list[Light] = [light(job, common) for job in chunk.jobs]
                    keys = sorted({key for _, names in messages for key in names if key is not None})
                    ref = actor.work.remote(told, bench, pack(messages), keys, *(stored[key] for key in keys))
                    working[ref] = (actor, chunk)
                ready = self.first_ready(list(working))
                if ready in self.coming:
                    self.welcome(ready, others=len(working))
                    continue
                actor, chunk = working.pop(ready)
                try:
                    outcomes += pickle.loads(self.ray.get(ready))
                except self.ray.exceptions.RayTaskError:
                    self.idle.append(actor)
                    raise
                except self.ray.exceptions.RayError as error:
                    self.ray.kill(actor)
                    self.hire()
                    if chunk.tries + 1 < TRIES:  # one job at a time, so that none takes others with it
                        again = sum(len(job.ids) for job in chunk.jobs)
                        self.say(
                            f"a Ray worker is gone, its machine may be, too; clients that are asked again: {again}"
                        )
                        waiting += [Chunk(jobs=[job], tries=chunk.tries + 1) for job in chunk.jobs]
                    else:
                        outcomes += [
                            Outcome(id=i, lost=self.why(error), state=state)
                            for job in chunk.jobs
                            for i, state in states_of(job)
                        ]
                    continue
                self.idle.append(actor)
        finally:  # after an error some are in the middle of something
            for actor, _ in working.values():
                self.ray.kill(actor)
                self.hire()
        return outcomes

    def first_ready(self, working: Sequence[Any]) -> Any:
        """What is done or has come first; where nobody works yet, a line says from time to time what it waits for."""
        waited = 0.0
        while working or self.coming:
            step = min(SAY_EVERY, RAY_SECONDS - waited)
            ready, _ = self.ray.wait([*working, *self.coming], timeout=None if working else step)
            if ready:
                return ready[0]
            waited += step
            if waited >= RAY_SECONDS:
                break
            self.say(f"waiting for Ray workers, {waited:.0f} s so far; {self.room()}")
        raise RunError(f"no Ray worker was ready after {waited:.0f} s; {self.room()}")

    def room(self) -> str:
        """What the cluster has, and what of it is free, in words."""
        there, free = self.ray.cluster_resources(), self.ray.available_resources()
        nodes = len([node for node in self.ray.nodes() if node["Alive"]])
        return (
            f"{len(self.coming)} are asked for, the cluster has {nodes} nodes, {there.get('CPU', 0):g} CPUs "
            f"({free.get('CPU', 0):g} free) and {there.get('GPU', 0):g} GPUs ({free.get('GPU', 0):g} free)"
        )

    def welcome(self, ref: Any, others: int = 0) -> None:
        """Takes an actor into work, if it could be started; `others` work at present."""
        actor = self.coming.pop(ref)
        try:
            version = self.ray.get(ref)
        except self.ray.exceptions.OutOfMemoryError as error:
            self.wait_for_memory(error)
            self.hire()
            return
        except self.ray.exceptions.RayError as error:
            self.failures += 1
            if self.failures < TRIES:  # its machine may have gone while it started
                self.hire()
            elif not self.idle and not self.coming and not others:
                raise RunError(f"no Ray worker could be started: {str(error).splitlines()[-1]}") from error
            return
        if version != __version__:
            raise UserError(f"a Ray worker has covey {version}, this is {__version__}; install the same")
        self.failures, self.hungry = 0, 0.0
        self.idle.append(actor)

    def wait_for_memory(self, error: Exception) -> None:
        """Ray ends workers while the machine is short of memory, which other programs may need for a while."""
        if self.hungry >= RAY_SECONDS:
            raise RunError(
                f"Ray has ended every worker for lack of memory for {self.hungry:.0f} s: {str(error).splitlines()[0]}"
            ) from error
        if self.hungry % SAY_EVERY < PAUSE:
            self.say(f"Ray ends workers for lack of memory, {self.hungry:.0f} s so far; waiting for room")
        self.hungry += PAUSE
        time.sleep(PAUSE)

    def why(self, error: Exception) -> str:
        """Why a client whose worker died again and again is lost."""
        short = isinstance(error, self.ray.exceptions.OutOfMemoryError)
        return "Ray ended its worker for lack of memory" if short else "its Ray worker died"

    def store(self, number: int, rows: dict[int, Tensor]) -> dict[int, Any]:
        """The rows in the object store; equal ones once per round, whoever asks."""
        if number != self.round:
            self.round, self.rows = number, {}
        stored = {}
        for key, tensor in rows.items():
            array = np.ascontiguousarray(tensor.detach().cpu().numpy())
            name = hashlib.sha256(str(array.shape).encode() + array.tobytes()).digest()
            if name not in self.rows:
                self.rows[name] = self.ray.put(array)
            stored[key] = self.rows[name]
        return stored

    def close(self) -> None:
        """Ends the actors, and Ray where it was started for this run."""
        for actor in (*self.idle, *self.coming.values()):
            self.ray.kill(actor)
        self.idle, self.coming = [], {}
        if self.started:
            self.ray.shutdown()


def cut(jobs: Sequence[Job], pieces: int) -> list[Chunk]:
    """The jobs in about that many chunks of similar weight; the heaviest come last, because the last is taken first."""
    limit = sum(job.weight for job in jobs) / pieces
    chunks: list[list[Job]] = []
    load = 0.0
    for job in sorted(jobs, key=lambda job: job.weight):
        if not chunks or load + job.weight > limit:
            chunks.append([])
            load = 0.0
        chunks[-1].append(job)
        load += job.weight
    return [Chunk(jobs=chunk) for chunk in chunks]


def places(there: Mapping[str, float], gpus: float) -> int:
    """How many workers find room in a cluster with these resources: one per CPU, and as many as share its GPUs."""
    on_gpus = [int(there.get("GPU", 0) / gpus + 1e-9)] if gpus else []
    return max(1, min([int(there.get("CPU", 1)), *on_gpus]))


def connect(
    address: str,
    workers: int,
    say: Callable[[str], None] = lambda _: None,
    environment: dict[str, Any] | None = None,
) -> tuple[Any, bool]:
    """The module ray, connected to the cluster at the address or to a new one here, and whether just now."""
    address = address or os.environ.get("RAY_ADDRESS", "")
    for name, value in (BUSY if address else {**BUSY, **LOOPBACK}).items():
        os.environ.setdefault(name, value)
    with importing('engine.mode is "ray", which needs the package ray: install covey[ray]'):
        import ray
        import ray._private.worker as told
    if ray.is_initialized():
        return ray, False
    # of a dead worker a run says one line of its own; Ray would print a paragraph for each
    told.print_to_stdstream = lambda *_, **__: None
    here: dict[str, Any] = {} if address else {"num_cpus": workers or None, "include_dashboard": False}
    if environment:
        here["runtime_env"] = environment
    for left in reversed(range(TRIES)):
        try:
            ray.init(address=address or "local", log_to_driver=False, logging_level="ERROR", **here)
            break
        except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
            where = f'engine.address is "{address}"; ' if address else ""
            raise UserError(f"{where}Ray does not answer: {str(error).splitlines()[0]}") from error
        except Exception as error:  # Ray gives a node 30 s to start, which a busy machine may not have
            ray.shutdown()
            if address or not left:
                raise RunError(f"Ray could not be started: {str(error).splitlines()[0]}") from error
            say("Ray did not start in its time; this machine is busy, trying again")
    return ray, True
