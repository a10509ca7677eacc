"""How far a client makes its cluster's model its own, as judged on data kept out of training."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from covey.core.round import Reply, Task, run_rounds, served
from covey.data import federate, load
from covey.fleet.local import LocalFleet
from covey.fleet.work import Call, client_of
from covey.methods.covey import covey
from covey.parts.serving import JUDGED, SLOWER, KeepJudgements, gained, helped, in_words, shares_of
from covey.parts.steps import Train
from covey.parts.steps.judged import FOLDS, JudgedTrain, kept_out
from covey.parts.steps.served import Serving, TakeServed, served_row
from covey.parts.steps.train import local_fit
from covey.testing import small_federation, small_fleet
from covey.training.bench.choose import choose_bench
from covey.training.models import build


class Someone:
    seed = 7

    def stream(self, *names):
        return np.random.default_rng(7)


def test_every_sample_judges_once_in_ten_rounds_and_never_trains_then():
    part = small_federation().shares[0].train
    seen = []
    for number in range(FOLDS):
        rest, judging = kept_out(part, Someone(), number)
        assert sorted([*rest.index, *judging.index]) == sorted(part.index)
        assert len(judging) in (len(part) // FOLDS, len(part) // FOLDS + 1)
        seen += judging.index.tolist()
    assert sorted(seen) == sorted(part.index.tolist())


def test_a_single_sample_is_trained_on_and_nobody_judges():
    part = small_federation().shares[0].train.select(slice(0, 1))
    rest, judging = kept_out(part, Someone(), 3)
    assert (len(rest), len(judging)) == (1, 0)


def judged(*clients, rounds=1):
    """Of each client lines of (round, samples, three scores, three losses)."""
    return {"rounds": rounds, "lines": dict(enumerate(clients))}


@pytest.mark.parametrize(
    ("scores", "losses", "up", "share"),
    [
        ((5.0, 8.0, 7.0), (9, 9, 1), True, 1.0),  # the lowest loss; a single line has no error
        ((5.0, 8.0, 7.0), (4, 4, 5), True, 0.5),  # equal losses: the best score
        ((8.0, 3.0, 2.0), (9, 9, 9), False, 1.0),  # an error: the lowest
    ],
)
def test_the_share_with_the_lowest_loss_is_served(scores, losses, up, share):
    assert shares_of(judged([[1, 10, *scores, *losses]]), up) == (share, {})


def test_nothing_was_judged_an_untrained_model_is_trained_before_use():
    assert shares_of(judged(), True) == (1.0, {})


def test_a_gain_and_its_standard_error_by_hand():
    """Weights 1 and 3 of 4, gains of the last share over the first .4 and .8: d = .1 + .6 = .7; the square of the error
    is (1/4)^2 .3^2 + (3/4)^2 .1^2 = .005625 + .005625."""
    table = np.array([[1, 0, 0, 0, 1.0, 9, 0.6], [3, 0, 0, 0, 1.0, 9, 0.2]])
    assert gained(table, 0, 2) == pytest.approx((0.7, 0.01125**0.5))


def test_in_doubt_one_half_is_served():
    """Gains of the whole update over half of it: .3 and -.1, d = .1, its error sqrt(2 (.5 x .2)^2) = .141 > .1. With
    .3 and .1 it is .2 beside an error of .0707."""
    first, unsure, sure = ([[1, 5, 0, 0, 0, 3.0, 1.0, 1.0 - gain]] for gain in (0.3, -0.1, 0.1))
    assert shares_of(judged(first, unsure), True) == (0.5, {})
    assert shares_of(judged(first, sure), True) == (1.0, {})


def test_a_client_leaves_the_others_share_where_that_is_sure_for_it_alone():
    """Nobody's own training changes anything but for client 1, whom it harms by 1 and more in three rounds.

    The gains of share 0 over one half are .5, .5 and .8, weights alike: d = .6, shrunk to .3 by k / (k + 3); its error
    is sqrt(.01 + .01 + .04) / 3 = .0816, times sqrt(3 / 2) = .1. With gains of 0, .2 and .4: .1 beside .115.
    """
    others = [[3, 100, 0, 0, 0, 1.0, 1.0, 1.0 + 1e-9]]
    for gains, apart in (((0.5, 0.5, 0.8), {1: 0.0}), ((0.0, 0.2, 0.4), {})):
        lines = [[3, 1, 0, 0, 0, 1.0 - gain, 1.0, 1.0 + gain] for gain in gains]
        assert shares_of(judged(others, lines, rounds=3), True) == (0.5, apart)
        assert shares_of(judged(others, lines[:2], rounds=3), True) == (0.5, {})  # two say too little
    assert in_words(0.5, {1: 0.0, 4: 0.0, 7: 1.0}) == "0.5 (2 of its clients 0, 1 of its clients 1)"


def test_late_judgements_count_most_so_that_the_large_losses_of_the_first_rounds_do_not_decide():
    """Own training helped by 10 in the first round and harmed by 1 in each of the next nine."""
    memory = {}
    objective = SimpleNamespace(higher_is_better=True)
    for own in (10.0, *[-1.0] * 9):
        stats = {"judged": 1, "scores": np.zeros(3), "losses": np.array([20.0, 20.0 - own / 2, 20.0 - own])}
        reply = Reply(id=0, size=1, slot=0, stats=stats)
        now = SimpleNamespace(
            memory=memory, replies=[reply], notes={}, fleet=SimpleNamespace(objective=objective)
        )
        KeepJudgements()(now)
    kept = JUDGED.of(memory)[0]
    assert (kept["rounds"], len(kept["lines"][0])) == (10, 10)
    assert shares_of(kept, True)[0] == 0.0
    KeepJudgements()(now)
    assert [line[0] for line in JUDGED.of(memory)[0]["lines"][0]] == list(range(2, 12))  # the last ten


def test_the_reply_scores_the_received_model_the_trained_one_and_the_middle():
    fleet = small_fleet()
    train = Train(lr=0.1, epochs=2)
    method = covey(train, per_round=4, without=("correction",))
    state = run_rounds(method, fleet, rounds=2)
    replies = fleet.ask(JudgedTrain(train=train), served(method, state, fleet, [0, 1]))
    for reply in replies:
        assert reply.stats["scores"].shape == (3,)
        assert 0 <= reply.stats["scores"].min() <= reply.stats["scores"].max() <= 1
        assert reply.stats["losses"].min() > 0


def test_a_client_uses_the_share_of_its_own_training_that_the_task_names():
    fleet = small_fleet()
    train, row = Train(lr=0.1, epochs=1), fleet.start()
    bench = choose_bench(fleet.model, fleet.objective, (1, 8, 8), buffers="average", lanes=False)[0]()

    def client():
        names = ("measure", "evaluate.adapted", 1, "round", 1)  # of that round's first measurement
        call = Call(step=TakeServed(serving=Serving()), seed=fleet.seed, round=1, names=names)
        return client_of(call, 0, {}, fleet.client_data, bench)

    trained = local_fit(train, client(), row).row
    for share, wanted in ((0.0, row), (0.5, torch.lerp(row, trained, 0.5)), (None, trained)):
        task = Task(models=row[None], slots=(0,), args={} if share is None else {"own": share})
        slot, found = served_row(client(), task, Serving(adapt=train))
        assert slot == 0
        assert torch.allclose(found, wanted, atol=1e-7)
        other = replace(
            client(), rng=np.random.default_rng(0)
        )  # whoever asks: the stream is that of the measurement
        assert torch.equal(served_row(other, task, Serving(adapt=train))[1], found)


def told(client, received, own, judged=10):
    losses = np.array([received, received, own])
    return Reply(id=client, stats={"scores": np.zeros(3), "losses": losses, "judged": judged})


@pytest.mark.parametrize(
    ("losses", "is_surely_better"),
    [
        (((0.9, 0.5), (0.9, 0.6)), True),  # gains .4 and .3: mean .35, error sqrt(2 (.5 x .05)^2) = .035
        (((0.9, 0.5), (0.5, 0.9)), False),  # .4 and -.4: no gain
        (((0.9, 0.5), (0.5, 0.6)), False),  # .4 and -.1: mean .15, error sqrt(2 (.5 x .25)^2) = .177
        (((0.9, 0.9), (0.9, 0.9)), False),
    ],
)
def test_a_first_round_helped_if_it_gained_more_than_a_standard_error(losses, is_surely_better):
    assert helped([told(i, *pair) for i, pair in enumerate(losses)]) is is_surely_better


def test_nobody_who_answers_is_no_help_and_nobody_who_judges_says_nothing():
    assert not helped([])
    assert helped([Reply(id=0, stats={"loss": 1.0, "batches": 3})])


@pytest.mark.parametrize(("rate", "is_taken_back"), [(0.05, False), (4.0, True)])
def test_a_rate_that_does_not_help_is_taken_back_for_good(rate, is_taken_back):
    """Steps of length 8 forget what they learnt: the first round is made again, and clients adapt at 4, too."""
    alike = federate(load("digits"), partition="iid", clients=8, seed=3)
    fleet = LocalFleet(alike, build("mlp", input_shape=(1, 8, 8), outputs=10, seed=1), seed=5)
    method = covey(Train(lr=rate, clip=1.0), per_round=8)
    state = run_rounds(method, fleet, rounds=2)
    assert SLOWER.get(state.memory, False) is is_taken_back
    there_and_back = fleet.ledger.total["train.judged"].messages
    assert there_and_back == 2 * 8 * (3 if is_taken_back else 2)
    tasks = served(method, state, fleet, [0])
    assert tasks[0].args.get("settled", False) is is_taken_back


def test_settled_training_has_the_rate_to_which_it_falls():
    train = Train(lr=0.1, lr_decay=0.95, lr_floor=0.5)
    assert [train.settled().lr_in(number) for number in (1, 2, 30)] == [0.05] * 3
    assert train.lr_in(30) == 0.05
