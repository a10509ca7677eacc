"""REFL's weights of late replies, by hand."""

import numpy as np
import pytest
import torch

from covey.core.round import Task
from covey.parts.mix.late import FreshAndLate, refl_weights
from tests.made_up_rounds import make_round


def test_late_replies_count_by_age_and_by_how_far_they_would_move_the_mean() -> None:
    """beta .5. Two late, the largest deviation: .5 / 3 + .5 (1 - 1/e). One late, half of it: .25 + .5 (1 - e^-.5)."""
    found = refl_weights(np.array([0.0, 2.0, 1.0]), np.array([0.0, 4.0, 2.0]), 0.5)
    assert found.tolist() == pytest.approx(
        [1, 0.5 / 3 + 0.5 * (1 - np.exp(-1)), 0.25 + 0.5 * (1 - np.exp(-0.5))]
    )


def test_a_round_by_hand() -> None:
    """w = 10. Fresh updates 2 and 4, their mean 3. A late one, sent 4 a round ago, came back as 9: an update of 5.

    It is the only late one, so its deviation is the largest: .65 / 2 + .35 (1 - 1/e) = c. w + (2 + 4 + 5 c) / (2 + c).
    """
    now = make_round((10.0,), replies={0: ([12.0], 1), 1: ([14.0], 1), 2: ([9.0], 1)}, number=4)
    here, before = (Task(models=torch.tensor([[value]]), slots=(0,)) for value in (10.0, 4.0))
    now.tasks, now.sent = {0: here, 1: here, 2: before}, {0: 4, 1: 4, 2: 3}
    mixing = FreshAndLate(beta=0.35)(now)
    rows = np.array([10.0] + [float(reply.vector[0]) for reply in now.replies])
    c = 0.325 + 0.35 * (1 - np.exp(-1))
    assert (mixing.factors[0] @ rows).tolist() == pytest.approx([10 + (6 + 5 * c) / (2 + c)])


def test_where_nobody_is_fresh_only_age_counts() -> None:
    now = make_round((0.0,), replies={0: ([2.0], 1), 1: ([6.0], 1)}, number=4)
    task = Task(models=torch.tensor([[0.0]]), slots=(0,))
    now.tasks, now.sent = {0: task, 1: task}, {0: 3, 1: 1}
    mixing = FreshAndLate(beta=0.0)(now)
    assert (mixing.factors[0] @ np.array([0, 2.0, 6.0])).tolist() == pytest.approx([(2 / 2 + 6 / 4) / 0.75])
