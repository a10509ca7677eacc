"""Clusters without a server: who is heard, who mixes with whom, and what travels."""

from types import SimpleNamespace

import numpy as np
import torch

from covey.core.round import Reply
from covey.methods.covey.topology import REFRESHED, ClusterTopology, FromRepresentative
from covey.parts.mix.peers import links
from covey.parts.steps.size import SIZES

# cluster 0: groups 0 = {0, 1}, 1 = {2}; cluster 1: group 2 = {3, 4}
FINER = {0: 0, 1: 0, 2: 1, 3: 2, 4: 2}
SAMPLES = {0: 10, 1: 30, 2: 20, 3: 5, 4: 50}
MIX = ClusterTopology(backbone="full", finer=lambda now: FINER)


def a_round(worked, here=(0, 1, 2, 3, 4), refreshed=None):
    layout = SimpleNamespace(has_buffers=False, buffers="average", trainable=1)
    return SimpleNamespace(
        number=3,
        seen=(0, 1, 2, 3, 4),
        here=list(here),
        groups={0: 0, 1: 0, 2: 0, 3: 1, 4: 1},
        memory={SIZES.name: SAMPLES, REFRESHED.name: refreshed or {}},
        replies=[Reply(id=i, vector=torch.zeros(1), slot=i, size=SAMPLES[i]) for i in worked],
        notes={},
        models=torch.tensor([[0.0], [0.0], [0.0], [5.0], [5.0]]),
        fleet=SimpleNamespace(seed=0, layout=layout),
    )


def rows_after(now, replies):
    (mixing,) = MIX(now)
    rows = np.concatenate([now.models.numpy()[:, 0], replies])
    for factor in mixing.factors:
        rows = factor @ rows
    return rows, mixing


def test_only_who_trained_is_heard_and_clusters_keep_apart():
    """0 and 1 trained to 4 and 8: their mean by samples is 7; half of it goes to 2, and 3 and 4 hear nothing of it."""
    now = a_round(worked=[0, 1])
    rows, _ = rows_after(now, [4.0, 8.0])
    np.testing.assert_allclose(rows, [3.5, 3.5, 3.5, 5.0, 5.0])
    assert REFRESHED.of(now.memory) == dict.fromkeys(range(5), 3)


def test_every_model_over_a_link_is_a_message():
    """Up: 0 to 1. Across: 1 and 2, both ways. Down: 1 to 0, 4 to 3. The member with most samples represents."""
    now = a_round(worked=[0, 1])
    _, mixing = rows_after(now, [4.0, 8.0])
    sent = links(mixing, now.seen, now.replies)
    pairs = sorted(zip(sent.sender.tolist(), sent.receiver.tolist(), strict=True))
    assert pairs == [(0, 1), (1, 0), (1, 2), (2, 1), (4, 3)]


def test_an_unseen_client_with_many_samples_does_not_represent_before_it_holds_the_model():
    refreshed = {0: 2, 2: 2, 3: 2, 4: 2}  # client 1 is new
    assert MIX.places(a_round(worked=[0], refreshed=refreshed)).lead == {0: 0, 1: 2, 2: 4}


def test_who_holds_an_old_model_is_sent_the_present_one_by_its_representative():
    now = a_round(worked=[], refreshed={0: 2, 1: 1, 2: 2, 3: 2, 4: 2})
    now.models = torch.tensor([[3.0], [1.0], [3.0], [5.0], [5.0]])
    tasks = FromRepresentative(mix=MIX)(now, [0, 1, 9])
    assert sorted(tasks) == [0, 1]
    assert (tasks[0].held, tasks[0].nbytes) == ((0,), 0)
    assert (tasks[1].held, tasks[1].nbytes, float(tasks[1].models[0, 0])) == ((), 4, 3.0)
    assert tasks[1].slots == (1,)
