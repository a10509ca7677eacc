"""Noise at the client: on its update, or (Opacus) on its gradients."""

from functools import partial

import numpy as np
import pytest
import torch
from scipy.stats import kstest
from torch import nn

from covey.core.round import Task, run_rounds
from covey.errors import UserError
from covey.methods.baselines import fedavg
from covey.parts.steps import Train
from covey.parts.steps.gaussian_noise import system_gaussian
from covey.parts.steps.private import Noised, clipped
from covey.privacy.apply import made_private
from covey.privacy.composition import composed
from covey.privacy.example import ExampleTrain, opacus_noise
from covey.privacy.settings import Private
from covey.runs.config import resolve
from covey.testing import check_method, small_fleet
from covey.training.bench.base import Recipe
from covey.training.bench.choose import choose_bench
from covey.training.bench.clipping import ClippedSums, Clipping, poisson_batches
from covey.training.bench.torch_bench import TorchBench
from covey.training.models import build
from covey.training.objective import Classification, NextToken
from covey.training.rows import read_row
from covey.training.survival import Cox

LOCAL = Private(level="local", epsilon=20.0, delta=1e-3, clip=0.5)
EXAMPLE = Private(level="example", epsilon=8.0, delta=1e-3, clip=1.0)


def made(settings: Private, **train):
    return made_private(fedavg(Train(epochs=1, **train), per_round=2), settings, clients=8, rounds=2)


def test_an_update_is_shortened_to_the_clip_length() -> None:
    assert clipped(torch.tensor([3.0, 4.0]), 1.0).tolist() == pytest.approx([0.6, 0.8])
    assert clipped(torch.tensor([0.3, 0.4]), 1.0).tolist() == pytest.approx([0.3, 0.4])


def test_noise_at_the_client_keeps_the_contract() -> None:
    check_method(made(LOCAL))


def test_a_client_pays_for_the_rounds_it_worked_in_and_no_more_than_its_budget() -> None:
    fleet = small_fleet()
    run_rounds(made(LOCAL), fleet, rounds=5)
    spent = {client: composed(told, 1e-3) for client, told in fleet.ledger.told.items()}
    assert max(spent.values()) <= 20.0 + 1e-3
    assert min(spent.values()) < max(spent.values())


def test_under_local_noise_single_updates_may_be_compared() -> None:
    """Krum and CFL read noisy updates, which costs nothing more; a choice by exact losses stays refused."""
    table = {"level": "local", "epsilon": 20.0, "clip": 1.0}
    for name in ("krum", "median", "cfl"):
        resolve({"method": {"name": name}, "private": table})
    for name in ("ifca", "oort"):
        with pytest.raises(UserError, match="cannot be private at the local level"):
            resolve({"method": {"name": name}, "private": table})


@pytest.mark.slow
def test_opacus_at_the_client_keeps_the_contract() -> None:
    check_method(made(EXAMPLE))


def test_clipped_sums_are_those_of_single_gradients_by_autograd() -> None:
    """Every sample's gradient by autograd alone, clipped and added up."""
    torch.manual_seed(0)
    model, goal = nn.Sequential(nn.Linear(4, 3)), Classification()
    x, y = torch.randn(6, 4), torch.tensor([0, 1, 2, 0, 1, 2])
    by_hand = torch.zeros(15)
    for i in range(6):
        model.zero_grad()
        goal.loss(model(x[i : i + 1]), y[i : i + 1]).backward()
        gradient = torch.cat([p.grad.flatten() for p in model.parameters()])
        by_hand += gradient * min(1.0, 0.5 / float(gradient.norm()))
    found = ClippedSums(model)(goal, x, y, 0.5)
    assert found.tolist() == pytest.approx(by_hand.tolist(), abs=1e-5)


@pytest.mark.parametrize("rule", [{}, {"momentum": 0.9, "weight_decay": 0.01}, {"prox": 0.5, "clip": 0.3}])
@pytest.mark.parametrize("name", ["mlp", "lenet5"])
def test_lanes_train_on_clipped_gradients_as_opacus_does(name: str, rule: dict[str, float]) -> None:
    """The same batches, one of them empty, and the same noise: the same row up to rounding."""
    shape = (1, 28, 28)
    model, goal = build(name, input_shape=shape, outputs=10, seed=1), Classification()
    rng = np.random.default_rng(2)
    x, y = torch.from_numpy(rng.standard_normal((40, *shape), np.float32)), torch.arange(40) % 10
    batches = [*poisson_batches(40, 0.4, rng, 3), np.zeros(0, np.int64), *poisson_batches(40, 0.1, rng, 1)]
    rows = []
    for lanes in (True, False):
        make, _ = choose_bench(model, goal, shape, lanes=lanes, device="cpu")
        noise = np.random.default_rng(3)
        bench = make()
        size = bench.layout.trainable
        draw = partial(noise.normal, 0.0, 0.1, size)
        clipping = Clipping(clip=0.7, expected=16.0, noise=draw, seed=5)
        recipe = Recipe(lr=0.3, **rule)
        rows.append(bench.fit_clipped(read_row(model), x, y, batches, recipe, clipping))
    moved = float((rows[0] - read_row(model)).norm())
    assert float((rows[0] - rows[1]).norm()) < 1e-5 * moved


@pytest.mark.parametrize("lanes", [True, False])
@pytest.mark.parametrize("rule", [{}, {"momentum": 0.9, "weight_decay": 0.01}])
def test_a_sample_whose_gradient_is_not_finite_counts_as_nothing(lanes: bool, rule: dict[str, float]) -> None:
    """A server can send a row that overflows on samples with a certain pixel: NaN would tell that one was there."""
    model, goal = build("softmax", input_shape=(1, 2, 2), outputs=3, seed=1), Classification()
    row = read_row(model).clone()
    row[:12].view(3, 4)[:, 0] = torch.tensor(
        [3e38, -3e38, 3e38]
    )  # of the first pixel, which is 0 but for one sample
    x, y = torch.rand(6, 1, 2, 2), torch.arange(6) % 3
    x[:, 0, 0, 0] = 0.0
    x[4, 0, 0, 0] = 9.0
    without = [batch[batch != 4] for batch in (np.arange(6), np.array([4]), np.array([1, 4]))]
    rows = []
    for batches in ([np.arange(6), np.array([4]), np.array([1, 4])], without):
        bench = choose_bench(model, goal, (1, 2, 2), lanes=lanes, device="cpu")[0]()
        noise = partial(np.random.default_rng(3).normal, 0.0, 0.1, bench.layout.trainable)
        clipping = Clipping(clip=0.7, expected=4.0, noise=noise, seed=5)
        rows.append(bench.fit_clipped(row, x, y, batches, Recipe(lr=0.3, **rule), clipping))
    assert rows[0].isfinite().all()
    assert float((rows[0] - rows[1])[row.abs() < 1e6].abs().max()) < 1e-5


def test_noise_of_the_system_is_gaussian_and_never_twice_the_same() -> None:
    values = system_gaussian(100_000, 2.0)
    assert kstest(values / 2.0, "norm").pvalue > 1e-6
    assert np.unique(values).size == values.size


def test_the_noise_for_a_budget_is_opacus_own_and_dp_accounting_agrees() -> None:
    from covey.privacy.accountant import Sampling, Sums, epsilon_of

    noise = opacus_noise(4.0, 1e-4, 0.1, 60)
    sums = [Sums(noise=noise, sampling=Sampling(kind="poisson", rate=0.1), times=60)]
    assert epsilon_of(sums, 1e-4, "rdp") == pytest.approx(4.0, rel=0.03)
    assert epsilon_of(sums, 1e-4, "pld") <= 4.0


def test_an_update_that_is_not_finite_is_sent_as_none() -> None:
    """At the local level any update must look like any other, also NaN."""
    fleet = small_fleet()
    step = Noised(step=Train(lr=0.1), clip=0.5, noise=2.0)
    start = fleet.start() * 1e25  # two layers of which are beyond float32
    assert fleet.ask(step.step, {0: Task(models=start[None], slots=(0,))}) == []  # a row of NaN is refused
    (reply,) = fleet.ask(step, {0: Task(models=start[None], slots=(0,))})
    assert reply.vector is not None
    assert reply.vector.isfinite().all()
    assert clipped(torch.tensor([1.0, float("nan")]), 1.0).tolist() == [0.0, 0.0]


def test_a_client_trains_in_no_more_rounds_than_its_loss_was_planned_for() -> None:
    fleet = small_fleet()
    method = made(EXAMPLE)
    run_rounds(method, fleet, rounds=1)
    client = next(iter(fleet.states))
    assert fleet.states[client]["private rounds"] == 1
    fleet.states[client]["private rounds"] = 2
    task = Task(models=fleet.start()[None], slots=(0,))
    assert fleet.ask(method.local, {client: task}) == []
    assert "for which its privacy loss was planned" in fleet.ledger.problems[-1][1].reason
    assert composed(fleet.ledger.told[client], 1e-3, "sample") == pytest.approx(8.0, abs=0.01)
    assert composed(fleet.ledger.told[client], 1e-3, "client") == np.inf


def test_example_level_needs_plain_training() -> None:
    with pytest.raises(UserError, match="Opacus replaces plain training only"):
        resolve({"method": {"name": "ditto"}, "private": {"level": "example", "epsilon": 8.0, "clip": 1.0}})
    assert ExampleTrain(train=Train(), clip=1.0, epsilon=1.0, delta=1e-5, rounds=2).steps(33) == 3 * 5


def test_a_sites_own_budget_covers_its_updates_and_survives_a_restart(tmp_path) -> None:
    from covey.core.privacy_loss import Loss
    from covey.deploy.privacy_account import PrivacyAccount
    from covey.errors import Refused

    update = Loss(what="updates", mechanism="local", noise=10.0)
    account = PrivacyAccount(tmp_path, data=lambda: "", budget=2.5)
    account.spend(0.5)
    account.lose(update)
    again = PrivacyAccount(tmp_path, data=lambda: "", budget=2.5)
    assert again.told == {update: 1}
    assert again.composed(again.epsilon, again.told) == pytest.approx(
        composed({update: 1, Loss(what="summaries", mechanism="stated", noise=0.5): 1}, 1e-5, "sample")
    )
    again.told = {update: 20}
    with pytest.raises(Refused, match=r"of the budget of 2\.5 would be spent"):
        again.lose(update)
    with pytest.raises(Refused, match="a summary of epsilon"):
        again.spend(1.5)


def test_evaluations_under_noise_are_counted() -> None:
    from dataclasses import replace

    from covey.parts.measure import on_local_tests

    fleet = small_fleet()
    method = made(replace(LOCAL, evaluations=4.0))
    state = run_rounds(method, fleet, rounds=1)
    found = on_local_tests(method, state, fleet)
    assert {m.metric for m in found if m.client >= 0} == {"accuracy"}
    evaluations = [loss for told in fleet.ledger.told.values() for loss in told if loss.what == "evaluations"]
    assert {loss.noise for loss in evaluations} == {4.0}


@pytest.mark.parametrize("clip", [50.0, 2.0, 1.0])
def test_a_long_text_moves_a_sum_by_its_own_gradient_alone(clip: float) -> None:
    """The loss of a batch is a mean over all tokens: 40 more of them would make the gradients of all others shorter."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(12, 8), nn.Linear(8, 12), Last())
    x = torch.zeros(9, 40, dtype=torch.long)
    x[:8, :2], x[8] = torch.randint(1, 12, (8, 2)), torch.randint(1, 12, (40,))
    goal = NextToken()
    target, sums = goal.target(x, torch.randint(1, 12, (9,))), ClippedSums(model)
    with_it, without = (sums(goal, x[:count], target[:count], clip) for count in (9, 8))
    assert float((with_it - without).norm()) <= clip * (1 + 1e-5)


class Last(nn.Module):
    """Classes before places, as PyTorch's loss has them."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.transpose(1, 2)


def test_an_objective_that_mixes_samples_has_no_gradient_of_one() -> None:
    """One sample that is at risk beside all others changes the gradients of all."""
    with pytest.raises(UserError, match="what one sample costs depends on the others"):
        TorchBench(nn.Sequential(nn.Linear(5, 1)), Cox()).with_opacus()
