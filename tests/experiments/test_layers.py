"""Configuration in layers: nothing that an experiment says is lost on the way to a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from covey.errors import UserError
from covey.runs.config import resolve
from experiments.merge import forgotten, merged
from experiments.spec import Case, Experiment, Row, all_experiments, read_experiment

SCALES = ("smoke", "small", "full")


def test_a_case_without_a_name_belongs_to_the_run_that_has_one() -> None:
    case, run = {"method": {"per_round": 6}}, {"method": {"name": "cfic"}}
    both = {"method": {"name": "cfic", "per_round": 6}}
    assert merged(case, run) == both
    assert merged(run, case) == both, "whichever comes first"


def test_it_does_so_past_a_base_that_names_something_else() -> None:
    base = {"method": {"name": "haccs", "rho": 0.5}}
    assert merged(base, {"method": {"per_round": 6}}, {"method": {"name": "cfic"}}) == {
        "method": {"name": "cfic", "per_round": 6}
    }


def test_another_name_starts_anew_and_the_same_name_goes_on() -> None:
    base = {"partition": {"name": "dir-class", "alpha": 0.5}}
    assert merged(base, {"partition": {"name": "iid"}}) == {"partition": {"name": "iid"}}
    assert merged(base, {"partition": {"name": "dir-class", "min_size": 3}}) == {
        "partition": {"name": "dir-class", "alpha": 0.5, "min_size": 3}
    }


def test_the_last_layer_wins_and_a_data_set_keeps_its_clients() -> None:
    assert merged({"rounds": 3, "train": {"lr": 1.0, "batch": 8}}, {"train": {"lr": 2.0}}) == {
        "rounds": 3,
        "train": {"lr": 2.0, "batch": 8},
    }
    data = merged({"data": {"name": "mnist", "clients": 100}}, {"data": {"name": "svhn"}})
    assert data == {"data": {"name": "svhn", "clients": 100}}


def test_layers_are_not_changed() -> None:
    base: dict[str, Any] = {"train": {"lr": 1.0}, "devices": {"joins": [1]}}
    result = merged(base, {"train": {"lr": 2.0}})
    result["devices"]["joins"].append(2)
    assert base == {"train": {"lr": 1.0}, "devices": {"joins": [1]}}


def test_a_setting_that_the_new_name_has_too_must_be_said_again() -> None:
    base, run = {"method": {"name": "fedavg", "per_round": 6}}, {"method": {"name": "cfic"}}
    (lost,) = forgotten(base, run)
    assert "method.per_round = 6 is said of fedavg and lost" in lost
    assert not list(forgotten(base, {"method": {"name": "cfic", "per_round": 7}}))
    assert not list(forgotten(base, {"method": {"per_round": 7}}, run))
    assert not list(forgotten({"method": {"name": "haccs", "rho": 0.1}}, run)), "cfic has no rho"


def leaves(table: Mapping[str, Any], path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Every value of a table by its path."""
    found: dict[tuple[str, ...], Any] = {}
    for key, value in table.items():
        found |= leaves(value, (*path, key)) if isinstance(value, Mapping) else {(*path, key): value}
    return found


def not_said_elsewhere(experiment: Experiment, case: Case, row: Row) -> list[str]:
    """What a case or run says and the run's configuration has otherwise: an independent look at `merged`."""
    whole = leaves(experiment.tables(row, case, 0))
    on_top = [*case.layers, row.set]
    lost = []
    for number, layer in enumerate(on_top):
        later: dict[tuple[str, ...], Any] = {}
        for other in on_top[number + 1 :]:
            later |= leaves(other)
        for path, value in leaves(layer).items():
            renamed = (path[0], "name") in later and layer[path[0]].get("name") not in (
                None,
                later[(path[0], "name")],
            )
            if path not in later and not renamed and path != ("seed",) and whole.get(path) != value:
                lost.append(".".join(path))
    return lost


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", all_experiments())
def test_no_experiment_loses_a_setting(name: str, scale: str) -> None:
    experiment = read_experiment(name, scale)
    for case in experiment.cases:
        for row in experiment.rows if not experiment.study else ():
            assert not_said_elsewhere(experiment, case, row) == []
            if case.name in row.refused:
                with pytest.raises(UserError):
                    resolve(experiment.tables(row, case, 0))
            else:
                resolve(experiment.tables(row, case, 0))


def test_a_lost_setting_ends_the_command_with_a_sentence() -> None:
    experiment = read_experiment("cfic/fig4", "small")
    case = Case(name="x", layers=({"method": {"name": "fedavg", "per_round": 6}},))
    with pytest.raises(
        UserError, match=r"fig4.toml: run 'CFIC': method.per_round = 6 .* say method.per_round there"
    ):
        experiment.tables(Row(name="CFIC", set={"method": {"name": "cfic"}}), case, 0)


def test_fig4_draws_30_per_cent_of_the_clients() -> None:
    experiment = read_experiment("cfic/fig4", "full")
    for case, wanted in zip(experiment.cases, (6, 30, 150), strict=True):
        for row in experiment.rows:
            assert resolve(experiment.tables(row, case, 0))["method"]["per_round"] == wanted
