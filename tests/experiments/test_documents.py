"""The tables in README and docs are those of the stored results."""

from pathlib import Path

import pytest

from covey.report.seeds import number_in_words
from experiments.spec import all_experiments, read_experiment
from experiments.tables import across, beside_the_best, filled, line_of, overview_line, times

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda p: p.name
)
def test_tables_are_made_from_stored_results(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COVEY_EXPERIMENTS", str(ROOT / "experiments"))
    assert filled(page.read_text()) == page.read_text(), "run `make tables`"


def test_a_bar_in_a_name_does_not_end_the_cell() -> None:
    assert line_of(["HACCS P(X|y)", "1"]) == r"| HACCS P(X\|y) | 1 |"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([400.0, 520.0], "460 ± 85"),  # deviation 84.85
        ([0.1, 0.1 + 2e-17, 0.1], "0.1"),  # rounding is no spread
        ([0.97, 0.98, None], "0.975 ± 0.0071 (2 of 3)"),
        ([100_000.0, 300_000.0], "200,000 ± 141,421"),
        ([None], "-"),
    ],
)
def test_mean_and_spread_in_words(values: list[float | None], words: str) -> None:
    assert number_in_words(values) == words


PAPERS = ("cafa", "cfic", "embedding", "haccs", "topologies")


@pytest.mark.parametrize("name", [name for name in all_experiments() if name.startswith(PAPERS)])
def test_every_experiment_of_a_paper_says_why_it_differs_or_what_it_would_take(name: str) -> None:
    experiment = read_experiment(name, "small")
    assert experiment.why
    line = overview_line(name)
    assert all(line), "no empty cell"
    if experiment.headline:
        assert line[2] != "none", "a headline has the paper's number beside ours"


def test_how_many_times_a_rows_numbers_the_others_are() -> None:
    """Of the stored Table V: IFCA's bytes on PACS are 2.6 times the centralised autoencoder's, FedAvg's a bound."""
    lines = times("embedding/table5", "small", "ours (centralised); bytes to target").splitlines()
    assert lines[0] == "| case | row, times ours (centralised) | bytes to target |"
    assert any(line.startswith("| PACS | IFCA | 2.611 [") for line in lines)
    assert any(line.startswith("| PACS | FedAvg | over ") for line in lines)
    assert not any("| ours (centralised) |" in line for line in lines[1:])


def test_cases_that_differ_in_one_thing_stand_side_by_side() -> None:
    lines = across(
        "privacy/devices", "small", "accuracy, mean over clients; covey, more than FedAvg"
    ).splitlines()
    assert lines[0].startswith("| fleet | accuracy, mean over clients | epsilon 16 | epsilon 8 | ")
    assert lines[2].startswith("| rotated | covey | 0.8972 ± 0.0016 | ")
    assert [line.split(" | ")[1] for line in lines[2:6]] == [
        "covey",
        "FedAvg",
        "FedAvgM",
        "covey: more than FedAvg",
    ]
    alone = across("privacy/silos", "small", "accuracy, mean over clients").splitlines()
    assert alone[0].startswith("| accuracy, mean over clients | epsilon 16 | ")


def test_a_method_beside_the_best_of_the_federated_others() -> None:
    """Of the stored natural suite: on watch CFIC is ahead; who has all data, as on drawers, does not compete."""
    lines = beside_the_best("natural/suite", "small", "covey", "accuracy").splitlines()
    assert lines[0] == "| fleet | accuracy, in %: best other | covey |"
    assert any(line.startswith("| watch | ") and "(CFIC)" in line for line in lines)
    assert not any("(centralized)" in line for line in lines)
