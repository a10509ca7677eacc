"""How far a client makes its flock's model its own, as judged on data kept out of training."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from covey.core import Reply, run, served
from covey.methods import covey
from covey.serving import JUDGED, KeepJudgements, best_share
from covey.steps import Train
from covey.steps.judged import FOLDS, EvaluateAdapted, JudgedTrain, kept_out
from covey.steps.train import local_fit
from covey.testing import small_federation, small_fleet


class Someone:
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
        ([[10, 5.0, 9], [10, 8.0, 9], [10, 7.0, 1]], True, 0.5),  # the best score
        ([[10, 8.0, 9], [10, 8.0, 4], [10, 8.0, 5]], True, 0.5),  # equal scores: the lowest loss
        ([[10, 8.0, 9], [10, 3.0, 9], [10, 2.0, 9]], False, 1.0),  # an error: the lowest
        ([[0, 0.0, 0], [0, 0.0, 0], [0, 0.0, 0]], True, 1.0),  # nothing was judged: an untrained model
    ],
)
def test_the_share_with_the_best_score_is_served(sums, up, share):
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
    state = run(method, fleet, rounds=2)
    replies = fleet.ask(JudgedTrain(train=train), served(method, state, fleet, [0, 1]))
    for reply in replies:
        assert reply.stats["scores"].shape == (3,)
        assert 0 <= reply.stats["scores"].min() <= reply.stats["scores"].max() <= 1
        assert reply.stats["losses"].min() > 0


def test_a_client_uses_the_share_of_its_own_training_that_the_task_names():
    fleet = small_fleet()
    train = Train(lr=0.1, epochs=1)
    row = fleet.start()
    found = {}

    class Looking(EvaluateAdapted):
        def adapted(self, client, row, task):
            found[task.args.get("own")] = (result := super().adapted(client, row, task))
            own = replace(client, rng=np.random.default_rng(0))
            found["client"] = own
            return result

    from covey.core import Task

    for own in (0.0, 0.5):
        fleet.begin(1)
        fleet.ask(
            Looking(train=train), {0: Task(models=row[None], slots=(0,), args={"own": own})}, measure=True
        )
    assert torch.equal(found[0.0], row)
    assert not torch.equal(found[0.5], row)
    trained = local_fit(train, found["client"], row).row
    assert float((found[0.5] - row).norm()) == pytest.approx(float((trained - row).norm()) / 2, rel=0.5)
