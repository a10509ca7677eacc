"""What a clustering leaves for the report."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from covey.config import method_of, resolve
from covey.core import Round
from covey.group import figures
from covey.group.figures import note_groups, plane
from covey.testing import final, small_fleet


def noted(vectors: dict[int, np.ndarray], groups: dict[int, int], **more: Any) -> dict[str, Any]:
    now = SimpleNamespace(notes={})
    note_groups(cast(Round, now), vectors, groups, **more)
    return json.loads(json.dumps(now.notes))


CORNERS = {3: np.array([0.0, 0.0]), 5: np.array([0.0, 1.0]), 9: np.array([8.0, 0.5])}


def test_the_map_of_clients_before_and_after() -> None:
    notes = noted(CORNERS, {3: 0, 5: 0, 9: 1})
    after = notes["scatter-after"]
    assert after["client"] == [3, 5, 9]
    assert after["group"] == [0, 0, 1]
    assert np.allclose(np.abs(after["x"]), [8 / 3, 8 / 3, 16 / 3], atol=1e-4), "the first axis is the longest"
    assert "group" not in notes["scatter-before"]
    assert notes["scatter-before"]["x"] == after["x"]
    assert "labels" not in notes, "only when the server knows them"


def test_a_clustering_without_a_sweep_shows_its_own_silhouette() -> None:
    assert noted(CORNERS, {3: 0, 5: 0, 9: 7})["silhouette"]["k"] == [2]
    assert "silhouette" not in noted(CORNERS, {3: 0, 5: 0, 9: 0})
    swept = noted(CORNERS, {3: 0, 5: 0, 9: 1}, curve=((2, 3), (0.5, 0.25)))["silhouette"]
    assert swept == {"k": [2, 3], "score": [0.5, 0.25], "chosen": 2}


def test_a_curve_that_the_method_left_stays() -> None:
    now = SimpleNamespace(notes={"silhouette": {"k": [2, 3], "score": [0.1, 0.2], "chosen": 3}})
    note_groups(cast(Round, now), CORNERS, {3: 0, 5: 0, 9: 1})
    assert now.notes["silhouette"]["k"] == [2, 3]


@pytest.mark.parametrize("name", ["cafa", "haccs", "hierarchical", "embedding", "ladd"])
def test_every_method_that_clusters_vectors_leaves_them(name: str) -> None:
    settings = {"embedding": {"pretrain_rounds": 1}, "hierarchical": {"clusters": 3}}.get(name, {})
    method = method_of(resolve({"method": {"name": name, **settings}, "data": {"clients": 8}}))
    notes = final(method, small_fleet(), rounds=1).notes
    assert {"scatter-before", "scatter-after"} <= set(notes)
    assert len(notes["scatter-after"]["group"]) == 8


def test_label_shares_are_listed_by_client() -> None:
    shares = {3: np.array([0.25, 0.75]), 9: np.array([1.0, 0.0])}
    labels = noted(CORNERS, {3: 0, 5: 0, 9: 1}, shares=shares)["labels"]
    assert labels == {"client": [3, 9], "shares": [[0.25, 0.75], [1.0, 0.0]], "group": [0, 1]}


def test_a_large_fleet_is_thinned_out_and_a_lonely_client_drawn(monkeypatch: Any) -> None:
    monkeypatch.setattr(figures, "MOST_POINTS", 10)
    many = {i: np.array([float(i), 0.0, 1.0]) for i in range(35)}
    assert noted(many, dict.fromkeys(many, 0))["scatter-after"]["client"] == list(range(0, 35, 4))
    assert noted({4: np.ones(3)}, {4: 0})["scatter-after"]["x"] == [0.0]
    assert noted({}, {}) == {}
    assert plane(np.ones((3, 1))).shape == (3, 2)
