"""What a command imports before it can do anything: what it does not need must not cost its user seconds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# Slow to import, and not needed by a plain run: torch's compilers, with a computer algebra system; graphs; plots; other
# methods; scikit-learn, though the digits come with it, and pandas.
NOT_NEEDED = ("torch._dynamo", "sympy", "networkx", "matplotlib", "covey.methods.cafa", "sklearn", "pandas")

RUN = """
import sys
from covey.cli import main
sys.argv = ["covey", "run", "--method", "fedavg", "--rounds", "1", "--set", "data.clients=4", "--out", sys.argv[1]]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
from covey.training.models import build
build("lenet5", input_shape=(1, 28, 28), outputs=10)
print("imported:", *(name for name in {names} if name in sys.modules))
"""


def test_a_run_of_one_method_imports_nothing_of_the_others(tmp_path: Path) -> None:
    script = RUN.replace("{names}", repr(NOT_NEEDED))
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "run")], capture_output=True, text=True, check=True
    )
    assert (tmp_path / "run" / "report.html").exists()
    assert done.stdout.splitlines()[-1].split() == ["imported:"]


def test_a_run_does_not_import_scipys_solvers() -> None:
    """Three times as slow to import as Covey itself; only CFL-GP and MGDA solve anything with them."""
    code = "import sys, covey.runs.run; sys.exit('scipy.optimize' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
