"""One run of every stored result gives the same numbers again (slow; needs the papers' data)."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.check import cheapest
from experiments.origin import instructions

LONGEST = 600  # CPU seconds of a run; what takes longer is checked by hand with --check
STORED = sorted((Path(__file__).parents[2] / "experiments").glob("*/results/*.json"))


def test_whatever_is_random_in_an_experiment_follows_from_its_seed() -> None:
    """OpenDP draws from the system: a result with its noise can never be made again."""
    files = (Path(__file__).parents[2] / "experiments").glob("*/*.toml")
    assert [file for file in files if '"opendp"' in file.read_text()] == []


@pytest.mark.slow
@pytest.mark.parametrize("file", STORED, ids=lambda file: f"{file.parents[1].name}/{file.stem}")
def test_a_stored_run_can_be_made_again(file: Path) -> None:
    """By the command that anybody would use; what a result does not say of its origin may have been on any machine."""
    stored = json.loads(file.read_text())
    run = cheapest(stored)
    if run.get("cpu_seconds", 0) > LONGEST:
        pytest.skip(f"the cheapest run took {run['cpu_seconds']:.0f} CPU seconds")
    if run.get("instructions", instructions()) != instructions():
        pytest.skip(f"made with other instructions: {run['instructions']}")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "experiments",
            "reproduce",
            stored["experiment"],
            "--scale",
            stored["scale"],
            "--check",
        ],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (LONGEST, LONGEST + 10)),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        pytest.skip(f"one run takes more than {LONGEST} CPU seconds")
    if "COVEY_DATA" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr
