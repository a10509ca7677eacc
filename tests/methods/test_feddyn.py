"""FedDyn on least squares, where everything is known: the textbook form, and the solution it converges to."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from covey.core.round import Method, Round, run_rounds
from covey.data.types import ClientShare, Dataset, Federation, Samples
from covey.fleet.engine import Engine
from covey.fleet.local import LocalFleet
from covey.methods.baselines import fedavg
from covey.methods.feddyn import feddyn
from covey.parts.selection import Everybody
from covey.parts.steps import Train
from covey.training.objective import Regression

STEPS, LR, ALPHA = 20, 0.05, 0.1


def least_squares(sizes: list[int]) -> tuple[list[np.ndarray], list[np.ndarray], LocalFleet]:
    """Clients whose best weights differ, a linear model of three weights, and full-batch gradients."""
    rng = np.random.default_rng(1)
    xs = [rng.normal(size=(n, 3)).astype(np.float32) * [1, 1, 2] for n in sizes]
    ys = [x @ rng.normal(size=3) + 0.1 * rng.normal(size=len(x)) for x in xs]
    whole = Dataset(
        name="least squares",
        x=torch.tensor(np.concatenate(xs), dtype=torch.float32),
        y=torch.tensor(np.concatenate(ys), dtype=torch.float32),
        train=np.arange(sum(sizes)),
        test=np.arange(0),
        classes=(),
    )
    parts = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    nothing = Samples(whole, np.arange(0))
    data = Federation(whole, tuple(ClientShare(Samples(whole, part), nothing) for part in parts), nothing)
    model = nn.Linear(3, 1, bias=False)
    nn.init.zeros_(model.weight)
    fleet = LocalFleet(data, model, objective=Regression(), engine=Engine(debug=True))
    return xs, ys, fleet


def full_batch(**settings) -> Train:
    return Train(epochs=STEPS, batch=10_000, lr=LR, clip=1e9, **settings)


def textbook(xs, ys, chosen_by_round: list[list[int]]) -> np.ndarray:
    """Acar et al., Algorithm 1: g_k <- g_k - a (w_k - w), h <- h - (a/N) sum (w_k - w), w <- mean w_k - h/a.

    Returns the mean of the last round's models, which is what FedDyn evaluates.
    """
    w, h, g, mean = np.zeros(3), np.zeros(3), np.zeros((len(xs), 3)), np.zeros(3)
    for chosen in chosen_by_round:
        models = []
        for k in chosen:
            v = w.copy()
            for _ in range(STEPS):
                gradient = 2 * xs[k].T @ (xs[k] @ v - ys[k]) / len(ys[k])
                v -= LR * (gradient - g[k] + ALPHA * (v - w))
            g[k] -= ALPHA * (v - w)
            models.append(v)
        mean = np.mean(models, axis=0)
        h -= ALPHA / len(xs) * np.sum([v - w for v in models], axis=0)
        w = mean - h / ALPHA
    return mean


def test_is_the_textbook_form_when_sizes_are_equal() -> None:
    xs, ys, fleet = least_squares([30, 30, 30, 30])
    rounds = [[0, 1], [1, 2, 3], [0], [0, 3], [1, 2], [2, 3]]

    def as_written(now: Round) -> list[int]:
        return rounds[now.number - 1]

    method = replace(feddyn(full_batch(), alpha=ALPHA), select=as_written)
    for last in (1, 3, 6):
        state = (
            run_rounds(method, fleet, rounds=last)
            if last == 1
            else run_rounds(method, least_squares([30] * 4)[2], rounds=last)
        )
        assert state.models[0].tolist() == pytest.approx(textbook(xs, ys, rounds[:last]), abs=2e-5)


def distance_to_solution(method: Method, sizes: list[int], rounds: int) -> float:
    xs, ys, fleet = least_squares(sizes)
    solution = np.linalg.lstsq(np.concatenate(xs), np.concatenate(ys), rcond=None)[0]
    return float(np.abs(run_rounds(method, fleet, rounds=rounds).models[0].numpy() - solution).max())


@pytest.mark.parametrize("sizes", [[30, 30, 30, 30], [10, 20, 40, 50]])
def test_finds_the_common_solution_where_fedavg_does_not(sizes: list[int]) -> None:
    """Twenty local steps nearly reach each client's own optimum, so FedAvg stops between those; FedDyn does not."""
    dyn = replace(feddyn(full_batch(), alpha=3.0), select=Everybody())
    avg = replace(fedavg(full_batch()), select=Everybody())
    assert distance_to_solution(dyn, sizes, 60) < 1e-5
    assert distance_to_solution(avg, sizes, 60) > 0.01


def test_the_average_is_the_model_in_the_bank_not_what_is_sent() -> None:
    _, _, fleet = least_squares([20, 20])
    method = replace(feddyn(full_batch(), alpha=ALPHA), select=Everybody())
    state = run_rounds(method, fleet, rounds=1)
    memories = torch.stack([fleet.states[k]["dyn"] for k in (0, 1)])
    assert state.models[0].tolist() == pytest.approx(
        memories.mean(0).tolist(), abs=1e-6
    )  # it started at zero
    assert state.memory["feddyn.sum"].tolist() == pytest.approx(memories.sum(0).tolist(), abs=1e-6)


def test_a_broken_training_leaves_the_memory_alone() -> None:
    _, _, fleet = least_squares([20, 20])
    method = replace(feddyn(full_batch(), alpha=ALPHA), select=Everybody())
    state = run_rounds(method, fleet, rounds=1)
    before = {k: fleet.states[k]["dyn"].clone() for k in (0, 1)}
    fleet.data.dataset.y[:20] = torch.inf  # client 0 only
    state = run_rounds(method, fleet, rounds=2, state=state)
    assert torch.isfinite(state.models).all()
    assert torch.equal(fleet.states[0]["dyn"], before[0])
    assert not torch.equal(fleet.states[1]["dyn"], before[1])
