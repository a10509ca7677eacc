"""Which data a client holds, and everybody's at the server."""

import numpy as np
import torch

from covey.data.pooled import Pooled
from covey.testing import small_federation


def test_pooled_samples_are_a_view_like_any_other() -> None:
    shares = small_federation().shares
    pooled = Pooled([share.train for share in shares])
    x, y = pooled.tensors()
    assert (len(pooled), pooled.dataset) == (len(y), shares[0].train.dataset)
    for positions in (
        np.array([0, 5, len(y) - 1]),
        np.array([len(y) - 1, 3]),
        slice(2, 7),
        np.array([], int),
    ):
        part = pooled.select(positions)
        wanted = np.arange(len(y))[positions]
        assert np.array_equal(part.labels(), y.numpy()[wanted])
        assert torch.equal(part.tensors()[0], x[torch.from_numpy(wanted)])
