"""Embedding clustering, IFCA and LADD as whole methods, on digits of four clusters and by known answers."""

import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_rand_score

from covey.core.round import Method, State, Task, empty_state, open_round, run_rounds, served
from covey.data import Dataset, Federation, federate, from_tensors, load
from covey.errors import UserError
from covey.fleet.devices import Devices
from covey.fleet.engine import Engine
from covey.fleet.local import LocalFleet
from covey.fleet.work import Call, client_of
from covey.methods.baselines import fedavg
from covey.methods.embedding import embedding
from covey.methods.ifca import AllModels, ifca
from covey.methods.ladd import ladd, style_clusters
from covey.parts.group.membership import read_membership
from covey.parts.measure import Measuring
from covey.parts.steps import Train
from covey.parts.steps.embedding import Embed
from covey.runs.config import fleet_of, resolve
from covey.training.models import build
from covey.training.models.encoders import load_encoder

TRAIN = Train(lr=0.1, batch=16)
CLIENTS = 24


@cache
def moved() -> Federation:
    """24 clients on the digits; client i's labels are moved by 0, 3, 5 or 8 places: four clusters, equally
    dissimilar."""
    shift = {"shift": "label", "offsets": (0, 3, 5, 8)}
    return federate(load("digits"), partition="iid", clients=CLIENTS, seed=1, **shift)


@cache
def rotated() -> Federation:
    """24 clients on the digits; every other one's pictures lie on their side."""
    return federate(
        load("digits"), partition="iid", clients=CLIENTS, seed=1, shift="rotation", rotations=(0, 1)
    )


def fleet(devices: Devices | None = None, data: Federation | None = None) -> LocalFleet:
    model = build("mlp", input_shape=(1, 8, 8), outputs=10, seed=1, hidden=(32,))
    return LocalFleet(data or moved(), model, devices=devices, seed=5, engine=Engine(mode="serial"))


@cache
def encoder_file() -> str:
    """An encoder trained once on all digits, in a file for all tests."""
    path = str(Path(tempfile.mkdtemp()) / "encoder.safetensors")
    public = {"pretrain": "public", "public": "digits", "public_epochs": 40}
    run_rounds(embedding(TRAIN, save_encoder=path, **public), fleet(), rounds=1)  # type: ignore[arg-type]
    return path


def method(**settings: object) -> Method:
    return embedding(TRAIN, **{"encoder": encoder_file(), "min_size": 3, **settings})  # type: ignore[arg-type]


def kinds(clients: list[int]) -> list[int]:
    return [moved().shares[i].cluster for i in clients]


def agreement(state: State) -> float:
    clients = sorted(state.groups)
    return float(adjusted_rand_score(kinds(clients), [state.groups[i] for i in clients]))


def test_the_four_kinds_are_found_and_each_has_its_model() -> None:
    here = fleet()
    state = run_rounds(method(per_round=24), here, rounds=2)
    assert agreement(state) == 1
    assert len(state.models) == 4
    assert state.notes["clustering"]["clusters"] == 4
    assert {len(task.models) for task in served(method(), state, here, range(CLIENTS)).values()} == {1}


def test_the_ledger_books_bits_encoder_and_pretraining() -> None:
    here = fleet()
    run_rounds(embedding(TRAIN, pretrain_rounds=2, pretrain_per_round=5), here, rounds=1)
    cost = here.ledger.total
    autoencoder = 64 * 50 + 50 + 50 * 20 + 20 + 20 * 50 + 50 + 50 * 64 + 64
    encoder = 64 * 50 + 50 + 50 * 20 + 20
    assert cost["query.embedding"].bytes_up == CLIENTS * (200 // 8 + 8)  # 200 bits, and what they cost
    assert cost["query.embedding"].bytes_down == CLIENTS * 4 * encoder
    assert cost["train.autoencoder"].bytes_down == 2 * 5 * 4 * autoencoder
    assert cost["train.autoencoder"].bytes_up == 2 * 5 * (4 * autoencoder + 16)
    assert here.ledger.asked == 10  # the pre-training's clients are not this round's
    assert here.ledger.epsilon == {i: pytest.approx(20 * np.log(9)) for i in range(CLIENTS)}


def test_a_saved_encoder_gives_the_same_groups_without_pretraining(tmp_path: Path) -> None:
    path = str(tmp_path / "shared.safetensors")
    first = run_rounds(embedding(TRAIN, pretrain_rounds=1, save_encoder=path), fleet(), rounds=1)
    loaded = fleet()
    second = run_rounds(embedding(TRAIN, encoder=path), loaded, rounds=1)
    assert second.groups == first.groups
    assert "train.autoencoder" not in loaded.ledger.total


def test_a_wrong_encoder_file_is_one_clear_sentence(tmp_path: Path) -> None:
    bad = tmp_path / "bad.safetensors"
    bad.write_bytes(b"nothing")
    with pytest.raises(UserError, match="cannot be read"):
        run_rounds(embedding(TRAIN, encoder=str(bad)), fleet(), rounds=1)


def test_where_an_encoder_cannot_be_saved_is_said_before_it_is_trained(tmp_path: Path) -> None:
    here = fleet()
    with pytest.raises(UserError, match="its folder must exist"):
        run_rounds(embedding(TRAIN, save_encoder=str(tmp_path / "nowhere" / "e.safetensors")), here, rounds=1)
    assert not here.ledger.total


def test_pretraining_on_a_public_set_costs_the_clients_nothing() -> None:
    here = fleet()
    run_rounds(embedding(TRAIN, pretrain="public", public="digits", public_epochs=1), here, rounds=1)
    assert set(here.ledger.total) == {"query.embedding", "train.sgd"}


def test_the_hybrid_goes_on_from_the_public_encoder() -> None:
    settings = {"public": "digits", "public_epochs": 1, "pretrain_rounds": 1, "pretrain_per_round": 2}
    rows = {
        way: run_rounds(embedding(TRAIN, pretrain=way, **settings), fleet(), rounds=1).memory["encoder"]  # type: ignore[arg-type]
        for way in ("public", "federated", "hybrid")
    }
    apart = {way: float((rows["hybrid"] - rows[way]).norm()) for way in ("public", "federated")}
    assert 0 < apart["public"] < apart["federated"]


def of_tables() -> Federation:
    """Eight clients of two clusters: the label says yes where the first columns are high, or where they are low."""
    rng = np.random.default_rng(4)
    y = rng.integers(0, 2, 640)
    who = np.arange(640) % 8
    sign = np.where(who % 2 == 0, 1.0, -1.0) * (2 * y - 1)
    x = rng.normal(size=(640, 12)) + sign[:, None] * np.repeat([1.5, -1.5], 6)
    whole = from_tensors(torch.from_numpy(x).float(), torch.from_numpy(y), natural={"natural": who})
    return federate(whole, partition="natural", clients=8, seed=0)


def test_rows_of_tables_are_their_own_codes_and_nothing_is_trained_for_them() -> None:
    data = of_tables()
    model = build("mlp", input_shape=(12,), outputs=2, seed=0, hidden=(4,))
    there = LocalFleet(data, model, seed=1, engine=Engine(mode="serial", lanes=False))
    state = run_rounds(embedding(Train(lr=0.1), per_round=8, flip=0.05), there, rounds=1)
    groups = [state.groups[i] for i in range(8)]
    assert adjusted_rand_score([i % 2 for i in range(8)], groups) == 1.0
    assert "train.autoencoder" not in there.ledger.total
    assert there.ledger.total["query.embedding"].bytes_up == 8 * (3 + 8)  # 24 bits, and the privacy loss


@pytest.mark.parametrize("name", ["embedding", "covey", "pacfl"])
def test_texts_are_compared_by_their_tokens(name: str) -> None:
    # token 2 j for even clients, 2 j + 1 for odd ones: as numbers these are nearly the same
    rng = np.random.default_rng(4)
    who = np.arange(640) % 8
    x = 2 + 2 * rng.integers(0, 10, (640, 12)) + (who % 2)[:, None]
    y = torch.from_numpy(rng.integers(0, 2, 640))
    whole = from_tensors(torch.from_numpy(x), y, natural={"natural": who})
    data = federate(whole, partition="natural", clients=8, seed=0)
    model = build("decoder", input_shape=(12,), outputs=2, vocabulary=22, width=4, depth=1, heads=1)
    there = LocalFleet(data, model, seed=1, engine=Engine(mode="serial", lanes=False))
    chosen = resolve({"method": {"name": name, "per_round": 8}}).method
    groups = run_rounds(chosen, there, rounds=1).groups
    assert adjusted_rand_score([i % 2 for i in range(8)], [groups[i] for i in range(8)]) == 1.0


def test_what_no_client_can_do_is_refused_before_anybody_is_asked() -> None:
    table = {"name": "tests.methods.test_embedding:of_tables_alone", "clients": 8}
    with pytest.raises(UserError, match=r"method ladd cannot be used with .* 1 dimensions, not 3"):
        fleet_of(resolve({"data": table, "method": {"name": "ladd"}}))


def of_tables_alone() -> Dataset:
    return of_tables().dataset


def test_one_cluster_is_fedavg_bit_for_bit() -> None:
    one = run_rounds(method(min_size=CLIENTS), fleet(), rounds=3)
    assert len(one.models) == 1
    assert torch.equal(one.models, run_rounds(fedavg(TRAIN), fleet(), rounds=3).models)


def test_an_unseen_client_is_placed_at_once_and_served() -> None:
    late = {"clients": [20, 21, 22, 23], "round": 3}
    here = fleet(Devices(joins=(late,)))
    state = run_rounds(method(), here, rounds=2)
    assert set(state.groups) == set(range(20))
    state = run_rounds(method(), here, rounds=3, state=state)
    assert agreement(state) == 1
    assert len(state.groups) == CLIENTS
    row = served(method(), state, here, [21])[21].models[0]
    assert torch.equal(row, state.models[state.groups[1]])


@pytest.mark.parametrize("every", [0, 2])
def test_clients_that_drift_migrate_when_they_report_again(every: int) -> None:
    drift = {"clients": [0, 4, 8], "round": 3, "label_offset": 3}  # from cluster 0 to cluster 1
    here = fleet(Devices(drifts=(drift,)))
    state = run_rounds(method(every=every), here, rounds=5)
    expected = state.groups[1] if every else state.groups[12]
    assert {state.groups[i] for i in (0, 4, 8)} == {expected}
    assert len(state.models) == 4


def test_drifted_clients_that_are_alike_and_fit_nowhere_found_a_group() -> None:
    two = replace(moved(), shares=tuple(share for share in moved().shares if share.cluster < 2))
    drift = {"clients": [0, 2, 4], "round": 3, "label_offset": 6}  # a cluster that nobody was in
    here = fleet(Devices(drifts=(drift,)), two)
    state = run_rounds(method(every=2), here, rounds=3)
    assert len(state.models) == 2
    state = run_rounds(method(every=2), here, rounds=4, state=state)
    assert len(state.models) == 3
    assert {state.groups[i] for i in (0, 2, 4)} == {2}
    membership = read_membership(state.memory)
    assert membership is not None
    assert membership.parents[2] in (0, 1)


def test_the_encoder_travels_to_a_client_once() -> None:
    here = fleet()
    run_rounds(method(every=2), here, rounds=4)
    encoder = 64 * 50 + 50 + 50 * 20 + 20
    assert here.ledger.total["query.embedding"].bytes_down == CLIENTS * 4 * encoder
    assert here.ledger.total["query.embedding"].bytes_up == 3 * CLIENTS * 33
    assert here.ledger.epsilon[0] == pytest.approx(2 * 20 * np.log(9))  # reports again: at most twice


def test_each_client_may_have_its_own_noise() -> None:
    here = fleet()
    state = run_rounds(method(own_flips=(0.05, 0.12)), here, rounds=1)
    assert agreement(state) == 1
    assert here.ledger.epsilon[0] == pytest.approx(20 * np.log(0.95 / 0.05))
    assert here.ledger.epsilon[1] == pytest.approx(20 * np.log(0.88 / 0.12))


def test_asking_twice_gives_the_same_bits() -> None:
    here = fleet()
    membership = read_membership(run_rounds(method(every=2), here, rounds=1).memory)
    again = read_membership(run_rounds(method(every=2), fleet(), rounds=4).memory)
    assert membership is not None
    assert again is not None
    assert np.array_equal(membership.vectors, again.vectors)


@pytest.mark.parametrize(("noise", "live"), [("opendp", False), ("simulated", True)])
def test_on_a_real_device_the_noise_does_not_come_from_the_seed(noise: str, live: bool) -> None:
    pytest.importorskip("opendp")
    here = fleet()
    embed = Embed(noise=noise)  # type: ignore[arg-type]
    row, _, _ = load_encoder(Path(encoder_file()))
    call = Call(step=embed, seed=5, round=1, names=("x",))
    first, again = ({}, {})
    clients = [
        client_of(call, 0, state, here.client_data, here.executor.bench) for state in (first, first, again)
    ]  # type: ignore[union-attr]
    task = Task(models=row[None], slots=(0,))
    said = [embed(replace(client, live=live), task).stats["bits"].tolist() for client in clients]
    assert said[0] == said[1]  # the device keeps its answers
    assert said[0] != said[2]  # another device with the same seed and data has others


def test_shared_layers_are_the_same_in_all_rows_and_the_rest_is_not() -> None:
    state = run_rounds(method(n_shared=2, per_round=24), fleet(), rounds=2)
    cut = 64 * 32 + 32
    assert len(state.models) == 4
    assert (state.models[:, :cut] == state.models[0, :cut]).all()
    assert not torch.equal(state.models[0, cut:], state.models[1, cut:])
    with pytest.raises(UserError, match="n_shared is 9"):
        run_rounds(method(n_shared=9), fleet(), rounds=1)


def test_m_clients_of_every_cluster_train() -> None:
    here = fleet()
    state = run_rounds(method(per="cluster", per_round=2), here, rounds=2)
    assert here.ledger.asked == 8
    assert sorted(kinds(list(state.worked))) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_the_privacy_note_names_the_worst_case() -> None:
    text = run_rounds(method(), fleet(), rounds=1).notes["privacy"]["text"]
    for words in (
        "2.197 per bit",
        "epsilon 43.9",
        "200 bits, epsilon 439.4",
        "not a strong guarantee",
        "seed",
    ):
        assert words in text


def test_measuring_those_that_trained_costs_a_third_model_transfer() -> None:
    here = fleet()
    run_rounds(method(), here, rounds=3, measure=Measuring(global_test=False, whom="trained"))
    row = 4 * here.layout.size
    assert here.ledger.measuring["evaluate.local"].bytes_down == 3 * 10 * row
    assert here.ledger.total["train.sgd"].bytes_down == 3 * 10 * row


# ---------------------------------------------------------------------------------------------- IFCA


@pytest.mark.parametrize("weighting", ["equal", "samples"])
def test_ifca_with_one_model_is_fedavg_bit_for_bit(weighting: str) -> None:
    ours = run_rounds(ifca(TRAIN, k=1, weighting=weighting), fleet(), rounds=3)  # type: ignore[arg-type]
    theirs = run_rounds(fedavg(TRAIN, weighting=weighting), fleet(), rounds=3)  # type: ignore[arg-type]
    assert torch.equal(ours.models, theirs.models)


def test_ifca_finds_the_kinds_from_balanced_starts() -> None:
    here = fleet()
    state = run_rounds(ifca(replace(TRAIN, epochs=3), per_round=24), here, rounds=10)
    assert agreement(state) > 0.5
    assert state.notes["balance"]["smallest_share"] > 0


def test_ifca_charges_k_models_down_and_shared_layers_once() -> None:
    here = fleet()
    run_rounds(ifca(TRAIN, k=4, redraws=0, n_shared=2, per_round=5), here, rounds=1)
    size, cut = here.layout.size, 64 * 32 + 32
    assert here.ledger.total["train.sgd"].bytes_down == 5 * 4 * (cut + 4 * (size - cut))
    assert here.ledger.total["train.sgd"].bytes_up == 5 * (4 * size + 16)


def test_a_model_that_nobody_chose_stays() -> None:
    method = ifca(TRAIN, k=6, redraws=0, per_round=2)
    here = fleet()
    before = run_rounds(method, here, rounds=1)
    after = run_rounds(method, here, rounds=2, state=before)
    chosen = {after.groups[i] for i in after.worked}
    for row in range(6):
        assert torch.equal(before.models[row], after.models[row]) == (row not in chosen)


def test_ifca_may_choose_on_one_batch() -> None:
    """The choice of a client in a round is then that of 16 of its samples, drawn anew each round."""
    here = fleet()
    state = run_rounds(ifca(TRAIN, k=3, redraws=0, choose_on=1, per_round=6), here, rounds=1)
    now = open_round(empty_state(here), here)
    now.models = torch.stack([here.start(j) for j in range(3)])
    task = AllModels(choose_on=TRAIN.batch)(now, [0])[0]
    assert task.args == {"choose_on": TRAIN.batch}
    assert AllModels()(now, [0])[0].args == {}
    assert len(state.worked) == 6


def test_ifca_serves_the_best_of_all_or_the_last_choice() -> None:
    here = fleet()
    best, last = ifca(TRAIN, redraws=0), ifca(TRAIN, redraws=0, serve="last")
    state = run_rounds(best, here, rounds=1)
    worked = state.worked[0]
    never = next(i for i in range(CLIENTS) if i not in state.groups)
    assert len(served(best, state, here, [worked])[worked].models) == 4
    assert served(last, state, here, [worked])[worked].slots == (state.groups[worked],)
    assert len(served(last, state, here, [never])[never].models) == 4


# ---------------------------------------------------------------------------------------------- LADD


def test_ladd_tells_a_quarter_turn_from_none() -> None:
    state = run_rounds(ladd(TRAIN, k=2, share=0.3), fleet(data=rotated()), rounds=1)
    assert len({state.groups[i] for i in range(0, CLIENTS, 2)}) == 1
    assert len({state.groups[i] for i in range(1, CLIENTS, 2)}) == 1
    assert state.groups[0] != state.groups[1]


def test_style_clusters_by_silhouette_and_by_number() -> None:
    rng = np.random.default_rng(0)
    vectors = (np.repeat(np.eye(5) * 10, 6, axis=0) + rng.normal(size=(30, 5)) * 0.1).astype(np.float32)
    labels, tried = style_clusters(vectors, 0, seed=1)
    assert len(np.unique(labels)) == 5
    assert list(tried) == list(range(4, 20))
    assert len(np.unique(style_clusters(vectors, 3, seed=1)[0])) == 3
    assert style_clusters(vectors[:1], 0, seed=1)[0].tolist() == [0]
    assert style_clusters(vectors[:2], 4, seed=1)[0].max() == 1


@pytest.mark.parametrize(
    ("make", "wrong"),
    [
        (embedding, {"per": "x"}),
        (embedding, {"every": -1}),
        (embedding, {"flip": 0.6}),
        (embedding, {"pretrain": "x"}),
        (embedding, {"search": "x"}),
        (ifca, {"k": 0}),
        (ifca, {"redraws": -1}),
        (ifca, {"least": 2.0}),
        (ifca, {"serve": "x"}),
        (ladd, {"k": -1}),
        (ladd, {"share": 0.9}),
    ],
)
def test_wrong_settings_are_named(make, wrong: dict) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UserError, match=next(iter(wrong))):
        make(TRAIN, **wrong)
