"""`covey privacy`: noise for an epsilon and back, the numbers of dp-accounting called directly."""

import re

import pytest
from typer.testing import CliRunner

from covey.cli import app
from covey.errors import UserError
from covey.runs.config import resolve
from covey.runs.run import run_config

dp = pytest.importorskip("dp_accounting")
pytest.importorskip("dp_accounting.pld")
FLEET = ("--clients", "1000", "--per-round", "50", "--rounds", "100")


def told(*words: str) -> dict[str, str]:
    """What the command says, line by line."""
    result = CliRunner().invoke(app, ["privacy", *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return {line.split()[0]: line.split(maxsplit=1)[1].strip() for line in result.output.splitlines()}


def number(text: str) -> float:
    return float(re.match(r"[0-9.e+-]+", text)[0])


def direct(noise: float, rate: float, times: int, delta: float) -> float:
    """dp-accounting itself, without a line of covey's accountant."""
    accountant = dp.pld.PLDAccountant(
        dp.NeighboringRelation.REPLACE_SPECIAL, value_discretization_interval=1e-3
    )
    event = dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(noise))
    return float(accountant.compose(dp.SelfComposedDpEvent(event, times)).get_epsilon(delta))


def test_the_noise_of_an_epsilon_costs_that_epsilon_by_dp_accounting() -> None:
    lines = told("--epsilon", "8", *FLEET)
    assert lines["sampling"] == "Poisson sampling at a rate of 0.05"
    assert direct(number(lines["noise"]), 0.05, 100, 1e-5) == pytest.approx(8.0, rel=2e-3)


def test_the_epsilon_of_a_noise_is_dp_accountings() -> None:
    lines = told("--noise", "1.2", *FLEET)
    assert number(lines["epsilon"]) == pytest.approx(direct(1.2, 0.05, 100, 1e-5), rel=1e-5)
    assert lines["epsilon"].endswith("at delta 1e-05")


def test_a_method_that_draws_by_groups_is_not_amplified() -> None:
    lines = told("--noise", "10", "--method", "cfic", "--set", "method.epsilon=4", *FLEET)
    assert lines["sampling"] == "no amplification by sampling"
    assert number(lines["epsilon"]) == pytest.approx(dp.get_epsilon_gaussian(1.0, 1e-5), rel=1e-4)


def test_of_an_update_in_place_of_another_it_takes_twice_the_noise() -> None:
    lines = told("--epsilon", "8", "--level", "local", "--rounds", "4")
    sigma = dp.get_sigma_gaussian(8.0, 1e-5)
    assert number(lines["noise"]) == pytest.approx(2 * sigma * 4**0.5, rel=1e-4)


def test_at_the_example_level_it_depends_on_a_clients_samples() -> None:
    pytest.importorskip("opacus")
    words = ("--level", "example", "--rounds", "10", "--set", "train.batch=16", "--set", "train.epochs=1")
    lines = told("--noise", "1.5", "--samples", "160", *words)
    assert lines["sums"].startswith("100 ")
    epsilon = number(lines["epsilon"])
    assert direct(1.5, 0.1, 100, 5e-6) <= epsilon <= 1.25 * direct(1.5, 0.1, 100, 5e-6)  # Opacus adds by RDP
    back = told("--epsilon", str(epsilon), "--samples", "160", *words)  # a run of that epsilon has that noise
    assert number(back["noise"]) == pytest.approx(1.5, rel=0.01)
    assert back["epsilon"] == lines["epsilon"] == f"{epsilon:g} at delta 1e-05"
    with pytest.raises(UserError, match="samples is missing"):
        told("--epsilon", "8", *words)


def test_one_of_them_says_the_other() -> None:
    for words in ((), ("--epsilon", "8", "--noise", "1")):
        with pytest.raises(UserError, match="give one of them: it says the other"):
            told(*words)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--epsilon", "8"], "--epsilon goes with --resume and --rounds"),
        (
            ["--resume", "FOLDER", "--epsilon", "lots"],
            "--epsilon is 'lots'; allowed: a number, same-noise, kept",
        ),
        (["--resume", "FOLDER", "--rounds", "2", "--epsilon", "8"], "--epsilon is 8.0, but the run has no"),
    ],
)
def test_epsilon_of_a_run_that_goes_on(options, sentence, tmp_path) -> None:
    small = {"data": {"name": "digits", "clients": 2}, "rounds": 1, "measure": {"local_test": False}}
    run_config(resolve({**small, "method": {"name": "fedavg"}}), tmp_path / "run", report=False)
    words = [word.replace("FOLDER", str(tmp_path / "run")) for word in options]
    with pytest.raises(UserError, match=sentence):
        CliRunner().invoke(app, ["run", *words], catch_exceptions=False)
