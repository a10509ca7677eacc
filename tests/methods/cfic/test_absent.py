"""Clusters that are missing in a round stand in with their last move: numbers worked out on paper."""

import pytest
import torch

from covey.methods.cfic import AbsentRemembered
from covey.parts.update.clusters import ClusterCorrection
from tests.parts.update.test_clusters import averaged


def test_two_rounds_worked_by_hand(a_round) -> None:
    """Clusters A (client 0) and B (client 1), two parameters, no momentum (alpha = 0), beta = 1 as a length.

    Round 1. Only A works, 10 samples, by (3, 4): u = (.6, .8), w = (3, 4) + u = (3.6, 4.8). A's move is kept.
    Round 2. Only B works, 30 samples, by (0, 8). A stands in with w + (3, 4), 10 samples:
      average = w + .25 (3, 4) + .75 (0, 8) = w + (.75, 7); u = .25 (.6, .8) + .75 (0, 1) = (.15, .95)
      w = (3.6, 4.8) + (.75, 7) + (.15, .95) = (4.5, 12.75)
    """
    update = AbsentRemembered(update=ClusterCorrection(alpha=0.0, beta=1.0, scale="absolute", among="groups"))
    groups, memory, w = {0: 3, 1: 8}, {}, torch.zeros(2)
    for number, (client, move, size, new) in enumerate(
        [(0, (3.0, 4.0), 10, (3.6, 4.8)), (1, (0.0, 8.0), 30, (4.5, 12.75))], start=1
    ):
        replies = {client: ((w + torch.tensor(move)).tolist(), size)}
        now = a_round(w.tolist(), replies=replies, groups=groups, memory=memory, number=number)
        w, memory = update(now, averaged(now))[0], now.memory
        assert w.tolist() == pytest.approx(new, abs=1e-5)
    assert sorted(memory["clusters.last_moves"]) == [3, 8]


def test_the_same_rounds_along_the_average_update_alone(a_round) -> None:
    """FedAvgM that remembers: round 1 as above; in round 2 u is the average's own direction.

    Round 2. average = w + (.75, 7), of length 7.04006; u = (.75, 7) / 7.04006 = (.10653, .99431)
      w = (3.6, 4.8) + (.75, 7) + u = (4.45653, 12.79431)
    """
    update = AbsentRemembered(
        update=ClusterCorrection(alpha=0.0, beta=1.0, scale="absolute", among="everybody")
    )
    groups, w = {0: 3, 1: 8}, torch.zeros(2)
    first = a_round(w.tolist(), replies={0: ([3.0, 4.0], 10)}, groups=groups, memory={}, number=1)
    w = update(first, averaged(first))[0]
    assert w.tolist() == pytest.approx((3.6, 4.8), abs=1e-5)
    replies = {1: ((w + torch.tensor([0.0, 8.0])).tolist(), 30)}
    second = a_round(w.tolist(), replies=replies, groups=groups, memory=first.memory, number=2)
    assert update(second, averaged(second))[0].tolist() == pytest.approx((4.45653, 12.79431), abs=1e-5)


def test_with_a_place_for_every_cluster_nothing_is_kept_and_nothing_changes(a_round) -> None:
    plain = ClusterCorrection(among="groups")
    replies = {0: ([3.0, 4.0], 10), 1: ([0.0, 8.0], 30)}
    rounds = [
        a_round([1.0, 1.0], replies=replies, groups={0: 3, 1: 8}, memory={}, number=1) for _ in range(2)
    ]
    bare = plain(rounds[0], averaged(rounds[0]))
    remembered = AbsentRemembered(update=plain)(rounds[1], averaged(rounds[1]))
    assert torch.equal(bare, remembered)
    assert "clusters.last_moves" not in rounds[1].memory
