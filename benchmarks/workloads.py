"""The workloads, made once and reused by every engine."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from covey.data.types import ClientShare, Dataset, Federation, Samples
from covey.training.models import build


@dataclass(frozen=True, kw_only=True)
class Workload:
    """So many clients of so many samples of `shape`; one local epoch."""

    name: str
    clients: int
    least: int
    most: int
    model: str
    batch: int
    per_round: int
    lr: float = 0.01
    digits: bool = False  # MNIST, measured on its test set after every round; else noise, never measured
    shape: tuple[int, ...] = (1, 28, 28)
    rank: int = 0  # of LoRA's adapters, which alone train; none: the whole network

    def network(self) -> nn.Module:
        """Its model, for ten classes."""
        adapter = {"name": "lora", "rank": self.rank} if self.rank else None
        return build(self.model, input_shape=self.shape, outputs=10, adapter=adapter)

    def each_round(self, clients: int) -> Workload:
        """The same with so many clients in a round, and as many more in all as it takes."""
        return replace(self, per_round=clients, clients=max(self.clients, clients))

    @functools.cache  # noqa: B019 (a handful of workloads, for the whole run)
    def federation(self) -> Federation:
        """Each client's samples, at random; the same for every engine."""
        rng = np.random.default_rng(7)
        sizes = rng.integers(self.least, self.most + 1, self.clients)
        data = _digits() if self.digits else _noise(rng, int(sizes.sum()), self.shape)
        dealt = rng.permutation(data.train) if self.digits else data.train
        test = Samples(data, data.test)
        ends = np.cumsum(sizes)
        shares = tuple(
            ClientShare(Samples(data, dealt[e - s : e]), test) for s, e in zip(sizes, ends, strict=True)
        )
        return Federation(data, shares, test)


def _noise(rng: np.random.Generator, total: int, shape: tuple[int, ...]) -> Dataset:
    """Pictures of noise: the speed of training does not depend on what is on them."""
    x = torch.from_numpy(rng.integers(0, 256, (total + 100, *shape), dtype=np.uint8))
    y = torch.from_numpy(rng.integers(0, 10, total + 100))
    everything = np.arange(total + 100)
    return Dataset(
        name="noise",
        x=x,
        y=y,
        train=everything[:total],
        test=everything[total:],
        classes=tuple("0123456789"),
    )


def _digits() -> Dataset:
    from covey.data.loaders.idx import mnist

    return mnist()


WORKLOADS = {
    w.name: w
    for w in (
        Workload(name="W1", clients=100, least=600, most=600, model="lenet5", batch=32, per_round=10),
        Workload(name="W2", clients=100, least=600, most=600, model="cnn-mnist", batch=64, per_round=10),
        Workload(name="W3", clients=3500, least=20, most=40, model="lenet5", batch=20, per_round=75),
    )
}
# What a GPU is for: a larger network, and adapters beside a frozen transformer.
LARGE = {
    w.name: w
    for w in (
        Workload(
            name="resnet18",
            clients=100,
            least=128,
            most=128,
            model="resnet18",
            batch=32,
            per_round=10,
            shape=(3, 32, 32),
        ),
        Workload(
            name="vit, LoRA", clients=100, least=128, most=128, model="vit", batch=32, per_round=10, rank=8
        ),
    )
}
# From the command to the last number: 50 rounds on MNIST, the global test set measured after each of them.
WHOLE = Workload(
    name="whole",
    clients=100,
    least=600,
    most=600,
    model="lenet5",
    batch=32,
    per_round=10,
    lr=0.1,
    digits=True,
)
WHOLE_ROUNDS = 50
EVERY = WORKLOADS | LARGE | {WHOLE.name: WHOLE}
