"""The contract that every method keeps, in the spirit of scikit-learn's `check_estimator`."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from covey.core import Client, Method, Reply, State, Step, Task, run_rounds, served
from covey.core.ledger import Cost
from covey.core.needs import own_model_of
from covey.data import Federation, federate, load
from covey.fleet.devices import Devices
from covey.fleet.engine import Engine
from covey.fleet.holders import SEND_FROZEN
from covey.fleet.local import LocalFleet
from covey.fleet.work import Call, Executor, Job, Outcome
from covey.folder.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from covey.parts.steps.around import AroundStep
from covey.runs.config import Config, resolve
from covey.settings.catalogue import METHODS
from covey.settings.toml import read_tables
from covey.training.frozen import Frozen
from covey.training.models import build
from covey.training.rows import BufferPolicy

CLIENTS = 8
ROUNDS = 3
TRAIN = {"lr": 0.1, "batch": 16}
CONTRACT = 4  # one sample in so many: to compare bits takes a few batches per client, not many
MakeFleet = Callable[..., LocalFleet]
HEAD = ("3",)  # the last layer of the contract's model
HEAD_SIZE = 64 * 10 + 10


@cache
def small_federation(every: int = 1) -> Federation:
    """Eight clients with different label mixes on the digits, or on one in `every` of their training samples."""
    digits = load("digits")
    part = replace(digits, train=digits.train[::every])
    return federate(part, partition="dir-class", clients=CLIENTS, seed=3, alpha=0.5)


def small_fleet(
    *,
    mode: str = "serial",
    devices: Devices | None = None,
    seed: int = 5,
    buffers: BufferPolicy = "average",
    lanes: bool = False,
    every: int = 1,
    model: Mapping[str, Any] | None = None,
) -> LocalFleet:
    """A fleet of eight clients with one in `every` samples of the digits, and a perceptron or `model`."""
    network = build(**{"name": "mlp", **(model or {})}, input_shape=(1, 8, 8), outputs=10, seed=1)
    engine = Engine(mode=mode, workers=2 if mode in ("threads", "processes") else 0, lanes=lanes)  # type: ignore[arg-type]
    return LocalFleet(
        small_federation(every), network, devices=devices, seed=seed, engine=engine, buffers=buffers
    )


def check_method(
    method: str | Method, settings: Mapping[str, Any] | None = None, *, lanes: bool = False
) -> None:
    """Raises AssertionError where the method breaks a rule; a name is also checked for its way through TOML."""
    model: Mapping[str, Any] = {}
    if isinstance(method, str):
        config, own = config_of(method, settings or {}), own_model_of(METHODS.find(method))
        method = check_toml(method, settings or {})
        model = {key: value for key, value in config["model"].items() if own and key != "buffers"}
    fleet = partial(small_fleet, lanes=lanes, every=CONTRACT, model=model)
    honest = fleet()
    straight = final(method, honest)
    refused = [problem.reason for what, problem in honest.ledger.problems if what == "refused"]
    assert not refused, f"a client that did what it was asked is refused: {refused[0]}"
    for mode in ("threads", "processes", "wire"):
        same(straight, final(method, fleet(mode=mode)), f"serial and {mode} differ")
    check_resume(method, straight, fleet)
    check_order(method, straight, fleet)
    check_dropout(method, fleet)
    check_broken(method, fleet)
    check_unseen(method, fleet)
    if not model:  # of a method's own model all is grown
        check_frozen(method)


def config_of(name: str, settings: Mapping[str, Any]) -> Config:
    """The small run of a method."""
    return resolve({"method": {"name": name, **settings}, "train": dict(TRAIN), "data": {"clients": CLIENTS}})


def check_toml(name: str, settings: Mapping[str, Any]) -> Method:
    """The method, after a way through its TOML file that must not change it."""
    config = config_of(name, settings)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.toml"
        path.write_text(config.toml(), encoding="utf-8")
        again = resolve(read_tables(path))
    assert again.method == config.method, f"{name}: TOML there and back gives another method"
    assert again.toml() == config.toml(), f"{name}: TOML there and back gives another file"
    return config.method


def final(method: Method, fleet: LocalFleet, rounds: int = ROUNDS, state: State | None = None) -> State:
    """The state after that many rounds; the fleet is closed."""
    try:
        return run_rounds(method, fleet, rounds=rounds, state=state)
    finally:
        fleet.close()


def same(a: State, b: State, message: str) -> None:
    """Bit for bit."""
    assert a.models.shape == b.models.shape, f"{message}: {tuple(a.models.shape)} and {tuple(b.models.shape)}"
    assert torch.equal(a.models, b.models), (
        f"{message}: by up to {float((a.models - b.models).abs().max()):.3g}"
    )
    assert dict(a.groups) == dict(b.groups), f"{message}: in the groups"
    assert torch.isfinite(a.models).all(), f"{message}: NaN or infinity in the bank"


def check_resume(method: Method, straight: State, make: MakeFleet) -> None:
    """Stop, save, load into a new fleet, resume: bit-identical to an uninterrupted run."""
    first = make()
    part = final(method, first, rounds=ROUNDS - 1)
    with tempfile.TemporaryDirectory() as folder:
        save_checkpoint(Path(folder), Checkpoint(state=part, fleet=first.save(), extra={}))
        loaded = load_checkpoint(Path(folder))
    assert loaded is not None
    second = make()
    second.load(loaded.fleet)
    same(straight, final(method, second, state=loaded.state), "a resumed run differs from a straight one")


@dataclass(frozen=True)
class Backwards:
    """An executor that does the last job first."""

    executor: Executor

    def __call__(self, call: Call, jobs: Sequence[Job]) -> list[Outcome]:
        return self.executor(call, list(reversed(jobs)))

    def close(self) -> None:
        self.executor.close()


def check_order(method: Method, straight: State, make: MakeFleet) -> None:
    """Work done in another order changes nothing."""
    fleet = make()
    fleet._executor = Backwards(fleet.executor)
    same(straight, run_rounds(method, fleet, rounds=ROUNDS), "the order of the clients matters")


def check_dropout(method: Method, make: MakeFleet) -> None:
    """With 30 % of the devices away and some replies lost, the run continues with finite models."""
    fleet = make(devices=Devices(dropout=0.3, loss=0.1))
    state = final(method, fleet)
    assert torch.isfinite(state.models).all(), "drop-outs leave NaN or infinity in the bank"


@dataclass(frozen=True, kw_only=True)
class Broken(AroundStep):
    """A step that fails on one client and sends NaN from another."""

    fails: int = 1
    sends_nan: int = 2

    @property
    def kind(self) -> str:  # type: ignore[override]
        return self.step.kind

    def __call__(self, client: Client, task: Task) -> Reply:
        if client.id == self.fails:
            raise ValueError("broken on purpose")
        reply = self.step(client, task)
        if client.id == self.sends_nan and reply.vector is not None:
            return replace(reply, vector=torch.full_like(reply.vector, float("nan")))
        if client.id == self.sends_nan and "packed" in reply.stats:
            stats = {name: value for name, value in reply.stats.items() if name != "packed"}
            return replace(reply, vector=torch.full((client.bench.layout.size,), float("nan")), stats=stats)
        return reply


def check_broken(method: Method, make: MakeFleet) -> None:
    """A client that fails and one that sends NaN are left out and reported; their rows never reach the bank."""
    fleet = make()
    broken = Broken(step=method.local)
    asked: set[int] = set()
    ask = fleet.ask

    def listening(step: Step, tasks: Mapping[int, Task], **options: Any) -> list[Reply]:
        asked.update(tasks if isinstance(step, Broken) else ())
        return ask(step, tasks, **options)

    fleet.ask = listening  # type: ignore[method-assign]
    state = final(replace(method, local=broken), fleet)
    assert torch.isfinite(state.models).all(), "a broken reply reached the bank"
    reported = {problem.client for _, problem in fleet.ledger.problems}
    assert asked & {1, 2} <= reported, "a broken client is not reported"
    for what, problem in fleet.ledger.problems:
        if problem.client == 1:
            assert what == "lost", "a failing client is not reported as lost"
            assert "broken on purpose" in problem.reason, "the reason of a failure is not reported"
        if problem.client == 2:
            assert what == "refused", "a reply with NaN is not refused"


def check_unseen(method: Method, make: MakeFleet) -> None:
    """A client that joins later is served with a model."""
    unseen = CLIENTS - 1
    fleet = make(devices=Devices(joins=({"clients": unseen, "round": 2},)))
    state = final(method, fleet)
    assert unseen in state.seen, "an unseen client is never seen"
    assert unseen in served(method, state, fleet, [unseen]), "an unseen client is not served"


def check_frozen(method: Method, rounds: int = 2) -> None:
    """Of a model with a frozen layer the rows hold the head alone, also through bytes and after a resume.

    The frozen layer stays as it was, and is booked once for every client that has been sent a row.
    """
    make = partial(small_fleet, every=CONTRACT, model={"train": HEAD})
    fleet = make()
    before = fleet.frozen.digest
    straight = final(method, fleet, rounds)
    assert fleet.layout.size == straight.models.shape[1] == HEAD_SIZE, "a row holds more than what trains"
    assert torch.isfinite(straight.models).all(), "a frozen layer leaves NaN or infinity in the bank"
    assert Frozen.of(fleet.model).digest == before, "what is frozen was changed"
    sent = fleet.ledger.total.get(SEND_FROZEN, Cost())
    assert sent.bytes_down == sent.messages * fleet.frozen.nbytes, (
        "the frozen part is not booked as it travels"
    )
    assert sent.messages == len(fleet.holders.clients) <= CLIENTS, "the frozen part is sent more than once"
    first = make(mode="wire")
    part = final(method, first, rounds - 1)
    second = make(mode="wire")
    second.load(first.save())
    same(straight, final(method, second, rounds, part), "with a frozen layer a resumed run differs")
