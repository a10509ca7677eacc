"""What is measured: each metric says its name, its direction and how clients' values are combined, in one place.

Recorder, target, best value, worst clients and report all read it here. A metric is either the mean of a score that the
objective gives each sample (accuracy, loss), or a number about all predictions at once (macro F1, AUC).
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from covey.arrays import Array
from covey.errors import UserError, importing
from covey.settings.catalogue import METRICS

if TYPE_CHECKING:
    from torch import Tensor

    from covey.training.objective import Objective

AGGREGATES = ("mean", "weighted", "std", "worst10")  # what is told of the clients' values
OverClients = Literal["mean", "weighted", "geometric"]
Whole = Callable[["Tensor", "Tensor"], "float | None"]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A number about predictions; `covey.metric` makes one of a function.

    Args:
        name: as it stands in tables.
        higher_is_better: its direction; None: not known, and then nothing is called best, worst or reached.
        share: whether it lies between 0 and 1 and is shown in percent.
        together: how the clients' values become one: `mean` over clients, `weighted` by samples, or `geometric`.
        of: the number from all outputs and targets, or None where these data do not define it (such a client is left
            out); without `of`, it is the mean of the objective's score of that name.
        per_class: samples of every class without which it is not defined; 0: any number will do.

    Examples:
        >>> mistakes = covey.Metric(
        ...     name="mistakes", higher_is_better=False, of=lambda out, y: float((out.argmax(1) != y).sum())
        ... )
    """

    name: str
    higher_is_better: bool | None
    share: bool = False
    together: OverClients = "mean"
    of: Whole | None = None
    per_class: int = 0

    def __post_init__(self) -> None:
        if not self.name or set(self.name) & set("/:\0") or self.name.rpartition("-")[2] in AGGREGATES:
            raise UserError(
                f"a metric is called {self.name!r}; a name has no '/' or ':' and does not end in "
                f"{', '.join(f'-{end}' for end in AGGREGATES)}"
            )

    def __reduce__(self) -> tuple[Any, ...]:
        """For a worker process: its function's name leads to a metric; that travels, with how this one differs."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        place = sys.modules.get(getattr(self.of, "__module__", ""))
        known = getattr(place, getattr(self.of, "__qualname__", ""), None)
        if place is not None and isinstance(known, Metric) and known.of is self.of:
            del plain["of"]
            return _like, (place.__name__, self.of.__qualname__, plain)  # type: ignore[union-attr]
        return partial(Metric, **plain), ()

    def value(self, outputs: Tensor, target: Tensor) -> float | None:
        """The number from all outputs and targets, which it cannot change; None where these do not define it."""
        assert self.of is not None
        if self.per_class and len(target):
            counts = np.bincount(target.reshape(-1).numpy(), minlength=outputs.shape[1])
            if counts.min() < self.per_class:
                return None
        try:
            found = self.of(outputs.clone(), target.clone())
            value = None if found is None else float(found)
        except UserError:
            raise
        except Exception as error:
            raise UserError(
                f"metric {self.name!r} gives no number: {type(error).__name__}: {error}"
            ) from error
        return value if value is not None and math.isfinite(value) else None

    @property
    def main(self) -> str:
        """Which of the aggregates over clients is the metric's one number."""
        return "weighted" if self.together == "weighted" else "mean"

    def over_clients(self, values: Sequence[float], sizes: Sequence[int]) -> dict[str, float]:
        """mean over clients, weighted by samples, standard deviation, and mean of the worst 10 % (at least one)."""
        each, weights = np.array(values), np.array(sizes)
        found = {
            "mean": self._mean(each, np.ones(len(each))),
            "weighted": self._mean(each, weights),
            "std": float(each.std()),
        }
        if self.higher_is_better is not None:
            worst_first = np.sort(each) if self.higher_is_better else np.sort(each)[::-1]
            few = math.ceil(len(each) / 10)
            found["worst10"] = self._mean(worst_first[:few], np.ones(few))
        return found

    def _mean(self, values: np.ndarray, weights: np.ndarray) -> float:
        if self.together == "geometric":
            return float(np.exp((np.log(values) * weights).sum() / weights.sum()))
        return float((values * weights).sum() / weights.sum())

    def better(self, value: float, than: float) -> bool:
        """Whether a value is better than another."""
        if self.higher_is_better is None:
            return False
        return value > than if self.higher_is_better else value < than

    def reached(self, value: float, target: float) -> bool:
        """Whether a value is at least as good as a target."""
        return value == target or self.better(value, target)

    def plain(self) -> dict[str, Any]:
        """What the run folder keeps of it, for readers that do not have its code."""
        return {"higher_is_better": self.higher_is_better, "share": self.share, "together": self.together}


def _like(module: str, name: str, plain: dict[str, Any]) -> Metric:
    known: Metric = getattr(import_module(module), name)
    return replace(known, **plain)


def metric(
    bare: object = None,
    /,
    *,
    name: str = "",
    higher_is_better: bool | None = None,
    share: bool = False,
    together: OverClients = "mean",
) -> Callable[[Whole], Metric]:
    """Makes a metric of a function of all outputs and targets.

    Args:
        bare: nothing; it catches a decorator without brackets.
        name: as it stands in tables; empty: the function's.
        higher_is_better: its direction; without one nothing is called best, worst or reached.
        share: whether it lies between 0 and 1 and is shown in percent.
        together: how the clients' values become one: `mean` over clients, `weighted` by samples, or `geometric`.

    Returns:
        A decorator.

    Raises:
        UserError: when it is used without brackets.

    Examples:
        >>> @covey.metric(higher_is_better=True, share=True)
        ... def within_two(outputs, targets):
        ...     return float((outputs.topk(2).indices == targets[:, None]).any(dim=1).float().mean())
    """
    if bare is not None or not isinstance(higher_is_better, bool):
        raise UserError(
            "a metric must say its direction: @covey.metric(higher_is_better=True), or False for errors and costs"
        )
    if together not in get_args(OverClients):
        raise UserError(f"together is {together!r}; allowed: {', '.join(get_args(OverClients))}")

    def made(of: Whole) -> Metric:
        return Metric(
            name=name or of.__name__.replace("_", "-"),
            higher_is_better=higher_is_better,
            share=share,
            together=together,
            of=of,
        )

    return made


# ---------------------------------------------------------------------------------------------- means of scores

accuracy = Metric(name="accuracy", higher_is_better=True, share=True)
loss = Metric(name="loss", higher_is_better=False)
mse = Metric(name="mse", higher_is_better=False)
mae = Metric(name="mae", higher_is_better=False)


# ---------------------------------------------------------------------------------------------- of all predictions


@metric(higher_is_better=True, share=True)
def macro_f1(outputs: Tensor, target: Tensor) -> float:
    """F1 of each class that is there or predicted, averaged over these classes."""
    from sklearn.metrics import f1_score

    truth, guess = labels(outputs, target)
    return float(f1_score(truth, guess, average="macro", zero_division=0))


@metric(higher_is_better=True, share=True)
def balanced_accuracy(outputs: Tensor, target: Tensor) -> float:
    """Recall of each class that is there, averaged over these classes."""
    from sklearn.metrics import balanced_accuracy_score

    truth, guess = labels(outputs, target)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a predicted class that does not occur needs no warning
        return float(balanced_accuracy_score(truth, guess))


@metric(higher_is_better=True, share=True)
def auc(outputs: Tensor, target: Tensor) -> float | None:
    """Area under the ROC curve: of two classes, or each class against the rest, averaged over those that are there."""
    from sklearn.metrics import roc_auc_score

    truth, chances = probabilities(outputs, target)
    there = np.unique(truth)
    if len(there) < 2:
        return None
    if chances.shape[1] == 2:
        return float(roc_auc_score(truth, chances[:, 1]))
    return float(roc_auc_score(truth[:, None] == there, chances[:, there], average="macro"))


@metric(higher_is_better=False)
def brier(outputs: Tensor, target: Tensor) -> float:
    """Brier score: the mean over samples of sum_c (p_c - [c is the label])^2, from 0 to 2."""
    return float(brier_scores(outputs, target).mean())


@metric(higher_is_better=False, together="geometric")
def perplexity(outputs: Tensor, target: Tensor) -> float:
    """exp of the mean cross-entropy."""
    import torch.nn.functional as F

    return float(F.cross_entropy(outputs.double(), target).exp())


@metric(higher_is_better=False)
def calibration_error(outputs: Tensor, target: Tensor) -> float:
    """Expected calibration error: |confidence - accuracy| in 15 bins of confidence, weighted by samples."""
    with importing("the metric calibration-error needs the package torchmetrics: install covey[metrics]"):
        from torchmetrics.functional.classification import multiclass_calibration_error

    chances = outputs.softmax(1)
    return float(multiclass_calibration_error(chances, target, num_classes=chances.shape[1], n_bins=15))


@metric(higher_is_better=False)
def rmse(outputs: Tensor, target: Tensor) -> float:
    """Root of the mean squared error."""
    from sklearn.metrics import root_mean_squared_error

    return float(root_mean_squared_error(target.reshape(len(target), -1), outputs.reshape(len(target), -1)))


@metric(higher_is_better=True)
def r2(outputs: Tensor, target: Tensor) -> float | None:
    """Coefficient of determination."""
    from sklearn.metrics import r2_score

    if len(target) < 2:
        return None
    return float(r2_score(target.reshape(len(target), -1), outputs.reshape(len(target), -1)))


def labels(outputs: Tensor, target: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """True and predicted labels of all samples (and, for text, of all places that are no padding)."""
    truth, guess = target.reshape(-1).numpy(), outputs.argmax(1).reshape(-1).numpy()
    return truth[truth >= 0], guess[truth >= 0]


def brier_scores(outputs: Tensor, target: Tensor) -> Array:
    """Of each sample, what `brier` is the mean of."""
    truth, chances = probabilities(outputs, target)
    return np.asarray(((chances - np.eye(chances.shape[1])[truth]) ** 2).sum(axis=1))


def probabilities(outputs: Tensor, target: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """True labels, and the probability of each class, of all samples (and, for text, of all places but padding)."""
    chances = outputs.double().softmax(1).movedim(1, -1)
    truth, told = target.reshape(-1).numpy(), chances.reshape(-1, chances.shape[-1]).numpy()
    return truth[truth >= 0], told[truth >= 0]


# ---------------------------------------------------------------------------------------------- of a run

SCORES: Mapping[str, Metric] = {m.name: m for m in (accuracy, loss, mse, mae)}
WHOLE: Mapping[str, Metric] = {
    m.name: m for m in (macro_f1, balanced_accuracy, auc, brier, perplexity, calibration_error, rmse, r2)
}


class Metrics:
    """The metrics of one run or of one run folder, by name."""

    def __init__(self, known: Iterable[Metric] = ()) -> None:
        self.known = {**SCORES, **WHOLE, **{m.name: m for m in known}}

    @classmethod
    def of(cls, objective: Objective, told: Iterable[Metric] = ()) -> Metrics:
        """Those of an objective, and those that a run was told to measure."""
        main = Metric(name=objective.main, higher_is_better=objective.higher_is_better)
        return cls([SCORES.get(main.name, main), *told])

    @classmethod
    def directed(cls, objective: Objective, told: Iterable[Metric] = ()) -> list[Metric]:
        """Those of a run that have a better and a worse; an objective of one's own may give any score."""
        every, known = [*told], cls.of(objective, told)
        scores = getattr(objective, "told", (objective.main, *SCORES))
        found = {m.name: m for m in (*(known[name] for name in scores), *every)}
        return [m for m in found.values() if m.higher_is_better is not None]

    @classmethod
    def from_plain(cls, plain: Mapping[str, Mapping[str, Any]]) -> Metrics:
        """Those that a run folder tells of."""
        return cls(Metric(name=name, **facts) for name, facts in plain.items())

    def plain(self) -> dict[str, Any]:
        """For the run folder, so that its readers need nobody's code."""
        return {name: metric.plain() for name, metric in self.known.items()}

    def __getitem__(self, name: str) -> Metric:
        """The metric of that name; an aggregate's name (`accuracy-mean`) gives what it is an aggregate of."""
        base = base_name(name)
        return self.known.get(base) or Metric(name=base, higher_is_better=None)

    def on_clients(self, name: str) -> str:
        """The name of the metric's one number over clients: `accuracy-mean`."""
        return f"{name}-{self[name].main}"


def metric_named(name: object, where: str = "") -> Metric:
    """The metric of that name."""
    found = METRICS.find(name, where)
    if not isinstance(found, Metric):
        raise UserError(
            f"{where or f'metric {name!r}'} is a {type(found).__name__}; make it a metric with "
            "@covey.metric(higher_is_better=...)"
        )
    return found


def base_name(name: str) -> str:
    """`accuracy-worst10` -> `accuracy`."""
    base, dash, last = name.rpartition("-")
    return base if dash and last in AGGREGATES else name


def split_name(name: str) -> tuple[str, str, str]:
    """`local-test/accuracy-worst10` -> ("local-test", "accuracy", "worst10"); no aggregate gives ""."""
    split, _, metric = name.partition("/")
    base, dash, last = metric.rpartition("-")
    return (split, base, last) if dash and last in AGGREGATES else (split, metric, "")


BUILT_IN = Metrics()


def higher_is_better(name: str, metrics: Metrics = BUILT_IN) -> bool | None:
    """Whether a larger value of the metric is the better one; None where it is not known."""
    _, base, aggregate = split_name(name)
    return metrics[base].higher_is_better if aggregate != "std" else False
