"""Two clients of eight lie together, within what the guard does not refuse: what each robust combine saves."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial

from covey.core import Mix, Rule, run_rounds
from covey.methods.baselines import fedavg
from covey.parts.measure import scores
from covey.parts.mix.robust import Clip, Krum, Median, Robust, TrimmedMean
from covey.parts.steps import Train
from covey.parts.steps.poison import Poisoned
from covey.testing import small_fleet
from tests.hostile.frame import Outcome, attempt, broke, held

COLLUDERS = (1, 6)
TIMES = -9.0  # what they make of their updates: backwards, and not refused; the guard shortens them
ROUNDS = 8
WORSE = 0.1  # accuracy that may be lost
RULES: dict[str, Rule] = {
    "median": Median(),
    "trimmed-mean": TrimmedMean(trim=0.25),
    "krum": Krum(hostile=2, keep=3),
    "clip": Clip(),
}


@cache
def accuracy(rule: str, *, attacked: bool) -> float:
    """Of FedAvg's model on the global test set, with the rule in place of its weighted mean."""
    train = Train(lr=0.1, batch=16)
    method = fedavg(train, per_round=8)
    if attacked:
        method = replace(method, local=Poisoned(local=train, clients=COLLUDERS, attack="scale", factor=TIMES))
    mix: Mix | None = method.mix
    if rule and mix is not None:
        method = replace(method, mix=Robust(mix=mix, rule=RULES[rule]))
    fleet = small_fleet()
    try:
        return scores(method, run_rounds(method, fleet, rounds=ROUNDS), fleet)["global-test/accuracy"]
    finally:
        fleet.close()


def prepare() -> None:
    """What FedAvg reaches when nobody lies, and when two do."""
    accuracy("", attacked=False)
    accuracy("", attacked=True)


def with_rule(rule: str) -> Outcome:
    honest, plain, robust = (
        accuracy("", attacked=False),
        accuracy("", attacked=True),
        accuracy(rule, attacked=True),
    )
    said = f"accuracy {honest:.2f} without them; with them {plain:.2f}, and {robust:.2f} with the rule"
    return held(said) if robust > honest - WORSE else broke(said)


for name in RULES:
    what = f"two of 8 send 9 times their updates, backwards; robust.name = {name}"
    globals()[f"with_{name}"] = attempt(what, seconds=300)(partial(with_rule, name))
