"""Random crops and mirrors: what can come out, and that training sees each showing anew."""

import numpy as np
import torch

from covey.data.augment import PAD, as_shown, cropped_and_flipped
from covey.data.types import Scale


def test_every_picture_is_a_crop_of_its_padded_self_or_of_its_mirror() -> None:
    x = torch.rand(12, 2, 6, 5) + 0.1
    out = cropped_and_flipped(x, np.random.default_rng(0), None)
    padded = torch.nn.functional.pad(x, (PAD,) * 4)
    kinds = set()
    for picture, whole in zip(out, padded, strict=True):
        found = [
            (top, left, mirrored)
            for top in range(2 * PAD + 1)
            for left in range(2 * PAD + 1)
            for mirrored in (False, True)
            for crop in [whole[:, top : top + 6, left : left + 5]]
            if torch.equal(picture, crop.flip(2) if mirrored else crop)
        ]
        assert found
        kinds.add(found[0])
    assert len(kinds) > 6  # drawn for each picture
    assert {mirrored for *_, mirrored in kinds} == {False, True}


def test_the_border_is_black_after_scaling() -> None:
    scale = Scale((0.5, 0.25), (0.5, 0.125))
    white = torch.stack([torch.full((4, 4), (1 - m) / s) for m, s in zip(*scale, strict=True)])
    out = cropped_and_flipped(white.repeat(50, 1, 1, 1), np.random.default_rng(1), scale)
    assert sorted(out[:, 0].unique().tolist()) == [-1.0, 1.0]
    assert sorted(out[:, 1].unique().tolist()) == [-2.0, 6.0]


def test_a_picture_that_is_shown_twice_is_cropped_twice() -> None:
    x, y = torch.rand(3, 1, 8, 8), torch.tensor([5, 6, 7])
    batches = [np.array([2, 0]), np.array([1]), np.array([2])]
    shown, labels, places = as_shown(x, y, batches, np.random.default_rng(3), None)
    assert labels.tolist() == [7, 5, 6, 7]
    assert [place.tolist() for place in places] == [[0, 1], [2], [3]]
    assert not torch.equal(shown[0], shown[3])
