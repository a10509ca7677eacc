"""One client of eight, or two, lie in every answer: no method may end over it, and none may bend by what is refused."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial

import torch

from covey.parts.measure import on_local_tests
from covey.parts.mix.robust import Clip, Robust
from covey.testing import CLIENTS
from tests.hostile.frame import Outcome, attempt, broke, held
from tests.hostile.liar import ALL, HONEST, LIARS, LIES, SILENT, WITHIN, Lie, method, run_with

WORSE = 0.1  # accuracy that the others may lose
TWO = (3, 6)
OF_TWO = ("a row of 1e30", "NaN for all numbers", "numbers of 1e308")


@cache
def scores(name: str, lie: Lie, liars: tuple[int, ...], *, robust: bool = False) -> dict[int, float]:
    """Every client's accuracy on its test data after the run, which must end with a finite bank."""
    used = method(name)
    if robust and used.mix is not None:
        used = replace(used, mix=Robust(mix=used.mix, rule=Clip()))
    state, fleet = run_with(used, lie, liars)
    if not torch.isfinite(state.models).all():
        raise ArithmeticError("the bank is not finite")
    found = on_local_tests(used, state, fleet)
    return {m.client: m.value for m in found if m.metric == "accuracy" and m.client >= 0}


def accuracy(name: str, lie: Lie, liars: tuple[int, ...] = LIARS, *, robust: bool = False) -> float:
    """The mean accuracy of those who do not lie; each of them must have a score."""
    found = scores(name, lie, () if lie is HONEST else liars, robust=robust)
    others = [value for client, value in found.items() if client not in liars]
    if len(others) < CLIENTS - len(liars):
        raise ArithmeticError(f"{CLIENTS - len(liars) - len(others)} honest clients have no score")
    return sum(others) / len(others)


def expected(name: str, liars: tuple[int, ...], *, robust: bool = False) -> float:
    """What the others reach when the liars are honest, or silent where that is worse: a refused answer is none."""
    return min(accuracy(name, lie, liars, robust=robust) for lie in (HONEST, SILENT))


def prepare() -> None:
    """What every method reaches without the lies."""
    for name in ALL:
        for liars in (LIARS, TWO):
            expected(name, liars)


def refused_lie(lie: str, liars: tuple[int, ...]) -> Outcome:
    """Every method with that lie: it must end, with models nearly as good for the others as without it."""
    harm = []
    for name in ALL:
        try:
            before, bent = expected(name, liars), accuracy(name, LIES[lie], liars)
            if bent < before - WORSE:
                harm.append(f"{name}: accuracy {before:.2f} became {bent:.2f}")
        except Exception as error:  # whatever it is, it ended the run
            harm.append(f"{name}: {type(error).__name__}: {str(error)[:100]}")
    said = f"{len(ALL) - len(harm)} of {len(ALL)} methods continued unharmed"
    return broke(f"{said}; {'; '.join(harm)}") if harm else held(said)


def lie_within(lie: str) -> Outcome:
    """Every method with a lie that looks like an update: it must end; who bends is told, with and without `clip`."""
    ended, lost, saved = [], {}, {}
    for name in ALL:
        try:
            lost[name] = expected(name, LIARS) - accuracy(name, WITHIN[lie])
            saved[name] = expected(name, LIARS) - accuracy(name, WITHIN[lie], robust=True)
        except Exception as error:
            ended.append(f"{name}: {type(error).__name__}: {str(error)[:100]}")
    if ended:
        return broke("; ".join(ended))
    bent, still = (sorted(n for n, d in of.items() if d > WORSE) for of in (lost, saved))
    return held(
        f"all {len(ALL)} methods continued; the others lose more than {WORSE} of accuracy under {named(bent)}, "
        f'with robust.name = "clip" under {named(still)}'
    )


def named(methods: list[str]) -> str:
    return ", ".join(methods) or "none"


def attempts() -> None:
    """One try for each lie."""
    for words in LIES:
        make(f"one of 8 sends {words}", partial(refused_lie, words, LIARS))
    for words in OF_TWO:
        make(f"two of 8 send {words}", partial(refused_lie, words, TWO))
    for words in WITHIN:
        make(f"one of 8 sends {words}", partial(lie_within, words))


def make(what: str, do: partial[Outcome]) -> None:
    globals()[what] = attempt(what, seconds=900)(do)


attempts()
