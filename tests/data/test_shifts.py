"""Shifts: rotated images, other labels, and what that does to views and true clusters."""

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage

from covey.data import Samples, Scale, Shift, federate, from_tensors, load
from covey.data.types import tilt
from covey.errors import UserError
from covey.settings.catalogue import SHIFTS

PICTURE = np.zeros((9, 9), dtype=np.uint8)
PICTURE[1, 2:8] = 200  # an F: tells all eight turns and mirror images apart
PICTURE[1:8, 2] = 200
PICTURE[4, 2:6] = 200


def one_picture(**changes):
    x = torch.from_numpy(PICTURE)[None, None].repeat(4, 1, 1, 1)
    y = torch.tensor([0, 1, 2, 3])
    own = from_tensors(x, y, test=(x, y), **changes)
    return Samples(own, own.train)


@pytest.mark.parametrize("rotations", [0, 1, 2, 3])
def test_quarter_turns_are_counter_clockwise_as_in_pillow(rotations):
    x, _ = one_picture().shifted(Shift(rotations=rotations)).tensors()
    expected = np.asarray(Image.fromarray(PICTURE).rotate(90 * rotations)) / 255
    assert x.is_contiguous()
    np.testing.assert_allclose(x[0, 0].numpy(), expected, atol=1e-6)


def test_45_degrees_are_counter_clockwise_bilinear_with_zero_fill_as_in_scipy():
    rng = np.random.default_rng(0)
    images = rng.random((2, 3, 28, 28)).astype(np.float32)
    expected = ndimage.rotate(images, 45, axes=(3, 2), reshape=False, order=1, mode="grid-constant", cval=0)
    np.testing.assert_allclose(tilt(torch.from_numpy(images)).numpy(), expected, atol=1e-4)
    assert tilt(torch.ones(1, 1, 20, 20))[0, 0, 0, 0] == 0


def test_45_degrees_keep_the_shape_of_oblong_images():
    images = np.random.default_rng(0).random((1, 1, 12, 20)).astype(np.float32)
    expected = ndimage.rotate(images, 45, axes=(3, 2), reshape=False, order=1, mode="grid-constant", cval=0)
    np.testing.assert_allclose(tilt(torch.from_numpy(images)).numpy(), expected, atol=1e-4)


def test_zero_fill_is_black_also_when_images_are_normalised():
    view = one_picture(scale=Scale((0.5,), (0.5,))).shifted(Shift(tilt=(1.0,) * 4))
    assert view.tensors()[0][0, 0, 0, 0] == -1  # (0 - 0.5) / 0.5


def test_tilt_turns_all_none_or_every_second_image_of_a_label_wherever_it_is_selected():
    x = torch.rand(400, 1, 8, 8)
    own = from_tensors(x, torch.arange(400) % 4, test=(x[:4], torch.arange(4)))
    plain = Samples(own, own.train)
    view = plain.shifted(Shift(tilt=(0.0, 1.0, 0.5, 0.5)))
    rotated = (view.tensors()[0] != plain.tensors()[0]).flatten(1).any(dim=1).numpy()
    by_label = [rotated[plain.labels() == label].mean() for label in range(4)]
    assert by_label[:2] == [0, 1]
    assert by_label[2:] == pytest.approx([0.5, 0.5], abs=0.03)
    chosen = np.array([7, 50, 51, 399])
    assert torch.equal(view.select(chosen).tensors()[0], view.tensors()[0][torch.from_numpy(chosen)])


def test_label_shift_is_cyclic_and_leaves_images_alone():
    view = one_picture().shifted(Shift(label_offset=1))
    assert view.labels().tolist() == [3, 0, 1, 2]  # (y - 1) mod 4
    x, y = view.tensors()
    assert y.tolist() == [3, 0, 1, 2]
    assert y.dtype == torch.int64
    assert torch.equal(x, one_picture().tensors()[0])


def test_client_i_gets_shift_i_mod_4_on_training_and_test_data_and_is_of_that_kind():
    fleet = federate(load("digits"), partition="iid", clients=8, seed=0, shift="rotation")
    assert [share.train.shift.rotations for share in fleet.shares] == [0, 1, 2, 3] * 2
    assert [share.test.shift.rotations for share in fleet.shares] == [0, 1, 2, 3] * 2
    assert [share.cluster for share in fleet.shares] == [0, 1, 2, 3] * 2
    assert fleet.test.shift == Shift()
    halves = federate(
        load("digits"), partition="dir-class", clients=4, seed=0, shift="rotation", rotations=(0, 2)
    )
    assert [share.train.shift.rotations for share in halves.shares] == [0, 2, 0, 2]
    assert [share.cluster for share in halves.shares] == [0, 1, 0, 1]


def test_label_counts_are_those_after_the_shift():
    plain = federate(load("digits"), partition="dir-class", clients=4, seed=0)
    moved = federate(load("digits"), partition="dir-class", clients=4, seed=0, shift="label", offsets=(0, 3))
    assert moved.label_counts()[0].tolist() == plain.label_counts()[0].tolist()
    assert moved.label_counts()[1].tolist() == np.roll(plain.label_counts()[1], -3).tolist()


def test_the_tilt_shift_gives_both_angles_to_clients_of_the_same_majority_label():
    fleet = federate(load("digits"), partition="majority", clients=20, seed=0, balanced=True, shift="tilt")
    own_angle = [share.train.shift.tilt[client % 10] for client, share in enumerate(fleet.shares)]
    assert own_angle == [0] * 10 + [1] * 10
    assert all(sorted(share.train.shift.tilt)[1:-1] == [0.5] * 8 for share in fleet.shares)
    assert len({share.cluster for share in fleet.shares}) == 20


@pytest.mark.parametrize(
    ("shape", "floats", "shift", "sentence"),
    [
        (
            (5,),
            False,
            "rotation",
            "shift = 'rotation': own does not hold square images, its inputs have shape",
        ),
        ((1, 4, 6), False, "rotation", "does not hold square images"),
        ((5,), False, "tilt", "does not hold images"),
        ((1, 4, 4), True, "label", "shift = 'label': own has no classes"),
        ((1, 4, 4), True, "tilt", "shift = 'tilt': own has no classes"),
        ((1, 4, 4), False, "rotate", "shift 'rotate' is not known; did you mean rotation"),
    ],
)
def test_a_shift_that_does_not_fit_the_data_is_refused(shape, floats, shift, sentence):
    y = torch.rand(40) if floats else torch.arange(40) % 2
    with pytest.raises(UserError, match=sentence):
        federate(from_tensors(torch.rand(40, *shape), y), partition="iid", clients=2, seed=0, shift=shift)


def test_shift_and_partition_settings_never_share_a_name():
    import inspect

    from covey.settings.catalogue import PARTITIONS

    names = {name for cut in PARTITIONS.values() for name in inspect.signature(cut).parameters}
    for shift in SHIFTS.values():
        assert not names & (set(inspect.signature(shift).parameters) - {"dataset", "counts"})
