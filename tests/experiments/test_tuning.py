"""Equal tuning: as many tries for every run, on validation data, with a seed of its own."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from covey.errors import SpoiledRunError, UserError
from covey.folder.summary import Costs, Summary
from experiments import tuning
from experiments.benchmark_page import tuning_lines, where_known
from experiments.spec import Row, read_experiment
from experiments.tuning import check_tries, try_tables, tune_rows, tuned_rows, with_layer, with_tuned

BENCHMARK = read_experiment("heterogeneity/benchmark", "smoke")


def test_every_method_of_the_benchmark_has_as_many_tries() -> None:
    for scale in ("small", "full"):
        experiment = read_experiment("heterogeneity/benchmark", scale)
        assert {len(row.tries) for row in experiment.rows} == {3}
        assert [case.name for case in check_tries(experiment)] == [
            "P(y) strong",
            "P(x) strong",
            "P(y|x) strong",
        ]


def test_a_run_with_fewer_tries_is_refused() -> None:
    rows = [BENCHMARK.rows[0], replace(BENCHMARK.rows[1], tries=())]
    with pytest.raises(UserError, match="'FLUX' has 1 tries and 'FedAvg' has 4"):
        check_tries(replace(BENCHMARK, rows=rows))
    untuned = replace(BENCHMARK, rows=rows, tune={**BENCHMARK.tune, "untuned": ["FLUX"]})
    assert check_tries(untuned)
    assert [row.name for row in tuned_rows(untuned)] == ["FedAvg"]
    with pytest.raises(UserError, match=r"tune\.on has 'nowhere'"):
        check_tries(replace(BENCHMARK, tune={"on": ["nowhere"]}))


def test_a_try_sees_no_test_data_and_no_seed_of_the_comparison() -> None:
    row = Row(name="FedAvg", set={"method": {"name": "fedavg"}}, tries=[{"train": {"lr": 0.3}}])
    tables = try_tables(BENCHMARK, row, row.tries[0], BENCHMARK.cases[1])
    assert (tables["seed"], tables["data"]["validation"], tables["train"]["lr"]) == (1000, 0.2, 0.3)
    assert try_tables(BENCHMARK, row, row.tries[0], BENCHMARK.cases[1], 1)["seed"] == 1001
    assert with_layer(row, {"method": {"per_round": 3}}).set == {"method": {"name": "fedavg", "per_round": 3}}


def test_the_best_mean_over_the_cases_wins_and_its_cost_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two tries on two cases: 0.6 and 0.6 against 0.9 and 0.1; 2 rounds and 10 bytes for each of the four."""
    score = {(0.1, "IID"): 0.6, (0.1, "P(y|x) strong"): 0.6, (0.3, "IID"): 0.9, (0.3, "P(y|x) strong"): 0.1}

    def run(config: Any, folder: Path, *_: Any) -> dict[str, Any]:
        case = "IID" if "IID" in folder.parts else "P(y|x) strong"
        cost = Costs(bytes_up=4, bytes_down=6, bytes_peer=0)
        last = {"local-test/accuracy-mean": score[config["train"]["lr"], case]}
        return Summary(last=last, rounds_done=2, cost=cost)

    monkeypatch.setattr(tuning, "one_run", run)
    row = Row(
        name="a", set={"method": {"name": "fedavg"}, "train": {"lr": 0.1}}, tries=[{"train": {"lr": 0.3}}]
    )
    experiment = replace(BENCHMARK, rows=[row], tune={"on": ["IID", "P(y|x) strong"]})
    (found,) = tune_rows(experiment, tmp_path, lambda *_: None, print)
    assert found.scores == pytest.approx([0.6, 0.5])
    assert (dict(found.best), found.rounds, found.bytes) == ({}, 8, 40)
    better = [{"row": "a", "best": {"train": {"lr": 0.3}}}]
    assert with_tuned(experiment, better).rows[0].set["train"]["lr"] == 0.3
    line = tuning_lines([found.plain()])[5]
    assert line == "| a | 2 | 0.600 | 0.600 | nothing | 8 | 40 | 0.0 |"


def test_several_seeds_of_a_try_are_averaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The default is better with the first seed, by chance: (.9 + .1) / 2 against .6."""
    score = {(0.1, 1000): 0.9, (0.1, 1001): 0.1, (0.3, 1000): 0.6, (0.3, 1001): 0.6}

    def run(config: Any, *_: Any) -> Summary:
        last = {"local-test/accuracy-mean": score[config["train"]["lr"], config.top.seed]}
        return Summary(last=last, rounds_done=1, cost=Costs(bytes_up=1, bytes_down=1, bytes_peer=0))

    monkeypatch.setattr(tuning, "one_run", run)
    tries = [{"train": {"lr": 0.3}}]
    row = Row(name="a", set={"method": {"name": "fedavg"}, "train": {"lr": 0.1}}, tries=tries)
    experiment = replace(BENCHMARK, rows=[row], tune={"on": ["IID"], "seeds": 2})
    (found,) = tune_rows(experiment, tmp_path, lambda *_: None, print)
    assert (found.scores, found.best) == (pytest.approx([0.5, 0.6]), tries[0])


def test_a_try_whose_training_diverges_counts_as_nothing_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(config: Any, *_: Any) -> dict[str, Any]:
        if config["train"]["lr"] == 9.0:
            raise SpoiledRunError("round 1: training diverges", round=1)
        cost = Costs(bytes_up=1, bytes_down=1, bytes_peer=0)
        return Summary(last={"local-test/accuracy-mean": 0.3}, rounds_done=1, cost=cost)

    monkeypatch.setattr(tuning, "one_run", run)
    tries = [{"train": {"lr": 0.2}}]
    row = Row(name="a", set={"method": {"name": "fedavg"}, "train": {"lr": 9.0}}, tries=tries)
    said: list[str] = []
    experiment = replace(BENCHMARK, rows=[row], tune={"on": ["IID"]})
    (found,) = tune_rows(experiment, tmp_path, lambda *_: None, said.append)
    assert found.scores == pytest.approx([0.0, 0.3])
    assert found.best == tries[0]
    assert said == ["try 1 of a on IID, validation data: counts as 0: round 1: training diverges"]


def test_a_picture_shows_the_methods_that_have_a_number_on_all_its_fleets() -> None:
    nan = float("nan")
    score = {
        "iid": {"a": [nan], "b": [nan]},
        "one": {"a": [1.0], "b": [nan]},
        "two": {"a": [0.5], "b": [0.5]},
    }
    assert where_known(score) == {"one": {"a": [1.0]}, "two": {"a": [0.5]}}
