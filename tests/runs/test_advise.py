"""Advice is concluded from the scoreboard's fleets that are unlike in the same way."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from typer.testing import CliRunner

from covey.cli import app
from covey.cli.advise import verdict
from covey.parts.heterogeneity import Heterogeneity
from covey.runs.advise import EVIDENCE, Row, advise, evidence, expected, nearness, regrets
from experiments.advice import text

ALIKE = {
    "label_skew": 0.0,
    "feature_shift": 0.0,
    "concept_shift": 0.0,
    "size_skew": 0.0,
    "device_spread": 0.0,
}


def unlike(**numbers: float) -> Heterogeneity:
    return Heterogeneity(**{**ALIKE, **numbers})


def row(fleet: str, found: Heterogeneity, **accuracy: float) -> Row:
    return Row(fleet=fleet, heterogeneity=found, accuracy=accuracy, bytes={}, seconds={})


ROWS = [
    row("iid", unlike(), fedavg=0.90, cfic=0.902, ifca=0.88, local=0.7),
    row("skewed", unlike(label_skew=0.6), fedavg=0.70, cfic=0.85, ifca=0.72, local=0.8),
    row("rotated", unlike(feature_shift=0.5), fedavg=0.60, cfic=0.62, ifca=0.90, local=0.95),
]


def test_the_package_carries_what_the_stored_results_give() -> None:
    assert EVIDENCE.read_text() == text(), "run `python -m experiments advice`"


def test_homogeneous_clients_need_no_other_method_than_fedavg() -> None:
    assert advise(unlike(size_skew=0.05), ROWS).method == "fedavg"


def test_the_most_similar_fleet_decides() -> None:
    assert advise(unlike(label_skew=0.55), ROWS).method == "cfic"
    rotated = advise(unlike(feature_shift=0.6), ROWS)
    assert rotated.method == "ifca"  # not local, which trains everybody in every round
    assert rotated.rows[0][0].fleet == "rotated"


def test_nearness_by_hand() -> None:
    """A label skew of 0.1225 is 0.35 of what is high, 0.35: d = 0.35, exp(-0.35^2 / (2 * 0.35^2)) = exp(-0.5)."""
    assert nearness(unlike(), unlike(label_skew=0.1225)) == pytest.approx(math.exp(-0.5))
    assert (
        nearness(unlike(label_skew=70.0), unlike(label_skew=0.7)) == 1.0
    )  # beyond very high all is the same
    hidden = unlike(feature_shift=math.nan)
    assert nearness(hidden, unlike(feature_shift=0.9)) == 1.0


def test_an_expected_gain_is_a_weighted_mean() -> None:
    weighed = [(ROWS[0], 1.0), (ROWS[1], 3.0)]
    gains = expected(weighed, lambda r, name: r.accuracy[name] - r.accuracy["fedavg"])
    assert gains["cfic"] == pytest.approx((0.002 + 3 * 0.15) / 4, abs=1e-5)


def test_regret_leaves_the_fleet_itself_out() -> None:
    """Of the rotated fleet alone one learns that ifca is good; of the others, for it, that it is not."""
    lost = regrets(ROWS)
    assert lost["rotated"][0] != "ifca"
    assert lost["rotated"][1] == pytest.approx(0.90 - ROWS[2].accuracy[lost["rotated"][0]])


@pytest.fixture
def scoreboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A scoreboard of two fleets and three methods, as stored."""
    folder = tmp_path / "experiments" / "covey"
    (folder / "results").mkdir(parents=True)
    (folder / "scoreboard.toml").write_text(
        '[columns]\naccuracy = "last:local-test/accuracy-mean"\nbytes = "cost:bytes"\n'
        '[[case]]\nname = "iid"\nset = {}\n[[case]]\nname = "skewed"\nset = {}\n'
        + "".join(
            f'[[run]]\nname = "{name.title()}"\nset = {{ method = {{ name = "{name}" }} }}\n'
            for name in ("fedavg", "cfic", "local")
        )
    )
    (folder / "heterogeneity.toml").write_text('study = "heterogeneity:scoreboard"\n')
    scores = {"iid": (0.9, 0.9, 0.5), "skewed": (0.6, 0.8, 0.7)}
    cells = [
        {"case": case, "row": name, "column": column, "values": [value, value], "paper": None}
        for case, values in scores.items()
        for name, accuracy in zip(("Fedavg", "Cfic", "Local"), values, strict=True)
        for column, value in (("accuracy", accuracy), ("bytes", 2e6 if name == "Cfic" else 1e6))
    ]
    (folder / "results" / "scoreboard-small.json").write_text(json.dumps({"cells": cells}))
    measured = [
        {"case": "", "row": case, "column": name.replace("_", " "), "values": [value]}
        for case, found in (("iid", ALIKE), ("skewed", {**ALIKE, "label_skew": 0.4}))
        for name, value in found.items()
    ]
    (folder / "results" / "heterogeneity-small.json").write_text(json.dumps({"cells": measured}))
    monkeypatch.setenv("COVEY_EXPERIMENTS", str(tmp_path / "experiments"))
    (tmp_path / "advice.json").write_text(text())
    monkeypatch.setattr("covey.runs.advise.EVIDENCE", tmp_path / "advice.json")
    return folder


def test_the_evidence_is_read_from_the_stored_results(scoreboard: Path) -> None:
    iid, skewed = evidence()
    assert skewed.accuracy == {"fedavg": 0.6, "cfic": 0.8, "local": 0.7}
    assert iid.heterogeneity == unlike()
    advice = advise(unlike(label_skew=0.4), [iid, skewed])
    assert (advice.method, round(advice.bytes, 6)) == ("cfic", 2.0)


def test_the_command_says_what_to_use_and_prints_a_file_that_runs(scoreboard: Path, tmp_path: Path) -> None:
    import tomllib

    settings = ["--set", "data.clients=12", "--set", "partition.alpha=0.3"]
    done = CliRunner().invoke(app, ["advise", *settings, "--png", str(tmp_path / "u.png")])
    assert done.exit_code == 0, done.output
    assert "label skew" in done.output
    assert "Use cfic: expected +" in done.output
    file = tomllib.loads(done.stdout.split("covey run FILE.toml:")[1])
    assert file["method"]["name"] == "cfic"
    assert file["data"]["clients"] == 12
    assert (tmp_path / "u.png").stat().st_size > 1000


def test_iid_clients_are_advised_fedavg(scoreboard: Path) -> None:
    done = CliRunner().invoke(app, ["advise", "--set", "data.clients=12", "--set", "partition.name=iid"])
    assert "Use fedavg" in done.output


def test_the_check_runs_it_beside_fedavg_and_local(scoreboard: Path, tmp_path: Path) -> None:
    words = ["advise", "--set", "data.clients=6", "--set", "partition.alpha=0.3", "--check", "--rounds", "2"]
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "check")])
    assert done.exit_code == 0, done.output
    assert "The advice" in done.output
    assert {path.name for path in (tmp_path / "check").iterdir()} >= {
        "cfic",
        "fedavg",
        "local",
        "report.html",
    }


def test_a_wrong_epsilon_is_one_sentence(scoreboard: Path) -> None:
    done = CliRunner().invoke(app, ["advise", "--epsilon", "0"])
    assert "--epsilon is 0.0; allowed: a number above 0" in str(done.exception)


def test_a_verdict_needs_more_than_chance() -> None:
    # two standard errors of six clients that differ by 0.06 each: 2 sqrt(2 * 0.0036 / 6) = 0.069
    spread = {"covey": 0.06, "fedavg": 0.06}
    assert verdict("covey", {"covey": 0.885, "fedavg": 0.890}, spread, clients=6) == "The advice held"
    said = verdict("covey", {"covey": 0.885, "fedavg": 0.950}, spread, clients=6)
    assert said.startswith("Whether the advice held cannot be told: fedavg is not significantly ahead")
    behind = {"covey": 0.885, "fedavg": 0.960}
    assert verdict("covey", behind, spread, clients=6) == "The advice did not hold: fedavg is better"
