"""Boosting over clients grows the trees that XGBoost's `hist` grows on the pooled rows."""

from typing import Any

import numpy as np
import pytest
import torch

from covey.core.round import run_rounds
from covey.data.types import ClientShare, Dataset, Federation, Samples
from covey.fleet.local import LocalFleet
from covey.methods.boosting import boosting
from covey.parts.steps import Train
from covey.training.models import build
from covey.training.objective import Classification, Regression
from covey.training.rows import write_row
from covey.training.trees.forest import Grove

xgboost = pytest.importorskip("xgboost")

TREES, DEPTH = 6, 4
SETTINGS = {"learning_rate": 0.3, "l2": 1.0, "min_child_weight": 1.0}


def rows(classes: int, values: int | None, samples: int = 1500) -> tuple[np.ndarray, np.ndarray]:
    """Inputs with so many values each (None: all differ), and classes or (0) targets that depend on them."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(samples, 6)).astype(np.float32)
    if values:
        x = np.floor(values * (x.argsort(0).argsort(0) / samples)).astype(np.float32)
    signal = 3 * x[:, 0] / (values or 1) + np.sin(x[:, 1]) + (x[:, 2] > x[:, 3]) + rng.normal(size=samples)
    if not classes:
        return x, signal.astype(np.float32)
    return x, np.digitize(signal, np.quantile(signal, np.arange(1, classes) / classes))


def grown(x: np.ndarray, y: np.ndarray, classes: int, **settings: Any) -> tuple[Grove, torch.nn.Module]:
    """The forest of five clients with unlike shares of the rows, and the model with it inside."""
    targets = torch.from_numpy(y.astype(np.int64)) if classes else torch.from_numpy(y)[:, None]
    made = Dataset(
        name="rows",
        x=torch.from_numpy(x),
        y=targets,
        train=np.arange(len(x)),
        test=np.arange(1),
        classes=tuple("abcdef"[:classes]),
    )
    parts = np.split(np.arange(len(x)), np.array([0.05, 0.1, 0.4, 0.5]).dot(len(x)).astype(int))
    nobody = Samples(made, np.arange(0))
    data = Federation(made, tuple(ClientShare(Samples(made, part), nobody) for part in parts), nobody)
    bins = settings.get("bins", 64)
    shape = {"trees": TREES, "depth": DEPTH, "bins": bins}
    model = build("trees", input_shape=(x.shape[1],), outputs=classes or 1, **shape)
    method = boosting(Train(), base=0.0, **{**SETTINGS, **shape, **settings})
    fleet = LocalFleet(data, model, objective=Classification() if classes else Regression())
    row = run_rounds(method, fleet, rounds=TREES * DEPTH).models[0]
    write_row(model, row)
    return Grove(fleet.layout, row.clone()), model


def pooled(x: np.ndarray, y: np.ndarray, classes: int, bins: int = 256) -> Any:
    objective = {0: "reg:squarederror", 2: "binary:logistic"}.get(classes, "multi:softprob")
    table = {
        "objective": objective,
        "tree_method": "hist",
        "max_bin": bins,
        "max_depth": DEPTH,
        "eta": SETTINGS["learning_rate"],
        "lambda": SETTINGS["l2"],
        "min_child_weight": SETTINGS["min_child_weight"],
        "base_score": 0.5 if classes == 2 else 0.0,
        **({"num_class": classes} if classes > 2 else {}),
    }
    return xgboost.train(table, xgboost.DMatrix(x, y), num_boost_round=TREES)


def splits_of(booster: Any, tree: int) -> dict[int, tuple[int, float]]:
    """Heap place -> feature and threshold of one tree of XGBoost's."""
    table = booster.trees_to_dataframe()
    nodes = table[table["Tree"] == tree].set_index("ID")
    found: dict[int, tuple[int, float]] = {}

    def walk(name: str, place: int) -> None:
        node = nodes.loc[name]
        if node["Feature"] == "Leaf":
            return
        found[place] = (int(node["Feature"][1:]), float(node["Split"]))
        walk(node["Yes"], 2 * place + 1)
        walk(node["No"], 2 * place + 2)

    walk(f"{tree}-0", 0)
    return found


@pytest.mark.parametrize("classes", [2, 3, 0])
def test_binned_inputs_give_the_same_splits(classes: int) -> None:
    x, y = rows(classes, values=40)
    grove, _ = grown(x, y, classes)
    booster = pooled(x, y, classes)
    for tree in range(TREES):
        for head in range(grove.heads):
            feature, threshold = grove.feature[tree, head], grove.threshold[tree, head]
            own = {
                place: (int(feature[place]), float(threshold[place]))
                for place in np.flatnonzero(feature >= 0).tolist()
            }
            assert own == splits_of(booster, tree * grove.heads + head), f"tree {tree}, head {head}"


@pytest.mark.parametrize("classes", [2, 3, 0])
def test_binned_inputs_give_the_same_margins(classes: int) -> None:
    x, y = rows(classes, values=40)
    _, model = grown(x, y, classes)
    margins = pooled(x, y, classes).predict(xgboost.DMatrix(x), output_margin=True).reshape(len(x), -1)
    with torch.no_grad():
        outputs = model(torch.from_numpy(x)).numpy()
    own = outputs[:, 1:] - outputs[:, :1] if classes == 2 else outputs
    assert np.abs(own - margins).max() < 1e-4


def test_unbinned_inputs_come_within_two_thousandths_of_the_log_loss() -> None:
    x, y = rows(2, values=None, samples=16000)
    _, model = grown(x[:8000], y[:8000], 2, bins=256)
    p = pooled(x[:8000], y[:8000], 2).predict(xgboost.DMatrix(x[8000:]))
    theirs = -np.log(np.where(y[8000:] == 1, p, 1 - p)).mean()
    with torch.no_grad():
        ours = torch.nn.functional.cross_entropy(
            model(torch.from_numpy(x[8000:])), torch.from_numpy(y[8000:])
        )
    assert abs(float(ours) - theirs) < 0.002
