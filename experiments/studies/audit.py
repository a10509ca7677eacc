"""Audits by canaries: what the code tells under a promise, and with its noise halved on purpose."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray

from covey.core import Client, Reply, Step, Task, step
from covey.core.round import run_rounds
from covey.data import from_tensors
from covey.data.types import ClientShare, Dataset, Federation, Samples
from covey.fleet.local import LocalFleet
from covey.methods.baselines import fedavg
from covey.parts.steps import Train
from covey.parts.steps.private import Quiet
from covey.privacy.accountant import Sampling, noise_for
from covey.privacy.apply import made_private
from covey.privacy.canaries import estimated_epsilon, surest
from covey.privacy.example import ExampleTrain
from covey.privacy.settings import Private
from covey.privacy.sketch import SketchClasses, projection
from covey.report.seeds import Number
from covey.streams import stream
from covey.training.models import build
from experiments.spec import Findings

Array = NDArray[np.float64]
Inside = NDArray[np.bool_]
LOUD = 100.0  # the length of a canary's input: its gradient is clipped, and the bias's part of it is nothing


def audit(settings: dict[str, Any], seed: int) -> Findings:
    """Of portraits, updates under DP-SGD and sums of clients: the promise, and what canaries find."""
    epsilon = float(settings["epsilon"])
    rows: dict[str, dict[str, Number]] = {}
    for name, halved in (("", False), (", noise halved", True)):
        delta = float(settings["delta"])
        scores, inside = of_portraits(settings, epsilon, delta, seed, halved=halved)
        rows[f"portraits{name}"] = found(epsilon, surest(scores, inside, delta))
        scores, inside = of_training(settings, epsilon, delta, seed, halved=halved)
        rows[f"updates of samples{name}"] = found(epsilon, surest(scores, inside, delta))
        without, with_them = of_clients(settings, epsilon, seed, halved=halved)
        estimate = estimated_epsilon(without, with_them, float(settings["client_delta"]))
        rows[f"sums of clients{name}"] = {"promised epsilon": epsilon, "estimate": estimate}
    return Findings(rows=rows)


def found(promised: float, seen: float) -> dict[str, Number]:
    return {
        "promised epsilon": promised,
        "found by canaries": seen,
        "promise refuted": float(seen > promised),
    }


# ---------------------------------------------------------------------------------------------- portraits


@step()
class HalvedSketch(SketchClasses):
    """With half of the noise that its epsilon needs: what an audit has to find."""

    @property
    def scale(self) -> float:
        return super().scale / 2


def canary_clients(clients: int, *, classes: int, dims: int, seed: int) -> Iterator[tuple[Client, Inside]]:
    """Clients of canaries alone: one for every class and every direction of a sketch, in or out by a coin.

    A canary's sketch is exactly one number of the table, which is all that an attacker has to look at.
    """
    directions = torch.from_numpy(projection(dims, dims).T.copy()).float()
    labels = torch.arange(classes).repeat_interleave(dims)
    names = [str(label) for label in range(classes)]
    data = from_tensors(
        directions.repeat(classes, 1), labels, test=(directions[:1], labels[:1]), classes=names
    )
    for number in range(clients):
        inside = stream(seed, "canaries", number).random(classes * dims) < 0.5
        client = SimpleNamespace(
            id=number,
            train=Samples(data, np.flatnonzero(inside)),
            account=None,
            live=False,
            state={},
            stream=lambda *names, number=number: stream(seed, "client", number, *names),
        )
        yield cast(Client, client), inside


def of_portraits(
    settings: dict[str, Any], epsilon: float, delta: float, seed: int, *, halved: bool
) -> tuple[Array, Inside]:
    """Scores of all canaries of all clients, and which were in."""
    kind = HalvedSketch if halved else SketchClasses
    asked = kind(epsilon=epsilon, delta=delta, dims=settings["dims"])
    scores, inside = [], []
    made = canary_clients(settings["clients"], classes=settings["classes"], dims=settings["dims"], seed=seed)
    for client, which in made:
        scores.append(np.asarray(asked(client, Task()).stats["sums"]).ravel())
        inside.append(which)
    return np.concatenate(scores), np.concatenate(inside)


# ---------------------------------------------------------------------------------------------- updates of samples


@step()
class HalvedTrain(ExampleTrain):
    """DP-SGD with half of the noise that its epsilon needs."""

    kind: ClassVar[str] = "train.halved"

    def noise(self, samples: int) -> float:
        return super().noise(samples) / 2


def of_training(
    settings: dict[str, Any], epsilon: float, delta: float, seed: int, *, halved: bool
) -> tuple[Array, Inside]:
    """A canary for every input of a linear model: its clipped gradient is one column of the weights.

    From weights of 0 the gradient of (100 e_j, class 0) is (-1/2, 1/2) in column j: the update's column tells.
    """
    inputs, clients = settings["inputs"], settings["training_clients"]
    labels = torch.zeros(inputs, dtype=torch.int64)
    x = LOUD * torch.eye(inputs)
    data = from_tensors(x, labels, test=(x[:2], torch.tensor([0, 1])), classes=["in", "other"])
    inside = stream(seed, "canaries").random((clients, inputs)) < 0.5
    shares = [
        ClientShare(train=Samples(data, np.flatnonzero(which)), test=Samples(data, np.arange(1)))
        for which in inside
    ]
    fleet = LocalFleet(
        federation_of(data, shares), build("softmax", input_shape=(inputs,), outputs=2), seed=seed
    )
    kind = HalvedTrain if halved else ExampleTrain
    train = Train(batch=inputs, epochs=1, lr=1e-3)
    asked = kind(train=train, clip=1.0, epsilon=epsilon, delta=delta, rounds=1)
    fleet.begin(1)
    task = Task(models=torch.zeros(1, fleet.layout.size), slots=(0,))
    scores = np.zeros(inside.shape)
    for reply in fleet.ask(asked, dict.fromkeys(range(clients), task)):
        assert reply.vector is not None
        weights = reply.vector[: 2 * inputs].view(2, inputs)
        scores[reply.id] = (weights[0] - weights[1]).numpy()
    fleet.close()
    return scores.ravel(), inside.ravel()


def federation_of(data: Dataset, shares: list[ClientShare]) -> Federation:
    return Federation(dataset=data, shares=shares, test=Samples(data, np.arange(1)))


# ---------------------------------------------------------------------------------------------- sums of clients


@step()
class WithCanaries(Step):
    """Training; but clients from `first` on are canaries, whose update is one random direction of full length."""

    step: Step
    first: int
    clip: float
    seed: int

    kind: ClassVar[str] = "train.canaries"

    def __call__(self, client: Client, task: Task) -> Reply:
        if client.id < self.first:
            return self.step(client, task)
        row = task.models[0] + self.clip * direction(self.seed, client.id, task.models.shape[1])
        return Reply(id=client.id, vector=row, slot=task.slots[0], size=1)

    def work(self, train: int, test: int) -> float:
        return self.step.work(train, test)


def direction(seed: int, number: int, columns: int) -> torch.Tensor:
    """A unit vector."""
    drawn = stream(seed, "direction", number).standard_normal(columns)
    return torch.from_numpy(drawn / np.linalg.norm(drawn)).float()


def of_clients(settings: dict[str, Any], epsilon: float, seed: int, *, halved: bool) -> tuple[Array, Array]:
    """Products of the last model's move with directions that were not in any sum, and with those of the canaries."""
    from covey.data import federate, load

    clients, canaries, rounds = settings["real"], settings["canaries"], settings["rounds"]
    data = federate(load("digits"), partition="iid", clients=clients + canaries, seed=seed)
    fleet = LocalFleet(data, build("mlp", input_shape=(1, 8, 8), outputs=10), seed=seed)
    delta = float(settings["client_delta"])
    noise = noise_for(epsilon, delta, sampling=Sampling(), times=rounds) / (2 if halved else 1)
    private = Private(noise=noise, delta=delta, clip=1.0)
    method = made_private(
        fedavg(Train(batches=1), per_round=clients + canaries, weighting="equal"),
        private,
        clients=clients + canaries,
        rounds=rounds,
    )
    assert isinstance(method.local, Quiet)
    step_with = WithCanaries(step=method.local, first=clients, clip=1.0, seed=seed)
    start = fleet.start().clone()
    state = run_rounds(replace(method, local=step_with), fleet, rounds=rounds)
    moved = (state.models[0] - start).double() * (clients + canaries) / rounds
    fleet.close()

    def products(first: int) -> Array:
        made = [direction(seed, first + i, len(moved)).double() @ moved for i in range(canaries)]
        return np.array([float(one) for one in made])

    return products(10**6), products(clients)
