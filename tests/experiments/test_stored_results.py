"""One run of every stored result gives the same numbers again (slow; needs the papers' data)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from covey.errors import UserError
from covey.experiments.check import cheapest, check_experiment
from covey.experiments.origin import instructions

LONGEST = 600.0  # CPU seconds of the cheapest run; what takes longer is checked by hand with --check
STORED = sorted((Path(__file__).parents[2] / "experiments").glob("*/results/*.json"))


@pytest.mark.slow
@pytest.mark.parametrize("file", STORED, ids=lambda file: f"{file.parents[1].name}/{file.stem}")
def test_a_stored_run_can_be_made_again(file: Path) -> None:
    stored = json.loads(file.read_text())
    if not stored.get("runs"):
        pytest.skip("stored before results said where they come from")
    run = cheapest(stored)
    if run["cpu_seconds"] > LONGEST:
        pytest.skip(f"the cheapest run took {run['cpu_seconds']:.0f} CPU seconds")
    if run["instructions"] != instructions():
        pytest.skip(f"made with other instructions: {run['instructions']}")
    try:
        check = check_experiment(stored["experiment"], stored["scale"])
    except UserError as error:
        if "COVEY_DATA" in str(error):
            pytest.skip(str(error))
        raise
    assert check.differs == [], f"changed since: {check.changed}"
