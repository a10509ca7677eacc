"""FLUX's set-up: its four shifts at a level of heterogeneity, as the authors' generator (ANDA) draws them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from covey.core.round import run_rounds
from covey.data import load
from covey.data.effects import rotated
from covey.data.types import ClientShare, Dataset, Federation, Indices, Samples
from covey.runs.config import fleet_of, resolve
from covey.runs.objects import data_tables
from covey.streams import stream
from experiments.spec import Findings

Table = Mapping[str, Any]
LABEL_MIXES = 5  # that the clients of P(y) draw from
ANGLES = 4  # that each class of P(x|y) is rotated by


def levels(settings: dict[str, Any], seed: int) -> Findings:
    """For each method and level of heterogeneity the clients' mean accuracy, averaged over the shifts, and for each
    shift by itself."""
    rows: dict[str, dict[str, float]] = {}
    methods = settings["methods"]
    dataset = load(**settings["data"])
    for level in settings["at"]:
        for shift, shifted in SHIFTS.items():
            fleet = drawn(dataset, shifted, level, seed, **settings["clients"])
            clusters = len({share.cluster for share in fleet.shares})
            for name in settings.get("only", methods):
                told: dict[str, Any] = {
                    key: clusters if value == "clusters" else value for key, value in methods[name].items()
                }
                train = {**settings["run"]["train"], **told.pop("train", {})}  # for who takes no momentum
                tables = {
                    **settings["run"],
                    **data_tables(fleet),
                    "train": train,
                    "method": told,
                    "seed": seed,
                }
                rows.setdefault(name, {})[f"level {level}: {shift}"] = last_accuracy(tables)
        for row in rows.values():
            row[f"level {level}"] = float(np.mean([row[f"level {level}: {shift}"] for shift in SHIFTS]))
    return Findings(rows={name: means_first(row, settings["at"]) for name, row in rows.items()})


def means_first(row: dict[str, float], at: list[int]) -> dict[str, float]:
    """The levels' means before the single shifts."""
    return {f"level {level}": row[f"level {level}"] for level in at} | row


def last_accuracy(tables: Table) -> float:
    """Of the clients on their own test data after the last round, their mean."""
    config = resolve(tables)
    method, fleet = config.method, fleet_of(config)
    try:
        state = run_rounds(method, fleet, rounds=config.top.rounds)
        values = config.measure(method, state, fleet, True)
    finally:
        fleet.close()
    return next(
        one.value
        for one in values
        if (one.split, one.metric, one.client, one.group) == ("local-test", "accuracy-mean", -1, -1)
    )


# ---------------------------------------------------------------------------------------------- the fleets


class Held(NamedTuple):
    """Pictures from 0 to 1 and labels of one client, training and test data in this order, and its cluster."""

    x: Tensor
    y: Indices
    train: int
    cluster: int


Shifted = Callable[[list[Held], int, int, np.random.Generator], list[Held]]


def drawn(
    dataset: Dataset, shifted: Shifted, level: int, seed: int, *, count: int, train: int, test: int
) -> Federation:
    """`count` clients with so many pictures each, drawn evenly and then shifted, no picture twice before the shift."""
    rng = stream(seed, "flux")
    parts = [
        rng.permutation(part)[: count * each] for part, each in ((dataset.train, train), (dataset.test, test))
    ]
    clients = []
    for client in range(count):
        places = np.concatenate([part.reshape(count, -1)[client] for part in parts])
        x = dataset.x[torch.from_numpy(places)].float() / 255
        clients.append(Held(x, dataset.labels()[places].astype(np.int64), train, 0))
    clients = shifted(clients, level, len(dataset.classes), rng)
    return as_federation(dataset, clients)


def as_federation(dataset: Dataset, clients: list[Held]) -> Federation:
    """The clients' own pictures as one data set, in which each holds its piece."""
    ends = np.cumsum([len(client.y) for client in clients])
    starts = ends - [len(client.y) for client in clients]
    training = [np.arange(start, start + one.train) for start, one in zip(starts, clients, strict=True)]
    testing = [
        np.arange(start + one.train, end) for start, end, one in zip(starts, ends, clients, strict=True)
    ]
    x = torch.cat([client.x for client in clients])
    whole = replace(
        dataset,
        x=(x * 255).round().to(torch.uint8),
        y=torch.from_numpy(np.concatenate([client.y for client in clients])),
        train=np.concatenate(training),
        test=np.concatenate(testing),
        natural={},
        scale=None,  # the authors' pictures are from 0 to 1
    )
    shares = tuple(
        ClientShare(Samples(whole, own), Samples(whole, tests), one.cluster)
        for own, tests, one in zip(training, testing, clients, strict=True)
    )
    return Federation(whole, shares, Samples(whole, whole.test))


def looks(clients: list[Held], level: int, _: int, rng: np.random.Generator) -> list[Held]:
    """P(x): each client draws one of 2 to 5 angles (levels 1 to 4), and from level 5 on one of three colours, too.

    A colour is one of the three channels at its full value.
    """
    angles, colours = 2 + (level - 1) % 4, 1 if level <= 4 else 3
    result = []
    for client in clients:
        cluster = int(rng.integers(angles * colours))
        x = rotated(client.x, 360 * (cluster // colours) / angles)
        if colours > 1:
            x = x.expand(-1, 3, -1, -1).clone()
            x[:, cluster % colours] = 1
        result.append(client._replace(x=x, cluster=cluster))
    return result


def label_mixes(clients: list[Held], level: int, classes: int, rng: np.random.Generator) -> list[Held]:
    """P(y): there are five sets of 11 - level classes, each client draws one and repeats what it holds of these."""
    sets = [rng.choice(classes, size=classes + 1 - level, replace=False) for _ in range(LABEL_MIXES)]
    result = []
    for client in clients:
        cluster = int(rng.integers(LABEL_MIXES))
        halves = (np.arange(client.train), np.arange(client.train, len(client.y)))
        filled = [repeated(half[np.isin(client.y[half], sets[cluster])], len(half), rng) for half in halves]
        places = np.concatenate(filled)
        result.append(client._replace(x=client.x[places], y=client.y[places], cluster=cluster))
    return result


def repeated(places: Indices, wanted: int, rng: np.random.Generator) -> Indices:
    """All of these and, drawn anew from them, as many more as are wanted."""
    return np.concatenate([places, rng.choice(places, size=wanted - len(places))])


def label_names(clients: list[Held], level: int, classes: int, rng: np.random.Generator) -> list[Held]:
    """P(y|x): `level` labels trade their names, in another order at every client."""
    traded = rng.choice(classes, size=level, replace=False)
    result = []
    for cluster, client in enumerate(clients):
        names = np.arange(classes)
        names[traded] = rng.permutation(traded)
        result.append(client._replace(y=names[client.y], cluster=cluster))
    return result


def looks_of_classes(clients: list[Held], level: int, classes: int, rng: np.random.Generator) -> list[Held]:
    """P(x|y): the pictures of `level` classes are rotated, each class of each client by one of four angles."""
    befallen = rng.choice(classes, size=level, replace=False)
    result = []
    for cluster, client in enumerate(clients):
        x = client.x.clone()
        for label in befallen:
            here = torch.from_numpy(client.y == label)
            x[here] = rotated(x[here], 360 / ANGLES * int(rng.integers(ANGLES)))
        result.append(client._replace(x=x, cluster=cluster))
    return result


SHIFTS: dict[str, Shifted] = {
    "P(x)": looks,
    "P(y)": label_mixes,
    "P(y|x)": label_names,
    "P(x|y)": looks_of_classes,
}
