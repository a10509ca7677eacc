"""Advice is concluded from known fleets that are heterogeneous in the same way, and is no surer than they are."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import covey
from covey.cli import app
from covey.cli.advise import checked, verdict
from covey.errors import UserError
from covey.fleet.heterogeneity.measure import Heterogeneity, HeterogeneityMeasure
from covey.runs.advise import (
    ENOUGH,
    EVIDENCE,
    NEAR,
    Gain,
    KnownFleet,
    conclude,
    features_of,
    gain,
    known_fleets,
    mean_and_deviation,
    numbers,
    similarity,
)
from experiments.advice import level_means, lost, regrets, text

NOTHING = HeterogeneityMeasure(0.0, 0.0, 0.01)
ALIKE = Heterogeneity(
    label_skew=NOTHING,
    feature_shift=NOTHING,
    concept_shift=NOTHING,
    label_noise=NOTHING,
    size_skew=NOTHING,
    device_spread=NOTHING,
    samples=100.0,
    separation=1.0,
)


def unlike(**values: float) -> Heterogeneity:
    return replace(
        ALIKE, **{name: HeterogeneityMeasure(value, value, value) for name, value in values.items()}
    )


def fleet(name: str, found: Heterogeneity, **accuracy: float) -> KnownFleet:
    return KnownFleet(fleet=name, features=features_of(found, table=False), accuracy=accuracy)


def thrice(name: str, found: Heterogeneity, **accuracy: float) -> list[KnownFleet]:
    return [fleet(f"{name} {n}", found, **accuracy) for n in range(3)]


KNOWN = [
    *thrice("iid", ALIKE, fedavg=90.0, cfic=90.2, ifca=88.0, local=70.0),
    *thrice("skewed", unlike(label_skew=0.6), fedavg=70.0, cfic=85.0, ifca=72.0, local=80.0),
    *thrice("rotated", unlike(feature_shift=0.9), fedavg=60.0, cfic=62.0, ifca=90.0, local=95.0),
]


def test_the_package_carries_what_the_stored_results_give() -> None:
    assert EVIDENCE.read_text() == text(), "run `python -m experiments advice`"


def test_a_method_with_fewer_seeds_is_held_against_the_others_of_the_same_seeds() -> None:
    """Others have (1 + 3) / 2 = 2 in the first seed and 4 in both: .5 ahead there is .5 ahead of 4."""
    found = level_means({"a": [1.0, 5.0], "b": [3.0, 7.0], "few": [2.5]})
    assert found == pytest.approx({"a": 3.0, "b": 5.0, "few": 4.5})


def test_no_fleet_of_the_report_half_is_known() -> None:
    report = ("votes", "reading", "spoken", "FEMNIST", "Shakespeare", "watch")
    suite = [one.fleet for one in known_fleets() if one.fleet.startswith("natural")]
    assert len(suite) == 6
    assert not [name for name in suite for word in report if word in name]


def test_left_out_one_by_one_the_advice_loses_less_than_half_a_point() -> None:
    assert np.mean([points for _, _, points in regrets().values()]) < 0.5


def test_methods_beyond_the_scoreboard_are_known() -> None:
    names = {name for one in known_fleets() for name in one.accuracy}
    assert {"fine-tuned", "fedper", "ditto", "fedala", "boosting", "boosting-personal"} <= names


def test_homogeneous_clients_need_no_other_method_than_fedavg() -> None:
    advice = conclude(ALIKE, KNOWN)
    assert advice.method == "fedavg"
    assert "cfic" not in advice.gains or advice.other == "cfic"


def test_the_most_similar_fleets_decide() -> None:
    assert conclude(unlike(label_skew=0.58), KNOWN).method == "cfic"
    rotated = conclude(unlike(feature_shift=0.88), KNOWN)
    assert rotated.method == "ifca"  # not local, which trains everybody in every round
    assert rotated.similar[0][0].startswith("rotated")


def test_far_from_all_known_fleets_nothing_is_said_about_gains() -> None:
    advice = conclude(unlike(concept_shift=0.9), KNOWN)
    assert sum(weight for _, weight in advice.similar) < ENOUGH
    assert advice.gains == {}
    assert advice.other is not None
    said = "\n".join(advice.sentences())
    assert "No known fleet is similar" in said
    assert "Not sure: try" in said
    assert "points" not in said.lower()


def test_similarity_by_hand() -> None:
    """A label skew of one unit less: d = 1, exp(-1/2); unknown counts as one unit, too."""
    alike = features_of(ALIKE, table=False)
    other = features_of(unlike(label_skew=NEAR["label_skew"]), table=False)
    assert similarity(alike, alike) == 1.0
    assert similarity(alike, other) == pytest.approx(math.exp(-0.5))
    assert similarity(alike, {**alike, "feature_shift": math.nan}) == pytest.approx(math.exp(-0.5))
    assert similarity(alike, {**alike, "table": 1.0}) == pytest.approx(math.exp(-0.5 / NEAR["table"] ** 2))


def test_samples_and_separation_are_compared_as_powers_of_ten() -> None:
    features = features_of(replace(ALIKE, samples=1000.0, separation=0.01), table=True)
    assert (features["samples"], features["separation"], features["table"]) == pytest.approx((3, -2, 1))
    unknown = features_of(replace(ALIKE, label_noise=HeterogeneityMeasure(0.2, 0.0, 1.0)), table=False)
    assert math.isnan(unknown["label_noise"])


def test_a_mean_and_its_deviation_by_hand() -> None:
    """Gains 0 and 4 with weights 1 and 3: mean 3; (9 + 3 + 0.3 * 100) / 4.3."""
    mean, deviation = mean_and_deviation(np.array([0.0, 4.0]), np.array([1.0, 3.0]), spread=10.0)
    assert (mean, deviation) == pytest.approx((3.0, math.sqrt(42 / 4.3)))


def test_a_gain_is_wider_where_known_fleets_differ() -> None:
    weights = np.ones(3)
    same = gain(thrice("a", ALIKE, fedavg=80.0, ifca=90.0), weights, "ifca")
    known = [fleet("b", ALIKE, fedavg=80.0, ifca=80.0 + g) for g in (0.0, 10.0, 20.0)]
    differ = gain(known, weights, "ifca")
    assert same.expected == differ.expected == 10.0
    assert differ.high - differ.low > same.high - same.low > 0


def test_of_tables_gains_are_less_in_doubt() -> None:
    """Weights 1, 1 and 1, no difference, .3 of a fleet with a deviation of 5 for 10: half as wide."""
    known, weights = thrice("a", ALIKE, fedavg=80.0, ifca=90.0), np.ones(3)
    pictures, table = gain(known, weights, "ifca"), gain(known, weights, "ifca", table=True)
    assert pictures.high - pictures.low == pytest.approx(2 * (table.high - table.low))


def test_two_methods_that_known_fleets_do_not_tell_apart_are_both_named() -> None:
    known = [
        fleet("one", ALIKE, fedavg=70.0, cfic=86.0, ifca=84.0, local=60.0),
        fleet("two", ALIKE, fedavg=70.0, cfic=84.0, ifca=86.0, local=60.0),
    ]
    advice = conclude(ALIKE, known)
    assert {advice.method, advice.other} == {"cfic", "ifca"}
    assert advice.sentences()[0].startswith(f"Not sure: try {advice.method} and {advice.other}")
    ahead = thrice("far", ALIKE, fedavg=70.0, cfic=90.0, ifca=75.0, local=60.0)
    sure = conclude(ALIKE, ahead)
    assert (sure.method, sure.other) == ("cfic", None)
    assert sure.sentences()[0] == "Use cfic."


def test_random_labels_alone_speak_for_one_model() -> None:
    """A fifth of the clients or more have them; where clients differ in more than that, known fleets decide."""
    noisy = replace(ALIKE, label_noise=HeterogeneityMeasure(0.3, 0.2, 0.4))
    known = thrice("a", noisy, fedavg=70.0, cfic=85.0, ifca=71.0, local=60.0)
    advice = conclude(noisy, known)
    assert (advice.method, advice.other) == ("fedavg", "cfic")
    assert "random labels" in advice.sentences()[1]
    skewed = replace(noisy, label_skew=HeterogeneityMeasure(0.6, 0.5, 0.7))
    assert (
        conclude(skewed, [replace(one, features=features_of(skewed, table=False)) for one in known]).method
        == "cfic"
    )
    unsure = replace(ALIKE, label_noise=HeterogeneityMeasure(0.3, 0.0, 0.4))
    assert conclude(unsure, known).method == "cfic"


def test_whole_points_are_printed_and_never_tenths() -> None:
    assert str(Gain(3.14, -1.49, 7.6)) == "-1 to +8"


def test_a_printed_interval_is_no_narrower_than_the_known_one() -> None:
    line = numbers({"label_skew": HeterogeneityMeasure(0.254, 0.219, 0.291)})[1]
    assert "0.25 [0.21, 0.30]" in line
    assert "?" in numbers({"concept_shift": HeterogeneityMeasure(0.3, 0.0, 1.0)})[1]


def test_regret_counts_only_beyond_the_paired_interval() -> None:
    """Ahead by 1, 2 and 3 points: t = 2 / (1 / sqrt 3) = 3.46, p = .07; by 2, 2.1, 1.9: beyond chance."""
    values = {"fedavg": [0.5, 0.5, 0.5], "cfic": [0.51, 0.52, 0.53], "local": [0.9, 0.9, 0.9]}
    assert lost(values, "fedavg") == 0.0
    assert lost({**values, "cfic": [0.52, 0.521, 0.519]}, "fedavg") == pytest.approx(2.0)


# ---------------------------------------------------------------------------------------------- command and Python


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("covey.runs.advise.known_fleets", lambda: KNOWN)
    monkeypatch.setattr("covey.runs.advise.NEAR", {"label_skew": 0.1, "feature_shift": 0.15})


def test_the_command_says_what_to_use_and_prints_a_file_that_runs(known: None, tmp_path: Path) -> None:
    import tomllib

    settings = ["--set", "data.clients=12", "--set", "partition.alpha=0.1"]
    done = CliRunner().invoke(app, ["advise", *settings, "--png", str(tmp_path / "u.png")])
    assert done.exit_code == 0, done.output
    assert "label skew" in done.output
    file = tomllib.loads(done.stdout.split("covey run FILE.toml:")[1])
    assert file["method"]["name"] == "cfic"
    assert file["data"]["clients"] == 12
    assert (tmp_path / "u.png").stat().st_size > 1000


def test_iid_clients_are_advised_fedavg(known: None) -> None:
    done = CliRunner().invoke(app, ["advise", "--set", "data.clients=12", "--set", "partition.name=iid"])
    assert 'name = "fedavg"' in done.output


def test_the_check_runs_what_is_advised_beside_fedavg_and_local(known: None, tmp_path: Path) -> None:
    words = ["advise", "--set", "data.clients=6", "--set", "partition.alpha=0.1", "--check", "--rounds", "2"]
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "check")])
    assert done.exit_code == 0, done.output
    assert "The check" in done.output
    assert {path.name for path in (tmp_path / "check").iterdir()} >= {
        "cfic",
        "fedavg",
        "local",
        "report.html",
    }


def test_the_check_lets_trees_grow_to_their_end(known: None, tmp_path: Path) -> None:
    """Two trees of one level take 1 + 2 rounds, whatever the others are checked with."""
    import tomllib

    tables = {
        "data": {"name": "breast-cancer", "clients": 3},
        "method": {"name": "boosting", "trees": 2, "depth": 1},
    }
    advice = replace(covey.advise("digits", clients=12), method="boosting", other=None)
    checked(tables, advice, 1, tmp_path)
    rounds = {
        name: tomllib.loads((tmp_path / name / "config.toml").read_text())["rounds"]
        for name in ("boosting", "fedavg")
    }
    assert rounds == {"boosting": 3, "fedavg": 1}


def test_a_run_that_ends_before_its_trees_says_so(tmp_path: Path) -> None:
    words = ["run", "--dataset", "breast-cancer", "--method", "boosting", "--rounds", "2"]
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "run")])
    assert "rounds is 2, but boosting grows all its trees in 181: leave rounds out" in " ".join(
        done.output.split()
    )


def test_python_gives_the_same_advice_as_an_object(known: None) -> None:
    advice = covey.advise("digits", clients=12, partition={"name": "dir-class", "alpha": 0.1})
    assert isinstance(advice, covey.Advice)
    assert advice.method == "cfic"
    assert "label skew" in str(advice)
    assert advice.sentences()[0] in str(advice)


def test_a_wrong_epsilon_is_one_sentence(known: None) -> None:
    done = CliRunner().invoke(app, ["advise", "--epsilon", "0"])
    assert "--epsilon is 0.0; allowed: a number above 0" in str(done.exception)
    with pytest.raises(UserError, match=r"epsilon is -1; allowed: a number above 0"):
        covey.advise("digits", epsilon=-1)


def test_a_verdict_needs_more_than_chance() -> None:
    """Paired over clients: ahead by 5, 6 and 4 points of 100 is beyond chance (t = 8.7), by 5, 20 and -10 is not."""
    base = {0: 0.80, 1: 0.70, 2: 0.90}
    sure = verdict({"covey": {0: 0.85, 1: 0.76, 2: 0.94}, "fedavg": base}, ["covey", "fedavg"])
    assert sure.startswith("The check settles it: use covey (covey 85.0%, fedavg 80.0%")
    unsure = verdict({"covey": {0: 0.85, 1: 0.90, 2: 0.80}, "fedavg": base}, ["covey", "fedavg"])
    assert unsure.startswith("The check cannot tell covey from fedavg")
    assert verdict({"covey": {}, "fedavg": {}}, ["covey", "fedavg"]).startswith("The check says nothing")
