"""Warnings point to the line of whoever called, not to one inside the package."""

from pathlib import Path

import pytest

import covey
from covey.core.round import run_rounds
from covey.errors import warn_caller
from covey.methods.baselines import fedavg
from covey.parts.steps import Train
from covey.testing import small_fleet


def test_a_warning_points_to_this_file() -> None:
    with pytest.warns(UserWarning, match="look here") as seen:
        warn_caller("look here")
    assert seen[0].filename == __file__


def test_also_from_deep_inside_a_run() -> None:
    with pytest.warns(UserWarning, match="per_round is 10, but there are 8 clients") as seen:
        run_rounds(fedavg(Train(lr=0.1), per_round=10), small_fleet(), rounds=1)
    assert seen[0].filename == __file__


def test_also_of_rows_to_predict(tmp_path: Path) -> None:
    """A number far outside of what the training rows had."""
    lines = [f"{number},{'ab'[number % 2]},{'xy'[number % 2]}" for number in range(60)]
    (tmp_path / "rows.csv").write_text("\n".join(["age,label,place", *lines]) + "\n")
    run = covey.run(
        "fedavg",
        data={"name": "table", "path": str(tmp_path / "rows.csv"), "label": "label", "client": "place"},
        rounds=1,
        out=tmp_path / "run",
        progress=False,
    )
    with pytest.warns(UserWarning, match="is it the same unit") as seen:
        run.models().predict({"age": [1e6]})
    assert {one.filename for one in seen} == {__file__}
