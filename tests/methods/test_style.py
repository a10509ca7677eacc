"""LADD's style: window sizes of the facts, and what the amplitude can and cannot tell apart."""

import numpy as np
import pytest
import torch

from covey.errors import UserError
from covey.methods.ladd import Style, styles


@pytest.mark.parametrize(
    ("shape", "share", "values"),
    [((1, 28, 28), 0.1, 25), ((3, 32, 32), 0.1, 147), ((3, 64, 64), 0.1, 507), ((1, 28, 28), 0.01, 1)],
)
def test_the_window_has_the_papers_size(shape: tuple[int, ...], share: float, values: int) -> None:
    assert styles(torch.rand(2, *shape), share).shape == (2, values)


def test_the_middle_of_the_window_is_the_sum_of_the_pixels() -> None:
    x = torch.rand(3, 1, 28, 28, dtype=torch.float64)
    assert styles(x, 0.1)[:, 12] == pytest.approx(x.sum(dim=(1, 2, 3)).numpy())


def test_half_a_turn_and_a_cyclic_shift_change_nothing_and_a_quarter_turn_transposes() -> None:
    x = torch.rand(2, 1, 29, 29)  # odd sides: a turn keeps the middle
    style = styles(x, 0.1).reshape(2, 5, 5)
    np.testing.assert_allclose(styles(torch.rot90(x, 2, (2, 3)), 0.1).reshape(2, 5, 5), style, rtol=1e-6)
    np.testing.assert_allclose(styles(x.roll((3, 5), (2, 3)), 0.1).reshape(2, 5, 5), style, rtol=1e-6)
    quarter = styles(torch.rot90(x, 1, (2, 3)), 0.1).reshape(2, 5, 5)
    assert not np.allclose(quarter, style)
    np.testing.assert_allclose(quarter, np.rot90(style, 1, (1, 2)), rtol=1e-6)


def test_wrong_settings_are_named() -> None:
    with pytest.raises(UserError, match="share"):
        Style(share=0.6)
