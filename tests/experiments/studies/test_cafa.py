"""Tables II and III of CAFA: the counts behind accuracy, precision, recall and F1, and one draw."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from experiments.studies.cafa import classify, label_shares, measures

SETTINGS = {"cases": [[10, 10]], "samples": 50_000, "classes": 10, "most_classes": 2}


def test_the_measures_of_the_papers_first_case() -> None:
    """5 IID among 20 and one skewed client in their cluster: 0.95, 5/6, 1 and 10/11, as in Table II."""
    truth = np.arange(20) < 5
    called = np.arange(20) < 6
    wanted = {"accuracy": 0.95, "precision": 5 / 6, "recall": 1.0, "F1": 10 / 11}
    assert measures(truth, called) == pytest.approx(wanted)
    assert measures(truth, ~truth)["F1"] == 0.0


def test_clients_come_in_random_order_with_shares_of_one() -> None:
    shares, truth = label_shares(SETTINGS, 5, 20, seed=1)
    assert shares.sum(axis=1) == pytest.approx(np.ones(20))
    assert truth.sum() == 5
    assert not truth[:5].all()
    assert (shares[truth].max(axis=1) < 0.15).all()
    assert ((shares[~truth] > 0).sum(axis=1) <= 2).all()


def test_the_iid_clients_are_the_largest_cluster(tmp_path: Path) -> None:
    found = classify(SETTINGS, seed=0)
    assert found.rows["10 + 10 clients"]["recall"] == 1.0
    assert found.rows["average"]["accuracy"] == found.rows["10 + 10 clients"]["accuracy"]
    for name, draw in found.pictures.items():
        draw(tmp_path / name)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "label-curves.png",
        "map-after.png",
        "map-before.png",
    ]
