"""Moving averages of curves, parts of a run as columns, several tables of the same runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from covey.errors import UserError
from covey.folder.summary import Summary
from experiments.cells import read_cell
from experiments.smooth import kernel_smoothed, smoothed
from experiments.spec import read_experiment


def test_a_moving_average_worked_out_by_hand() -> None:
    """weight 0.25: a = 0.5 a step of a thousandth; two points 1/1000 apart weigh 1/2 and 1."""
    x = [0.0, 0.001, 1.0]
    first, second, last = smoothed(x, [1.0, 4.0, 9.0], 0.25)
    assert first == 1.0
    assert second == pytest.approx((0.5 * 1 + 4) / 1.5)
    assert last == pytest.approx(9.0), "far away, nothing of the past is left"


def test_a_gaussian_kernel_worked_out_by_hand() -> None:
    """Width 1: a neighbour weighs exp(-1/2) = .60653, the one after exp(-2) = .13534."""
    found = kernel_smoothed([0.0, 1.0, 0.0], 1.0)
    assert found == pytest.approx([0.60653 / 1.74187, 1 / 2.21306, 0.60653 / 1.74187], abs=1e-5)
    assert kernel_smoothed([0.7] * 5, 2.0) == pytest.approx([0.7] * 5), "the ends are not bent"
    alternating = kernel_smoothed([0.2, 0.8] * 10, 3.0)
    assert alternating[5:15] == pytest.approx([0.5] * 10, abs=0.01), "what alternates is taken out"
    assert kernel_smoothed([], 2.0) == []


def test_no_weight_is_no_smoothing_and_a_flat_curve_stays_flat() -> None:
    assert smoothed([0, 1, 2], [3.0, 1.0, 2.0], 0.0) == [3.0, 1.0, 2.0]
    assert smoothed([0, 1, 2], [0.7] * 3, 0.99) == pytest.approx([0.7] * 3)
    assert smoothed([], [], 0.5) == []
    assert smoothed([5], [0.5], 0.5) == [0.5]


def test_means_over_parts_of_a_run(tmp_path: Path) -> None:
    rounds = list(range(11))
    table = {
        "round": pa.array(rounds, pa.int32()),
        "seconds": [float(r) for r in rounds],
        "bytes": rounds,
        "client": pa.array([-1] * 11, pa.int32()),
        "group": pa.array([-1] * 11, pa.int32()),
        "split": ["global-test"] * 11,
        "metric": ["accuracy"] * 11,
        "value": [float(r * r) for r in rounds],
    }
    pq.write_table(pa.table(table), tmp_path / "metrics.parquet")

    def mean(span: str) -> float | None:
        return read_cell(f"mean:global-test/accuracy:{span}", Summary(), tmp_path)

    assert mean("0%-20%") == (1 + 4) / 2, "round 0, before training, is in no part"
    assert mean("80%-100%") == (81 + 100) / 2
    assert mean("2-3") == (4 + 9) / 2
    assert mean("50-60") is None

    def spread(span: str) -> float | None:
        return read_cell(f"spread:global-test/accuracy:{span}", Summary(), tmp_path)

    assert spread("80%-100%") == pytest.approx(19 / 2**0.5), "81 and 100"
    assert spread("1-3") == pytest.approx((49 / 3) ** 0.5), "1, 4, 9: squares of -11/3, -2/3, 13/3 over 2"
    assert spread("3-3") is None


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Writes experiments of a paper p: name = text."""
    (tmp_path / "p").mkdir()
    monkeypatch.setenv("COVEY_EXPERIMENTS", str(tmp_path))

    def write(**texts: str) -> None:
        for name, text in texts.items():
            (tmp_path / "p" / f"{name}.toml").write_text(text)

    return write


def test_another_table_of_the_same_runs(files: Callable[..., None]) -> None:
    files(
        one='title = "One"\nbase.rounds = 3\nscale.small.seeds = 2\n'
        '[[run]]\nname = "A"\nset.method.name = "fedavg"\npaper.best = 0.5\n[[run]]\nname = "B"\n',
        two='title = "Two"\nruns_of = "p/one"\ncolumns.x = "cost:bytes"\n[[run]]\nname = "B"\npaper.x = 7\n',
    )
    one, two = read_experiment("p/one", "small"), read_experiment("p/two", "small")
    assert (two.runs_in, two.layers, two.seeds, two.title) == ("p/one", one.layers, 2, "Two")
    assert [row.set for row in two.rows] == [row.set for row in one.rows]
    assert [two.paper_number("", name, "x") for name in ("A", "B")] == [None, 7.0]
    files(two='runs_of = "p/on"\n')
    with pytest.raises(UserError, match="did you mean p/one"):
        read_experiment("p/two", "small")


def test_the_same_study_on_other_data(files: Callable[..., None]) -> None:
    """Settings are put on top of the other's, under those of the scale."""
    files(
        one='study = "p:f"\n[settings]\ndata.name = "mnist"\nclients = { count = 10, train = 40 }\n'
        "[scale.small]\nsettings.clients.train = 6\n",
        two='runs_of = "p/one"\n[settings]\ndata.name = "cifar10"\nclients.train = 30\n',
    )
    small, full = read_experiment("p/two", "small"), read_experiment("p/two", "full")
    assert (full.study, full.settings) == (
        "p:f",
        {"data": {"name": "cifar10"}, "clients": {"count": 10, "train": 30}},
    )
    assert small.settings["clients"] == {"count": 10, "train": 6}


def test_the_papers_cost_of_another_target_is_not_printed_beside_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "t.toml").write_text(
        'columns = { rounds = "to:round", last = "last:global-test/accuracy" }\nbase.target = 0.8\n'
        '[[case]]\nname = "A"\nset = {}\nsmall = { target = 0.5 }\n[[case]]\nname = "B"\nset = {}\n'
        '[[run]]\nname = "X"\npaper.A = { rounds = 31, last = 0.9 }\npaper.B = { rounds = 7 }\n'
    )
    monkeypatch.setenv("COVEY_EXPERIMENTS", str(tmp_path))
    small, full = read_experiment("p/t", "small"), read_experiment("p/t", "full")
    assert small.paper_number("A", "X", "rounds") is None
    assert small.paper_number("A", "X", "last") == 0.9
    assert small.paper_number("B", "X", "rounds") == 7
    assert full.paper_number("A", "X", "rounds") == 31
