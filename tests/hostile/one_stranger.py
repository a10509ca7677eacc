"""One client of eight, or two, lie in every answer: no method may end or bend over it."""

from __future__ import annotations

from functools import cache, partial

import torch

from covey.measure import on_local_tests
from tests.hostile.frame import Outcome, attempt, broke, held
from tests.hostile.liar import ALL, LIARS, LIES, method, run_with

WORSE = 0.1  # accuracy that the others may lose
TWO = (3, 6)
OF_TWO = ("a row of 1e30", "NaN for all numbers", "numbers of 1e308")


@cache
def accuracy(name: str, lie: str = "", liars: tuple[int, ...] = LIARS) -> float:
    """On the others' test data after the run, which must end with a finite bank and a score for everybody else."""
    state, fleet = run_with(method(name), LIES[lie] if lie else lambda reply: reply, liars)
    if not torch.isfinite(state.models).all():
        raise ArithmeticError("the bank is not finite")
    found = on_local_tests(method(name), state, fleet)
    others = {m.client: m.value for m in found if m.metric == "accuracy" and m.client not in (-1, *liars)}
    if len(others) < 8 - len(liars):
        raise ArithmeticError(f"{8 - len(liars) - len(others)} honest clients have no score")
    return sum(others.values()) / len(others)


def prepare() -> None:
    """What every method reaches when nobody lies."""
    for name in ALL:
        accuracy(name)


def every_method(lie: str, liars: tuple[int, ...]) -> Outcome:
    """Every method with that lie: it must end, with models nearly as good for the others as without it."""
    harm = []
    for name in ALL:
        try:
            honest, bent = accuracy(name), accuracy(name, lie, liars)
            if bent < honest - WORSE:
                harm.append(f"{name}: accuracy {honest:.2f} became {bent:.2f}")
        except Exception as error:  # whatever it is, it ended the run
            harm.append(f"{name}: {type(error).__name__}: {str(error)[:100]}")
    said = f"{len(ALL) - len(harm)} of {len(ALL)} methods went on unharmed"
    return broke(f"{said}; {'; '.join(harm)}") if harm else held(said)


for number, words in enumerate(LIES):
    do = partial(every_method, words, LIARS)
    globals()[f"lie_{number}"] = attempt(f"one of 8 sends {words}", seconds=600)(do)
for number, words in enumerate(OF_TWO):
    do = partial(every_method, words, TWO)
    globals()[f"two_{number}"] = attempt(f"two of 8 send {words}", seconds=600)(do)
