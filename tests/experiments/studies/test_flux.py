"""FLUX's four shifts by level, as its generator draws them."""

import numpy as np
import pytest
import torch

from covey.data import load
from experiments.studies.flux import SHIFTS, drawn, levels


def fleet(shift: str, level: int):
    return drawn(load("digits"), SHIFTS[shift], level, 0, count=10, train=60, test=30)


@pytest.mark.parametrize(("level", "angles", "colours"), [(1, 2, 1), (4, 5, 1), (5, 2, 3), (8, 5, 3)])
def test_looks_are_angles_and_then_colours(level: int, angles: int, colours: int) -> None:
    """Levels 1 to 4 have 2 to 5 angles; from 5 on the same with three colours, one channel of which is full."""
    shares = fleet("P(x)", level).shares
    clusters = {share.cluster for share in shares}
    assert max(clusters) < angles * colours
    assert len(clusters) > 1
    x, _ = shares[0].train.tensors()
    assert x.shape[1] == colours
    if colours == 3:
        assert bool((x[:, shares[0].cluster % 3] == 1).all())


def test_an_upright_client_holds_the_pictures_as_they_are() -> None:
    share = next(one for one in fleet("P(x)", 1).shares if one.cluster == 0)
    own = {tuple(x.flatten().mul(16).round().int().tolist()) for x in share.train.tensors()[0]}
    stored = {tuple((x.float() / 255 * 16).round().int().flatten().tolist()) for x in load("digits").x}
    assert own <= stored


def test_five_label_mixes_are_shared_by_the_clients() -> None:
    """Level 8 leaves 3 of 10 classes; whoever has the same mix has the same classes, and everybody as many samples."""
    shares = fleet("P(y)", 8).shares
    mixes = {share.cluster: set(share.train.labels().tolist()) for share in shares}
    assert all(len(mix) <= 3 for mix in mixes.values())
    assert {len(share.train) for share in shares} == {60}
    for share in shares:
        assert set(share.train.labels().tolist()) == mixes[share.cluster]
    assert 1 < len(mixes) <= 5


def test_every_client_has_an_order_of_its_own_of_the_traded_labels() -> None:
    """The same pictures: level 8 changes at most 8 labels, by a permutation; level 1 changes none."""
    plain, traded = (fleet("P(y|x)", level).shares for level in (1, 8))
    maps = set()
    for before, after in zip(plain, traded, strict=True):
        assert torch.equal(before.train.tensors()[0], after.train.tensors()[0])
        pairs = set(zip(before.train.labels().tolist(), after.train.labels().tolist(), strict=True))
        assert len({a for a, _ in pairs}) == len({b for _, b in pairs}) == len(pairs)
        assert sum(a != b for a, b in pairs) <= 8
        maps.add(tuple(sorted(pairs)))
    assert len(maps) == 10


def test_only_pictures_of_some_classes_are_rotated() -> None:
    dataset = load("digits")
    whole = drawn(dataset, SHIFTS["P(x|y)"], 3, 0, count=10, train=60, test=30)
    plain = drawn(dataset, lambda clients, *_: clients, 3, 0, count=10, train=60, test=30)
    changed: set[int] = set()
    for before, after in zip(plain.shares, whole.shares, strict=True):
        differ = (before.train.tensors()[0] != after.train.tensors()[0]).flatten(1).any(1).numpy()
        changed |= set(np.asarray(before.train.labels())[differ].tolist())
    assert len(changed) == 3


def test_the_number_of_clusters_is_told_where_it_is_asked_for() -> None:
    settings = {
        "at": [2],
        "data": {"name": "digits"},
        "clients": {"count": 4, "train": 40, "test": 20},
        "run": {
            "rounds": 2,
            "model": {"name": "mlp"},
            "train": {"lr": 0.1, "momentum": 0.9},
            "measure": {"global_test": False},
        },
        "methods": {
            "FLUX": {"name": "flux", "after": 1, "published": True, "clusters": "clusters"},
            "APFL": {"name": "apfl", "train": {"momentum": 0.0}},
        },
    }
    rows = levels(settings, 0).rows
    assert set(rows) == {"FLUX", "APFL"}
    shifts = [rows["FLUX"][f"level 2: {shift}"] for shift in SHIFTS]
    assert rows["FLUX"]["level 2"] == pytest.approx(np.mean(shifts))
