"""Methods that must come out as another one, and averages worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from covey.core.round import Mixing, Reply, Round, empty_state, open_round, run_rounds, stream
from covey.methods.baselines import centralized, fedavg, fedprox, local_only
from covey.parts.mix.apply import apply_mixings
from covey.parts.mix.average import Average, weighted_rows
from covey.parts.mix.peers import links
from covey.parts.steps import Train
from covey.testing import CLIENTS, final, small_fleet

TRAIN = Train(lr=0.1, batch=16)


def a_round(rows: torch.Tensor, replies: list[Reply], chosen: list[int] | None = None) -> Round:
    now = open_round(empty_state(small_fleet()), small_fleet())
    now.models, now.replies = rows, replies
    now.chosen = chosen if chosen is not None else [reply.id for reply in replies]
    return now


def test_fedprox_without_its_term_is_fedavg_bit_for_bit() -> None:
    a = final(fedavg(TRAIN), small_fleet())
    b = final(fedprox(TRAIN, mu=0.0), small_fleet())
    assert torch.equal(a.models, b.models)


def test_fedprox_holds_the_model_back() -> None:
    """A strong proximal term keeps the trained model nearer to where it started."""
    start = small_fleet().start()

    def distance(mu: float) -> float:
        state = final(fedprox(replace(TRAIN, lr=0.05), mu=mu), small_fleet(), rounds=1)
        return float((state.models[0] - start).norm())

    assert distance(5.0) < 0.6 * distance(0.0)


def test_sample_weights_are_the_shares_of_the_data() -> None:
    rows = torch.zeros(1, 2)
    replies = [
        Reply(id=0, vector=torch.tensor([1.0, 0.0]), size=30, stats={"batches": 1}),
        Reply(id=1, vector=torch.tensor([0.0, 1.0]), size=10, stats={"batches": 3}),
    ]
    now = a_round(rows, replies)
    expected = {"samples": [0.75, 0.25], "equal": [0.5, 0.5], "batches": [0.25, 0.75]}
    for weighting, new in expected.items():
        mixing = Average(weighting=weighting)(now)  # type: ignore[arg-type]
        assert apply_mixings([mixing], rows, [r.vector for r in replies])[0].tolist() == new  # type: ignore[misc]


def test_a_client_drawn_twice_counts_twice() -> None:
    replies = [
        Reply(id=0, vector=torch.tensor([1.0]), size=1),
        Reply(id=1, vector=torch.tensor([4.0]), size=1),
    ]
    now = a_round(torch.zeros(1, 1), replies, chosen=[0, 0, 1])
    mixing = Average(weighting="equal")(now)
    new = apply_mixings([mixing], now.models, [torch.tensor([1.0]), torch.tensor([4.0])])
    assert new.item() == 2.0


def test_a_row_that_nobody_feeds_stays_as_it_is() -> None:
    now = a_round(torch.tensor([[5.0], [7.0]]), [Reply(id=0, vector=torch.tensor([1.0]), slot=1, size=4)])
    matrix = weighted_rows(now, np.array([4.0])).toarray()
    assert matrix.tolist() == [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]


def test_only_rows_of_others_are_messages() -> None:
    """Row 0 takes from its own reply and from client 8: one message, 8 -> 3."""
    factor = np.array([[0.0, 0.0, 0.5, 0.5], [0.0, 1.0, 0.0, 0.0]])
    replies = [Reply(id=3), Reply(id=8)]
    sent = links(Mixing(factors=[factor], peers=True), [3, 8], replies)
    assert [array.tolist() for array in sent] == [[8], [3], [1]]


def test_each_client_alone_never_hears_of_the_others() -> None:
    fleet = small_fleet()
    state = final(local_only(TRAIN), fleet)
    assert len(state.models) == CLIENTS
    assert fleet.ledger.cost.bytes == 0
    assert fleet.ledger.cost.messages == 0


def test_centralised_training_is_sgd_on_the_pooled_data() -> None:
    fleet = small_fleet()
    state = final(centralized(TRAIN), fleet, rounds=1)
    x, y = fleet.client_data.train(-1, 1).tensors()
    order = TRAIN.order(len(y), stream(fleet.seed, "run", "train.sgd", 1, "round", 1, "client", -1))
    model = torch.nn.Sequential(*fleet.model) if isinstance(fleet.model, torch.nn.Sequential) else fleet.model
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in order:
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
        optimiser.step()
    trained = torch.cat([p.detach().flatten() for p in model.parameters()])
    assert torch.allclose(state.models[0], trained, atol=1e-6)


def test_streams_are_named_and_apart() -> None:
    assert stream(1, "select", 3).random() == stream(1, "select", 3).random()
    assert stream(1, "select", 3).random() != stream(1, "select", 4).random()
    assert stream(1, "a", "bc").random() != stream(1, "ab", "c").random()


def test_all_methods_see_the_same_failures() -> None:
    from covey.fleet.devices import Devices

    seen = []
    for method in (fedavg(TRAIN, per_round=2), local_only(TRAIN)):
        here = []
        fleet = small_fleet(devices=Devices(dropout=0.4))
        run_rounds(
            method,
            fleet,
            rounds=2,
            watchers=[lambda end, here=here: here.append(end.fleet.begin(end.state.round))],
        )
        seen.append(here)
    assert seen[0] == seen[1]
    assert all(len(here) == 5 for here in seen[0])


@pytest.mark.parametrize("weighting", ["samples", "equal", "batches"])
def test_every_weighting_runs(weighting: str) -> None:
    assert torch.isfinite(final(fedavg(TRAIN, weighting=weighting), small_fleet()).models).all()  # type: ignore[arg-type]
