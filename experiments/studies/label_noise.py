"""Fleets of which some clients have wrong labels in their training data; everybody's test labels are right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from covey.core.round import run_rounds
from covey.data.types import Federation
from covey.fleet.local import LocalFleet
from covey.parts.measure import on_local_tests
from covey.runs.config import federation_of, resolve
from covey.streams import stream
from covey.training.models import build
from experiments.spec import Findings


def label_noise(settings: Mapping[str, Any], seed: int) -> Findings:
    """Each method's mean accuracy over all clients, and over those with right and with wrong labels."""
    rows: dict[str, dict[str, float]] = {}
    for name, method in settings["methods"].items():
        config = resolve({**settings["base"], "method": method, "seed": seed})
        federation, wrong = with_wrong_labels(
            federation_of(config), clients=settings["clients"], share=settings["share"], seed=seed
        )
        network = build(
            "mlp", input_shape=tuple(federation.dataset.x.shape[1:]), outputs=10, seed=seed, hidden=(64,)
        )
        fleet = LocalFleet(federation, network, seed=seed)
        state = run_rounds(config.method, fleet, rounds=config.top.rounds)
        found = {
            m.client: m.value
            for m in on_local_tests(config.method, state, fleet)
            if m.metric == "accuracy" and m.client >= 0
        }
        fleet.close()
        rows[name] = {
            "accuracy": mean(found.values()),
            "clients with right labels": mean(value for i, value in found.items() if i not in wrong),
            "clients with wrong labels": mean(value for i, value in found.items() if i in wrong),
        }
    return Findings(rows=rows)


def with_wrong_labels(
    federation: Federation, *, clients: float, share: float, seed: int
) -> tuple[Federation, set[int]]:
    """The federation with a random class in place of a share of the training labels of some clients, and of whom."""
    rng = stream(seed, "wrong labels")
    count = len(federation.shares)
    wrong = {int(i) for i in rng.permutation(count)[: round(clients * count)]}
    labels = federation.dataset.y.clone()
    for client in sorted(wrong):
        index = rng.permutation(federation.shares[client].train.index)
        index = index[: round(share * len(index))]
        drawn = rng.integers(len(federation.dataset.classes), size=len(index))
        labels[torch.from_numpy(index)] = torch.from_numpy(drawn).to(labels.dtype)
    dataset = replace(federation.dataset, y=labels)
    shares = [
        replace(one, train=replace(one.train, dataset=dataset), test=replace(one.test, dataset=dataset))
        for one in federation.shares
    ]
    return replace(federation, dataset=dataset, shares=shares), wrong


def mean(values: Any) -> float:
    return float(np.mean(list(values)))
