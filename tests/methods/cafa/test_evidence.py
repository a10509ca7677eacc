"""Mixing between groups where held-out data prefer it: numbers by hand."""

import numpy as np
import torch

from covey.core.round import Reply, run
from covey.methods.cafa.evidence import MIXED, EvidenceAverage, best, between_groups, candidates
from covey.runs.config import fleet_of, resolve


def test_a_group_may_stay_alone_join_another_or_join_all() -> None:
    assert candidates(1, [0, 1, 3]) == [[1], [1, 0], [1, 3], [0, 1, 3]]
    assert candidates(0, [0, 1]) == [[0], [0, 1]]


def judgement(client: int, accuracy: list[float], size: int) -> Reply:
    return Reply(id=client, size=size, stats={"accuracy": np.array(accuracy)})


def test_the_most_hits_decide_and_of_equal_ones_the_smallest_set() -> None:
    """.5 of 10 and 1 of 2 are 7 hits; .6 of 10 and .5 of 2 are 7, too: the first. With .7 of 10 the second has 8."""
    options = [[0], [0, 1]]
    assert best(options, [judgement(0, [0.5, 0.6], 10), judgement(2, [1.0, 0.5], 2)]) == [0]
    assert best(options, [judgement(0, [0.5, 0.7], 10), judgement(2, [1.0, 0.5], 2)]) == [0, 1]
    assert best(options, []) == [0]


def test_the_rows_of_a_set_count_by_their_clients() -> None:
    matrix = between_groups(4, {0: [0, 2], 2: [2]}, {0: 6, 1: 5, 2: 2})
    np.testing.assert_allclose(matrix, [[0.75, 0, 0.25, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    gone = between_groups(3, {0: [0, 2]}, {0: 6, 1: 5})  # group 2 has nobody left
    np.testing.assert_allclose(gone, np.eye(3))


def test_what_was_judged_is_used_in_every_round_until_the_next_time(a_round) -> None:
    """Group 0's average is 2, group 1's 10; 0 has three clients, 1 has one: mixed, group 0 has (3 x 2 + 10) / 4 = 4."""
    now = a_round((0.0,), replies={0: ((2.0,), 5)}, groups={0: 0, 1: 0, 2: 0, 3: 1}, number=1)
    now.models = torch.tensor([[0.0], [10.0]])
    MIXED.keep(now.memory, {0: [0, 1], 1: [1]})
    mixing = EvidenceAverage(every=3)(now)
    stacked = np.array([[0.0], [10.0], [2.0]])  # old rows, then replies
    np.testing.assert_allclose(mixing.factors[0] @ stacked, [[4.0], [10.0]])


def test_a_run_judges_and_says_what_it_mixed() -> None:
    """Turned pictures: every flock's clients judge its own average, that with the other's, and no set is empty."""
    mix = {"name": "evidence-average", "every": 2}
    parts = {"group": "flocks", "bank": "per-flock", "send": "group", "mix": mix}
    tables = {"data": {"clients": 8}, "train": {"holdout": 0.1}, "engine": {"mode": "serial"}, "seed": 100}
    turned = {"partition": {"name": "iid"}, "shift": {"name": "rotation", "turns": [0, 1]}}
    config = resolve({**tables, **turned, "method": {"name": "compose", **parts}})
    fleet = fleet_of(config)
    state = run(config.method, fleet, rounds=2)
    fleet.close()
    assert state.notes["mixed between groups"]["group"] == [0, 1]
    assert {group: group in members for group, members in MIXED.of(state.memory).items()} == {
        0: True,
        1: True,
    }
    assert fleet.ledger.total["evaluate.cross"].messages > 0
