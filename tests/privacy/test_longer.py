"""A private run that is given more rounds: what they cost is said and chosen first, and booked as it was said."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import dp_accounting.rdp
import pytest

from covey.errors import UserError
from covey.privacy.accountant import Sampling, Sums, epsilon_of, noise_for
from covey.privacy.longer import LongerBudget, longer_private
from covey.privacy.plan import SPENT, spent_sums
from covey.privacy.settings import Private
from covey.runs.api import run as covey_run
from covey.runs.config import resolve
from covey.runs.results import Run
from covey.runs.run import resume, run_config
from covey.settings.toml import read_tables

FLEET = {
    "data": {"name": "digits", "clients": 8},
    "engine": {"mode": "serial"},
    "measure": {"local_test": False},
}
FEDAVG = {"name": "fedavg", "per_round": 4}
LABELS = {"name": "cfic", "epsilon": 4}


def made(folder: Path, method: dict[str, Any] = FEDAVG, rounds: int = 3, **private: Any) -> Run:
    tables = {
        **FLEET,
        "method": method,
        "rounds": rounds,
        "private": {"epsilon": 30, "accountant": "rdp", **private},
    }
    return run_config(resolve(tables), folder, report=False)


def lost(done: Run, whose: str = "client") -> float:
    """What the updates cost whoever lost most, as summary.json says it."""
    return max(one[whose]["updates"] for one in done.summary.privacy["clients"].values())


def test_more_rounds_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    """Where nobody is drawn by chance, the noise uses up the budget to the last bit."""
    made(tmp_path / "run", LABELS)
    files = {path: path.read_bytes() for path in sorted((tmp_path / "run").rglob("*")) if path.is_file()}
    with pytest.raises(UserError, match=r"was planned for 3: nothing of it is left for more. .* same-noise"):
        resume(tmp_path / "run", rounds=5)
    with pytest.raises(UserError, match=r"private.epsilon is 30, and 30 of it is spent: no round is left"):
        resume(tmp_path / "run", rounds=5, epsilon="kept")
    assert files == {
        path: path.read_bytes() for path in sorted((tmp_path / "run").rglob("*")) if path.is_file()
    }


def test_what_the_further_rounds_would_be_like_is_said() -> None:
    """8 rounds were planned for epsilon 30, with noise for that; of the 10th there is still something left."""
    drawn = Sampling(kind="poisson", rate=0.5)
    settings = Private(epsilon=30, accountant="rdp")
    noise = noise_for(30, 1e-5, sampling=drawn, times=8, accountant="rdp")
    memory = {SPENT.name: [asdict(Sums(noise=noise, sampling=drawn, times=7))]}

    def asked(budget: LongerBudget | None) -> tuple[dict[str, float | None], str]:
        return longer_private(settings, memory, planned=8, done=7, rounds=10, budget=budget)

    with pytest.raises(
        UserError, match=r"epsilon = 30 was planned for 8: what is left of it puts noise"
    ) as why:
        asked(None)
    assert f"in place of {noise:.4g}" in str(why.value)
    changes, words = asked("kept")
    assert changes == {"epsilon": 30}
    more = float(words.split("noise of ")[1].split()[0])
    all_sums = [Sums(noise=noise, sampling=drawn, times=7), Sums(noise=more, sampling=drawn, times=3)]
    assert more > 1.2 * noise
    assert epsilon_of(all_sums, 1e-5, "rdp") == pytest.approx(30, abs=0.2)
    changes, words = asked("same-noise")
    exact = epsilon_of([Sums(noise=noise, sampling=drawn, times=10)], 1e-5, "rdp")
    assert changes == {"epsilon": None, "noise": noise}
    assert exact <= float(words.split("epsilon ")[1].split()[0]) < exact * 1.0001


def test_the_same_noise_costs_what_is_said(tmp_path: Path) -> None:
    done, said = made(tmp_path / "run"), []
    noise = spent_sums(done.state.memory)[0].noise
    longer = resume(tmp_path / "run", rounds=5, epsilon="same-noise", say=said.append, report=False)
    (told,) = spent_sums(longer.state.memory)
    assert (told.noise, told.times) == (noise, 5)
    one = dp_accounting.PoissonSampledDpEvent(0.5, dp_accounting.GaussianDpEvent(noise))
    direct = dp_accounting.rdp.RdpAccountant().compose(one, 5)
    assert lost(longer) == pytest.approx(direct.get_epsilon(1e-5), abs=1e-5)
    assert any(f"5 rounds cost epsilon {lost(longer):.3f}"[:-2] in words for words in said)
    kept = read_tables(tmp_path / "run" / "config.toml")["private"]
    assert (kept["noise"], kept["epsilon"]) == (noise, "none")


@pytest.mark.parametrize("method", [FEDAVG, LABELS], ids=["drawn by chance", "not drawn by chance"])
def test_a_larger_budget_is_kept_to(tmp_path: Path, method: dict[str, Any]) -> None:
    made(tmp_path / "run", method)
    longer = resume(tmp_path / "run", rounds=5, epsilon=45, report=False)
    assert 40 < lost(longer) <= 45
    assert read_tables(tmp_path / "run" / "config.toml")["private"]["epsilon"] == 45


def test_where_clients_add_the_noise(tmp_path: Path) -> None:
    made(tmp_path / "run", level="local", clip=0.5, accountant="pld")
    with pytest.raises(UserError, match=r"work no more. .* \(epsilon is then (4\d.\d+) in all\)") as why:
        resume(tmp_path / "run", rounds=5)
    least = float(str(why.value).split("epsilon is then ")[1].split()[0])
    with pytest.raises(UserError, match=rf"3 updates can send 2 more for {least:g} in all at least"):
        resume(tmp_path / "run", rounds=5, epsilon=least - 1)
    longer = resume(tmp_path / "run", rounds=5, epsilon=least, report=False)
    assert longer.state.worked
    assert lost(longer, "client") <= least


def test_where_samples_are_hidden_the_longer_promise_takes_the_place_of_the_first(tmp_path: Path) -> None:
    pytest.importorskip("opacus")
    made(
        tmp_path / "run",
        {"name": "fedavg", "per_round": 8},
        rounds=2,
        level="example",
        clip=1.0,
        epsilon=8,
        accountant="pld",
    )
    for wrong in (None, "same-noise", 11.9, float("nan")):
        with pytest.raises(UserError, match=r"Say what 3 rounds may cost: --epsilon 12 or more"):
            resume(tmp_path / "run", rounds=3, epsilon=wrong)  # type: ignore[arg-type]
    longer = resume(tmp_path / "run", rounds=3, epsilon=12, report=False)
    assert len(longer.state.worked) == 8
    assert lost(longer, "sample") == pytest.approx(12, abs=0.01)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"rounds": 5, "budget": 20},
            "--epsilon is 20.0, but private.epsilon is 30; allowed: a number from that",
        ),
        ({"rounds": 5, "budget": float("nan")}, "--epsilon is nan, but private.epsilon is 30"),
        ({"rounds": 3, "budget": 40}, "--epsilon is 40, which goes with more rounds"),
        ({"rounds": 5, "budget": 40, "done": 0}, "--epsilon is 40.0, but no round was made yet"),
    ],
)
def test_budgets_that_mean_nothing(settings: dict[str, Any], sentence: str) -> None:
    private = Private(epsilon=30, level="local", clip=1.0)
    with pytest.raises(UserError, match=sentence):
        longer_private(private, {}, **{"planned": 3, "done": 3, **settings})


def test_a_run_that_is_not_private_has_no_budget(tmp_path: Path) -> None:
    run_config(resolve({**FLEET, "method": FEDAVG, "rounds": 1}), tmp_path / "run", report=False)
    with pytest.raises(UserError, match=r"--epsilon is 4, but the run has no \[private\]"):
        resume(tmp_path / "run", rounds=2, epsilon=4)


def test_from_python_with_another_epsilon(tmp_path: Path) -> None:
    settings = {**FLEET, "clients": 8, "out": tmp_path / "run", "progress": False, "report": False}
    settings = {**settings, "data": "digits"}
    covey_run("fedavg", rounds=2, private={"epsilon": 30, "accountant": "rdp"}, **settings)
    with pytest.raises(UserError, match=r"was planned for 2"):
        covey_run("fedavg", rounds=3, private={"epsilon": 30, "accountant": "rdp"}, **settings)
    run = covey_run("fedavg", rounds=3, private={"epsilon": 50, "accountant": "rdp"}, **settings)
    assert run.summary.rounds_done == 3
