"""Large fleets: what a round, a checkpoint and the journal touch depends on who works, not on how many there are."""

from pathlib import Path

import numpy as np
import pytest
import torch

from covey.core.round import State, empty_state, one_round, open_round, run_rounds, with_unseen
from covey.data import federate, from_tensors
from covey.data.types import Shares
from covey.fleet.client_data import ClientData
from covey.fleet.devices import Devices
from covey.fleet.engine import Engine
from covey.fleet.heterogeneity.measure import evenly
from covey.fleet.local import LocalFleet
from covey.folder.checkpoint import Checkpoint, load_checkpoint, save_checkpoint, short_ids
from covey.folder.journal import DESCRIBED, data_rows
from covey.methods.baselines import fedavg
from covey.parts.measure import Measuring
from covey.parts.steps import Train
from covey.training.models import build

METHOD = fedavg(Train(lr=0.1, batch=2), per_round=5)


def fleet_of(clients: int, **settings: object) -> LocalFleet:
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.standard_normal((2 * clients + 50, 4), dtype=np.float32))
    y = (x[:, 0] > 0).long()
    dataset = from_tensors(x[: 2 * clients], y[: 2 * clients], test=(x[2 * clients :], y[2 * clients :]))
    data = federate(dataset, partition="iid", clients=clients, seed=0)
    model = build("softmax", input_shape=(4,), outputs=2, seed=0)
    return LocalFleet(data, model, engine=Engine(mode="serial", lanes=False), **settings)  # type: ignore[arg-type]


def shares_touched(clients: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many clients' data are put together in a third round with its measurement of the global test set."""
    fleet = fleet_of(clients)
    measuring = Measuring(local_test=False)
    state = run_rounds(METHOD, fleet, rounds=2, measure=measuring)
    touched: list[object] = []
    one = Shares.__getitem__
    monkeypatch.setattr(Shares, "__getitem__", lambda self, place: touched.append(place) or one(self, place))
    run_rounds(METHOD, fleet, rounds=3, state=state, measure=measuring)
    monkeypatch.undo()
    return len(touched)


def test_a_round_looks_at_the_data_of_those_who_work(monkeypatch: pytest.MonkeyPatch) -> None:
    few = shares_touched(100, monkeypatch)
    assert 0 < few == shares_touched(3000, monkeypatch) <= 10 * 5


def test_a_fleet_without_comings_and_goings_is_never_listed() -> None:
    fleet = fleet_of(50)
    now = open_round(empty_state(fleet), fleet)
    assert now.here == now.seen == fleet.members() == range(50)
    assert fleet.trainers(now.here) is now.here


@pytest.mark.parametrize(
    ("seen", "here", "after"),
    [
        ((), range(3), range(3)),
        (range(3), range(3), range(3)),
        (range(3), [0, 2], range(3)),
        (range(3), range(4), (0, 1, 2, 3)),
        ((2, 0), [0, 1, 2, 5], (2, 0, 1, 5)),
        ((), [1, 2], (1, 2)),
    ],
)
def test_unseen_come_after_those_seen_before(seen, here, after) -> None:
    assert with_unseen(seen, here) == after


def test_who_works_is_drawn_as_from_a_list_of_ids() -> None:
    fleet = fleet_of(50)
    now = open_round(empty_state(fleet), fleet)
    by_list = now.stream("select").choice(list(range(50)), size=5, replace=False)
    assert METHOD.select(now) == sorted(by_list.tolist())
    now.here = [i for i in range(50) if i % 3]
    by_list = now.stream("select").choice(now.here, size=5, replace=False)
    assert METHOD.select(now) == sorted(by_list.tolist())


def test_everybody_is_one_number_in_a_checkpoint(tmp_path: Path) -> None:
    assert short_ids(range(1_000_000)) == 1_000_000
    sizes = []
    for clients in (10, 1_000_000):
        save_checkpoint(
            tmp_path,
            Checkpoint(state=State(models=torch.ones(1, 2), seen=range(clients)), fleet={}, extra={}),
        )
        loaded = load_checkpoint(tmp_path)
        assert loaded is not None
        assert loaded.state.seen == range(clients)
        sizes.append(sum(file.stat().st_size for file in (tmp_path / "checkpoint").iterdir()))
    assert sizes[1] - sizes[0] < 100


def test_the_journal_describes_the_first_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    data = fleet_of(30).data
    everybody = data_rows(data, {"size_skew": 0.5})
    monkeypatch.setattr("covey.folder.journal.DESCRIBED", 10)
    some = data_rows(data, {"size_skew": 0.5})
    assert DESCRIBED == 10_000
    assert some == [row for row in everybody if row[3] < 10]


def test_devices_are_compared_evenly_spaced() -> None:
    assert evenly(7, 10_000).tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert evenly(1, 10_000).tolist() == [0]
    assert evenly(11, 3).tolist() == [0, 5, 10]


def test_ideal_devices_are_one_object_and_special_ones_their_own() -> None:
    devices = Devices(special=[{"clients": [2], "compute": 0.5}])
    built = devices.build(4, np.random.default_rng(0))
    assert built[0] is built[1] is built[3]
    assert built[2].compute == 0.5
    assert built[0].compute == 1.0


def test_the_server_pools_whoever_has_labels_in_the_round() -> None:
    data = fleet_of(6).data
    devices = Devices(joins=[{"clients": [4], "round": 3}, {"clients": [5], "round": 1, "labels": False}])
    pooled = ClientData(data, devices)
    for number, ids in ((1, [0, 1, 2, 3]), (3, [0, 1, 2, 3, 4])):
        expected = np.concatenate([data.shares[i].train.labels() for i in ids])
        assert pooled.train(-1, number).labels().tolist() == expected.tolist()
    assert pooled.sizes(-1)[0] == sum(len(data.shares[i].train) for i in range(5))


def test_one_round_gives_the_same_bits_with_a_range_and_with_a_list() -> None:
    first = one_round(METHOD, empty_state(fleet_of(40)), fleet_of(40))
    listed = fleet_of(40)
    listed.members = lambda: list(range(40))  # type: ignore[method-assign]
    assert torch.equal(first.models, one_round(METHOD, empty_state(listed), listed).models)
