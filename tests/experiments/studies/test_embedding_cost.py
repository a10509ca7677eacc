"""What an epoch and the bits cost: CPU time, medians, and the arithmetic of a whole run."""

import time

import pytest

from covey.config import fleet_of, resolve
from covey.experiments.studies.embedding_cost import cost, costs, cpu_seconds, embed
from covey.model import read_row
from covey.models.encoders import autoencoder, encoder

TABLES = {
    "rounds": 7,
    "data": {"name": "digits", "clients": 6},
    "model": {"name": "mlp"},
    "method": {"name": "fedavg", "per_round": 3},
    "train": {"epochs": 2, "batch": 16},
}


def test_waiting_costs_nothing_and_the_first_try_is_for_warming_up() -> None:
    work = iter([2_000_000, 1, 1, 1])

    def busy_then_waiting() -> None:
        sum(range(next(work)))
        time.sleep(0.001)

    assert cpu_seconds(busy_then_waiting, 3) < 0.001


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
