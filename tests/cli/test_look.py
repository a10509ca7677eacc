"""`covey look`: who holds which data, by the clients' and classes' own names."""

from pathlib import Path

import pytest

from covey.cli.command import FleetOptions
from covey.cli.look import look
from covey.data import load


def test_clients_and_classes_are_called_by_their_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ten rows of each of two hospitals, of which two in ten are for testing; all who are ill are in Basel."""
    rows = [
        f"{i},{'ill' if i in (0, 1, 2, 3, 4) else 'well'},{'Basel' if i < 10 else 'Chur'}" for i in range(20)
    ]
    table = tmp_path / "patients.csv"
    table.write_text("\n".join(["age,state,hospital", *rows]))
    look(
        fleet=FleetOptions(
            set_=[f"data.path={table}", "data.label=state", "data.client=hospital", "data.name=table"]
        )
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["client", "ill", "well", "samples"]
    assert lines[1].split() == ["Basel", "4", "4", "8"]
    assert lines[2].split() == ["Chur", ".", "8", "8"]


def test_long_names_are_shortened_and_no_number_is_cut_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"{i},class {i % 20},{'Basel ' * 20 if i % 2 else 'Chur'}" for i in range(400)]
    table = tmp_path / "classes.csv"
    table.write_text("\n".join(["age,state,hospital", *rows]))
    look(fleet=FleetOptions(data=table, label="state", client="hospital"))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["Basel", "Chur", "2"]  # each on one line
    assert [line.split()[-21:].count("16") for line in lines[1:3]] == [10, 10]
    assert [line.split()[-1] for line in lines[1:3]] == ["160", "160"]


def test_a_regression_has_sizes_and_no_labels(capsys: pytest.CaptureFixture[str]) -> None:
    look(fleet=FleetOptions(dataset="diabetes"))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["client", "samples"]
    sizes = [int(line.split()[-1]) for line in lines[1:11]]
    assert sum(sizes) == len(load("diabetes").train)
    assert lines[11].startswith(f"10 clients; training samples {min(sizes)} to {max(sizes)}")
