"""How far a client makes its cluster's model its own, as judged on data kept out of training."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from covey.core.round import Reply, Task, run_rounds, served
from covey.fleet.work import Call, client_of
from covey.methods.covey import covey
from covey.parts.serving import JUDGED, KeepJudgements, best_share
from covey.parts.steps import Train
from covey.parts.steps.judged import FOLDS, JudgedTrain, kept_out
from covey.parts.steps.served import Serving, TakeServed, served_row
from covey.parts.steps.train import local_fit
from covey.testing import small_federation, small_fleet
from covey.training.bench.choose import choose_bench


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


@pytest.mark.parametrize(
    ("sums", "up", "share"),
    [
        ([[10, 5.0, 9], [10, 8.0, 9], [10, 7.0, 1]], True, 1.0),  # the lowest loss
        ([[10, 5.0, 4], [10, 8.0, 4], [10, 7.0, 5]], True, 0.5),  # equal losses: the best score
        ([[10, 8.0, 9], [10, 3.0, 9], [10, 2.0, 9]], False, 1.0),  # an error: the lowest
        ([[0, 0.0, 0], [0, 0.0, 0], [0, 0.0, 0]], True, 1.0),  # nothing was judged: an untrained model
    ],
)
def test_the_share_with_the_lowest_loss_is_served(sums, up, share):
    assert best_share(sums, up) == share


def test_late_judgements_count_most_so_that_the_large_losses_of_the_first_rounds_do_not_decide():
    """Own training helped by 10 in the first round and harmed by 1 in each of the next nine; else scores are 0."""
    memory = {}
    objective = SimpleNamespace(higher_is_better=True)
    for own in (10.0, *[-1.0] * 9):
        stats = {"judged": 1, "scores": np.array([0.0, own / 2, own]), "losses": np.zeros(3)}
        reply = Reply(id=0, size=1, slot=0, stats=stats)
        now = SimpleNamespace(
            memory=memory, replies=[reply], notes={}, fleet=SimpleNamespace(objective=objective)
        )
        KeepJudgements()(now)
    sums = JUDGED.of(memory)[0]
    weights = [(k / 10) ** 2 for k in range(1, 11)]
    assert sums[2][:2] == pytest.approx([sum(weights), 10 * weights[0] - sum(weights[1:])])
    assert best_share(sums, True) == 0.0


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
