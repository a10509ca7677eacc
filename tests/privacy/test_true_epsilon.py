"""Ways in which a printed epsilon could be too small, each tried: none is."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from covey.core.ledger import Ledger
from covey.core.privacy_loss import Loss
from covey.core.round import Method, Reply, Step, Task, run_rounds
from covey.errors import UserError
from covey.fleet.devices import Devices
from covey.folder.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from covey.folder.place import is_free, only_begun, tries
from covey.methods.baselines import fedavg
from covey.parts.selection import Poisson
from covey.parts.steps import Train
from covey.privacy.accountant import Sampling
from covey.privacy.apply import made_private
from covey.privacy.clipping import Split
from covey.privacy.composition import composed, statement
from covey.privacy.example import ORDERS
from covey.privacy.plan import SPENT, Plan
from covey.privacy.quote import quote
from covey.privacy.secret_draw import SecretDraw
from covey.privacy.settings import Private
from covey.privacy.sums import NoisySums
from covey.testing import CLIENTS, small_fleet

TRAIN = Train(epochs=1, batch=64)
SUM = Loss(what="updates", mechanism="sum", noise=2.0, rate=0.5)


def made(rounds: int, *, per_round: int = CLIENTS, **settings: object) -> Method:
    private = Private(**{"delta": 1e-3, "clip": 0.5, **settings})
    return made_private(fedavg(TRAIN, per_round=per_round), private, clients=CLIENTS, rounds=rounds)


# ---------------------------------------------------------------------------------------------- runs that continue


def test_a_resumed_run_has_spent_what_a_straight_one_has(tmp_path: Path) -> None:
    method, straight, first, second = made(3, noise=2.0), small_fleet(), small_fleet(), small_fleet()
    run_rounds(method, straight, rounds=3)
    part = run_rounds(method, first, rounds=2)
    save_checkpoint(tmp_path, Checkpoint(state=part, fleet=first.save(), extra={}))
    loaded = load_checkpoint(tmp_path)
    assert loaded is not None
    second.load(loaded.fleet)
    run_rounds(method, second, rounds=3, state=loaded.state)
    assert second.ledger.told == straight.ledger.told
    assert list(straight.ledger.told[0].values()) == [3]


def test_local_noise_of_a_longer_plan_does_not_forget_the_updates_under_the_old_one() -> None:
    """3 rounds use up the budget; `--resume --rounds 9` finds more noise, and nobody has anything left to spend."""
    fleet = small_fleet()
    state = run_rounds(made(3, level="local", epsilon=20.0), fleet, rounds=3)
    longer = run_rounds(made(9, level="local", epsilon=20.0), fleet, rounds=4, state=state)
    assert max(composed(told, 1e-3) for told in fleet.ledger.told.values()) <= 20.0 + 1e-2
    assert longer.worked == ()


def test_local_noise_of_a_longer_plan_spends_what_is_left() -> None:
    fleet = small_fleet()
    state = run_rounds(made(4, level="local", epsilon=20.0), fleet, rounds=2)
    run_rounds(made(20, level="local", epsilon=20.0), fleet, rounds=12, state=state)
    told = fleet.ledger.told[0]
    assert len(told) == 2  # two kinds of noise
    assert 17.0 < composed(told, 1e-3) <= 20.0 + 1e-2


def test_gradients_under_noise_in_a_longer_run_keep_to_the_first_promise() -> None:
    """Opacus' own accountant, over all steps that a client made in both parts of the run."""
    accountants = pytest.importorskip("opacus.accountants")
    fleet = small_fleet()
    steps = [made(3, level="example", epsilon=8.0).local] * 2 + [
        made(8, level="example", epsilon=8.0).local
    ] * 6
    task, answers = Task(models=fleet.start()[None], slots=(0,)), 0
    for number, step in enumerate(steps, 1):
        fleet.begin(number)
        answers += len(fleet.ask(step, {0: task}))
    history = fleet.states[0]["private spent"]
    assert [entry[2] for entry in history] == [history[0][2], history[0][2] * (answers - 2) / 2]
    accountant = accountants.RDPAccountant()
    accountant.history = [(noise, rate, int(steps)) for noise, rate, steps in history]
    assert 6.5 < accountant.get_epsilon(5e-4, alphas=ORDERS) <= 8.0
    assert "would make its privacy loss" in fleet.ledger.problems[-1][1].reason


# ---------------------------------------------------------------------------------------------- who is there


def a_private_round(a_round, *, gather: NoisySums, groups: dict[int, int] | None = None, heard=(0, 1)):
    """Clients 0 to 3; those in `heard` answer a task that 0, 1 and 2 were given."""
    answers = {i: Reply(id=i, vector=torch.tensor([0.1, 0.0])) for i in heard}
    now = a_round((0.0, 0.0), here=[0, 1, 2, 3], groups=groups or {}, answers=answers)
    now.fleet.ledger, now.fleet.simulated = Ledger(), True
    now.tasks = {i: Task(models=now.models, slots=(0,)) for i in (0, 1, 2)}
    return now, gather(now, TRAIN)


def sums(**settings: object) -> NoisySums:
    private = Private(**{"noise": 2.0, "clip": 1.0, **settings})
    return NoisySums(plan=Plan(settings=private, rounds=3, select=Poisson(rate=0.5)))


def test_who_drops_out_pays_and_makes_the_noise_no_smaller(a_round) -> None:
    few, shown = a_private_round(a_round, gather=sums(), heard=(0,))
    many, all_shown = a_private_round(a_round, gather=sums(), heard=(0, 1, 2))
    assert few.fleet.ledger.told == many.fleet.ledger.told == {i: {SUM: 1} for i in range(4)}
    moved = (all_shown[0].vector - shown[0].vector).tolist()
    assert moved == pytest.approx([2 * 0.1 / 2, 0.0], abs=1e-6)  # two updates over the same m: equal noise


def test_one_client_moves_sum_and_count_together_by_no_more_than_the_noise_accounts_for() -> None:
    """(C / (z_u C))^2 + (1/2 / s)^2 = (1 / z)^2: a client adds at most C to the sum and 1/2 to the count."""
    for noise, expected in ((0.7, 4), (2.0, 50), (1.1, 5000)):
        split = Split.of(noise, expected)
        assert split.updates**-2 + (0.5 / split.count) ** 2 == pytest.approx(noise**-2)


def test_after_regrouping_a_client_is_still_in_one_sum_of_a_round(a_round) -> None:
    """Groups only say which sum a client is in: the chance to be drawn, and the price, stay."""
    gather = replace(sums(), by_group=True)
    for groups in ({0: 0, 1: 0, 2: 1, 3: 1}, {0: 0, 1: 1, 2: 1, 3: 1}, {0: 0, 1: 1, 2: 2, 3: 3}):
        now, _ = a_private_round(a_round, gather=gather, groups=groups)
        pools = gather.pools(now, [])
        assert sorted(client for members in pools.values() for client in members) == [0, 1, 2, 3]
        assert now.fleet.ledger.told == {i: {SUM: 1} for i in range(4)}


def test_unseen_pay_from_when_they_are_there() -> None:
    fleet = small_fleet(devices=Devices(joins=({"clients": 7, "round": 3},)))
    run_rounds(made(4, noise=2.0, per_round=4), fleet, rounds=4)
    rounds = {client: sum(told.values()) for client, told in fleet.ledger.told.items()}
    assert rounds == {**dict.fromkeys(range(7), 4), 7: 2}


def test_noise_of_the_clients_is_not_amplified_because_the_server_knows_whom_it_drew() -> None:
    settings = {"secure": True, "noise": 2.0, "per_round": 4}
    ours = made(3, **settings, noise_from="clients").gather.plan.accounted(CLIENTS)  # type: ignore[attr-defined]
    servers = made(3, **settings).gather.plan.accounted(CLIENTS)  # type: ignore[attr-defined]
    assert (ours, servers) == (Sampling(), Sampling(kind="poisson", rate=0.5))


# ---------------------------------------------------------------------------------------------- real sites


def live_round(a_round, tries: int, memory: dict[str, object]):
    now = a_round((0.0, 0.0), here=[0, 1, 2, 3], answers={})
    now.fleet.ledger, now.fleet.simulated = Ledger(tries=tries), False
    now.memory.update(memory)
    return now


def test_a_round_that_a_stopped_server_makes_again_is_booked_as_often_as_it_was_begun(a_round) -> None:
    """Its model may have been seen each time, and is made again under fresh noise."""
    pytest.importorskip("opendp")
    first = live_round(a_round, 1, {})
    sums()(first, TRAIN)
    assert first.fleet.ledger.told[0] == {SUM: 1}
    third = live_round(a_round, 3, first.memory)
    sums()(third, TRAIN)
    assert third.fleet.ledger.told[0] == {SUM: 3}
    assert SPENT.of(third.memory)[-1]["times"] == 4


def test_so_it_is_where_nobody_answers_the_last_try(a_round) -> None:
    """Nothing of it is told; of the tries before, somebody may have heard everything."""
    for times, told in ((1, {}), (3, {i: {SUM: 3} for i in range(4)})):
        now = live_round(a_round, times, {})
        now.tasks = {0: Task(models=now.models, slots=(0,))}
        assert sums()(now, TRAIN) == []
        assert now.fleet.ledger.told == told


@pytest.mark.parametrize("level", ["local", "example"])
def test_so_it_is_where_clients_add_the_noise(a_round, level) -> None:
    gather = made(4, level=level, epsilon=20.0, delta=1e-3).gather
    resumed = live_round(a_round, 3, {})
    resumed.seen, resumed.tasks = (0, 1), {0: Task(models=resumed.models, slots=(0,))}
    gather(resumed, TRAIN)
    for told in resumed.fleet.ledger.told.values():
        ((loss, times),) = told.items()
        if level == "local":
            assert times == 3
        else:  # two rounds more than the four that 20 was planned for
            assert (loss.mechanism, loss.noise, times) == ("promised", 30.0, 1)
    assert list(resumed.fleet.ledger.told) == [0, 1]  # whom a lost try asked nobody knows


def test_what_is_told_before_training_is_counted_in_every_try() -> None:
    ledger = Ledger(tries=2)
    ledger.tell(0, 0.5, kind="query.labels")
    ledger.tell(0, 0.5, kind="query.labels")  # the same answer again
    assert ledger.told == {0: {Loss(what="summaries", mechanism="stated", noise=0.5): 2}}


def test_the_tries_of_a_round_are_counted_in_the_run_folder(tmp_path: Path) -> None:
    """Killed twice in the first round, twice in the sixth: rounds 1 and 6 have three tries each."""
    assert [tries(tmp_path, done) for done in (0, 0, 0, 5, 5)] == [1, 2, 3, 2, 3]
    with (tmp_path / "starts").open("ab") as file:
        file.write(b"\xff\n")  # a damaged line takes nothing away from the others
    assert tries(tmp_path, 5) == 4
    assert only_begun(tmp_path) is False
    (tmp_path / "starts.tmp").touch()  # killed as it wrote down a start
    assert is_free(tmp_path)  # a run may begin anew beside it


def test_a_fifth_more_rounds_cost_at_most_a_fifth_more() -> None:
    """What the promise of a repeated round relies on, by Opacus."""
    from covey.privacy.example import opacus_epsilon, opacus_noise

    noise = opacus_noise(8.0, 5e-4, 0.2, 40)
    assert opacus_epsilon(((noise, 0.2, 48),), 5e-4) <= 8.0 * 48 / 40


def test_who_is_drawn_at_real_sites_is_not_told_by_the_seed(a_round) -> None:
    """Every site knows the run's seed; whoever knows the draw gets nothing of its amplification."""
    method = made(3, noise=2.0, per_round=4)
    assert isinstance(method.select, SecretDraw)
    now = a_round((0.0, 0.0), here=list(range(200)))
    now.fleet.simulated = True
    assert method.select(now) == method.select(now) == Poisson(rate=0.5)(now)
    now.fleet.simulated = False
    drawn = [tuple(method.select(now)) for _ in range(5)]
    assert len(set(drawn)) == 5
    assert 60 < np.mean([len(one) for one in drawn]) < 140


def test_several_runs_of_several_servers_at_one_site_add_up(tmp_path: Path) -> None:
    pytest.importorskip("opendp")
    from covey.core.codec import from_bytes
    from covey.deploy.wire import step_to_plain
    from covey.parts.steps.private import Noised
    from tests.deploy.one_request import one_request
    from tests.deploy.sites_by_hand import sites

    step: Step = Noised(step=TRAIN, clip=0.5, noise=10.0)
    for run_name in ("monday", "tuesday", "wednesday"):
        site = sites(tmp_path, budget=30.0)[100]  # started again for every run
        answer = from_bytes(site.answer(one_request(step=step_to_plain(step), run=run_name)))
        assert answer["reply"] is not None
    lost = Loss(what="updates", mechanism="local", noise=10.0)
    assert site.account.told == {lost: 3}
    assert composed({lost: 3}, 1e-5, "sample") > 1.5 * composed({lost: 1}, 1e-5, "sample")
    (tmp_path / "0" / "updates.json").unlink()
    with pytest.raises(UserError, match=r"counts 0 updates and steps under noise, .* beside it 3"):
        sites(tmp_path, budget=30.0)


# ---------------------------------------------------------------------------------------------- one number


@pytest.mark.parametrize(
    ("sampling", "accountant", "per_round", "level"),
    [
        ("method", "pld", 4, "client"),
        ("poisson", "pld", 4, "client"),
        ("poisson", "rdp", 4, "client"),
        ("poisson", "pld", CLIENTS, "client"),
        ("poisson", "pld", CLIENTS, "local"),
        ("poisson", "pld", CLIENTS, "example"),
    ],
)
def test_a_run_books_what_was_quoted_and_no_more_than_was_promised(
    sampling, accountant, per_round, level
) -> None:
    if level == "example":
        pytest.importorskip("opacus")
    settings = {"epsilon": 4.0, "clip": 0.5, "delta": 1e-3, "level": level}
    if level == "client":
        settings |= {"sampling": sampling, "accountant": accountant}
    private = Private(**settings)
    method, fleet = made(3, per_round=per_round, **settings), small_fleet()
    run_rounds(method, fleet, rounds=3)
    quoted = quote(method, private, clients=CLIENTS, rounds=3, samples=20 if level == "example" else None)
    clients = statement(fleet.ledger.told, private.delta, private.accountant)["clients"]
    whose = "sample" if level == "example" else "client"
    booked = {one[whose]["updates"] for one in clients.values()}
    assert (booked, quoted.delta) == ({round(quoted.epsilon, 6)}, private.delta)
    assert 3.9 < max(booked) <= 4.0


def test_the_quoted_number_of_a_fixed_draw_is_that_of_dp_accounting() -> None:
    """A tenth of 40 clients, eight rounds: dp-accounting, called directly, at the whole of delta."""
    import dp_accounting.rdp as rdp
    from dp_accounting import GaussianDpEvent, NeighboringRelation, SampledWithoutReplacementDpEvent

    private = Private(epsilon=8.0, sampling="method", clip=0.5)
    method = made_private(fedavg(TRAIN, per_round=4), private, clients=40, rounds=8)
    quoted = quote(method, private, clients=40, rounds=8)
    event = SampledWithoutReplacementDpEvent(40, 4, GaussianDpEvent(quoted.noise / 2))
    direct = rdp.RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE).compose(event, 8)
    drawn = Loss(what="updates", mechanism="sum", noise=quoted.noise, chosen=4, of=40)
    assert quoted.epsilon == pytest.approx(direct.get_epsilon(1e-5), rel=1e-12)
    assert composed({drawn: 8}, 1e-5) == composed({drawn: 8}, 1e-5, "sample") == quoted.epsilon <= 8.0
    summary = Loss(what="summaries", mechanism="stated", noise=0.5)
    assert composed({drawn: 8, summary: 2}, 1e-5, "sample") <= quoted.epsilon + 1.0


def test_a_promise_is_booked_as_it_was_made() -> None:
    promised = Loss(what="updates", mechanism="promised", noise=8.0, rate=5e-6)
    assert 7.9 < composed({promised: 1}, 1e-5, "sample") <= 8.0
    assert composed({promised: 1}, 1e-6, "sample") == float("inf")
