"""Tables hold the run's own numbers; the best of each column stands out."""

import io
import json
import math
import re
from pathlib import Path

import pytest
from rich.console import Console

from covey.folder.read import RunView, read_run
from covey.report.replicas import mean_words, paired_words
from covey.report.seeds import paired
from covey.report.table import (
    cost_columns,
    headline_metric,
    hues_of,
    summary_columns,
    summary_table,
)
from covey.report.wording import (
    epsilon_words,
    metric_title,
    show_bytes,
    show_count,
    show_seconds,
    show_value,
    unlike_labels,
)
from covey.training.metrics import Metrics, higher_is_better
from tests.report.made_up_run import MadeUp, write_run


@pytest.fixture
def runs(tmp_path: Path) -> list[RunView]:
    slow = MadeUp(method="fedavg", clients=8, rounds=30, top=0.7, target=0.75)
    quick = MadeUp(method="ifca", clients=8, rounds=30, top=0.95, groups=2, target=0.75)
    return [read_run(write_run(tmp_path / made.method, made)) for made in (slow, quick)]


def test_one_row_a_method_with_the_numbers_of_its_summary(runs: list[RunView]) -> None:
    columns = {column.head: column for column in summary_columns(runs)}
    metric = "local-test/accuracy-mean"
    assert headline_metric(runs) == metric
    assert columns["method"].cells == ("fedavg", "ifca")
    assert columns["last"].cells == tuple(f"{100 * run.summary.last[metric]:.2f}%" for run in runs)
    assert columns["best"].cells == tuple(f"{100 * run.summary.best[metric].value:.2f}%" for run in runs)
    assert columns["best"].best == {1}
    reached = runs[1].to_target(metric, 0.75)
    assert columns["to 75%\nrounds"].cells == ("–", str(reached.round))
    assert columns["to 75%\nrounds"].best == {1}


def test_the_terminal_shows_every_cell(runs: list[RunView]) -> None:
    screen = io.StringIO()
    Console(file=screen, width=80, color_system=None).print(summary_table(runs))
    for column in summary_columns(runs):
        for cell in column.cells:
            assert cell in screen.getvalue()


def test_cost_keeps_evaluation_apart(runs: list[RunView]) -> None:
    columns = {column.head: column.cells for column in cost_columns(runs[0])}
    assert columns["step"] == ("train.sgd", "all", "evaluate.loss (measuring)")
    assert columns["messages"][0] == columns["messages"][1] != columns["messages"][2]


def test_a_table_needs_no_target(runs: list[RunView]) -> None:
    heads = [column.head for column in summary_columns(runs, metric="global-test/loss")]
    assert heads == [
        "method",
        "best",
        "last",
        "all\nbytes",
        "all\ntime",
    ]  # no local number beside global ones
    best = summary_columns(runs, metric="global-test/loss")[1].best
    assert best == {1}


@pytest.mark.parametrize(
    ("shown", "wanted"),
    [
        (show_bytes(999), "999 B"),
        (show_bytes(1_500_000), "1.5 MB"),
        (show_bytes(999_900_000), "1000 MB"),
        (show_bytes(2_000_000_000_000), "2 TB"),
        (show_bytes(None), "–"),
        (show_seconds(0.25), "0.25 s"),
        (show_seconds(119), "119 s"),
        (show_seconds(150), "2.5 min"),
        (show_seconds(9000), "2.5 h"),
        (show_value("global-test/accuracy", 0.9731), "97.31%"),
        (show_value("local-test/mse-mean", 0.0123456), "0.01235"),
        (show_value("global-test/loss", float("nan")), "–"),
        (metric_title("local-test/accuracy-worst10"), "accuracy, local test, worst 10% of clients"),
        (metric_title("global-test/accuracy"), "accuracy, global test"),
        (higher_is_better("local-test/accuracy-std"), False),
        (higher_is_better("local-test/accuracy-worst10"), True),
        (higher_is_better("local-test/mse-mean"), False),
    ],
)
def test_wording(shown: object, wanted: object) -> None:
    assert shown == wanted


def test_a_target_on_other_data_does_not_turn_the_headline(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "local", MadeUp(method="local", clients=8, rounds=5))
    summary = json.loads((folder / "summary.json").read_text())
    target = {"metric": "global-test/accuracy", "target": 0.2, "round": 2, "seconds": 1.0, "bytes": 10}
    (folder / "summary.json").write_text(json.dumps({**summary, "targets": [target]}))
    run = read_run(folder)
    assert headline_metric([run]) == "local-test/accuracy-mean"
    columns = {column.head: column for column in summary_columns([run])}
    assert columns["last"].cells == (
        show_value("local-test/accuracy-mean", run.summary.last[headline_metric([run])]),
    )
    reached = run.to_target("global-test/accuracy", 0.2)
    assert columns["to 20% accuracy, global test\nrounds"].cells == (show_count(reached.round),)


def test_means_over_few_seeds_stay_inside_the_range() -> None:
    words = mean_words([0.656, 0.8656], "local-test/accuracy-mean", Metrics())
    mean, low, high = map(float, re.findall(r"[\d.]+", words))
    assert mean == 76.08
    assert 0 <= low < mean < high <= 100
    low, high = map(
        float, re.findall(r"[\d.e+-]+", mean_words([0.1, 0.9], "global-test/loss", Metrics()))[1:]
    )
    assert 0 < low < 0.5 < high
    wide = paired_words(paired([0.1, 0.2, 0.9], [0.5, 0.9, 0.6]), share=True)
    assert wide == "+26.67 [-100.00, +100.00] points, not significant"


def test_numbers_that_happen_to_be_equal_have_no_interval() -> None:
    words = mean_words([0.9, 0.9], "local-test/accuracy-mean", Metrics())
    assert words == "90.00% with each of 2 seeds"
    assert paired_words(paired([0.9, 0.91], [0.9093, 0.9193]), share=True) == (
        "+0.93 points, 2 seeds: not tested"
    )
    three = paired_words(paired([1.0, 2.0, 3.0], [1.5, 2.5, 3.5]), share=False)
    assert three == "+0.5 with each of 3 seeds, not significant"


def test_runs_of_one_name_are_told_apart() -> None:
    labels = unlike_labels(["a", "a", "b", "a"], ["seed 1", "seed 2", "seed 1", "seed 2"])
    assert labels == ["a (seed 1)", "a (seed 2) #1", "b", "a (seed 2) #2"]


def test_whoever_stopped_early_saved_nothing(tmp_path: Path) -> None:
    """An unfinished run has spent less, and wins no bold for it."""
    whole = [MadeUp(method=name, clients=8, rounds=30) for name in ("fedavg", "ifca")]
    stopped = MadeUp(method="local", clients=8, rounds=2, finished=False)
    views = [read_run(write_run(tmp_path / made.method, made)) for made in (*whole, stopped)]
    columns = {column.head: column for column in summary_columns(views)}
    for head in ("all\nbytes", "all\ntime"):
        assert 2 not in columns[head].best
        assert columns[head].best <= {0, 1}
        assert columns[head].best
    assert views[2].summary.cost.bytes < views[0].summary.cost.bytes


@pytest.mark.parametrize(
    ("epsilon", "words"),
    [
        (0.5, "strong protection: what it sent may change the odds about one of its samples 1.65-fold"),
        (2.0, "some protection: what it sent may change the odds about one of its samples 7.39-fold"),
        (8.0, "weak protection: what it sent may change the odds about one of its samples 2.98e+03-fold"),
        (
            math.inf,
            "no protection: how far what it sent may change the odds about one of its samples is unbounded",
        ),
        (
            43.94,
            "next to no protection: what it sent may change the odds about one of its samples 10^19-fold",
        ),
    ],
)
def test_a_privacy_loss_comes_with_what_it_means(epsilon: float, words: str) -> None:
    assert epsilon_words(epsilon) == words


def test_a_method_has_its_colour_wherever_it_stands() -> None:
    assert hues_of(["fedavg", "covey"]) == [0, 6]
    assert hues_of(["covey", "fedavg", "mine"]) == [6, 0, 1]
    many = hues_of([f"method {n}" for n in range(12)])
    assert 7 not in many  # grey is for what has no group
    assert many[:9] == [0, 1, 2, 3, 4, 5, 6, 8, 9]
