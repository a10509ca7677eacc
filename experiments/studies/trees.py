"""Boosted trees over clients beside networks, and beside XGBoost on the pooled rows, on tables with real clients."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.core.round import run_rounds
from covey.data.types import Federation
from covey.parts.measure import scores
from covey.runs.config import federation_of, fleet_of, resolve
from experiments.spec import Findings

Array = NDArray[np.float64]
POOLED = "XGBoost, pooled rows"
VALIDATION, TRIED = 0.2, 1000  # share of the training rows, and the seed, that settings are chosen on


def boosting_and_networks(settings: dict[str, Any], seed: int) -> Findings:
    """Every method on every table, with the best of its tries on validation rows; other test rows for every seed.

    Numbers are means over all test rows. A method's tries are the same on all tables, and chosen for each.
    """
    rows: dict[str, dict[str, float]] = {}
    for table in settings["tables"]:
        for name, method in settings["methods"].items():
            best = chosen(table, method["tries"])
            rows[f"{table}: {name}"] = measured(table, best, seed)
        pooled = settings["pooled"]
        best = chosen(table, pooled)
        rows[f"{table}: {POOLED}"] = measured(table, best, seed)
        for name in settings["methods"]:
            more = rows[f"{table}: {name}"]["loss"] - rows[f"{table}: {POOLED}"]["loss"]
            rows[f"{table}: {name}"]["loss, more than pooled"] = more
    return Findings(rows=rows)


_CHOSEN: dict[str, Mapping[str, Any]] = {}  # the tuning of a table is the same for every seed


def chosen(table: str, tries: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The try with the lowest loss on validation rows, under a seed of its own."""
    key = repr((table, tries))
    if key not in _CHOSEN:
        losses = [measured(table, one, TRIED, validation=True)["loss"] for one in tries]
        _CHOSEN[key] = tries[int(np.argmin(losses))]
    return _CHOSEN[key]


def measured(
    table: str, tries: Mapping[str, Any], seed: int, *, validation: bool = False
) -> dict[str, float]:
    """Loss and accuracy over all test rows, megabytes that travelled, CPU seconds."""
    data: dict[str, Any] = {"name": table, "resplit": True}
    if validation:
        data["validation"] = VALIDATION
    if "xgboost" in tries:
        made = resolve({"seed": seed, "data": data})
        begun = time.process_time()
        found = of_pooled(federation_of(made), tries["xgboost"])
        return {**found, "MB": 0.0, "CPU seconds": time.process_time() - begun}
    config = resolve({**tries, "seed": seed, "data": data, "measure": {"every": 100_000}})
    fleet = fleet_of(config)
    try:
        begun = time.process_time()
        state = run_rounds(config.method, fleet, rounds=config.top.rounds)
        seconds = time.process_time() - begun
        told = scores(config.method, state, fleet)
    finally:
        fleet.close()
    travelled = sum(cost.bytes_up + cost.bytes_down for cost in fleet.ledger.total.values())
    found = {"loss": told["local-test/loss-weighted"]}
    if "local-test/accuracy-weighted" in told:
        found["accuracy"] = told["local-test/accuracy-weighted"]
    return {**found, "MB": travelled / 1e6, "CPU seconds": seconds}


def of_pooled(data: Federation, settings: Mapping[str, Any]) -> dict[str, float]:
    """XGBoost on all clients' training rows together, with the same columns, on all their test rows."""
    import xgboost

    (x, y), (new, true) = (
        tuple(np.concatenate(parts) for parts in zip(*tensors, strict=True))
        for tensors in (
            [tuple(t.numpy() for t in share.train.tensors()) for share in data.shares],
            [tuple(t.numpy() for t in share.test.tensors()) for share in data.shares if len(share.test)],
        )
    )
    classes = len(data.dataset.classes)
    objective = {0: "reg:squarederror", 2: "binary:logistic"}.get(classes, "multi:softprob")
    table = {
        "objective": objective,
        "tree_method": "hist",
        "max_bin": 64,
        "nthread": 1,
        "max_depth": settings["depth"],
        "eta": settings["learning_rate"],
        "min_child_weight": settings["min_child_weight"],
        **({"num_class": classes} if classes > 2 else {}),
    }
    booster = xgboost.train(table, xgboost.DMatrix(x, y.ravel()), num_boost_round=settings["trees"])
    told = np.asarray(booster.predict(xgboost.DMatrix(new)), np.float64)
    if not classes:
        return {"loss": float(np.square(told - true.ravel()).mean())}
    p = np.stack([1 - told, told], axis=1) if classes == 2 else told
    right = p[np.arange(len(true)), true.astype(int)]
    return {
        "loss": float(-np.log(np.maximum(right, math.exp(-30))).mean()),
        "accuracy": float((p.argmax(axis=1) == true).mean()),
    }
