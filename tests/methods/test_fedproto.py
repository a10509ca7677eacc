"""FedProto and FedPAC: prototypes, losses and mixtures worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from covey.core.round import run_rounds
from covey.errors import UserError
from covey.methods.fedpac import combination, fedpac, statistics
from covey.methods.fedproto import fedproto
from covey.parts.steps import Train
from covey.parts.steps.prototypes import averaged, prototypes, towards
from covey.runs.config import resolve
from covey.runs.run import run_config
from covey.testing import small_fleet
from covey.training.bench.torch_bench import TorchBench
from covey.training.objective import Classification
from tests.hostile.liar import run_with


def tiny() -> TorchBench:
    """Two inputs, twice of each is the representation; the last layer adds them up for class 0."""
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    model[0].weight.data = 2 * torch.eye(2)
    model[1].weight.data = torch.tensor([[1.0, 1.0], [0.0, 0.0]])
    return TorchBench(model, Classification())


X, Y = torch.tensor([[1.0, 0.0], [3.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0, 1])


def test_a_prototype_is_the_mean_before_the_last_layer() -> None:
    bench = tiny()
    found = prototypes(bench, bench.flat.clone(), X, Y, 3)
    assert found.tolist() == [[2.0, 4.0, 0.0], [1.0, 0.0, 2.0], [0.0, 0.0, 0.0]]


def test_prototypes_are_averaged_by_samples() -> None:
    one, two = np.array([[2.0, 4.0], [0.0, 0.0]]), np.array([[6.0, 8.0], [1.0, 5.0]])
    assert averaged([one, two]).tolist() == [[8.0, 7.0], [1.0, 5.0]]  # (2 * 4 + 6 * 8) / 8


def test_the_loss_is_the_objectives_and_the_distance_of_those_who_have_a_prototype() -> None:
    bench = tiny()
    common = torch.tensor([[5.0, 1.0, 1.0], [0.0, 9.0, 9.0]])  # of class 1 nobody has told
    make = towards(bench, common, 0.5)
    assert make is not None
    loss = make(X)(bench.model, X, Y, torch.arange(3))
    plain = Classification().loss(bench.model(X), Y)
    # (2, 0) and (6, 0) to (1, 1): (1 + 1) / 2 and (25 + 1) / 2, mean over three samples, times a half
    assert float((loss - plain).detach()) == pytest.approx(0.5 * (1 + 13) / 3)
    assert towards(bench, common, 0.0) is None
    assert towards(bench, None, 1.0) is None


def test_prototypes_travel_and_no_model_does() -> None:
    fleet = small_fleet(every=4)
    run_rounds(fedproto(Train(lr=0.1, epochs=1), per_round=8), fleet, rounds=2)
    cost = fleet.ledger.total["train.prototypes"]
    table = 4 * 10 * (1 + 64)  # ten classes, 64 hidden units of every width
    assert cost.bytes_up == 2 * 8 * table
    assert cost.bytes_down == 8 * table  # in the first round there are none


def test_weak_devices_have_narrow_networks_with_a_common_representation() -> None:
    fleet = small_fleet(every=4, model={"name": "mlp", "hidden": [32, 16]})
    state = run_rounds(fedproto(Train(lr=0.1, epochs=1), per_round=8, widths=(1.0, 0.25)), fleet, rounds=1)
    first = state.models[:, : 32 * 64].view(8, 32, 64).any(2).sum(1).tolist()
    assert first == [32, 8] * 4
    assert state.memory["prototypes"].shape == (10, 17)


def test_statistics_of_features() -> None:
    # three samples: two of class 0 with mean (4, 0), one of class 1 with mean (0, 2); E ||z||^2 = (4 + 36 + 4) / 3
    table = np.array([[2.0, 4.0, 0.0], [1.0, 0.0, 2.0]])
    means, variance = statistics(table, 44 / 3)
    assert means.tolist() == [[pytest.approx(8 / 3), 0.0], [0.0, pytest.approx(2 / 3)]]
    assert variance == pytest.approx((44 / 3 - 64 / 9 - 4 / 9) / 3)


def test_alike_clients_share_by_variance_and_others_keep_apart() -> None:
    same = [np.ones((2, 2))] * 2
    # of alike clients a' diag(v) a is least for weights as 1 / v
    assert combination(0, same, np.array([1.0, 3.0])) == pytest.approx([0.75, 0.25], abs=1e-5)
    apart = [np.zeros((1, 1)), np.full((1, 1), 10.0)]
    # P = diag(1, 1 + 100): weights as 1 and 1 / 101
    assert combination(0, apart, np.array([1.0, 1.0])) == pytest.approx([101 / 102, 1 / 102], abs=1e-5)


def test_the_extractor_is_common_and_classifiers_are_ones_own() -> None:
    fleet = small_fleet(every=4)
    state = run_rounds(fedpac(Train(lr=0.1, epochs=1), per_round=8), fleet, rounds=2)
    rows = state.models
    assert all(torch.equal(rows[0, :4160], row[:4160]) for row in rows)
    assert len({tuple(row[4160:].tolist()) for row in rows}) == 8


def test_numbers_have_no_prototypes(tmp_path) -> None:
    tables = {"data": {"name": "diabetes"}, "objective": "regression", "rounds": 1}
    for name in ("fedproto", "fedpac"):
        with pytest.raises(UserError, match="prototypes are of classes"):
            run_config(resolve({**tables, "method": {"name": name}}), tmp_path / name)


@pytest.mark.parametrize("make", [fedproto, fedpac])
@pytest.mark.parametrize("lie", ["prototypes", "counts"])
def test_one_who_lies_about_its_prototypes_is_refused(make, lie: str) -> None:  # type: ignore[no-untyped-def]
    """They draw everybody's model: a thousand times too long, or of more samples than it has, ended the run before."""

    def lying(reply):  # type: ignore[no-untyped-def]
        stats = reply.stats
        return replace(reply, stats={**stats, lie: stats[lie] * np.float32(1000)} if lie in stats else stats)

    state, fleet = run_with(make(Train(lr=0.1, batch=16), per_round=8), lying, (3,), rounds=2)
    assert {problem.client for problem in fleet.ledger.examples("refused")} == {3}
    assert torch.isfinite(state.models).all()
    assert state.memory["prototypes"].abs().max() < 1000
