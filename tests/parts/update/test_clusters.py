"""CFIC's correction against numbers worked out on paper, and what it is without alpha and beta."""

from dataclasses import replace

import pytest
import torch

from covey.core.round import Task, run_rounds
from covey.errors import UserError
from covey.methods.baselines import fedavg
from covey.methods.cfic import cfic
from covey.parts.group.label_feature import by_label
from covey.parts.mix.average import Average, weights
from covey.parts.selection.clusters import EveryCluster
from covey.parts.steps import Train
from covey.parts.update.clusters import AdaptiveCorrection, ClusterCorrection, cluster_directions


def averaged(now) -> torch.Tensor:
    """The FedAvg row, by an independent route."""
    shares = torch.tensor(weights(now.replies, "samples"))
    stack = torch.stack([reply.vector.double() for reply in now.replies])
    return ((shares / shares.sum()) @ stack).float()[None]


def test_three_rounds_worked_by_hand(a_round) -> None:
    """Two clusters (A: clients 0 and 1, B: client 2), four parameters, alpha = 0.5, beta = 2 as a length.

    Round 1. A = (10 (0,0,16,0) + 30 (4,0,0,0)) / 40 = (3,0,4,0), length 5; B = (0,5,0,12), length 13; shares .4, .6.
      u = .4 (.6,0,.8,0) + .6 (0,5/13,0,12/13) = (.24, .230769, .32, .553846)
      h = -2u = (-.48, -.461538, -.64, -1.107692); average = .4 A + .6 B = (1.2, 3, 1.6, 7.2)
      w = average - h = (1.68, 3.461538, 2.24, 8.307692)
    Round 2. Only client 0, which moves by (0,-3,0,4), length 5: u = (0,-.6,0,.8)
      h = .5 h - 2u = (-.24, .969231, -.32, -2.153846); w = (1.92, -.507692, 2.56, 14.461538)
    Round 3. A (20 samples) stands still, B (60) moves by (8,0,-6,0), length 10: u = .75 (.8,0,-.6,0) = (.6,0,-.45,0)
      h = .5 h - 2u = (-1.32, .484615, .74, -1.076923); average = w + .75 (8,0,-6,0)
      w = (7.92,-.507692,-1.94,14.461538) - h = (9.24, -.992308, -2.68, 15.538462)
    """
    update = ClusterCorrection(alpha=0.5, beta=2.0, scale="absolute")
    groups = {0: 3, 1: 3, 2: 8}
    memory: dict = {}
    w = torch.zeros(4)
    worked = [
        (
            {0: ((0, 0, 16, 0), 10), 1: ((4, 0, 0, 0), 30), 2: ((0, 5, 0, 12), 60)},
            (-0.48, -0.461538, -0.64, -1.107692),
            (1.68, 3.461538, 2.24, 8.307692),
        ),
        ({0: ((0, -3, 0, 4), 10)}, (-0.24, 0.969231, -0.32, -2.153846), (1.92, -0.507692, 2.56, 14.461538)),
        (
            {1: ((0, 0, 0, 0), 20), 2: ((8, 0, -6, 0), 60)},
            (-1.32, 0.484615, 0.74, -1.076923),
            (9.24, -0.992308, -2.68, 15.538462),
        ),
    ]
    for number, (moves, h, new) in enumerate(worked, start=1):
        replies = {
            i: ((w + torch.tensor(move, dtype=torch.float32)).tolist(), n) for i, (move, n) in moves.items()
        }
        now = a_round(w.tolist(), replies=replies, groups=groups, memory=memory, number=number)
        w = update(now, averaged(now))[0]
        memory = now.memory
        assert memory["cfic.h"].tolist() == pytest.approx(h, abs=2e-6)
        assert w.tolist() == pytest.approx(new, abs=2e-6)


def test_along_the_average_it_is_plain_momentum_at_the_server(a_round) -> None:
    """FedAvgM: m <- alpha m + beta (average - w); w <- average + m, whatever the groups are."""
    update = ClusterCorrection(alpha=0.5, beta=2.0, among="everybody")
    w, momentum, memory = torch.zeros(2), torch.zeros(2), {}
    for number, moves in enumerate(
        ({0: ((4, 0), 10), 1: ((0, 8), 30)}, {1: ((-2, 1), 5)}, {0: ((1, 1), 2), 2: ((3, 0), 2)}), start=1
    ):
        replies = {i: ((w + torch.tensor(move)).tolist(), n) for i, (move, n) in moves.items()}
        now = a_round(w.tolist(), replies=replies, groups={0: 0, 1: 1, 2: 2}, memory=memory, number=number)
        average = averaged(now)[0]
        momentum = 0.5 * momentum + 2.0 * (average - w)
        w, memory = update(now, average[None])[0], now.memory
        assert w.tolist() == pytest.approx((average + momentum).tolist(), abs=1e-5)


def test_relative_beta_is_a_multiple_of_the_average_update(a_round) -> None:
    """Round 1 of above: the average update is sqrt(64.84) = 8.052329 long, u is sqrt(.4^2 + .6^2) = .721110 long.

    With beta = 0.5, h = -0.5 8.052329 / .721110 u = -5.583287 u.
    """
    replies = {0: ((0, 0, 16, 0), 10), 1: ((4, 0, 0, 0), 30), 2: ((0, 5, 0, 12), 60)}
    now = a_round((0, 0, 0, 0), replies=replies, groups={0: 3, 1: 3, 2: 8}, number=1)
    ClusterCorrection(alpha=0.5, beta=0.5)(now, averaged(now))
    expected = [-5.583287 * u for u in (0.24, 0.230769, 0.32, 0.553846)]
    assert now.memory["cfic.h"].tolist() == pytest.approx(expected, abs=2e-6)


def test_beta_decays(a_round) -> None:
    now = a_round((0, 0), replies={0: ((3, 4), 1)}, groups={0: 0}, number=3)
    ClusterCorrection(alpha=0.5, beta=2.0, scale="absolute", decay=0.5)(now, averaged(now))
    assert now.memory["cfic.h"].tolist() == pytest.approx([-0.3, -0.4])  # 2 / 4 times (0.6, 0.8)


def test_adaptive_over_three_rounds_by_hand(a_round) -> None:
    """Two clusters of equal size, alpha = 0.8, beta = 0.5; u = (d_A + d_B) / 2, stretched to the average update.

    Round 1: A (2,0), B (0,2): u = (.5,.5), agreement 0; the average update is (1,1): h = -.5 (1,1).
    Round 2: both by (3,0): agreement 1, so alpha = 0; cos(-h, u) = .707107, beta = .5 exp(.0707107) = .536635;
      h = -.536635 (3,0).
    Round 3: A by (-1,0), B by (0,2): u = (-.5,.5), agreement 0; cos(-h, u) = -.707107: beta is .5 again. The average
      update is (-.5,1), sqrt(1.25) long, u .707107: h = .8 h - .5 1.581139 u = (-.892640, -.395285).
    """
    update = AdaptiveCorrection(alpha=0.8, beta=0.5)
    worked = [
        (((2.0, 0.0), (0.0, 2.0)), (-0.5, -0.5)),
        (((3.0, 0.0), (3.0, 0.0)), (-1.609905, 0.0)),
        (((-1.0, 0.0), (0.0, 2.0)), (-0.892640, -0.395285)),
    ]
    memory: dict = {}
    for number, ((a, b), h) in enumerate(worked, start=1):
        now = a_round(
            (0, 0), replies={0: (a, 5), 1: (b, 5)}, groups={0: 0, 1: 1}, memory=memory, number=number
        )
        update(now, averaged(now))
        memory = now.memory
        assert memory["cfic.h"].tolist() == pytest.approx(h, abs=2e-6)


def test_adaptive_momentum_is_cut_where_clients_have_nothing_left_to_learn(a_round) -> None:
    """alpha = 0.8, beta = 0.5. Round 1: both by (10,0), so h = -(5,0), and beta stays.

    Round 2: A by (.1,0), B by (0,.1): agreement 0, cos(-h, u) = .707107, beta = .536635; the average update (.05,.05)
      is .0707107 long. h = .8 (-5,0) - .536635 (.05,.05) = (-4.026832,-.026832), 4.026921 long; it may be
      .536635 .0707107 / (1 - .8) = .189729 long: h = (-.189725,-.001264).
    """
    update = AdaptiveCorrection(alpha=0.8, beta=0.5)
    memory: dict = {}
    for number, (a, b) in enumerate([((10.0, 0.0), (10.0, 0.0)), ((0.1, 0.0), (0.0, 0.1))], start=1):
        now = a_round(
            (0, 0), replies={0: (a, 5), 1: (b, 5)}, groups={0: 0, 1: 1}, memory=memory, number=number
        )
        update(now, averaged(now))
        memory = now.memory
    assert memory["cfic.h"].tolist() == pytest.approx((-0.189725, -0.001264), abs=2e-6)


def test_there_is_no_correction_where_clients_pull_at_odds(a_round) -> None:
    """alpha = 0.8, beta = 0.5; two clients of equal size, so that c = ||u||^2 - .5; a round before counts .7 as much.

    Round 1: A alone, by (1,0): nobody to be at odds with, trust 1: h = -.5 (1,0).
    Round 2: both (1,0): c = .5, trust 1. cos(-h, u) = 1, beta = .5 e^.1: h = -.552585 (1,0).
    Round 3: A (3,0), B (0,4): c = 0, so the sum is .35: trust 1. cos(-h, u) = .707107, beta = .552585 e^.0707107 =
      .593074; the average update (1.5,2) is 2.5 long, u = (.5,.5) .707107, agreement 0:
      h = .8 h - .593074 3.535534 (.5,.5) = (-1.490485,-1.048416).
    Round 4: A (5,0), B (-3,4): u = (.2,.4), c = -.3; the sums are .7 .35 - .3 = -.055 and .7 .175 + .09 = .2125: trust
      1 - .055 / .460977 = .880688. cos(-h, u) = .880377, beta = .593074 e^.0880377 = .647654; the average update (1,2)
      is five times u: h = .8 h - .880688 .647654 5 (.2,.4) = (-1.762769,-1.979495).
    Round 5: the same: 1 - .3385 / .488621 = .307234. Round 6: 1 - .53695 / .507075 is below 0: the h of before is gone.
    """
    update = AdaptiveCorrection(alpha=0.8, beta=0.5, agreed=True)
    alike, apart = {0: ((1.0, 0.0), 5), 1: ((1.0, 0.0), 5)}, {0: ((5.0, 0.0), 5), 1: ((-3.0, 4.0), 5)}
    worked = [
        ({0: ((1.0, 0.0), 5)}, "1.00", (1.5, 0.0)),
        (alike, "1.00", (1.552585, 0.0)),
        ({0: ((3.0, 0.0), 5), 1: ((0.0, 4.0), 5)}, "1.00", (1.5 + 1.490485, 2 + 1.048416)),
        (apart, "0.88", (1 + 1.762769, 2 + 1.979495)),
        (apart, "0.31", None),
        (apart, "0.00", (1.0, 2.0)),
    ]
    memory: dict = {}
    for number, (replies, trust, expected) in enumerate(worked, start=1):
        now = a_round((0, 0), replies=replies, groups={0: 0, 1: 1}, memory=memory, number=number)
        new = update(now, averaged(now))
        memory = now.memory
        assert f"model 0: {trust}" in now.notes["trust"]["text"]
        assert expected is None or new.tolist() == [pytest.approx(expected, abs=2e-6)]


def test_buffers_take_no_part(a_round) -> None:
    now = a_round((0, 0, 5), replies={0: ((3, 4, 9), 1)}, groups={0: 0}, trainable=2)
    new = ClusterCorrection(alpha=0.5, beta=1.0, scale="absolute")(now, averaged(now))
    assert new.tolist() == [pytest.approx([3.6, 4.8, 9.0])]


def test_a_client_of_unknown_group_is_a_cluster_of_its_own(a_round) -> None:
    now = a_round((0, 0), replies={0: ((2, 0), 1), 1: ((0, 8), 1), 2: ((0, -1), 2)}, groups={2: 0})
    directions = cluster_directions(now.models[0], now.replies, now.groups)
    assert directions.mean.tolist() == pytest.approx([0.25, -0.25])
    assert sorted(directions.shares) == [0.25, 0.25, 0.5]


@pytest.mark.parametrize(("second", "agreement"), [((1, 0), 1.0), ((0, 7), 0.0), ((-2, 0), -1.0)])
def test_agreement_is_the_mean_cosine_between_clusters(a_round, second, agreement) -> None:
    now = a_round((0, 0), replies={0: ((3, 0), 1), 1: (second, 3)}, groups={0: 0, 1: 1})
    assert cluster_directions(now.models[0], now.replies, now.groups).agreement == pytest.approx(agreement)


def test_without_alpha_and_beta_it_is_fedavg_with_that_sampling_bit_for_bit(digits_fleet) -> None:
    train = Train(epochs=2, batch=16, lr=0.1)
    sampled = replace(fedavg(train), group=by_label, select=EveryCluster(per_round=6))
    plain = run_rounds(sampled, digits_fleet(), rounds=4)
    corrected = run_rounds(cfic(train, per_round=6, alpha=0.0, beta=0.0), digits_fleet(), rounds=4)
    assert torch.equal(plain.models, corrected.models)
    assert sampled.mix == Average()


def test_lazy_learns_the_same_clusters_from_who_was_chosen(digits_fleet) -> None:
    train = Train(lr=0.1)
    eager = run_rounds(cfic(train), digits_fleet(), rounds=1)
    first = run_rounds(cfic(train, per_round=13, lazy=True), digits_fleet(), rounds=1)
    later = run_rounds(cfic(train, per_round=13, lazy=True), digits_fleet(), rounds=15)
    assert len(eager.groups) == 20
    assert len(first.groups) == 13
    assert first.groups.items() <= eager.groups.items()
    assert later.groups == eager.groups


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"alpha": 1.0}, "alpha is 1.0"),
        ({"beta": -0.1}, "beta is -0.1"),
        ({"scale": "unit"}, "scale is 'unit'"),
        ({"decay": 0.0}, "decay is 0.0"),
        ({"sampling": "even"}, "sampling is 'even'"),
        ({"adaptive": True, "scale": "absolute"}, "adaptive sets beta itself"),
    ],
)
def test_wrong_settings_are_named(settings, message) -> None:
    with pytest.raises(UserError, match=message):
        cfic(Train(), **settings)


def test_every_model_of_a_bank_is_corrected_on_its_own_replies(a_round) -> None:
    """Two models at (0,0) and (10,0), beta = 1 as a length, alpha = 0.5; the second gets no reply in round 2.

    Round 1. Model 0: clients 0 and 1 (5 samples each) by (2,0) and (0,4): u = (.5,.5), h = (-.5,-.5); average (1,2).
      Model 1: client 2 moves by (0,-3): u = (0,-1), h = (0,1); average (10,-3).
    Round 2. Model 0: client 0 moves by (0,1): h = .5 h - (0,1) = (-.25,-1.25). Model 1 and its h stay.
    """
    update = ClusterCorrection(alpha=0.5, beta=1.0, scale="absolute")
    now = a_round(
        (0, 0), replies={0: ((2, 0), 5), 1: ((0, 4), 5), 2: ((10, -3), 1)}, groups={0: 0, 1: 0, 2: 1}
    )
    now.models = torch.tensor([[0.0, 0.0], [10.0, 0.0]])
    now.replies[2] = replace(now.replies[2], slot=1)
    new = update(now, torch.tensor([[1.0, 2.0], [10.0, -3.0]]))
    assert new.tolist() == [pytest.approx([1.5, 2.5]), pytest.approx([10.0, -4.0])]
    assert now.notes["correction"]["model"] == [0, 1]

    later = a_round((0, 0), replies={0: ((1.5, 3.5), 5)}, groups={0: 0}, memory=now.memory, number=2)
    later.models = new
    new = update(later, torch.tensor([[1.5, 3.5], [10.0, -4.0]]))
    assert later.memory["cfic.h"].tolist() == pytest.approx([-0.25, -1.25, 0.0, 1.0])
    assert new.tolist() == [pytest.approx([1.75, 4.75]), pytest.approx([10.0, -4.0])]


def test_a_group_that_holds_one_model_at_several_clients_is_corrected_together(a_round) -> None:
    """Clients 0, 1, 2 hold a row each; 0 and 1 are a group that met, 2 is alone and did not work.

    0 moves by (3,0) and 1 by (0,4) from (1,1): u = (.5,.5), h = -(.5,.5), taken by both rows; client 2 stays.
    """
    now = a_round((1, 1), replies={0: ((4, 1), 1), 1: ((1, 5), 1)}, groups={0: 0, 1: 0, 2: 1}, here=(0, 1, 2))
    now.models = torch.tensor([[1.0, 1.0], [1.0, 1.0], [7.0, 7.0]])
    now.replies[1] = replace(now.replies[1], slot=1)
    now.tasks = {i: Task(models=now.models[i : i + 1], slots=(i,)) for i in range(3)}
    update = ClusterCorrection(alpha=0.5, beta=1.0, scale="absolute", per="group")
    new = update(now, torch.tensor([[2.5, 3.0], [2.5, 3.0], [7.0, 7.0]]))
    assert new.tolist() == [pytest.approx([3.0, 3.5]), pytest.approx([3.0, 3.5]), [7.0, 7.0]]
    apart = torch.tensor([[4.0, 1.0], [1.0, 5.0], [7.0, 7.0]])
    assert torch.equal(update(now, apart), apart)
