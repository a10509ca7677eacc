"""What plain models of scikit-learn make of the same clients, rows and seeds: the yardstick of every table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge

from covey.data.types import Federation
from covey.runs.config import federation_of, resolve
from experiments.spec import Findings, read_experiment

Floats = NDArray[np.float64]
Model = Callable[[], Any]
Pair = tuple[Floats, NDArray[Any]]

LEAST = 30  # test rows of a client that counts in the mean over clients
TINY = 1e-15


def plain(settings: dict[str, Any], seed: int) -> Findings:
    """One row for every case and model of `models`, on the clients of the experiments `of` at `scale`."""
    rows: dict[str, dict[str, float]] = {}
    for experiment in (read_experiment(name, settings["scale"]) for name in settings["of"]):
        for case in experiment.cases:
            if case.name not in settings["cases"]:
                continue
            federation = federation_of(resolve(experiment.tables(experiment.rows[0], case, seed)))
            boosted = case.name in settings["boosting"]
            for name, made in fitted(federation, boosted=boosted).items():
                rows[f"{case.name}: {name}"] = made
    return Findings(rows=rows)


def fitted(federation: Federation, *, boosted: bool) -> dict[str, dict[str, float]]:
    """The numbers of every model, fitted on all rows together and on each client's alone."""
    classes = len(federation.dataset.classes)
    train = [arrays(share.train) for share in federation.shares]
    test = [arrays(share.test) for share in federation.shares]
    whole = (np.concatenate([x for x, _ in train]), np.concatenate([y for _, y in train]))
    models = usual_models(classes, boosted=boosted)
    found = {}
    for name, model in models.items():
        if name != "majority":
            everybody = fit(model, whole)
            found[f"{name}, pooled"] = numbers(
                [predict(everybody, x, classes) for x, _ in test], test, classes
            )
        alone = [predict(fit(model, own), x, classes) for own, (x, _) in zip(train, test, strict=True)]
        called = "the client's majority" if name == "majority" else f"{name}, local"
        found[called] = numbers(alone, test, classes)
    return found


def usual_models(classes: int, *, boosted: bool) -> dict[str, Model]:
    """Scikit-learn's models at their defaults: a linear one, boosting where wanted, and the mean or majority."""
    linear: Model = (lambda: LogisticRegression(max_iter=300)) if classes else Ridge
    boosting: Model = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
    constant: Model = (lambda: DummyClassifier(strategy="prior")) if classes else DummyRegressor
    return {"linear": linear, **({"boosting": boosting} if boosted else {}), "majority": constant}


def arrays(view: Any) -> Pair:
    """Inputs, flat, and labels or targets."""
    x, y = view.tensors()
    return x.flatten(1).numpy().astype(np.float64), y.numpy().reshape(len(y))


def fit(model: Model, data: Pair) -> Any:
    """The model on these rows; the constant where they are all of one class."""
    x, y = data
    one_class = y.dtype.kind == "i" and len(np.unique(y)) < 2
    return (DummyClassifier(strategy="prior") if one_class else model()).fit(x, y)


def predict(model: Any, x: Floats, classes: int) -> Floats:
    """Chances of every class [rows, classes], or numbers [rows, 1]."""
    if not len(x):
        return np.zeros((0, max(1, classes)))
    if not classes:
        return np.asarray(model.predict(x), np.float64)[:, None]
    chances = np.zeros((len(x), classes))
    chances[:, model.classes_] = model.predict_proba(x)
    return chances


def numbers(answers: Sequence[Floats], test: Sequence[Pair], classes: int) -> dict[str, float]:
    """The columns of the suite, over all rows and over the clients with enough of them."""
    sizes = np.array([len(y) for _, y in test])
    enough = sizes >= LEAST
    if not classes:
        squares = [
            ((a[:, 0] - y) ** 2).mean() if len(y) else 0.0 for a, (_, y) in zip(answers, test, strict=True)
        ]
        return {
            "log loss": float(np.average(squares, weights=sizes)),
            "RMSE": float(np.average(np.sqrt(squares), weights=sizes)),
        }
    hits, losses, brier = list[float](), list[float](), list[float]()
    for chances, (_, y) in zip(answers, test, strict=True):
        if not len(y):
            hits, losses, brier = [*hits, 0.0], [*losses, 0.0], [*brier, 0.0]
            continue
        right = np.eye(classes)[y]
        hits.append(float((chances.argmax(axis=1) == y).mean()))
        losses.append(float(-np.log(np.maximum((chances * right).sum(axis=1), TINY)).mean()))
        brier.append(float(((chances - right) ** 2).sum(axis=1).mean()))
    found = {
        "accuracy": float(np.average(hits, weights=sizes)),
        "log loss": float(np.average(losses, weights=sizes)),
        "Brier": float(np.average(brier, weights=sizes)),
    }
    if enough.any():
        found["over clients"] = float(np.mean(np.array(hits)[enough]))
    return found
