"""`covey advise` on a file of one's own."""

import re

import numpy as np
from typer.testing import CliRunner

from covey.cli import app


def hospitals(path, rows=40):
    """Six hospitals; three of them call ill what the others call well."""
    draw = np.random.default_rng(3)
    lines = ["age,pressure,ill,hospital"]
    for hospital in range(6):
        for _ in range(rows):
            ill = int(draw.integers(2))
            age, pressure = draw.normal(40 + 30 * ill, 5), draw.normal(120 + 30 * ill, 5)
            lines.append(f"{age:.1f},{pressure:.1f},{ill ^ (hospital % 2)},h{hospital}")
    path.write_text("\n".join(lines))


def test_a_file_of_patients_is_advised_from_its_columns(tmp_path):
    hospitals(tmp_path / "patients.csv")
    words = ["advise", "--data", str(tmp_path / "patients.csv"), "--label", "ill", "--client", "hospital"]
    said = CliRunner().invoke(app, words)
    assert said.exit_code == 0, said.output
    assert re.search(r"concept shift  0\.\d\d \[.*what looks alike bears other labels", said.output)
    assert re.search(r"^(Use|Not sure: try) ", said.output, re.MULTILINE)
    assert 'name = "table"' in said.output


def test_columns_without_a_file_are_refused_in_one_sentence():
    said = CliRunner().invoke(app, ["advise", "--label", "ill"])
    assert said.exit_code != 0
    assert "add --data FILE.csv" in str(said.exception or said.output)
