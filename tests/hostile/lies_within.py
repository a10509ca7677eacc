"""One client of eight tells lies that look like updates, for ten rounds: what they cost others, and what `clip` saves.

The guard refuses none of them: zeros move a model no farther than it is long, and while models still learn quickly the
opposite sign is no more than ten times an update.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from covey.parts.measure import on_local_tests
from covey.parts.mix.robust import Clip, Robust
from tests.hostile.frame import Outcome, attempt, broke, held
from tests.hostile.liar import HONEST, LIARS, WITHIN, Lie, method, run_with

ROUNDS = 10
WORSE = 0.1  # accuracy that the others may lose with the rule
# An average; one whose momentum continues with the lie; models of a few clients, where one liar is a larger share.
BENT = ("fedavg", "fedavgm", "cbcc", "cbcc-select")


def accuracy(name: str, lie: Lie, *, clipped: bool) -> float:
    """The mean accuracy of those who do not lie."""
    used = method(name)
    assert used.mix is not None
    if clipped:
        used = replace(used, mix=Robust(mix=used.mix, rule=Clip()))
    state, fleet = run_with(used, lie, LIARS, rounds=ROUNDS)
    found = on_local_tests(used, state, fleet)
    others = [m.value for m in found if m.metric == "accuracy" and m.client not in (-1, *LIARS)]
    return sum(others) / len(others)


def with_clip(name: str) -> Outcome:
    """The rule must cost nothing where nobody lies, and save the others where somebody does."""
    lies = {"nobody lies": HONEST, **{f"one sends {what}": lie for what, lie in WITHIN.items()}}
    plain, clipped = ([accuracy(name, lie, clipped=rule) for lie in lies.values()] for rule in (False, True))
    said = "; ".join(
        f"{what}: {a:.2f}, with clip {b:.2f}" for what, a, b in zip(lies, plain, clipped, strict=True)
    )
    return held(said) if min(clipped) > plain[0] - WORSE else broke(said)


for name in BENT:
    what = f"lies within the guard, for {ROUNDS} rounds; {name} with robust.name = clip"
    globals()[f"with_{name}"] = attempt(what, seconds=300)(partial(with_clip, name))
