"""SCAFFOLD on least squares beside the textbook form, and where it converges to."""

import numpy as np
import pytest

from covey.core.round import run_rounds
from covey.errors import UserError
from covey.methods.baselines import fedavg
from covey.methods.scaffold import scaffold
from covey.parts.steps import Train
from tests.methods.test_feddyn import LR, STEPS, full_batch, least_squares

SIZES = [30, 60, 90]


def textbook(xs, ys, chosen_by_round: list[list[int]]) -> np.ndarray:
    """Karimireddy et al., Algorithm 1 with option II, in float64."""
    x, c = np.zeros(3), np.zeros(3)
    own = np.zeros((len(xs), 3))
    for chosen in chosen_by_round:
        models, changes = [], []
        for k in chosen:
            y = x.copy()
            for _ in range(STEPS):
                gradient = 2 * xs[k].T @ (xs[k] @ y - ys[k]) / len(ys[k])
                y -= LR * (gradient - own[k] + c)
            new = own[k] - c + (x - y) / (STEPS * LR)
            changes.append(new - own[k])
            own[k] = new
            models.append(y)
        x = np.mean(models, axis=0)
        c = c + np.sum(changes, axis=0) / len(xs)
    return x


def test_it_is_the_textbook_algorithm() -> None:
    xs, ys, fleet = least_squares(SIZES)
    chosen: list[list[int]] = []
    state = run_rounds(
        scaffold(full_batch(), per_round=2),
        fleet,
        rounds=5,
        watchers=[lambda end: chosen.append(list(end.state.worked))],
    )
    assert {len(ids) for ids in chosen} == {2}
    assert state.models[0].tolist() == pytest.approx(textbook(xs, ys, chosen).tolist(), abs=2e-4)


def test_it_converges_where_fedavg_drifts() -> None:
    """The minimum of the mean of the clients' losses solves a linear system; equal weights, many local steps."""
    xs, ys, fleet = least_squares(SIZES)
    left = sum(2 * x.T @ x / len(x) for x in xs)
    best = np.linalg.solve(left, sum(2 * x.T @ y / len(x) for x, y in zip(xs, ys, strict=True)))
    found = run_rounds(scaffold(full_batch(), per_round=3), fleet, rounds=60).models[0].numpy()
    plain = run_rounds(
        fedavg(full_batch(), per_round=3, weighting="equal"), least_squares(SIZES)[2], rounds=60
    )
    assert np.abs(found - best).max() < 1e-3
    assert np.abs(plain.models[0].numpy() - best).max() > 10 * np.abs(found - best).max()


def test_steps_that_are_not_plain_are_refused() -> None:
    with pytest.raises(UserError, match="plain steps"):
        scaffold(Train(momentum=0.9))
