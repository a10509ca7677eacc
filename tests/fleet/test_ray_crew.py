"""The crew of Ray workers where a machine is slow, full or gone: Ray itself is replaced by what it would say."""

from types import SimpleNamespace
from typing import Any

import pytest

from covey.core.round import Task
from covey.errors import RunError
from covey.fleet.work import Job
from covey.version import __version__

ray = pytest.importorskip("ray")
from covey.fleet import ray as module  # noqa: E402
from covey.fleet.ray import Crew, connect, cut  # noqa: E402


def test_chunks_have_like_weights_and_the_heaviest_is_taken_first() -> None:
    jobs = [Job(ids=(i,), tasks=(Task(),), states=({},), weight=w) for i, w in enumerate([5, 1, 1, 1, 1, 1])]
    chunks = cut(jobs, 5)
    assert [[job.ids[0] for job in chunk.jobs] for chunk in chunks] == [[1, 2], [3, 4], [5], [0]]


def test_an_actor_that_cannot_start_is_asked_for_again_and_ends_no_run_in_which_others_work() -> None:
    def broken(_: Any) -> str:
        raise ray.exceptions.RayError("its machine is gone")

    crew = object.__new__(Crew)
    crew.ray = SimpleNamespace(get=broken, exceptions=ray.exceptions)
    crew.idle, crew.failures, hired = [], 0, list[int]()
    crew.hire = lambda: hired.append(crew.failures)  # type: ignore[method-assign]
    for others in (0, 1, 1):
        crew.coming = {"ref": "actor"}
        crew.welcome("ref", others)
    assert hired == [1, 2]  # twice, not for ever
    crew.coming = {"ref": "actor"}
    with pytest.raises(RunError, match="no Ray worker could be started: its machine is gone"):
        crew.welcome("ref", 0)


def test_workers_that_ray_ends_for_lack_of_memory_are_asked_for_until_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Other programs need the memory for 40 s; no try of a client is lost to that."""
    monkeypatch.setattr("covey.fleet.ray.time", SimpleNamespace(sleep=lambda _: None))
    answers = [ray.exceptions.OutOfMemoryError("1 worker was killed\nmore")] * 8 + [__version__]
    said: list[str] = []

    def get(_: Any) -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    crew = object.__new__(Crew)
    crew.ray = SimpleNamespace(get=get, exceptions=ray.exceptions)
    crew.idle, crew.failures, crew.hungry, crew.say = [], 0, 0.0, said.append
    crew.hire = lambda: crew.coming.update(ref="actor")  # type: ignore[method-assign]
    crew.coming = {"ref": "actor"}
    while answers:
        crew.welcome("ref")
    assert (crew.idle, crew.failures, crew.hungry) == (["actor"], 0, 0.0)
    assert said == [f"Ray ends workers for lack of memory, {n} s so far; waiting for room" for n in (0, 30)]

    monkeypatch.setattr("covey.fleet.ray.RAY_SECONDS", 10.0)
    answers = [ray.exceptions.OutOfMemoryError("1 worker was killed\nmore")] * 3
    crew.coming = {"ref": "actor"}
    crew.welcome("ref")
    crew.welcome("ref")
    with pytest.raises(RunError, match=r"every worker for lack of memory for 10 s: 1 worker was killed$"):
        crew.welcome("ref")


def test_patience_with_workers_that_never_come_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("covey.fleet.ray.RAY_SECONDS", 100.0)
    said: list[str] = []
    crew = object.__new__(Crew)
    crew.say, crew.coming = said.append, {"ref": "actor"}
    crew.ray = SimpleNamespace(
        wait=lambda refs, timeout: ([], refs),
        cluster_resources=lambda: {"CPU": 4.0},
        available_resources=dict,
        nodes=lambda: [{"Alive": True}, {"Alive": False}],
    )
    with pytest.raises(RunError, match="no Ray worker was ready after 100 s; 1 are asked for"):
        crew.first_ready([])
    room = "1 are asked for, the cluster has 1 nodes, 4 CPUs (0 free) and 0 GPUs (0 free)"
    assert said == [f"waiting for Ray workers, {n} s so far; {room}" for n in (30, 60, 90)]


def test_a_ray_that_does_not_start_in_its_time_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[str] = []

    def slow(**_: Any) -> None:
        tries.append("init")
        if len(tries) < 3:
            raise Exception("The current node timed out during startup.")

    monkeypatch.setattr(ray, "init", slow)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    said: list[str] = []
    assert connect("", 1, said.append) == (ray, True)
    assert said == ["Ray did not start in its time; this machine is busy, trying again"] * 2
    tries.clear()
    with pytest.raises(RunError, match="Ray could not be started: The current node timed out"):
        connect("10.0.0.1:1", 1)


@pytest.mark.parametrize(
    ("there", "gpus", "workers"),
    [
        ({"CPU": 16.0, "GPU": 2.0}, 0.25, 8),
        ({"CPU": 16.0, "GPU": 2.0}, 0.1, 16),
        ({"CPU": 16.0, "GPU": 2.0}, 0.0, 16),
        ({"CPU": 16.0, "GPU": 3.0}, 2.0, 1),
        ({"CPU": 4.0}, 0.5, 1),  # they may come
    ],
)
def test_workers_share_gpus_by_fractions(there: dict[str, float], gpus: float, workers: int) -> None:
    assert module.places(there, gpus) == workers
