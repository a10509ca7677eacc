"""Client-level privacy: what the server is shown, by hand; and whole runs that repeat, resume and keep to a budget."""

import numpy as np
import pytest
import torch

from covey.core.ledger import Ledger
from covey.core.round import Method, Reply, Task, run_rounds
from covey.errors import UserError
from covey.methods.baselines import fedavg
from covey.parts.selection import Poisson, Uniform
from covey.parts.steps import Train
from covey.privacy.accountant import Sampling
from covey.privacy.apply import made_private
from covey.privacy.clipping import Split, clipped_sum, next_clip
from covey.privacy.plan import CLIP, Plan
from covey.privacy.settings import Private
from covey.privacy.small_groups import merged_groups
from covey.privacy.sums import NoisySums
from covey.runs.config import resolve
from covey.testing import check_method, final, small_fleet


def test_updates_are_shortened_to_the_clip_length() -> None:
    """(3, 4) is 5 long: of a clip length of 1 it counts (0.6, 0.8); (0, 0.5) counts in full."""
    total, short = clipped_sum([torch.tensor([3.0, 4.0]), torch.tensor([0.0, 0.5])], 1.0, 2)
    assert total.tolist() == pytest.approx([0.6, 1.3])
    assert short == 1


def test_the_noise_is_shared_between_updates_and_count() -> None:
    """Together they are worth the noise that is accounted: 1/z^2 = 1/z_u^2 + 1/(2 s)^2."""
    split = Split.of(1.0, expected=100)
    assert split.count == 5.0
    assert split.updates**-2 + (2 * split.count) ** -2 == pytest.approx(1.0)
    assert Split.of(1.0, expected=10).updates == pytest.approx(1.0328, abs=1e-4)


def test_the_clip_length_follows_the_quantile() -> None:
    assert next_clip(1.0, 0.5, 0.5) == 1.0
    assert next_clip(1.0, 1.0, 0.5) == pytest.approx(np.exp(-0.1))
    assert next_clip(1.0, -3.0, 0.5) == pytest.approx(np.exp(0.1))


def shown(a_round, noise: float, **settings) -> tuple[list[Reply], object]:
    answers = {
        0: Reply(id=0, vector=torch.tensor([3.0, 4.0])),
        1: Reply(id=1, vector=torch.tensor([0.0, 0.5])),
    }
    now = a_round((0.0, 0.0), here=[0, 1, 2, 3], answers=answers)
    now.fleet.ledger, now.fleet.simulated = Ledger(), True
    now.tasks = {i: Task(models=now.models, slots=(0,)) for i in (0, 1)}
    private = Private(noise=noise, clip=1.0, **settings)
    gather = NoisySums(plan=Plan(settings=private, rounds=3, select=Poisson(rate=0.5)))
    return gather(now, Train()), now


def test_the_server_is_shown_one_noisy_mean(a_round) -> None:
    """4 clients at a rate of 0.5 are 2 expected: (0.6, 1.3) / 2, plus noise of z C / 2."""
    replies, now = shown(a_round, 1e-9)
    assert [reply.vector.tolist() for reply in replies] == [pytest.approx([0.3, 0.65], abs=1e-6)]
    assert replies[0].size == 2
    assert not replies[0].stats
    assert now.worked == (0, 1)
    noisy = np.array([shown(a_round, 1.0)[0][0].vector.tolist()]) - [0.3, 0.65]
    drawn = now.stream("private", 0).normal(0.0, 1.0, 2) / 2
    assert noisy[0].tolist() == pytest.approx(drawn.tolist(), abs=1e-6)


def test_everybody_who_could_have_been_drawn_pays(a_round) -> None:
    _, now = shown(a_round, 1.0)
    assert sorted(now.fleet.ledger.told) == [0, 1, 2, 3]


def test_a_round_that_draws_nobody_is_noise_and_no_error(a_round) -> None:
    now = a_round((0.0, 0.0), here=[0, 1])
    now.fleet.ledger, now.fleet.simulated = Ledger(), True
    gather = NoisySums(plan=Plan(settings=Private(noise=1.0, clip=1.0), rounds=3, select=Poisson(rate=0.1)))
    replies = gather(now, Train())
    assert len(replies) == 1
    assert bool((replies[0].vector != 0).all())


def private_fedavg(select: str = "poisson", **settings) -> Method:
    settings = {"epsilon": 8.0, "delta": 1e-3, "clip": 0.5, "sampling": select} | settings
    return made_private(fedavg(Train(epochs=1), per_round=4), Private(**settings), clients=8, rounds=3)


@pytest.mark.parametrize(
    "settings",
    [{}, {"clip": "adaptive"}, pytest.param({"select": "method"}, marks=pytest.mark.slow)],
    ids=str,
)
def test_private_fedavg_keeps_the_contract(settings) -> None:
    check_method(private_fedavg(**settings))


def test_a_run_keeps_to_its_budget_and_follows_the_clip_length() -> None:
    fleet = small_fleet()
    state = run_rounds(private_fedavg(clip="adaptive", least=1), fleet, rounds=3)
    from covey.privacy.composition import composed

    spent = [composed(told, 1e-3) for told in fleet.ledger.told.values()]
    assert len(spent) == len(fleet.data.shares)
    assert 7.5 < max(spent) <= 8.0 + 1e-6
    assert CLIP.of(state.memory) != 0.1


def test_a_run_that_goes_on_for_more_rounds_still_keeps_to_it() -> None:
    from dataclasses import replace

    from covey.privacy.composition import composed

    fleet, method = small_fleet(), private_fedavg()
    state = run_rounds(method, fleet, rounds=2)
    longer = replace(method, gather=replace(method.gather, plan=replace(method.gather.plan, rounds=6)))
    run_rounds(longer, fleet, rounds=6, state=state)
    assert 7.5 < composed(fleet.ledger.told[0], 1e-3) <= 8.0 + 1e-6


def test_selection_by_data_is_not_amplified(a_round) -> None:
    now = a_round((0.0,), here=[0, 1, 2, 3])
    settings = Private(noise=1.0)
    plan = Plan(settings=settings, rounds=3, select=lambda now: [0])
    assert plan.sampling(now) == Sampling()
    plan = Plan(settings=settings, rounds=3, select=Uniform(per_round=2))
    assert plan.sampling(now) == Sampling(kind="fixed", chosen=2, of=4)
    assert Plan(settings=settings, rounds=3, select=Poisson(rate=0.25)).sampling(now).kind == "poisson"


def test_small_groups_are_merged() -> None:
    groups = {0: 0, 1: 0, 2: 0, 3: 1, 4: 2, 5: 2}
    assert merged_groups(groups, 3) == {0: 0, 1: 0, 2: 0, 3: 1, 4: 1, 5: 1}
    assert merged_groups(groups, 1) == groups
    assert set(merged_groups({0: 0, 1: 0, 2: 0, 3: 1}, 3).values()) == {0}
    assert set(merged_groups({0: 0, 1: 1, 2: 2}, 9).values()) == {0}


# ---------------------------------------------------------------------------------------------- which methods may

PRIVATE = {"epsilon": 8.0, "delta": 1e-3}
ALLOWED = {
    "fedavg": {},
    "fedprox": {},
    "fedavgm": {},
    "fedadam": {},
    "fine-tuned": {},
    "fedper": {},
    "ditto": {},
    "cfic": {"epsilon": 2.0},
    "embedding": {"pretrain": "public"},
    "haccs": {"losses": "none"},
    "covey": {"epsilon": 4.0, "without": ("selection", "correction", "serving")},
}
REFUSED = {
    "cfl": "single updates, whose angles split the clients",
    "ifca": "which model has the lowest loss on a client's data",
    "krum": "single updates, of which it publishes one",
    "median": "single updates, number by number",
    "oort": "exact loss",
    "power-of-choice": "exact loss",
    "tifl": "exact loss",
    "cfic": "the exact label",
    "embedding": "updates without noise, of which its autoencoder is made",
    "haccs": "exact loss",
    "scaffold": "control variate",
    "feddisco": "label mix",
    "decentralized": "every client's own model",
    "ladd": "amplitudes",
    "clustered-sampling": "sketch",
    "local": "every client's own model",
}


@pytest.mark.parametrize("name", ALLOWED)
def test_methods_that_read_sums_can_be_private(name) -> None:
    method = resolve({"method": {"name": name, **ALLOWED[name]}, "private": PRIVATE}).method
    assert isinstance(method.gather, NoisySums)


@pytest.mark.parametrize("name", REFUSED)
def test_methods_that_show_more_are_refused_in_one_sentence(name) -> None:
    with pytest.raises(UserError, match="cannot be private at the client level") as no:
        resolve({"method": {"name": name}, "private": PRIVATE})
    assert REFUSED[name] in str(no.value)
    assert str(no.value).count(". ") == 0


def test_covey_over_a_topology_is_refused() -> None:
    with pytest.raises(UserError, match="cannot be private at the client level"):
        resolve({"method": {"name": "covey", "over": "hierarchical-ring"}, "private": PRIVATE})


def test_private_covey_keeps_the_contract_and_its_budget() -> None:
    from covey.methods.covey import covey
    from covey.privacy.composition import composed

    method = made_private(
        covey(Train(epochs=1), per_round=4), Private(epsilon=8.0, delta=1e-3, clip=0.5), clients=8, rounds=3
    )
    check_method(method)
    fleet = small_fleet()
    run_rounds(method, fleet, rounds=3)
    told = {loss.what for loss in fleet.ledger.told[0]}
    assert told == {"embeddings", "updates"}
    assert 7.0 < composed(fleet.ledger.told[0], 1e-3) <= 8.0 + 1e-6


def test_a_combine_of_robust_is_refused() -> None:
    with pytest.raises(UserError, match=r"single updates, which \[robust\] compares"):
        resolve({"robust": {"name": "median"}, "private": PRIVATE})


def test_the_norm_guard_is_off_because_no_noise_covers_it() -> None:
    assert resolve({"private": PRIVATE})["guard"]["norm"] == 0
    with pytest.raises(UserError, match=r"guard\.norm is 10"):
        resolve({"private": PRIVATE, "guard": {"norm": 10.0}})


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({}, "give one of them"),
        ({"epsilon": 1.0, "noise": 1.0}, "give one of them"),
        ({"epsilon": -1.0}, "private.epsilon is -1.0"),
        ({"epsilon": 1.0, "clip": "quick"}, "private.clip is 'quick'"),
        ({"epsilon": 1.0, "level": "local"}, "which needs sums of clients"),
    ],
)
def test_settings_that_make_no_sense(settings, sentence) -> None:
    with pytest.raises(UserError) as no:
        resolve({"private": settings or {"delta": 1e-5}})
    assert sentence in str(no.value).replace('"', "'")


def test_groups_have_noisy_sums_of_their_own_and_the_report_counts_who_stands_behind_them() -> None:
    config = resolve(
        {
            "rounds": 2,
            "data": {"clients": 8},
            "method": {"name": "cfic", "per_round": 6, "epsilon": 4.0},
            "private": {**PRIVATE, "least": 2, "clip": 0.5},
        }
    )
    fleet = small_fleet()
    state = run_rounds(config.method, fleet, rounds=2)
    behind = state.notes["clients behind each model"]
    assert sum(behind["clients"]) == len(fleet.data.shares)
    assert min(behind["clients"]) >= 2
    assert torch.isfinite(state.models).all()
    assert len(final(config.method, small_fleet()).models) == 1


@pytest.mark.parametrize("noise", [5e-324, 1e-200, 1.7e308])
def test_noise_that_cannot_be_meant_is_refused(noise: float) -> None:
    """Its square is no number, so that no share of it for the counts of short updates could be found."""
    with pytest.raises(UserError, match=r"private\.noise is .*allowed: a number from 1e-09 to"):
        resolve({"private": {"noise": noise}})


def test_a_private_run_remembers_no_length_of_a_single_update() -> None:
    """Noise covers sums; a checkpoint with the exact length of the round's longest update would be outside of it."""
    fleet = small_fleet()
    run_rounds(private_fedavg(), fleet, rounds=2)
    assert fleet.ledger.longest == []
    run_rounds(fedavg(Train(epochs=1), per_round=4), fleet, rounds=1)
    assert fleet.ledger.longest


def test_the_clip_length_where_none_is_given_is_the_levels() -> None:
    assert Private(epsilon=8.0).clip_length == "adaptive"
    assert Private(epsilon=8.0, level="example").clip_length == 1.0
    assert Private(epsilon=8.0, level="example", clip=0.5).clip_length == 0.5
