"""What an epoch, the bits and whole runs cost: CPU time, medians, and arithmetic that fits the ledger."""

import time

import pytest

from covey.runs.config import fleet_of, resolve
from covey.training.models import build
from covey.training.models.encoders import autoencoder, encoder
from covey.training.rows import Layout, read_row
from experiments.result import read_stored
from experiments.spec import read_experiment
from experiments.studies.embedding_cost import (
    computing,
    cost,
    costs,
    cpu_seconds,
    embed,
    floats_sent,
)

TABLES = {
    "rounds": 7,
    "data": {"name": "digits", "clients": 6},
    "model": {"name": "mlp"},
    "method": {"name": "fedavg", "per_round": 3},
    "train": {"epochs": 2, "batch": 16},
}


def test_waiting_costs_nothing_and_the_first_try_is_for_warming_up() -> None:
    work = iter([20_000_000, 1, 1, 1])

    def busy_then_waiting() -> None:
        sum(range(next(work)))
        time.sleep(0.1)

    assert cpu_seconds(busy_then_waiting, 3) < 0.05


def test_a_whole_run_is_clients_times_epochs_times_rounds() -> None:
    config = resolve(TABLES)
    fleet = fleet_of(config)
    try:
        found = costs(fleet, config, clients=2, repeats=1)
    finally:
        fleet.close()
    faster = min(found["epoch, PyTorch, CPU s"], found["epoch, lanes, CPU s"])
    assert found["a whole run, CPU min"] == pytest.approx(faster * 3 * 2 * 7 / 60)
    assert found["epoch / embedding"] == pytest.approx(
        found["epoch, PyTorch, CPU s"] / found["embedding, CPU s"]
    )


def test_what_is_timed_makes_all_bits_of_a_client() -> None:
    fleet = fleet_of(resolve(TABLES))
    try:
        view = fleet.client_data.train(0, 1)
        dataset = view.dataset
        row = read_row(encoder(autoencoder("auto", tuple(dataset.x.shape[1:]), dataset.scale)))
        assert embed(row, view).shape == (10, 20)
    finally:
        fleet.close()


def test_every_case_of_the_experiment_has_its_row() -> None:
    found = cost({"of": "embedding/table3", "scale": "smoke", "clients": 1, "repeats": 1}, 0)
    assert list(found.rows) == ["digits"]
    assert all(value > 0 for value in found.rows["digits"].values())


def test_counted_bytes_are_those_of_the_ledger_but_for_a_ten_thousandth() -> None:
    experiment = read_experiment("embedding/table3", "full")
    case = next(case for case in experiment.cases if case.name == "MNIST")
    of = {row.name: resolve(experiment.tables(row, case, 0)) for row in experiment.rows}
    ledger = {
        cell["row"]: cell["values"][0]
        for cell in read_stored("embedding/table4", "small")["cells"]
        if cell["column"] == "total bytes"
    }
    layout = Layout.of(build("lenet-tanh", input_shape=(1, 28, 28), outputs=10))
    sizes = {"size of the autoencoder": 81_304, "size of the encoder": 784 * 50 + 50 + 50 * 20 + 20}
    counted = {name: 4 * floats_sent(config, layout, sizes) for name, config in of.items()}
    assert set(ledger) <= set(counted)
    assert {name: counted[name] for name in ledger} == {
        name: pytest.approx(value, rel=1e-4) for name, value in ledger.items()
    }


def test_computing_by_hand() -> None:
    parts = {"epoch": 2.0, "autoencoder": 0.5, "bits": 0.25, "judging a batch": 0.1}
    method = {"name": "embedding", "pretrain_rounds": 3, "pretrain_epochs": 2, "public": "digits"}
    assert computing(resolve(TABLES), parts) == pytest.approx(7 * 2 * 2.0)
    assert computing(resolve({**TABLES, "method": method}), parts) == pytest.approx(28 + 0.25 + 3 * 2 * 0.5)
    public = {**method, "pretrain": "public"}
    assert computing(resolve({**TABLES, "method": public}), parts) == pytest.approx(28.25)
    ifca = {"name": "ifca", "k": 4}
    assert computing(resolve({**TABLES, "method": ifca}), parts) == pytest.approx(28 + 7 * 4 * 0.1)
