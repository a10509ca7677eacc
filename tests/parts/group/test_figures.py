"""What a clustering leaves for the report."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from covey.core.round import Round
from covey.fleet.devices import Devices
from covey.parts.group import figures
from covey.parts.group.figures import note_groups, plane, with_true_labels
from covey.runs.config import resolve
from covey.runs.run import run_config
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


@pytest.mark.parametrize("name", ["cbcc", "haccs", "hierarchical", "embedding", "ladd"])
def test_every_method_that_clusters_vectors_leaves_them(name: str) -> None:
    settings = {"embedding": {"pretrain_rounds": 1}, "hierarchical": {"clusters": 3}}.get(name, {})
    method = resolve({"method": {"name": name, **settings}, "data": {"clients": 8}}).method
    notes = final(method, small_fleet(), rounds=1).notes
    assert {"scatter-before", "scatter-after"} <= set(notes)
    assert len(notes["scatter-after"]["group"]) == 8


def test_an_unseen_client_is_on_the_map() -> None:
    late = Devices(joins=({"clients": [7], "round": 2},))
    settings = {"method": {"name": "ladd"}, "data": {"clients": 8}}
    notes = final(resolve(settings).method, small_fleet(devices=late), rounds=2).notes
    assert notes["scatter-after"]["client"] == list(range(8))


COUNTS = np.array([[8, 0], [6, 2], [0, 9], [0, 0]])


def test_a_simulation_draws_by_true_labels_what_the_method_could_not() -> None:
    notes = with_true_labels({"balance": {"draws": 1}}, {0: 4, 1: 4, 2: 1, 3: 1, 99: 1}, COUNTS)
    assert notes["balance"] == {"draws": 1}
    assert notes["scatter-after"]["group"] == [4, 4, 1], "client 3 has no data, client 99 is not of the fleet"
    assert notes["labels"]["shares"] == [[1.0, 0.0], [0.75, 0.25], [0.0, 1.0]]
    # Shares lie at 0, 1/4 and 1 on a line: a = 1/4 for the first two, b = 1 and 3/4; the third is alone.
    assert notes["silhouette"]["score"] == [pytest.approx((3 / 4 + 2 / 3 + 0) / 3, abs=1e-5)]
    assert "only a simulation knows" in notes["scatter-after"]["title"]
    assert "only a simulation knows" in notes["labels"]["title"]


def test_what_the_method_drew_stays_and_nothing_is_drawn_without_groups_or_labels() -> None:
    own = {"scatter-after": {"x": [1.0]}, "silhouette": {"k": [2, 3]}}
    notes = with_true_labels(own, {0: 0, 1: 1}, COUNTS)
    assert {**notes, **own} == notes
    assert set(notes) == {*own, "labels"}
    assert with_true_labels(own, {}, COUNTS) == own
    assert with_true_labels(own, {0: 0}, np.zeros((4, 0), dtype=np.int64)) == own


@pytest.mark.parametrize("name", ["cfic", "ifca", "ladd"])
def test_the_folder_of_every_method_that_groups_has_all_pictures(name: str, tmp_path: Path) -> None:
    tables = {"rounds": 2, "method": {"name": name}, "data": {"name": "digits", "clients": 8}}
    run_config(resolve({**tables, "engine": {"mode": "serial"}}), tmp_path / name, report=False)
    notes = json.loads((tmp_path / name / "summary.json").read_text())["notes"]
    assert {"scatter-before", "scatter-after", "labels"} <= set(notes)


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
