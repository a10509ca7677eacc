"""Federated learning without a server: the paper's message counts, FedAvg as a special case, and failures."""

from dataclasses import dataclass, replace
from functools import cache
from types import SimpleNamespace
from typing import ClassVar
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch import nn

from covey.core import Client, Method, Reply, State, Step, Task, run_rounds
from covey.data import federate, load
from covey.data.types import Federation
from covey.errors import UserError
from covey.fleet.devices import Devices
from covey.fleet.engine import Engine
from covey.fleet.guard import Guard
from covey.fleet.local import LocalFleet
from covey.methods.baselines import fedavg
from covey.methods.topologies import decentralized, hierarchical, labels, semi_decentralized
from covey.methods.topologies.labels import LabelClusters
from covey.parts.mix.exchange import note_spread
from covey.parts.steps import Train
from covey.settings.catalogue import METHODS
from covey.testing import check_toml, small_fleet
from tests.parts.mix.table_1 import TABLE_1

TRAIN = Train(lr=0.1, batch=8, batches=1)


@cache
def digits(clients: int) -> Federation:
    return federate(load("digits"), partition="dir-class", clients=clients, seed=0, alpha=0.5)


def softmax() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


def fleet(clients: int = 12, model: nn.Module | None = None, **settings: object) -> LocalFleet:
    engine = Engine(mode="serial", workers=1, debug=True)
    return LocalFleet(digits(clients), model or softmax(), seed=3, engine=engine, **settings)


@dataclass(frozen=True)
class Stay(Step):
    """No training at all: what travels does not depend on what was learnt."""

    kind: ClassVar[str] = "train.stay"

    def __call__(self, client: Client, task: Task) -> Reply:
        return Reply(id=client.id, vector=task.models[0], slot=task.slots[0], size=1)

    def work(self, train: int, test: int) -> float:
        return 1.0


def test_fully_connected_is_fedavg_with_equal_weights_and_everybody() -> None:
    ours = run_rounds(decentralized(TRAIN), fleet(), rounds=4)
    # peers see no median of everybody's lengths: without a guard the two are the same
    theirs = run_rounds(fedavg(TRAIN, per_round=12, weighting="equal"), fleet(guard=Guard(norm=0)), rounds=4)
    assert ours.models.shape == (12, 650)
    assert (ours.models - theirs.models[0]).abs().max() < 1e-6


@pytest.mark.parametrize(("pair", "counts"), TABLE_1.items())
def test_the_ledger_of_a_run_holds_the_counts_of_table_1(pair: tuple[str, str], counts: tuple) -> None:
    """A tenth of its 100 rounds: 50 clients in 10 clusters, communication every 2 rounds and every round."""
    for every, expected in zip((2, 1), counts, strict=True):
        there = fleet(50)
        run_rounds(replace(maker(*pair, every), local=Stay()), there, rounds=10)
        assert there.ledger.total["mix.peers"].messages == expected / 10
        assert there.ledger.total["mix.peers"].bytes_peer == expected / 10 * 4 * 650


def maker(kind: str, backbone: str, every: int) -> Method:
    periods = {
        "decentralized": {"every": every},
        "hierarchical": {"cluster_every": every, "backbone_every": every},
        "semi-decentralized": {"backbone_every": every},
    }
    return METHODS[kind](TRAIN, backbone=backbone, **periods[kind])


@pytest.mark.parametrize("name", ["decentralized", "hierarchical", "semi-decentralized"])
def test_a_node_that_dies_and_comes_back_continues_its_row(name: str) -> None:
    gone = Devices(
        leaves=[{"clients": [0, 5], "round": 3}],
        joins=[{"clients": [0, 5], "round": 6}],
    )
    extra = {} if name == "decentralized" else {"clusters": 3}
    method = METHODS[name](TRAIN, backbone="ring", **extra)
    there = fleet(devices=gone)
    rows: list[torch.Tensor] = []
    last = run_rounds(method, there, rounds=8, watchers=[lambda end: rows.append(end.state.models.clone())])
    for node in (0, 5):
        assert torch.equal(rows[1][node], rows[4][node])
        assert not torch.equal(rows[4][node], rows[7][node])
    assert torch.isfinite(last.models).all()
    assert not torch.equal(rows[1][1], rows[4][1])


def test_the_next_representative_takes_over_and_hands_back() -> None:
    heads: list[set[int]] = []

    def watch(end: object) -> None:
        heads.append({node["id"] for node in end.state.notes["graph"]["nodes"] if node["head"]})  # type: ignore[attr-defined]

    run_rounds(semi_decentralized(TRAIN, clusters=3), fleet(), rounds=1, watchers=[watch])
    lost = max(heads[0])
    away = Devices(leaves=[{"clients": lost, "round": 2}], joins=[{"clients": lost, "round": 4}])
    heads.clear()
    last = run_rounds(semi_decentralized(TRAIN, clusters=3), fleet(devices=away), rounds=4, watchers=[watch])
    assert lost in heads[0]
    assert lost not in heads[1]
    assert len(heads[1] - heads[0]) <= 1
    assert heads[3] == heads[0]
    assert torch.isfinite(last.models).all()


@pytest.mark.parametrize("name", ["decentralized", "hierarchical", "semi-decentralized"])
def test_a_third_away_and_a_third_of_the_replies_lost(name: str) -> None:
    extra = {} if name == "decentralized" else {"clusters": 3}
    there = fleet(devices=Devices(dropout=0.3, loss=0.3))
    last = run_rounds(METHODS[name](TRAIN, backbone="wheel", **extra), there, rounds=6)
    assert there.ledger.lost > 0
    assert torch.isfinite(last.models).all()


def test_members_of_a_cluster_hold_their_representatives_model() -> None:
    last = run_rounds(semi_decentralized(TRAIN, clusters=3, backbone="ring"), fleet(), rounds=2)
    for cluster in range(3):
        members = [row for row, i in enumerate(last.seen) if last.groups[i] == cluster]
        assert all(torch.equal(last.models[members[0]], last.models[m]) for m in members)


def test_only_representatives_train_unless_asked() -> None:
    quiet, busy = fleet(), fleet()
    run_rounds(semi_decentralized(TRAIN, clusters=3), quiet, rounds=1)
    run_rounds(semi_decentralized(TRAIN, clusters=3, members_train=True), busy, rounds=1)
    assert (quiet.ledger.asked, busy.ledger.asked) == (3, 12)
    assert quiet.ledger.total["mix.peers"].messages == busy.ledger.total["mix.peers"].messages


def test_most_links_in_the_network_makes_a_representative() -> None:
    """Node 7 is linked to everybody and nobody else to anybody: it leads its cluster, which by samples it does not."""
    hub = [[7, i] for i in range(12) if i != 7] + [[i, 7] for i in range(12) if i != 7]

    def heads(**settings: object) -> set[int]:
        last = run_rounds(hierarchical(TRAIN, clusters=2, **settings), fleet(), rounds=1)  # type: ignore[arg-type]
        return {node["id"] for node in last.notes["graph"]["nodes"] if node["head"]}

    assert 7 in heads(representative="degree", network=hub)
    assert 7 not in heads()


def test_edges_are_taken_at_their_word() -> None:
    """Only client 2 sends, only to client 4: nobody else's model moves."""
    there = fleet(6)
    last = run_rounds(decentralized(TRAIN, backbone=[[2, 4]]), there, rounds=1)
    assert there.ledger.total["mix.peers"].messages == 1
    assert last.notes["graph"]["edges"] == [{"from": 2, "to": 4, "load": 1}]


def test_the_spread_of_the_nodes_models() -> None:
    """(0, 0) and (2, 4), whose statistics do not count: variances 1 and 4, so sqrt(2.5)."""
    now = SimpleNamespace(
        models=torch.tensor([[0.0, 0.0, 7.0], [2.0, 4.0, 9.0]]),
        fleet=SimpleNamespace(layout=SimpleNamespace(trainable=2)),
        notes={},
        number=3,
    )
    note_spread(now)  # type: ignore[arg-type]
    assert now.notes["spread"]["round"] == [3]
    assert now.notes["spread"]["value"] == pytest.approx([2.5**0.5])


def test_notes_for_the_report() -> None:
    last = run_rounds(hierarchical(TRAIN, clusters=3, cluster_every=2, backbone_every=2), fleet(), rounds=4)
    assert last.notes["spread"]["round"] == [1, 2, 3, 4]
    assert last.notes["spread"]["value"][0] == pytest.approx(0, abs=1e-7)
    assert last.notes["spread"]["value"][1] > 0
    assert sum(last.notes["clusters"]["sizes"]) == 12
    # 3 representatives fully connected twice, 9 members: 2 uploads, 4 downloads.
    assert sum(edge["load"] for edge in last.notes["graph"]["edges"]) == 2 * 6 + 9 * (2 + 4)


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Linear(8, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


def test_statistics_stay_local_but_reach_members_who_never_train() -> None:
    full = run_rounds(decentralized(TRAIN), fleet(6, Normed(), buffers="local"), rounds=1)
    weights, statistics = full.models[:, :-16], full.models[:, -16:]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(statistics[0], statistics[1])
    there = fleet(6, Normed(), buffers="local")
    semi = run_rounds(semi_decentralized(TRAIN, clusters=2), there, rounds=1)
    fresh = there.start()[-16:]
    assert not any(torch.equal(row, fresh) for row in semi.models[:, -16:])


def test_momentum_lives_as_long_as_the_node() -> None:
    train = Train(lr=0.1, batch=8, batches=1, momentum=0.5, keep_momentum=True)
    there = fleet(4)
    run_rounds(decentralized(train, backbone="ring"), there, rounds=1)
    first = {i: there.states[i]["velocity"].clone() for i in range(4)}
    run_rounds(decentralized(train, backbone="ring"), there, rounds=2)
    assert all(not torch.equal(first[i], there.states[i]["velocity"]) for i in range(4))


def test_the_same_seed_gives_the_same_run() -> None:
    def once() -> State:
        return run_rounds(hierarchical(TRAIN, backbone="wheel", clusters=4), fleet(), rounds=3)

    assert torch.equal(once().models, once().models)


def test_of_many_clients_some_are_clustered_and_the_others_join_whom_they_are_most_like(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Three kinds of labels in turn: 0, 1 and 2. Every second client of 12 is compared with every other."""
    monkeypatch.setattr(labels, "MOST", 6)
    counts = {i: np.eye(3)[i % 3] * (5 + i) + 0.1 for i in range(12)}
    now = Mock(notes={})
    found = LabelClusters(clusters=3, min_samples=2)._first(now, counts)
    assert sorted(found) == list(range(12))
    assert all((found[i] == found[j]) == (i % 3 == j % 3) for i in range(12) for j in range(12))
    assert now.notes["clusters"]["sizes"] == [4, 4, 4]
    assert now.notes["clusters"]["compared each with each"] == 6


def test_an_unseen_client_joins_the_cluster_it_is_most_like() -> None:
    late = Devices(joins=[{"clients": 11, "round": 3}])
    last = run_rounds(hierarchical(TRAIN, clusters=3), fleet(devices=late), rounds=3)
    assert last.models.shape[0] == 12
    assert last.groups[11] in (0, 1, 2)
    assert np.isfinite(last.models.numpy()).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"backbone": "rnig"}, "graph is 'rnig'; allowed: full, ring, wheel"),
        ({"backbone_every": 0}, "backbone_every is 0; allowed: a whole number, at least 1"),
        ({"clusters": 0}, "clusters is 0; allowed: a whole number, at least 1"),
        ({"weights": "heavy"}, "weights is 'heavy'; allowed: auto, equal, metropolis"),
        ({"representative": "loudest"}, "representative is 'loudest'; allowed: samples, degree"),
        ({"representative": "degree"}, 'representative = "degree" and network go together'),
        ({"cluster_by": "hope"}, "cluster_by is 'hope'; allowed: dbscan, agglomerative"),
    ],
)
def test_a_wrong_setting_is_explained(settings: dict, message: str) -> None:
    with pytest.raises(UserError) as caught:
        hierarchical(TRAIN, **settings)
    assert message in str(caught.value)


def test_nothing_but_models_between_peers_is_a_message() -> None:
    there = fleet(6)
    run_rounds(decentralized(TRAIN, backbone="ring"), there, rounds=2)
    assert there.ledger.total["train.sgd"].messages == 0
    assert there.ledger.cost.messages == 2 * 12


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("decentralized", {"backbone": [[0, 1], [1, 0]], "every": 2}),
        ("decentralized", {"backbone": "grid_2d_graph(2, 4, periodic=True)", "weights": "metropolis"}),
        ("hierarchical", {"backbone": "wheel", "representative": "degree", "network": "star"}),
        ("semi-decentralized", {"backbone": [[0, 1]], "clusters": 2, "members_train": True}),
    ],
)
def test_every_shape_survives_its_toml_file(name: str, settings: dict) -> None:
    method = check_toml(name, settings)
    assert torch.isfinite(run_rounds(method, small_fleet(), rounds=1).models).all()
