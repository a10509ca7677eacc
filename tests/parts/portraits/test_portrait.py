"""What a client tells of its classes: unbiased, in two halves that share nothing."""

from dataclasses import replace
from types import SimpleNamespace
from weakref import WeakKeyDictionary

import numpy as np
import pytest
import torch

from covey.core.round import Task, empty_state, open_round
from covey.data import Dataset, Samples
from covey.errors import UserError
from covey.fleet.work import client_of
from covey.parts.portraits import portrait, views
from covey.parts.portraits.portrait import (
    RANGE,
    DescribeClasses,
    class_means,
    classes_in,
    halves_apart,
    halves_by_themselves,
    in_two_units,
    portraits_of,
    standardised,
)
from covey.parts.portraits.views import seen_together, views_of, views_of_each
from covey.parts.steps.privacy import Privacy
from covey.testing import small_federation, small_fleet


def described(x):
    """The first view of samples: values and edges."""
    return views_of(x)[0].values


def drawn(x):
    """The second view of pictures: strokes."""
    return views_of(x)[1].values


def replies(step, **fleet):
    with_clients = small_fleet(**fleet)
    now = open_round(empty_state(with_clients), with_clients)
    return now.ask(step, now.here)


def test_a_portrait_is_on_average_the_class_means_of_each_half():
    """The mean error over thousands of values is far below that of one; halves are compared with their own samples."""
    flip = 0.1
    share = small_federation().shares[0]
    x = described(standardised(type("Client", (), {"train": share.train})()))
    y = share.train.labels().astype(int)
    (reply,) = [r for r in replies(DescribeClasses(flip=flip)) if r.id == 0]
    portrait, _ = portraits_of(reply.stats, flip)
    from covey.core.round import stream

    halves = stream(5, "halves", "client", 0).permutation(len(y)) % 2
    for half in (0, 1):
        truth = np.clip(class_means(x, y, halves == half, 10) / (2 * RANGE) + 0.5, 0, 1)
        error = portrait.halves[half] - truth
        # one value: at most sqrt(1/4 / repeats) / (1 - 2 flip), 0.11 for 32 bits; the mean of 1,280 a 35th of it
        assert abs(error.mean()) < 0.02
        assert error.std() < 0.13
    np.testing.assert_array_equal(portrait.counts, np.bincount(y, minlength=10))


def test_halves_share_no_unit_of_a_class():
    labels = np.array([0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2])
    units = np.array([7, 7, 8, 8, 9, 7, 5, 5, 6, 3, 3])
    for seed in range(20):
        halves = halves_apart(labels, units, np.random.default_rng(seed))
        for label, each in ((0, {7: 0, 8: 1, 9: 2}), (1, {7: 0, 5: 1, 6: 2})):
            of = [set(halves[(labels == label) & (units == unit)]) for unit in each]
            assert all(len(one) == 1 for one in of)
            assert sorted(len([h for h in of if h == {half}]) for half in (0, 1)) == [1, 2]
    # class 2 is one recording: it has one half, counts as one sample, and so is not compared
    assert in_two_units(np.array([5.0, 4.0, 2.0, 0.0]), labels, units).tolist() == [5, 4, 1, 0]
    assert in_two_units(np.array([5.0]), np.zeros(5, int), None).tolist() == [5]


def test_what_a_recording_is_like_is_not_taken_for_what_the_client_is_like():
    """Every recording has a place of its own: clients differ by nothing else, so their distance is 0 on average."""
    found = {"by unit": [], "by sample": []}
    for seed in range(200):
        rng = np.random.default_rng(seed)
        units = np.repeat(np.arange(4), 6)
        labels = np.zeros(24, np.int64)
        clients = [rng.normal(size=(4, 30))[units] for _ in range(2)]
        for name, said in (("by unit", units), ("by sample", None)):
            means = []
            for x in clients:
                half = halves_apart(labels, said, rng)
                means.append([x[half == h].mean(axis=0) for h in (0, 1)])
            (a, b), (c, d) = means
            found[name].append(float((a - c) @ (b - d)) / 30)
    # of a recording's 6 samples k are in the first half, 3 on average with a variance of 12 (1/4) (3/4) 12/23: the two
    # means of a client share 4 E[k (6 - k)] / 12^2 = .217 of a recording's variance, two clients' difference twice that
    assert abs(np.mean(found["by unit"])) < 0.05
    assert np.mean(found["by sample"]) == pytest.approx(0.435, abs=0.05)


def test_real_targets_are_told_as_two_classes_below_and_above_the_median():
    targets = torch.tensor([3.0, -1.0, 0.5, 10.0])
    data = Dataset(
        name="real", x=torch.zeros(4, 2), y=targets, train=np.arange(4), test=np.arange(0), classes=()
    )
    assert classes_in(Samples(data, np.arange(4))).tolist() == [1, 0, 0, 1]
    assert classes_in(Samples(data, np.arange(0))).tolist() == []


def test_asking_again_tells_nothing_new():
    first, second = replies(DescribeClasses()), replies(DescribeClasses())
    assert all(np.array_equal(a.stats["bits"], b.stats["bits"]) for a, b in zip(first, second, strict=True))


def test_what_is_told_of_unchanged_data_is_worked_out_once(monkeypatch: pytest.MonkeyPatch):
    worked = []
    look = portrait.views_of
    monkeypatch.setattr(portrait, "_ANSWERS", WeakKeyDictionary())
    monkeypatch.setattr(portrait, "views_of", lambda x: worked.append(len(x)) or look(x))
    first = replies(DescribeClasses())
    fleet = small_fleet()
    now = open_round(empty_state(fleet), fleet)
    asked = len(worked)
    again = now.ask(DescribeClasses(), now.here)
    assert len(worked) == asked
    assert all(np.array_equal(a.stats["bits"], b.stats["bits"]) for a, b in zip(first, again, strict=True))
    now.ask(DescribeClasses(flip=0.2), now.here)  # another question
    assert len(worked) == 2 * asked
    share = fleet.data.shares[0]
    fewer = replace(share.train, index=share.train.index[1:])  # data that changed
    client = SimpleNamespace(id=0, seed=fleet.seed, live=False, account=None, train=fewer, stream=now.stream)
    DescribeClasses().known_answer(client)
    assert len(worked) == 2 * asked + 1


def test_a_gradient_counts_for_its_two_nearest_directions_in_every_part_of_the_picture():
    """By the definition, pixel by pixel, for a picture whose sides four does not divide."""
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(7, 2, 13, 11)).astype(np.float32))
    grey = x.numpy().astype(np.float64).mean(axis=1)
    sums, pixels = np.zeros((7, 8, 4, 4)), np.zeros((4, 4))
    for row, column in np.ndindex(13, 11):
        part = row * 4 // 13, column * 4 // 11
        pixels[part] += 1
        if row in (0, 12) or column in (0, 10):
            continue  # no gradient along the border
        across = (grey[:, row, column + 1] - grey[:, row, column - 1]) / 2
        down = (grey[:, row + 1, column] - grey[:, row - 1, column]) / 2
        place = np.arctan2(down, across) / np.pi * 8 % 8
        for picture, (at, length) in enumerate(zip(place, np.hypot(across, down), strict=True)):
            lower = int(at)
            sums[picture, lower, *part] += length * (1 - (at - lower))
            sums[picture, (lower + 1) % 8, *part] += length * (at - lower)
    whole = (sums / pixels).reshape(7, -1)
    scaled = whole / (np.linalg.norm(whole, axis=1, keepdims=True) + 1e-3) * (128**0.5 / 2)
    np.testing.assert_allclose(drawn(x), scaled - 0.35, atol=5e-6)


def test_many_pictures_are_told_as_few_are(monkeypatch: pytest.MonkeyPatch):
    x = torch.from_numpy(np.random.default_rng(1).normal(size=(10, 1, 12, 8)).astype(np.float32))
    together = views_of(x)
    monkeypatch.setattr(views, "AT_ONCE", 3)
    for one, other in zip(together, views_of(x), strict=True):
        np.testing.assert_allclose(one.values, other.values, atol=1e-6)


def test_a_picture_is_told_by_its_values_and_its_edges():
    flat = torch.zeros(1, 1, 8, 8)
    step = flat.clone()
    step[..., 4:] = 1.0
    assert described(flat).shape == (1, 128)
    # the edge of height 1 is seen in the two columns beside it, half of it in each
    edges = described(step)[0, 64:].reshape(8, 8) - described(flat)[0, 64:].reshape(8, 8)
    np.testing.assert_allclose(edges[1:-1, 3:5], 0.5)
    assert edges[:, :3].sum() == 0


def test_numbers_that_nobody_scaled_are_brought_to_one_length():
    """(3, 4) has the root mean square sqrt(12.5): frequencies of a text are told as well as standardised values are."""
    x = torch.tensor([[3.0, 4.0], [0.03, 0.04], [0.0, 0.0]])
    dataset = SimpleNamespace(scale=None, x=x)
    client = SimpleNamespace(train=SimpleNamespace(dataset=dataset, tensors=lambda: (x, None)))
    one = [3 / 12.5**0.5, 4 / 12.5**0.5]
    assert standardised(client).tolist() == [pytest.approx(one), pytest.approx(one), [0.0, 0.0]]


def test_small_samples_are_told_more_often():
    tables = {width: views_of(torch.zeros(2, width)) for width in (64, 1024, 5000)}
    assert [[view.times for view in told] for told in tables.values()] == [[64], [4], [1]]
    plain, strokes = views_of(torch.zeros(2, 3, 32, 32))
    assert (plain.values.shape[1], plain.times) == (
        1024,
        4,
    )  # 16 x 16 pixels of three colours and their edges
    assert (strokes.values.shape[1], strokes.times) == (128, 16)


def test_strokes_tell_the_direction_and_not_the_polarity_of_what_is_drawn():
    upright = torch.zeros(1, 1, 8, 8)
    upright[..., 4:] = 1.0
    across = drawn(upright).reshape(8, 4, 4) - drawn(torch.zeros(1, 1, 8, 8)).reshape(8, 4, 4)
    assert across[0, 1:3, 1:3].min() > 0.5  # gradients across are the first of eight directions
    np.testing.assert_allclose(across[1:], 0.0, atol=1e-6)
    np.testing.assert_allclose(drawn(1 - upright), drawn(upright), atol=1e-6)
    rotated = drawn(torch.rot90(upright, 1, (-2, -1))).reshape(8, 4, 4)
    np.testing.assert_allclose(rotated[4], np.rot90(drawn(upright).reshape(8, 4, 4)[0]), atol=1e-5)


def test_bits_of_the_wrong_length_are_no_portrait():
    (reply, *_) = replies(DescribeClasses())
    assert portraits_of({**reply.stats, "bits": reply.stats["bits"][:-3]}, 0.1) is None
    assert portraits_of({**reply.stats, "views": reply.stats["views"][:-1]}, 0.1) is None
    assert portraits_of({**reply.stats, "views": []}, 0.1) is None


def test_a_portrait_takes_part_in_the_privacy_account():
    (reply, *_) = replies(DescribeClasses(flip=0.25))
    # ln 3 for every bit, 64 + 64 values told 32 times, seen twice at most; the counts are exact, hence infinite
    assert reply.stats["epsilon"] == np.inf
    assert Task().nbytes == 0
    # with noise on the counts it is finite: 64 + 64 values 32 times and 128 strokes 16 times, ln 3 each, twice; 4 more
    (reply, *_) = replies(DescribeClasses(flip=0.25, privacy=Privacy(epsilon=4.0)))
    assert reply.stats["epsilon"] == pytest.approx(2 * 6144 * np.log(3) + 4)
    assert DescribeClasses(privacy=Privacy(epsilon=4.0)).counted
    assert not DescribeClasses(flip=0.0, privacy=Privacy(epsilon=4.0)).counted


def test_under_noise_one_sample_more_moves_no_other_one():
    """Halves are by each sample's own values, so that the loss of one sample's bits is that of its class and half."""
    x = torch.rand(40, 1, 8, 8)
    whole, part = halves_by_themselves(x), halves_by_themselves(torch.cat([x[:7], x[8:]]))
    assert np.delete(whole, 7).tolist() == part.tolist()
    assert 5 < whole.sum() < 35


def test_a_portrait_under_noise_needs_classes_and_tells_no_size():
    private = DescribeClasses(privacy=Privacy(epsilon=1.0))
    assert {reply.size for reply in replies(private)} == {1}
    data = Dataset(
        name="real",
        x=torch.zeros(4, 2),
        y=torch.arange(4.0),
        train=np.arange(4),
        test=np.arange(0),
        classes=(),
    )
    client = SimpleNamespace(train=Samples(data, np.arange(4)))
    with pytest.raises(UserError, match="a portrait under noise needs classes"):
        private(client, Task())


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 16, 16), (3, 32, 32), (1, 12, 8), (3, 64, 32)])
def test_pictures_of_several_clients_are_looked_at_with_the_bits_of_each_alone(shape):
    rng = torch.Generator().manual_seed(0)
    samples = [torch.randn(int(n), *shape, generator=rng) for n in (4, 1, 7, 3, 16, 2)]
    assert seen_together(shape, 33)
    for part, together in zip(samples, views_of_each(samples), strict=True):
        for own, view in zip(views_of(part), together, strict=True):
            np.testing.assert_array_equal(view.values, own.values)
            assert view.times == own.times


@pytest.mark.parametrize(("shape", "count"), [((1, 28, 28), 9), ((1, 9, 9), 9), ((16,), 9), ((1, 8, 8), 129)])
def test_others_are_looked_at_alone(shape, count):
    assert not seen_together(shape, count)


def test_clients_described_together_tell_what_each_tells_alone(monkeypatch: pytest.MonkeyPatch):
    fleet = small_fleet(every=12)
    fleet.begin(1)
    call, bench = fleet.books.call(DescribeClasses()), fleet.executor.bench
    clients = [client_of(call, i, {}, fleet.client_data, bench) for i in range(8)]
    alone = [DescribeClasses()(client, Task()) for client in clients]
    monkeypatch.setattr(portrait, "_ANSWERS", WeakKeyDictionary())
    for _ in ("new", "remembered"):
        for own, told in zip(alone, DescribeClasses().cohort(clients, [Task()] * 8), strict=True):
            assert (own.id, own.size) == (told.id, told.size)
            np.testing.assert_array_equal(own.stats["counts"], told.stats["counts"])
            np.testing.assert_array_equal(own.stats["bits"], told.stats["bits"])
