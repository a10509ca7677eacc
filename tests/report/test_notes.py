"""Notes become pictures where they can, tables where they cannot, and never too much of either."""

from typing import Any

import pytest

from covey.report.notes import drawn_notes, note_kind, table_of_note
from tests.report.made_up_run import known_notes


def test_a_suffix_asks_for_a_second_picture_of_the_kind() -> None:
    spots = {"x": [1.0], "y": [2.0]}
    drawn = drawn_notes({"scatter-before": spots, "scatter-after": {**spots, "group": [0]}})
    assert [(note["name"], note["kind"]) for note in drawn] == [
        ("scatter-before", "scatter"),
        ("scatter-after", "scatter"),
    ]


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("scatter", {"x": [1.0]}),
        ("silhouette", {"k": [], "score": []}),
        ("graph", {"nodes": [{"group": 1}], "edges": [{"from": 0, "to": 1}]}),
        ("graph", {"nodes": [{"id": 1}], "edges": [{"from": 0}]}),
        ("spread", 3),
        ("something", {"x": [1.0], "y": [1.0]}),
    ],
)
def test_what_cannot_be_drawn_is_a_table(name: str, note: Any) -> None:
    assert note_kind(name, note) is None
    assert drawn_notes({name: note}) == []


@pytest.mark.parametrize(
    ("note", "cells"),
    [
        ({"cluster": [0, 1], "clients": [7, 3]}, [["cluster", "clients"], ["0", "7"], ["1", "3"]]),
        ({"a": [1, 2], "b": [3]}, [["a", "b"], ["1", "3"], ["2", ""]]),
        ({"rho": 0.123456789, "on": True}, [["", "value"], ["rho", "0.12346"], ["on", "yes"]]),
        ([{"round": 1}, {"round": 2, "k": 3}], [["round", "k"], ["1", ""], ["2", "3"]]),
        ([4, None], [["value"], ["4"], ["–"]]),
        ("words", [["value"], ["words"]]),
    ],
)
def test_tables(note: Any, cells: list[list[str]]) -> None:
    assert table_of_note(note) == (cells, "")


def test_a_long_table_is_cut_and_says_so() -> None:
    cells, words = table_of_note(list(range(100)))
    assert len(cells) == 41
    assert words == "60 more rows are in summary.json."


def test_a_large_graph_keeps_representatives_and_its_busiest_links() -> None:
    nodes = [{"id": i, "group": i % 5, "head": i >= 995} for i in range(1000)]
    edges = [{"from": 995, "to": i, "load": i} for i in range(300)] + [{"from": 0, "to": 999, "load": 1e9}]
    (drawn,) = drawn_notes({"graph": {"nodes": nodes, "edges": edges}})
    kept = {node["id"] for node in drawn["note"]["nodes"]}
    assert len(kept) == 400
    assert set(range(995, 1000)) <= kept
    assert drawn["note"]["edges"][0]["load"] == 1e9
    assert drawn["left_out"] == "400 of 1,000 nodes are drawn."


def test_many_clients_are_thinned_together() -> None:
    note = known_notes(2500, 5)["scatter"]
    (drawn,) = drawn_notes({"scatter": note})
    assert drawn["left_out"] == "1 of every 2 of 2,500 clients is drawn."
    assert drawn["note"]["client"] == note["client"][::2]
    assert len(drawn["note"]["x"]) == len(drawn["note"]["group"]) == 1250


def test_what_is_not_finite_is_left_blank() -> None:
    (drawn,) = drawn_notes({"spread": {"round": [1, 2], "value": [float("inf"), 0.5]}})
    assert drawn["note"]["value"] == [None, 0.5]
