"""A run that does not learn says so after a few rounds, and why."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from covey.core.round import RoundEnd
from covey.data.types import Federation
from covey.runs.config import Config, rounds_wanted, too_few_rounds

FLAT_ROUNDS = 10  # rounds
MARGIN = 0.03  # above the accuracy of always naming the most frequent class
FEW_BATCHES = 10
ONE_SIDED = 0.6  # from here on accuracy says little
RARE = '["macro-f1", "auc"]'


@dataclass(frozen=True, kw_only=True)
class LearningWatch:
    """A watcher that speaks once, after `FLAT_ROUNDS` (or the last one), if the models are still at chance.

    Trees, which grow by a level in a round, have until the last one.
    """

    config: Config
    say: Callable[[str], None]

    def __call__(self, end: RoundEnd) -> None:
        grown = rounds_wanted(self.config["method"]) is not None
        if end.state.round == (end.rounds if grown else min(FLAT_ROUNDS, end.rounds)) and (
            sentence := not_learning(self.config, end)
        ):
            self.say(sentence)


def not_learning(config: Config, end: RoundEnd) -> str | None:
    """One sentence about a run whose accuracy is that of guessing, with the likeliest reason; None if it learns."""
    data = end.fleet.data
    if end.fleet.objective.main != "accuracy" or data is None or not data.dataset.classes:
        return None
    usual, overall, at_clients = guessing(data)
    found = [
        (end.value("local-test", "accuracy-mean"), at_clients),
        (end.value("global-test", "accuracy"), overall),
    ]
    measured = [(value, chance) for value, chance in found if value is not None]
    losses = [end.value("local-test", "loss-mean"), end.value("global-test", "loss")]
    if not measured or any(value > chance + MARGIN for value, chance in measured):
        return None
    best, chance = max(measured)
    rare = (
        f" Accuracy hides whether they tell classes apart where one is rare: try measure.metrics = {RARE}."
        if overall > ONE_SIDED
        else ""
    )
    better = "no better" if best <= chance else "hardly better"
    return (
        f"round {end.state.round}: the models are {better} than guessing (accuracy {best:.3f}, always "
        f"{usual!r} {chance:.3f}).{rare} {likeliest_reason(config, data, [x for x in losses if x is not None])}"
    )


def guessing(data: Federation) -> tuple[str, float, float]:
    """The class that is most frequent in the fleet, and the accuracy of always naming it: over all, mean of clients."""
    counts = data.label_counts()
    usual = int(counts.sum(axis=0).argmax())
    shares = counts[:, usual] / np.maximum(1, counts.sum(axis=1))
    overall = counts[:, usual].sum() / max(1, counts.sum())
    return data.dataset.classes[usual], float(overall), float(shares.mean())


def likeliest_reason(config: Config, data: Federation, losses: list[float]) -> str:
    """What to change first."""
    if rounds_wanted(config["method"]) is not None:
        few = too_few_rounds(config)
        return (
            f"{few[0].upper()}{few[1:]}."
            if few
            else "Try a larger method.learning_rate, or more method.trees."
        )
    train = config.train
    samples = round(float(np.median(data.sizes()[:, 0])))
    batches = len(train.order(samples, np.random.default_rng(0)))
    blown_up = 3 * math.log(len(data.dataset.classes))
    if any(not math.isfinite(loss) or loss > blown_up for loss in losses):
        return f"The loss has blown up: try a smaller train.lr than {train.lr:g}."
    if config["data"].get("scaling") == "unit":
        return 'Inputs are not standardised: try data.scaling = "standard".'
    if batches < FEW_BATCHES:
        return f"A client makes only {batches} batches per round: try more train.epochs or a smaller train.batch."
    return (
        f"Try another train.lr than {train.lr:g} (a third, or three times as much), or more rounds; if clients "
        "contradict each other, one model for all cannot learn: `covey advise` says whether they do."
    )
