"""A comparison takes methods by name and methods composed in files, on one fleet."""

from pathlib import Path

import pytest

from covey.cli.command import RunOptions
from covey.cli.run import compared
from covey.errors import UserError
from covey.runs.compare import on_equal_data
from covey.runs.config import resolve

COMPOSED = Path(__file__).parents[2] / "examples" / "composed.toml"


def runs(*methods: str, **options):
    return compared(list(methods), RunOptions(**options))


def test_a_composed_file_runs_beside_named_methods_on_its_fleet() -> None:
    found = runs("fedavg", "haccs", "ifca", str(COMPOSED), seed=4, rounds=7)
    assert list(found) == ["fedavg", "haccs", "ifca", "composed"]
    configs = {name: resolve(tables) for name, tables in found.items()}
    fleets = [
        {key: c.tables[key] for key in ("seed", "rounds", "data", "partition")} for c in configs.values()
    ]
    assert all(fleet == fleets[0] for fleet in fleets)
    assert [configs[name]["method"]["per_round"] for name in ("fedavg", "haccs", "ifca")] == [8, 8, 8]
    assert configs["composed"]["method"]["select"]["name"] == "haccs"
    assert configs["composed"].top.name == "composed"


def test_settings_of_parts_can_be_changed_for_the_comparison() -> None:
    found = runs("fedavg", str(COMPOSED), set_=["method.select.rho=0.3"])
    assert resolve(found["composed"])["method"]["select"]["rho"] == 0.3


def test_further_files_bring_their_method_only(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.toml"
    fleet.write_text("[data]\nclients = 5\n[method]\nper_round = 3\n")
    mine = tmp_path / "mine.toml"
    mine.write_text(
        '[method]\nname = "compose"\nbank = "per-client"\nmix = "decentralized"\nselect = "everybody"\n'
    )
    found = runs("fedavg", str(fleet), str(mine))
    assert list(found) == ["fedavg", "mine"]
    assert resolve(found["mine"])["data"]["clients"] == 5
    mine.write_text(mine.read_text() + "[data]\nclients = 6\n")
    with pytest.raises(
        UserError, match=r"mine.toml says data, but the fleet is that of .*fleet.toml; leave it out"
    ):
        runs("fedavg", str(fleet), str(mine))
    with pytest.raises(UserError, match=r"only one file can say what the fleet is"):
        runs("fedavg", str(mine), str(fleet))


def test_nothing_to_compare_is_said(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.toml"
    fleet.write_text("[data]\nclients = 5\n")
    with pytest.raises(UserError, match="compare needs at least one method"):
        runs(str(fleet))


def test_all_keep_as_much_for_validation() -> None:
    found = on_equal_data(runs("fedavg", "cafa", str(COMPOSED)))
    assert {tables["train"]["holdout"] for tables in found.values()} == {0.2}


def test_a_method_that_is_named_twice_is_run_once_and_that_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert list(runs("fedavg", "cafa", "fedavg")) == ["fedavg", "cafa"]
    assert "fedavg is named 2 times: it is run once" in capsys.readouterr().err
