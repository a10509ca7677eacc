"""The Ray engine: the local engine's bits, on actors that may die."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from typer.testing import CliRunner

from covey.core import Client, Reply, Step, Task, run_rounds
from covey.core.needs import own_model_of
from covey.data import federate, load
from covey.errors import RunError, UserError
from covey.fleet.client_data import ClientData
from covey.fleet.devices import Devices
from covey.fleet.engine import Engine
from covey.fleet.executors import pack_apart
from covey.fleet.local import LocalFleet
from covey.fleet.ray_data import shared
from covey.methods.baselines import fedavg
from covey.parts.measure import Measuring
from covey.parts.steps import Train
from covey.runs.config import fleet_of, resolve
from covey.settings.catalogue import METHODS
from covey.testing import final, same, small_federation, small_fleet
from covey.training.models import build
from covey.training.objective import Classification

TRAIN = Train(lr=0.1, batch=16)


def test_ray_needs_its_address_only_in_its_mode() -> None:
    with pytest.raises(UserError, match=r'engine.address is "somewhere", which needs engine.mode = "ray"'):
        Engine(address="somewhere")


@pytest.mark.parametrize(
    ("setting", "value", "shown"),
    [("gpus", 0.5, "0.5"), ("data", "shared", '"shared"'), ("runtime_env", "env.toml", '"env.toml"')],
)
def test_what_is_rays_needs_its_mode(setting: str, value: Any, shown: str) -> None:
    with pytest.raises(UserError) as caught:
        Engine(**{setting: value})
    assert str(caught.value) == f'engine.{setting} is {shown}, which needs engine.mode = "ray"'


def test_shared_data_needs_data_that_can_be_loaded_again() -> None:
    with pytest.raises(
        UserError, match=r'engine.data is "shared", which needs a run from a file or a command'
    ):
        shared(ClientData(small_federation(), Devices()), None)


def test_a_machine_with_other_samples_is_no_worker() -> None:
    here = shared(ClientData(small_federation(), Devices()), small_federation)
    assert len(here.load()) == 8
    with pytest.raises(RunError, match="has other samples than the machine that started the run"):
        replace(here, source=lambda: federate(load("digits"), partition="iid", clients=8, seed=99)).load()


ray = pytest.importorskip("ray")
from covey.fleet import ray as module  # noqa: E402
from covey.fleet.ray import BUSY, Crew  # noqa: E402

ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the steps of this file


def persistent(start: Callable[[], Any]) -> Any:
    """Starts something of Ray's, again where its own 30 s are not enough on a busy machine."""
    for _ in range(9):
        try:
            return start()
        except Exception as error:
            print(f"again: {error}")
    return start()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A Ray cluster of two nodes on this machine, with one CPU each."""
    os.environ.update(BUSY)
    from ray.cluster_utils import Cluster

    store = 80 * 2**20
    started = persistent(
        lambda: Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": store})
    )
    persistent(lambda: started.add_node(num_cpus=1, object_store_memory=store))
    persistent(lambda: ray.init(address=started.address, log_to_driver=False, logging_level="ERROR"))
    yield started
    ray.shutdown()
    started.shutdown()


@pytest.fixture(scope="module")
def host(cluster: Any) -> Iterator[LocalFleet]:
    """A fleet whose actors other fleets share, so that not every test has to start its own."""
    fleet = ray_fleet()
    fleet.executor  # noqa: B018
    yield fleet
    fleet.close()


def ray_fleet(host: LocalFleet | None = None, *, lanes: bool = False, debug: bool = False) -> LocalFleet:
    model = build("mlp", input_shape=(1, 8, 8), outputs=10, seed=1)
    fleet = LocalFleet(small_federation(), model, seed=5, engine=Engine(mode="ray", lanes=lanes, debug=debug))
    fleet._parent = host
    return fleet


@dataclass(frozen=True)
class Fatal(Step):
    """Kills the actor of one client: always, or only the first time."""

    flag: str = ""
    kind: ClassVar[str] = "query.fatal"

    def __call__(self, client: Client, task: Task) -> Reply:
        if client.id == 3 and not (self.flag and Path(self.flag).exists()):
            if self.flag:
                Path(self.flag).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return Reply(id=client.id, stats={"n": client.state.setdefault("n", 0)})

    def work(self, train: int, test: int) -> float:
        return 0.0


class Somebody:
    """Somebody else's actor, which takes a CPU."""


@dataclass(frozen=True)
class Where(Step):
    """Tells the node and the process that a client works on, and how important that process is."""

    kind: ClassVar[str] = "query.where"

    def __call__(self, client: Client, task: Task) -> Reply:
        node = ray.get_runtime_context().get_node_id()
        return Reply(id=client.id, stats={"node": node, "pid": os.getpid(), "nice": os.nice(0)})

    def work(self, train: int, test: int) -> float:
        return 0.0


def places(fleet: LocalFleet, what: str, seconds: float = 1800.0) -> set[Any]:
    """The two nodes or processes on which a fleet's clients work; an actor that starts late shows up late."""
    until, found = time.monotonic() + seconds, set[Any]()
    while len(found) < 2:
        assert time.monotonic() < until, f"only {found} in {seconds:.0f} s"
        replies = fleet.ask(Where(), dict.fromkeys(fleet.begin(1), Task()))
        assert [reply.id for reply in replies] == list(range(8))
        found |= {reply.stats[what] for reply in replies}
    return found


# Trees need a model of their own: tests/methods/boosting has them over every engine of a simulation.
ANY_MODEL = [name for name in METHODS if own_model_of(METHODS.find(name)) is None]


@pytest.mark.parametrize("name", ANY_MODEL)
def test_every_method_gives_the_local_engines_bits(name: str, host: LocalFleet) -> None:
    from covey.testing import check_toml

    method, fleet = check_toml(name, {}), ray_fleet(host)
    there = final(method, fleet)
    assert fleet.ledger.lost == 0, fleet.ledger.last_problem()
    same(final(method, small_fleet()), there, f"{name}: ray and local differ")


def test_what_is_measured_and_booked_is_the_same(host: LocalFleet) -> None:
    found = []
    for fleet in (small_fleet(), ray_fleet(host)):
        seen: list[Any] = []
        method = fedavg(TRAIN, per_round=4)
        run_rounds(method, fleet, rounds=2, measure=Measuring(), watchers=[lambda e, s=seen: s.append(e)])
        fleet.close()
        numbers = [(m.split, m.metric, m.client, m.value) for end in seen for m in end.measurements]
        found.append((numbers, fleet.ledger.save()))
    assert found[0] == found[1]


@dataclass(frozen=True)
class FrozenMemory(Step):
    """Tells in which mapped file of its process the frozen layer of a client's model lies."""

    kind: ClassVar[str] = "query.frozen-memory"

    def __call__(self, client: Client, task: Task) -> Reply:
        place = client.bench.on_torch().model.get_parameter("1.weight").data_ptr()
        for line in Path("/proc/self/maps").read_text().splitlines():
            first, last = (int(end, 16) for end in line.split()[0].split("-"))
            if first <= place < last:
                return Reply(id=client.id, stats={"file": " ".join(line.split()[5:])})
        return Reply(id=client.id)

    def work(self, train: int, test: int) -> float:
        return 0.0


def test_a_frozen_part_is_in_the_nodes_store_and_gives_the_local_engines_bits(host: LocalFleet) -> None:
    method = fedavg(TRAIN, per_round=4)
    model = build("mlp", input_shape=(1, 8, 8), outputs=10, seed=1, train=["3"])
    fleet = LocalFleet(small_federation(), model, seed=5, engine=Engine(mode="ray", lanes=False))
    fleet._parent = host
    there = run_rounds(method, fleet, rounds=3)
    same(final(method, small_fleet(model={"train": ["3"]})), there, "ray and local differ")
    files = {r.stats["file"] for r in fleet.ask(FrozenMemory(), dict.fromkeys(fleet.begin(4), Task()))}
    assert all("plasma" in file for file in files), files
    fleet.close()


def test_the_fast_trainer_gives_its_own_bits_on_actors(host: LocalFleet) -> None:
    pytest.importorskip("numba")
    method = fedavg(TRAIN, per_round=4)
    same(final(method, small_fleet(lanes=True)), final(method, ray_fleet(host, lanes=True)), "lanes differ")


def test_work_is_spread_over_both_nodes(host: LocalFleet) -> None:
    fleet = ray_fleet(host)
    assert len(places(fleet, "node")) == 2
    assert fleet.info["name"] == "ray"
    assert (fleet.info["workers"], fleet.info["nodes"]) == (2, 2)
    fleet.close()


def test_workers_are_as_important_as_the_run_itself(host: LocalFleet) -> None:
    """Beside a busy program, one at Ray's own niceness of 15 gets a thirtieth of its share of the processor."""
    fleet = ray_fleet(host)
    (reply, *_) = fleet.ask(Where(), dict.fromkeys(fleet.begin(1), Task()))
    assert reply.stats["nice"] == os.nice(0)
    fleet.close()


def test_a_lost_actor_is_replaced_and_its_clients_are_asked_again(
    host: LocalFleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet, said = ray_fleet(host), list[str]()
    monkeypatch.setattr(host.crew, "say", said.append)
    replies = fleet.ask(Fatal(flag=str(tmp_path / "dead")), dict.fromkeys(fleet.begin(1), Task()))
    assert [reply.id for reply in replies] == list(range(8))
    assert fleet.ledger.lost == 0
    assert any("a Ray worker is gone" in line and "asked again" in line for line in said)
    fleet.close()


def test_a_client_that_always_kills_its_actor_is_lost_alone(host: LocalFleet) -> None:
    fleet = ray_fleet(host)
    replies = fleet.ask(Fatal(), dict.fromkeys(fleet.begin(1), Task()))
    assert [reply.id for reply in replies] == [0, 1, 2, 4, 5, 6, 7]
    assert fleet.ledger.last_problem().endswith("its Ray worker died")
    fleet.close()


def test_a_child_fleet_works_on_the_same_actors(host: LocalFleet) -> None:
    fleet = ray_fleet(host)
    child = fleet.child(
        "small", build("mlp", input_shape=(1, 8, 8), outputs=10, hidden=(8,)), Classification()
    )
    assert places(fleet, "pid") == places(child, "pid")
    fleet.close()


def test_equal_rows_are_stored_once_a_round(host: LocalFleet) -> None:
    fleet = ray_fleet(host)
    rows = torch.ones(1, 10)
    fleet.executor  # noqa: B018
    stored = [fleet.crew.store(1, {key: rows.clone()})[key] for key in (1, 2)]
    assert stored[0] == stored[1]
    assert fleet.crew.store(2, {1: rows})[1] != stored[0]
    fleet.close()


def test_an_error_is_raised_in_place_when_debugging(host: LocalFleet) -> None:
    from covey.testing import Broken

    fleet = ray_fleet(host, debug=True)
    with pytest.raises(ValueError, match="broken on purpose"):
        run_rounds(replace(fedavg(TRAIN, per_round=8), local=Broken(step=TRAIN)), fleet, rounds=1)  # type: ignore[arg-type]
    fleet.close()


def test_the_command_takes_engine_and_address(cluster: Any, host: LocalFleet, tmp_path: Path) -> None:
    from covey.cli import app

    host.close()

    options = ["run", "--dataset", "digits", "--rounds", "1", "--set", "data.clients=4"]
    where = ["--engine", "ray", "--address", cluster.address, "--out", str(tmp_path / "run")]
    result = CliRunner().invoke(app, [*options, *where])
    assert result.exit_code == 0, result.output
    assert f'address = "{cluster.address}"' in (tmp_path / "run" / "config.toml").read_text()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--engine", "spark"], "--engine is 'spark'; allowed: local, ray"),
        (["--address", "host:1"], "--address is 'host:1', which needs --engine ray"),
    ],
)
def test_a_wrong_engine_is_one_sentence(options: list[str], sentence: str) -> None:
    from covey.cli import app

    result = CliRunner().invoke(app, ["run", *options])
    assert isinstance(result.exception, UserError)
    assert str(result.exception) == sentence


def test_a_node_killed_in_the_middle_changes_no_bit(cluster: Any, host: LocalFleet) -> None:
    host.close()
    method = fedavg(TRAIN, per_round=8)
    straight = final(method, small_fleet())
    fleet = ray_fleet()
    second = next(node for node in cluster.list_all_nodes() if not node.is_head())

    def watch(end: Any) -> None:
        if end.state.round == 1:
            cluster.remove_node(second, allow_graceful=False)

    state = run_rounds(method, fleet, rounds=3, watchers=[watch])
    fleet.close()
    same(straight, state, "a killed node changes the result")
    assert fleet.ledger.lost == 0


def test_workers_that_take_minutes_are_waited_for_with_a_line_that_says_so(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster is full when the run begins; the room comes only after the run has said what it waits for."""
    monkeypatch.setattr("covey.fleet.ray.SAY_EVERY", 0.5)
    in_the_way = ray.remote(num_cpus=1)(Somebody)
    others = [in_the_way.remote() for _ in range(int(ray.cluster_resources()["CPU"]))]
    until = time.monotonic() + 1800
    while ray.available_resources().get("CPU", 0):  # a node that was killed counts until it is missed
        assert time.monotonic() < until
        time.sleep(0.1)
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        if "waiting for Ray workers" in line:
            while others:
                ray.kill(others.pop())

    fleet = ray_fleet()
    fleet._say = say
    replies = fleet.ask(Where(), dict.fromkeys(fleet.begin(1), Task()))
    assert [reply.id for reply in replies] == list(range(8))
    (line, *_) = [line for line in said if "waiting for Ray workers" in line]
    assert "CPUs (0 free)" in line
    fleet.close()


def test_no_worker_at_all_is_one_sentence(cluster: Any) -> None:
    fleet = ray_fleet()
    fleet.executor  # noqa: B018
    for actor in fleet.crew.coming.values():
        ray.kill(actor)
    fleet.crew.coming = {}
    with pytest.raises(
        RunError, match=r"no Ray worker was ready after .* s; 0 are asked for, the cluster has"
    ):
        fleet.ask(Where(), dict.fromkeys(fleet.begin(1), Task()))
    fleet.close()


def test_two_workers_share_a_gpu_of_the_cluster(cluster: Any) -> None:
    """Ray counts GPUs as it is told; what a worker does on one is the trainer's affair."""
    node = persistent(lambda: cluster.add_node(num_cpus=2, num_gpus=1, object_store_memory=80 * 2**20))
    crew = Crew(ClientData(small_federation(), Devices()), address="", workers=0, gpus=0.5)
    try:
        assert crew.workers == 2
        while len(crew.idle) < 2:
            crew.welcome(crew.first_ready([]))
        until = time.monotonic() + 1800
        while free := ray.available_resources().get("GPU", 0):  # Ray tells it a moment later
            assert time.monotonic() < until, f"{free} of the GPU are free beside two workers"
            time.sleep(0.1)
        assert ray.cluster_resources()["GPU"] == 1
    finally:
        crew.close()
        cluster.remove_node(node)


@dataclass(frozen=True)
class Told(Step):
    """Tells what a worker has in its environment."""

    kind: ClassVar[str] = "query.told"

    def __call__(self, client: Client, task: Task) -> Reply:
        return Reply(id=client.id, stats={"told": os.environ.get("COVEY_TOLD", "")})

    def work(self, train: int, test: int) -> float:
        return 0.0


def test_workers_read_shared_data_themselves_in_an_environment_of_their_own(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray's own runtime_env; nothing of the samples goes through the driver or the object store."""
    (tmp_path / "env.toml").write_text('[env_vars]\nCOVEY_TOLD = "yes"\n')
    tables: dict[str, Any] = {
        "rounds": 2,
        "data": {"name": "digits", "clients": 4},
        "method": {"name": "fedavg"},
    }
    engine = {"mode": "ray", "lanes": False, "workers": 1, "data": "shared"}
    here = fleet_of(resolve({**tables, "engine": {**engine, "runtime_env": str(tmp_path / "env.toml")}}))
    put: list[Any] = []
    monkeypatch.setattr(module, "pack_apart", lambda value: put.append(value) or pack_apart(value))
    node = persistent(lambda: cluster.add_node(num_cpus=1, object_store_memory=80 * 2**20))
    there = fleet_of(resolve({**tables, "engine": {"mode": "serial", "lanes": False}}))
    try:
        ids = here.begin(1)
        assert {reply.stats["told"] for reply in here.ask(Told(), dict.fromkeys(ids, Task()))} == {"yes"}
        assert sum(part.nbytes for part in pack_apart(put[0])) < 10_000
        method = fedavg(TRAIN)
        assert torch.equal(
            run_rounds(method, here, rounds=2).models, run_rounds(method, there, rounds=2).models
        )
    finally:
        here.close()
        cluster.remove_node(node)


LONELY = """
import os, time
import psutil
from covey.fleet.ray import connect

ray, started = connect("", 1)
assert started


@ray.remote
class Actor:
    def die(self):
        os.kill(os.getpid(), 9)


actor = Actor.remote()
parties = [psutil.Process(), *psutil.Process().children(recursive=True)]
print(*{c.laddr.ip.removeprefix("::ffff:") for p in parties for c in p.net_connections() if c.status == "LISTEN"})
try:
    ray.get(actor.die.remote())
except ray.exceptions.RayError:
    time.sleep(3)  # in which Ray would print its paragraph
ray.shutdown()
"""


def test_a_cluster_of_this_machine_listens_on_loopback_and_dead_workers_print_nothing() -> None:
    pytest.importorskip("ray")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    ended = subprocess.run(
        [sys.executable, "-c", LONELY], env=clean, capture_output=True, text=True, check=True
    )
    assert ended.stdout.split() == ["127.0.0.1"], ended.stdout
    assert "worker died" not in ended.stdout + ended.stderr
