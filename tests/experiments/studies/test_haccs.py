"""The HACCS experiments: every TOML is sound at every scale, and what they compute is right."""

from pathlib import Path

import numpy as np
import pytest

from covey.parts.group.density import Density
from covey.parts.steps.privacy import Privacy
from covey.report.seeds import ratios
from covey.runs.config import resolve
from experiments.cells import reached
from experiments.spec import all_experiments, read_experiment
from experiments.studies.haccs import epsilon_against_clusters, groups_found, noisy_histogram

MINE = [name for name in all_experiments() if name.startswith("haccs/")]


def test_every_figure_and_table_of_the_issue_has_its_experiment() -> None:
    wanted = (
        "fig1",
        "fig3",
        "fig5a",
        "fig5b",
        "fig6",
        "fig7",
        "fig8a",
        "fig8b",
        "fig9",
        "fig10",
        "table3",
        "summaries",
    )
    assert set(MINE) >= {f"haccs/{name}" for name in wanted}


@pytest.mark.parametrize("scale", ["smoke", "small", "full"])
@pytest.mark.parametrize("name", MINE)
def test_every_experiment_is_a_valid_configuration(name: str, scale: str) -> None:
    experiment = read_experiment(name, scale)
    if experiment.study:
        if "run" in experiment.settings:
            for method in experiment.settings.get(
                "methods", {"": experiment.settings["run"].get("method")}
            ).values():
                resolve({**experiment.settings["run"], "method": method})
        return
    for case in experiment.cases:
        for row in experiment.rows:
            resolve(experiment.tables(row, case, 0))


def test_time_to_target_is_read_off_the_smoothed_curve() -> None:
    seconds = np.array([10.0, 20, 30, 40, 50])
    values = np.array([0.1, 0.9, 0.2, 0.6, 0.7])
    # Means of two: 0.5, 0.55, 0.4, 0.65: a single spike is not enough for 0.6.
    assert reached(seconds, values, 0.6, 2) == 50.0
    assert reached(seconds, values, 0.6, 1) == 20.0
    assert reached(seconds, values, 0.8, 2) is None
    assert reached(seconds[:1], values[:1], 0.05, 2) is None


def test_ratios_go_seed_by_seed_and_miss_where_a_number_is_missing() -> None:
    assert ratios([3.0, None, 1.0], [6.0, 1.0, None]) == [0.5, None, None]


def test_all_pairs_are_found_without_noise_and_none_under_all_noise() -> None:
    rng = np.random.default_rng(0)
    assert groups_found(1000, Privacy(), Density(extract="xi"), rng) == 1.0
    assert groups_found(100, Privacy(epsilon=1e-4), Density(extract="xi"), rng) < 0.3


def test_fig8a_meets_the_target_under_opendp_noise() -> None:
    pytest.importorskip("opendp")
    settings = {
        "sizes": [1000],
        "epsilons": [0.1, 1.0],
        "repetitions": 5,
        "noise": "opendp",
        "clustering": {"extract": "xi"},
    }
    findings = epsilon_against_clusters(settings, seed=0)
    assert findings.rows["1000 samples, epsilon 0.1"]["groups found"] >= 0.95
    assert findings.rows["1000 samples, epsilon 1"]["groups found"] >= 0.95


@pytest.mark.slow
@pytest.mark.parametrize("name", MINE)
def test_every_experiment_runs_at_smoke_scale(name: str, tmp_path: Path) -> None:
    from experiments.reproduction import reproduce_experiment

    result = reproduce_experiment(name, scale="smoke", seeds=None, out=tmp_path / "out")
    assert result["cells"]


def test_fig3_noise_is_laplace_with_one_over_epsilon() -> None:
    """The mean total variation of n noisy bins of c samples is about n E|noise| / (2 n c) = 1 / (2 epsilon c)."""
    settings = {
        "labels": 10,
        "samples": 1000,
        "epsilons": [0.1, 0.005],
        "noise": "simulated",
        "repetitions": 200,
    }
    rows = noisy_histogram(settings, seed=0).rows
    assert rows["epsilon 0.1"]["away from the truth"] == pytest.approx(1 / (2 * 0.1 * 1000), rel=0.15)
    assert rows["epsilon 0.005"]["away from the truth"] == pytest.approx(1 / (2 * 0.005 * 1000), rel=0.25)
    assert rows["epsilon 0.005"]["emptiest bin"] < rows["epsilon 0.1"]["emptiest bin"] < 1000
