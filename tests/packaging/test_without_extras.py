"""covey without its extras: what `pip install covey` alone gives can run, and `covey doctor` says what is missing."""

import subprocess
import sys

WITHOUT = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("numba", "llvmlite", "opendp", "optuna", "datasets", "starlette"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
import importlib.util
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name in ("numba", "llvmlite") else real(name, *rest)
import covey
run = covey.run("covey", "digits", rounds=2, clients=4, out=sys.argv[1], progress=False)
assert run.state.round == 2
from covey.cli.doctor import machine
print(dict(machine()))
"""


def test_a_run_and_doctor_without_the_fast_trainer(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, str(tmp_path / "run")], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "fast trainer" in done.stdout
