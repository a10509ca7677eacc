"""Every figure lands as a readable file of its kind, the same bytes each time, or not at all."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from covey.errors import UserError
from covey.report.figures import (
    draw_bars,
    draw_curves,
    draw_graph,
    draw_heatmap,
)
from experiments.figures import draw_image_grid, draw_scatter
from tests.report.made_up_run import known_notes

X = [1, 2, 3]
NOTES = known_notes(12, 3)
FIGURES: dict[str, Callable[[Path], None]] = {
    "curves": lambda path: draw_curves(
        {"fedavg": (X, [0.1, 0.5, 0.6]), "ifca": (X, [0.2, 0.7, 0.8])},
        path=path,
        y_label="accuracy",
        title="Accuracy",
        bands={"ifca": ([0.1, 0.6, 0.7], [0.3, 0.8, 0.9])},
    ),
    "bars": lambda path: draw_bars({"fedavg": 0.91, "haccs": 0.95}, path=path),
    "heatmap": lambda path: draw_heatmap(np.arange(20).reshape(4, 5), path=path, x_labels=list("abcde")),
    "graph": lambda path: draw_graph(NOTES["graph"]["nodes"], NOTES["graph"]["edges"], path=path),
    "scatter": lambda path: draw_scatter([0, 1, 2], [1, 0, 2], groups=[0, 1, -1], path=path),
    "images": lambda path: draw_image_grid(np.zeros((2, 3, 8, 8)), path=path, row_labels=["a", "b"]),
}


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_written_once_and_the_same_each_time(tmp_path: Path, name: str) -> None:
    first, second, picture = tmp_path / "first.svg", tmp_path / "second.svg", tmp_path / "picture.png"
    for path in (first, second, picture):
        FIGURES[name](path)
    assert first.read_bytes() == second.read_bytes()
    assert first.read_text().lstrip().startswith("<?xml")
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["first.svg", "picture.png", "second.svg"]


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (lambda folder: draw_bars({"a": 1.0}, path=folder / "figure.gif"), "must end in .png, .svg, .pdf"),
        (lambda folder: draw_bars({"a": 1.0}, path=folder / "no" / "figure.png"), "does not exist"),
        (
            lambda folder: draw_image_grid(np.zeros((2, 2)), path=folder / "figure.png"),
            r"the shape is \(2, 2\)",
        ),
    ],
)
def test_what_cannot_be_drawn_is_said_and_leaves_no_file(tmp_path: Path, draw: Any, words: str) -> None:
    with pytest.raises(UserError, match=words):
        draw(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_curves_carry_their_names_and_numbers(tmp_path: Path) -> None:
    draw_bars({"fedavg": 0.9125}, path=tmp_path / "bars.svg", title="Best <accuracy>")
    text = (tmp_path / "bars.svg").read_text()
    assert "<!-- fedavg -->" in text
    assert "<!-- 0.9125 -->" in text
    assert "<accuracy>" not in text
