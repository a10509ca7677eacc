"""The three workloads, made once and reused by every engine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from covey.data.types import Dataset, Federation, Samples, Share


@dataclass(frozen=True, kw_only=True)
class Workload:
    """So many clients of so many samples of 1x28x28; one local epoch."""

    name: str
    clients: int
    least: int
    most: int
    model: str
    batch: int
    per_round: int
    lr: float = 0.01

    def federation(self) -> Federation:
        """Pictures of noise: the speed does not depend on what is on them."""
        rng = np.random.default_rng(7)
        sizes = rng.integers(self.least, self.most + 1, self.clients)
        total = int(sizes.sum())
        x = torch.from_numpy(rng.integers(0, 256, (total + 100, 1, 28, 28), dtype=np.uint8))
        y = torch.from_numpy(rng.integers(0, 10, total + 100))
        everything = np.arange(total + 100)
        data = Dataset(
            name=self.name,
            x=x,
            y=y,
            train=everything[:total],
            test=everything[total:],
            classes=tuple("0123456789"),
        )
        test = Samples(data, data.test)
        ends = np.cumsum(sizes)
        shares = tuple(
            Share(Samples(data, everything[e - s : e]), test) for s, e in zip(sizes, ends, strict=True)
        )
        return Federation(data, shares, test)


WORKLOADS = {
    w.name: w
    for w in (
        Workload(name="W1", clients=100, least=600, most=600, model="lenet5", batch=32, per_round=10),
        Workload(name="W2", clients=100, least=600, most=600, model="cnn-mnist", batch=64, per_round=10),
        Workload(name="W3", clients=3500, least=20, most=40, model="lenet5", batch=20, per_round=75),
    )
}
