"""Numbers of their papers that no experiment changes: what each does, by hand."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from covey.core.round import run_rounds
from covey.methods.cflgp import cfl_gp
from covey.methods.fedsoft import importance
from covey.methods.flis import flis
from covey.methods.hics import ByEntropy
from covey.methods.pacfl import pacfl
from covey.parts.steps import Train
from covey.testing import small_fleet

TRAIN = Train(lr=0.1, batches=1)


@pytest.mark.parametrize(
    ("maker", "settings", "groups"),
    [
        (pacfl, {"angle": 90.0}, 1),
        (pacfl, {"angle": 1e-6}, 8),
        (flis, {"agree": 0.0}, 1),
        (flis, {"agree": 1.0}, 8),
    ],
)
def test_a_tree_of_clients_is_cut_where_the_setting_says(maker, settings, groups: int) -> None:
    state = run_rounds(maker(TRAIN, per_round=8, **settings), small_fleet(), rounds=1)
    assert len(set(state.groups.values())) == groups


def test_gradients_are_asked_for_every_so_many_rounds() -> None:
    asked = {}
    for period in (1, 2):
        fleet = small_fleet()
        run_rounds(cfl_gp(TRAIN, per_round=8, k=2, period=period), fleet, rounds=3)
        asked[period] = fleet.ledger.total["query.gradient"].messages
    assert asked[1] - asked[2] == 2 * 8  # round 2: eight questions and eight answers


def test_no_model_counts_less_than_the_floor() -> None:
    """Of four samples the first model has the lowest loss on all: 1 and 0, at least .25, is 1 / 1.25 and .25 / 1.25."""
    losses = iter(torch.tensor([[0.1] * 4, [0.2] * 4]))
    objective = SimpleNamespace(target=lambda x, y: y, scores=lambda out, target: {"loss": next(losses)})
    bench = SimpleNamespace(objective=objective, forward=lambda row, x: x)
    train = SimpleNamespace(tensors=lambda: (torch.zeros(4, 1), torch.zeros(4)))
    share = importance(SimpleNamespace(train=train, bench=bench), torch.zeros(2, 3), 0.25)  # type: ignore[arg-type]
    assert share.tolist() == pytest.approx([0.8, 0.2])


def test_without_sharpness_clusters_of_all_label_mixes_are_alike() -> None:
    known = {0: np.zeros(3), 1: np.array([9.0, 0, 0]), 2: np.array([8.0, 0, 0]), 3: np.zeros(3)}
    drawn = {
        sharp: [
            ByEntropy(per_round=2, sharpness=sharp).drawn(
                [0, 1, 2, 3], known, 1, np.random.default_rng(seed)
            )[0]
            for seed in range(60)
        ]
        for sharp in (0.0, 50.0)
    }
    assert set(drawn[50.0]) == {0, 3}  # even mixes alone
    assert set(drawn[0.0]) == {0, 1, 2, 3}
