"""mypy sees the settings of inline parts: what runs is accepted, what is refused at run time is an error."""

import subprocess
import sys
from pathlib import Path

import pytest

# Only what is the package's own is read: nothing of torch, so that this takes seconds.
CONFIG = """[mypy]
strict = true
plugins = covey.mypy
[mypy-covey.*]
ignore_errors = true
follow_imports = silent
[mypy-torch.*,numpy.*,scipy.*,sklearn.*,networkx.*,matplotlib.*,pyarrow.*,rich.*,typer.*]
follow_imports = skip
ignore_missing_imports = true
"""

CALLS = """from covey.methods.boosting import boosting_personal
from covey.methods.haccs import haccs
from covey.methods.haccs.grouping import BySummary
from covey.methods.personal import ditto
from covey.methods.topologies import hierarchical
from covey.parts.steps.train import Train

def methods(train: Train, group: BySummary) -> None:
    haccs(train, per_round=5, epsilon=None, schedule="fair", group=group)
    ditto(train, per_round=5, weighting="equal", pull=0.2)
    boosting_personal(train, own=1, trees=3, l2=0.5)
    hierarchical(train, clusters=3, backbone="ring", cluster_every=2)
    haccs(train, per_round="5")
    haccs(train, per_rounds=5)
    haccs(train, step=train)
    ditto(train, weighting="equals")
    boosting_personal(train, trees=0.5)
    boosting_personal(train, growth=None)
"""
WRONG = {
    13: 'Argument "per_round" to "haccs" has incompatible type "str"; expected "int"',
    14: 'Unexpected keyword argument "per_rounds" for "haccs"',
    15: 'Unexpected keyword argument "step" for "haccs"',
    16: 'Argument "weighting" to "ditto" has incompatible type',
    17: 'Argument "trees" to "boosting_personal" has incompatible type "float"; expected "int"',
    18: 'Unexpected keyword argument "growth" for "boosting_personal"',
}


def test_settings_of_inline_parts_are_in_the_signature_that_mypy_sees(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "mypy.ini").write_text(CONFIG)
    (tmp_path / "calls.py").write_text(CALLS)
    command = [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "--cache-dir", "cache", "calls.py"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    found = {int(line.split(":")[1]): line for line in run.stdout.splitlines() if ": error: " in line}
    assert found.keys() == WRONG.keys(), run.stdout + run.stderr
    for line, error in WRONG.items():
        assert error in found[line]


def test_the_plugin_loads_no_torch() -> None:
    pytest.importorskip("mypy")
    loads = "import sys, covey.mypy; print('torch' in sys.modules or 'numpy' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", loads], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"
