"""A site's own budget covers all that leaves it, or it does not leave: updates, choices, numbers of samples."""

from pathlib import Path
from typing import Any

import pytest
import torch

from covey.core.codec import from_bytes
from covey.core.privacy_loss import Loss, losses_of, plain_losses
from covey.core.round import Task, run_rounds
from covey.deploy.privacy_account import PrivacyAccount
from covey.deploy.run import plan_of
from covey.deploy.site import UNSAID
from covey.deploy.site_bounds import check_choice, check_counted
from covey.deploy.site_data import MOST_UNCOUNTED
from covey.deploy.wire import step_to_plain
from covey.errors import Refused, RunError, UserError
from covey.files import for_their_owner, write_atomically
from covey.methods.baselines import fedavg
from covey.methods.haccs import haccs
from covey.parts.measure import Measuring
from covey.parts.steps import Evaluate, Train
from covey.parts.steps.noisy_evaluate import NoisyEvaluate
from covey.parts.steps.privacy import Privacy
from covey.parts.steps.private import Noised, Quiet
from covey.parts.steps.summaries import FeatureSummary, JointSummary, LabelSummary, TargetSummary
from covey.privacy.apply import made_private
from covey.privacy.composition import composed
from covey.privacy.example import ExampleTrain
from covey.privacy.secure_steps import SecureUpdate
from covey.privacy.settings import Private
from covey.runs.config import resolve
from covey.runs.run import run_config
from tests.deploy.one_request import one_request
from tests.deploy.sites_by_hand import CLIENTS, Hand, deployed, sites

pytest.importorskip("opendp")
pytest.importorskip("dp_accounting")
TRAIN = Train(epochs=1, lr=0.1)
NOISED = Noised(step=TRAIN, clip=0.5, noise=10.0)


def asked(site: Any, step: Any, **changes: Any) -> dict[str, Any]:
    return from_bytes(site.answer(one_request(step=step_to_plain(step), **changes)))


@pytest.mark.parametrize(
    "step",
    [TRAIN, Quiet(step=TRAIN), Evaluate(), SecureUpdate(step=TRAIN, clip=0.5)],
    ids=lambda s: s.kind,
)
def test_what_has_no_noise_of_the_sites_own_does_not_leave(step: Any) -> None:
    answer = asked(sites(budget=3.0)[100], step)
    assert "no privacy loss that can be counted, and this site has a budget of 3" in answer["refused"]
    assert "reply" not in answer


def test_updates_with_noise_are_counted_until_nothing_is_left(tmp_path: Path) -> None:
    site = sites(tmp_path, budget=1.3)[100]
    answers = [asked(site, NOISED, round=number) for number in range(1, 4)]
    sent = sum(answer.get("reply") is not None for answer in answers)
    assert 1 <= sent < 3
    assert "of the budget of 1.3 would be spent" in answers[-1]["refused"]
    again = sites(tmp_path, budget=1.3)[100]
    assert "of the budget of 1.3 would be spent" in asked(again, NOISED, round=9)["refused"]
    lost = composed({Loss(what="updates", mechanism="local", noise=10.0): sent}, 1e-5, "sample")
    assert again.account.composed(again.account.epsilon, again.account.told) == pytest.approx(lost)


def test_an_update_with_noise_that_is_asked_for_again_is_the_same_and_costs_nothing(tmp_path: Path) -> None:
    site = sites(tmp_path, budget=1.3)[100]
    first = asked(site, NOISED)
    lost = site.account.told
    again = asked(sites(tmp_path, budget=1.3)[100], NOISED, session="after a crash of the server")
    assert again["reply"]["vector"].equal(first["reply"]["vector"])
    assert sites(tmp_path, budget=1.3)[100].account.told == lost


def test_noise_that_is_none_is_worth_nothing() -> None:
    assert (
        "of the budget of 3 would be spent"
        in asked(sites(budget=3.0)[100], Noised(step=TRAIN, clip=0.5, noise=1e-9))["refused"]
    )


def test_every_step_of_training_with_noise_is_counted_whatever_the_server_says_was_planned(
    tmp_path: Path,
) -> None:
    """A server that goes back to a round with another model gets a new update: it is paid for again, and no plan
    hides it. The same question gets the answer that was paid for."""
    pytest.importorskip("opacus")
    site = sites(tmp_path, budget=30.0)[100]
    step = ExampleTrain(train=TRAIN, clip=1.0, epsilon=2.0, delta=1e-6, rounds=1)
    first = asked(site, step, session="a")["reply"]
    once = dict(site.account.told)
    assert {loss.mechanism for loss in once} == {"steps"}
    assert composed(once, 1e-6, "sample") <= 2.0
    assert torch.equal(asked(site, step, session="b")["reply"]["vector"], first["vector"])
    assert dict(site.account.told) == once
    other = {"models": torch.ones(1, 4810), "slots": (0,), "args": {}}
    assert asked(site, step, session="c", task=other)["reply"] is not None
    assert dict(site.account.told) == {loss: 2 * times for loss, times in once.items()}


def test_which_of_several_models_fits_best_is_not_told() -> None:
    from tests.deploy.one_request import SPEC

    rows = torch.zeros(2, SPEC.bench().layout.size)
    answer = asked(
        sites(budget=30.0)[100], NoisyEvaluate(epsilon=1.0), task={"models": rows, "slots": (0, 1)}
    )
    assert "would tell which of 2 models fits this site's data best" in answer["refused"]


def test_a_choice_inside_of_a_secure_sum_is_no_answer_of_its_own() -> None:
    two = Task(models=torch.zeros(2, 3), slots=(0, 1))
    check_choice(SecureUpdate(step=TRAIN, clip=0.5, share=1e4, rows=2, counted=0.25), two)
    with pytest.raises(Refused, match="would tell which of 2 models fits"):
        check_choice(SecureUpdate(step=TRAIN, clip=0.5, share=1e4), two)
    with pytest.raises(Refused, match="no privacy loss that can be counted"):  # `counted` is a length there
        check_counted(SecureUpdate(step=TRAIN, clip=0.5, rows=2, counted=0.25), 30.0, trusted=False)


@pytest.mark.parametrize("epsilon", [-1.5, 0.0])
def test_a_server_gives_no_budget_back(tmp_path: Path, epsilon: float) -> None:
    site = sites(tmp_path, budget=3.0)[100]
    plain: Any = {"step": "TellLabel", "settings": {"epsilon": 2.0}}
    assert from_bytes(site.answer(one_request(step=plain, task={"args": {}})))["reply"] is not None
    plain["settings"]["epsilon"] = epsilon
    answer = from_bytes(site.answer(one_request(step=plain, round=2, task={"args": {}})))
    assert "allowed: a number above 0" in answer["refused"]
    assert site.account.total() == 2.0


@pytest.mark.parametrize("epsilon", [-1.0, float("nan"), float("inf")])
def test_an_account_books_what_is_a_loss(tmp_path: Path, epsilon: float) -> None:
    account = PrivacyAccount(tmp_path, data=str)
    with pytest.raises(Refused, match="gives nothing back"):
        account.spend(epsilon)
    assert account.total() == 0.0


NARROW = {"low": 0.0, "high": 1e-38, "bins": 20}


@pytest.mark.parametrize(
    "step",
    [
        FeatureSummary(privacy=Privacy(epsilon=0.1), bound=1.0, **NARROW),
        JointSummary(privacy=Privacy(epsilon=0.1), **NARROW),
        TargetSummary(privacy=Privacy(epsilon=0.1), low=0.0, high=5e-324),
    ],
    ids=["features", "joint", "targets"],
)
def test_a_range_at_which_one_value_is_no_number_does_not_tell_that_it_is_there(step: Any) -> None:
    """The answer would fail if any pixel is exactly 0, before anything is booked: an exact answer for nothing."""
    answer = asked(sites(budget=1.0)[100], step, task={"args": {}})
    assert answer["reply"]["stats"]["epsilon"] == 0.1


def test_questions_that_fail_are_answered_so_many_times_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether a step fails may depend on a single sample, and no noise covers it."""

    def fails(self: Any, client: Any, task: Any) -> Any:
        raise ValueError("a patient of 107 years")

    monkeypatch.setattr(LabelSummary, "__call__", fails)
    step = LabelSummary(privacy=Privacy(epsilon=0.1))
    said = [
        asked(sites(tmp_path, budget=3.0)[100], step, round=number, task={"args": {}})
        for number in range(1, MOST_UNCOUNTED + 3)
    ]
    assert [one.get("lost") for one in said[:MOST_UNCOUNTED]] == [UNSAID] * MOST_UNCOUNTED
    assert all("questions have failed at this site, which is the most" in one["refused"] for one in said[-2:])
    assert "refused" not in asked(sites(tmp_path / "b", budget=3.0)[100], step, task={"args": {}})["refused"]


@pytest.mark.parametrize("budget", [30.0, None])
def test_a_model_that_training_data_change_is_not_evaluated_under_noise_for_test_data(
    budget: float | None,
) -> None:
    """A server could send a model that gets all test samples right if a certain sample is trained on, and else none."""
    site = sites(budget=budget)[100]
    for step in (NoisyEvaluate(epsilon=1.0, adapt=TRAIN), NoisyEvaluate(epsilon=1.0, adapt=TRAIN, updates=3)):
        assert "would be trained or chosen on training data" in asked(site, step)["refused"]
    assert site.account.epsilon == 0.0
    assert asked(site, NoisyEvaluate(epsilon=1.0))["reply"]["stats"]["accuracy"] <= 1.0


def test_numbers_of_samples_are_not_told() -> None:
    site, open_one = sites(budget=30.0)[100], sites()[100]
    assert site.hello()["sizes"] == [0, 0]
    assert min(open_one.hello()["sizes"]) > 1
    assert asked(site, NOISED)["reply"]["size"] == 1
    assert asked(open_one, TRAIN)["reply"]["size"] > 1


def test_a_private_run_asks_no_site_how_many_samples_it_has() -> None:
    """Nor does a site that has no budget of its own tell it then; how long it takes is measured all the same."""
    fleet = deployed(Hand(sites()), sizes=False)
    private = Private(noise=2.0, clip=0.5)
    run_rounds(
        made_private(fedavg(TRAIN, per_round=CLIENTS), private, clients=CLIENTS, rounds=1), fleet, rounds=1
    )
    assert {site.sizes for site in fleet.registry.sites.values()} == {(0, 0)}
    assert set(fleet.pace) == {0, 1, 2, 3}
    assert min(fleet.seconds(TRAIN, range(CLIENTS)).values()) > 0


@pytest.mark.parametrize("level", ["local", "example"])
def test_a_private_run_over_sites_with_a_budget_is_refused_nothing(level: Any) -> None:
    """Noisy summaries, updates and evaluations: all of it is in the account, composed, and in the server's ledger."""
    pytest.importorskip("opacus")
    hand = Hand(sites(budget=400.0))
    fleet = deployed(hand)
    private = Private(level=level, epsilon=8.0, delta=1e-5, clip=0.5, evaluations=1.0)
    method = haccs(TRAIN, per_round=CLIENTS, epsilon=0.5, losses="none")
    state = run_rounds(
        made_private(method, private, clients=CLIENTS, rounds=1),
        fleet,
        rounds=1,
        measure=Measuring(global_test=False),
    )
    assert state.worked == (0, 1, 2, 3)
    assert fleet.ledger.refused == fleet.ledger.lost == 0
    account = hand.sites[100].account
    assert account.epsilon == pytest.approx(0.5 + 1.0)
    assert account.told
    kinds = {loss.what for loss in fleet.ledger.told[0]}
    assert kinds == {"summaries", "updates", "evaluations"}


def test_only_a_site_with_a_budget_can_trust_beyond_it() -> None:
    with pytest.raises(UserError, match="trust_server is for sites with a budget"):
        sites(trust_server=True)


def test_plain_training_over_sites_with_a_budget_says_why_nobody_works() -> None:
    fleet = deployed(Hand(sites(budget=1.0)))
    from covey.errors import RunError

    with pytest.raises(RunError, match="no privacy loss that can be counted"):
        run_rounds(fedavg(TRAIN, per_round=CLIENTS), fleet, rounds=1)


def test_what_a_plan_would_cost_does_not_tell_how_many_samples_a_site_has(tmp_path: Path) -> None:
    """The noise of steps follows from the number of samples: 40 would lose 7.14, 41 would lose 7.17."""
    pytest.importorskip("opacus")
    step = ExampleTrain(train=Train(batch=32), clip=1.0, epsilon=8.0, delta=5e-6, rounds=5)
    costs = [step.planned(samples, 5) for samples in (40, 41)]
    assert composed(costs[0], 1e-5, "sample") != pytest.approx(composed(costs[1], 1e-5, "sample"), rel=1e-3)
    said = set()
    for cost in costs:
        with pytest.raises(Refused) as refused:
            PrivacyAccount(tmp_path, data=str, budget=4.0).check_plan(cost, 5)
        said.add(str(refused.value))
    assert said == {
        "5 rounds of this run would make this site's privacy loss more than its budget of 4 per sample"
    }


def test_a_run_that_a_budget_cannot_last_for_is_refused_before_its_first_round() -> None:
    """40 updates under ten clip lengths of noise cost one sample 5.76 at 1e-5, by the account; 10 fewer than 4."""
    said: list[str] = []
    plan = {"step": step_to_plain(NOISED), "rounds": 40}
    hand = Hand(sites(budget=4.0))
    fleet = deployed(hand, plan=plan, say=said.append, patience=0.0)
    with pytest.raises(RunError, match="0 of 4 sites came"):
        fleet.begin(1)
    lost = composed({Loss(what="updates", mechanism="local", noise=10.0): 40}, 1e-5, "sample")
    assert (
        "site site-0 is left out for now: 40 rounds of this run would make this site's privacy loss "
        f"{lost:.3g} per sample; its budget is 4 per sample, of which 0 is spent"
    ) in said
    beside = plain_losses({Loss(what="evaluations", mechanism="stated", noise=0.3): 10})
    measured = deployed(Hand(sites(budget=4.0)), plan={**plan, "rounds": 10, "beside": beside}, patience=0.0)
    with pytest.raises(RunError, match="0 of 4 sites came"):
        measured.begin(1)
    fewer = deployed(Hand(sites(budget=4.0)), plan={**plan, "rounds": 10})
    assert fewer.begin(1) == list(range(CLIENTS))
    assert deployed(Hand(sites()), plan=plan).begin(1) == list(range(CLIENTS))


def test_a_plan_counts_evaluations_and_what_is_told_once() -> None:
    private = {"level": "example", "epsilon": 8.0, "evaluations": 0.3}
    config = resolve(
        {
            "data": {"name": "digits", "clients": 4},
            "method": {"name": "covey"},
            "private": private,
            "rounds": 30,
        }
    )
    told = losses_of(plan_of(config, 4)["beside"])
    assert told.pop(Loss(what="evaluations", mechanism="stated", noise=0.3)) == 30
    [(sketch, times)] = told.items()
    assert (sketch.what, times) == ("embeddings", 1)
    assert composed(told, 5e-6, "sample") == pytest.approx(1.0, rel=1e-3)  # an eighth


def test_training_on_clipped_gradients_plans_as_many_steps_as_it_takes() -> None:
    pytest.importorskip("opacus")
    step = ExampleTrain(train=Train(epochs=1, batch=32), clip=1.0, epsilon=2.0, delta=1e-5, rounds=5)
    ((loss, times),) = step.planned(320, 5).items()
    assert (loss.mechanism, loss.rate, times) == ("steps", 0.1, 50)
    assert 1.5 < composed({loss: times}, 1e-5, "sample") <= 2.0  # Opacus bounds it more loosely


def test_what_is_written_for_its_owner_can_be_read_by_nobody_else(tmp_path: Path) -> None:
    with for_their_owner():
        write_atomically(tmp_path / "checkpoint", b"a model")
        (tmp_path / "folder").mkdir()
    write_atomically(tmp_path / "other", b"anything")
    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in ("checkpoint", "folder", "other")]
    assert modes[:2] == [0o600, 0o700]
    assert modes[2] != 0o600


def test_a_private_run_that_measures_exactly_is_refused_before_anybody_is_asked(tmp_path: Path) -> None:
    """The last round is when it would measure: by then every site has paid for all others."""
    hand = Hand(sites(budget=1e6))
    config = resolve(
        {
            "rounds": 2,
            "data": {"clients": CLIENTS},
            "private": {"level": "local", "epsilon": 8.0, "clip": 0.5},
        }
    )
    with pytest.raises(UserError, match=r"measure\.local_test would show the server how good a model is"):
        run_config(config, tmp_path / "run", fleet=deployed(hand))
    assert not hand.kinds


def test_what_a_site_of_a_program_of_ones_own_keeps_is_its_owners(tmp_path: Path) -> None:
    """`covey join` writes no file that others can read; a `Site` in Python has a folder that they cannot enter."""
    site = sites(tmp_path, budget=1e6)[100]
    asked(site, NOISED)
    folder = tmp_path / "0"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "updates.json").stat().st_mode & 0o777 == 0o600
