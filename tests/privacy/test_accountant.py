"""The accountant's numbers, against dp-accounting called directly, against Opacus, and against closed formulas."""

import math

import dp_accounting
import pytest

from covey.core.privacy_loss import Loss
from covey.errors import UserError
from covey.privacy.accountant import Sampling, Sums, epsilon_of, noise_for, relation_of
from covey.privacy.composition import composed

POISSON = Sampling(kind="poisson", rate=0.05)
FIXED = Sampling(kind="fixed", chosen=10, of=200)


def direct(event, relation: str, accountant: str) -> float:
    """dp-accounting, and nothing of ours."""
    import dp_accounting.pld
    import dp_accounting.rdp

    neighbours = getattr(dp_accounting.NeighboringRelation, relation)
    if accountant == "rdp":
        return (
            dp_accounting.rdp.RdpAccountant(neighboring_relation=neighbours).compose(event).get_epsilon(1e-5)
        )
    return dp_accounting.pld.PLDAccountant(neighbours).compose(event).get_epsilon(1e-5)


@pytest.mark.parametrize("accountant", ["pld", "rdp"])
def test_poisson_sampled_sums_are_those_of_dp_accounting(accountant) -> None:
    one = dp_accounting.PoissonSampledDpEvent(0.05, dp_accounting.GaussianDpEvent(1.5))
    event = dp_accounting.SelfComposedDpEvent(one, 40)
    ours = epsilon_of([Sums(noise=1.5, sampling=POISSON, times=40)], 1e-5, accountant)
    assert ours == pytest.approx(direct(event, "ADD_OR_REMOVE_ONE", accountant), rel=1e-3)


def test_sums_without_sampling_are_one_gaussian() -> None:
    """T sums with noise z are one with z / sqrt(T); an update counts or is zero."""
    ours = epsilon_of([Sums(noise=8.0, sampling=Sampling(), times=16)], 1e-5)
    event = dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(8.0), 16)
    assert ours == pytest.approx(direct(event, "ADD_OR_REMOVE_ONE", "pld"), rel=1e-3)
    mixed = [Sums(noise=4.0, sampling=Sampling(), times=2), Sums(noise=8.0, sampling=Sampling(), times=8)]
    assert epsilon_of(mixed, 1e-5) == pytest.approx(ours, rel=1e-9)


def test_fixed_size_sampling_has_its_own_neighbours_and_half_the_noise() -> None:
    """A replaced client moves the sum by two clip lengths."""
    sums = [Sums(noise=4.0, sampling=FIXED, times=20)]
    assert relation_of(sums) == "replace-one"
    one = dp_accounting.SampledWithoutReplacementDpEvent(200, 10, dp_accounting.GaussianDpEvent(2.0))
    event = dp_accounting.SelfComposedDpEvent(one, 20)
    assert epsilon_of(sums, 1e-5) == pytest.approx(direct(event, "REPLACE_ONE", "rdp"), rel=1e-9)


def test_sampling_is_never_credited_where_data_decide() -> None:
    spent = {
        kind: epsilon_of([Sums(noise=2.0, sampling=kind, times=10)], 1e-5) for kind in (Sampling(), POISSON)
    }
    assert spent[Sampling()] > 5 * spent[POISSON]


@pytest.mark.parametrize("sampling", [POISSON, FIXED, Sampling()], ids=lambda s: s.kind)
def test_epsilon_in_noise_out_and_back(sampling) -> None:
    noise = noise_for(3.0, 1e-5, sampling=sampling, times=25)
    back = epsilon_of([Sums(noise=noise, sampling=sampling, times=25)], 1e-5)
    assert 2.9 < back <= 3.0 + 1e-9


def test_noise_for_what_is_left_of_a_budget() -> None:
    """After 10 rounds of 25 have been told, the rest finds the noise with which all 25 keep to it."""
    spent = (Sums(noise=1.5, sampling=POISSON, times=10),)
    noise = noise_for(3.0, 1e-5, sampling=POISSON, times=15, spent=spent)
    assert 2.9 < epsilon_of([*spent, Sums(noise=noise, sampling=POISSON, times=15)], 1e-5) <= 3.0
    with pytest.raises(UserError, match=r"private.epsilon is 0.1, and .* of it is spent"):
        noise_for(0.1, 1e-5, sampling=POISSON, times=1, spent=spent)


def test_opacus_says_the_same() -> None:
    accountants = pytest.importorskip("opacus.accountants")
    theirs = accountants.RDPAccountant()
    for _ in range(40):
        theirs.step(noise_multiplier=1.5, sample_rate=0.05)
    ours = epsilon_of([Sums(noise=1.5, sampling=POISSON, times=40)], 1e-5, "rdp")
    assert ours == pytest.approx(theirs.get_epsilon(delta=1e-5), rel=0.02)
    exact = accountants.PRVAccountant()
    for _ in range(40):
        exact.step(noise_multiplier=1.5, sample_rate=0.05)
    ours = epsilon_of([Sums(noise=1.5, sampling=POISSON, times=40)], 1e-5, "pld")
    assert ours == pytest.approx(exact.get_epsilon(delta=1e-5), rel=0.02)


# ---------------------------------------------------------------------------------------------- one client, all it told

UPDATES = Loss(what="updates", mechanism="sum", noise=1.5, rate=0.05)
SUMMARY = Loss(what="summaries", mechanism="stated", noise=0.5)


def test_updates_alone_cost_what_the_accountant_says() -> None:
    ours = composed({UPDATES: 40}, 1e-5, "client")
    assert ours == pytest.approx(epsilon_of([Sums(noise=1.5, sampling=POISSON, times=40)], 1e-5), rel=1e-3)


def test_a_summary_protects_a_sample_and_no_client() -> None:
    assert composed({SUMMARY: 1}, 1e-5, "sample") == pytest.approx(0.5, abs=2e-3)
    assert composed({SUMMARY: 1}, 1e-5, "client") == math.inf


def test_together_they_cost_at_most_the_sum_and_at_least_the_larger() -> None:
    apart = composed({UPDATES: 40}, 1e-5, "sample"), composed({SUMMARY: 3}, 1e-5, "sample")
    both = composed({UPDATES: 40, SUMMARY: 3}, 1e-5, "sample")
    assert max(apart) < both <= sum(apart) + 1e-3


def test_one_sample_changes_an_update_into_another() -> None:
    """Twice the clip length: as a client that is there or not under half the noise."""
    whole = Loss(what="updates", mechanism="sum", noise=4.0)
    half = Loss(what="updates", mechanism="sum", noise=2.0)
    assert composed({whole: 5}, 1e-5, "sample") == pytest.approx(
        composed({half: 5}, 1e-5, "client"), rel=1e-3
    )


def test_fixed_size_sums_compose_with_the_rest() -> None:
    fixed = Loss(what="updates", mechanism="sum", noise=4.0, chosen=10, of=200)
    alone = epsilon_of([Sums(noise=4.0, sampling=FIXED, times=20)], 5e-6)
    both = composed({fixed: 20, SUMMARY: 1}, 1e-5, "sample")
    assert alone < both <= alone + 0.5 + 2e-3


def test_nothing_told_costs_nothing_and_a_huge_loss_adds_up() -> None:
    assert composed({}, 1e-5) == 0.0
    bits = Loss(what="embeddings", mechanism="stated", noise=439.0, whole=True)
    assert composed({bits: 1}, 1e-5, "client") == pytest.approx(439.0)
