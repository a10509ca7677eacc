"""Whether a change leaves every number as it was: `python -m benchmarks.bits`, before and after, and compare.

Ten methods run on the digits with label skew and heterogeneous devices. Printed is, per method, the SHA-256 of the
final models, of every measurement in metrics.parquet (values to the last bit, simulated seconds and bytes too), and of
the measurements' names, which a change of words may alter.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from covey.runs.config import resolve
from covey.runs.run import run_config

METHODS = [
    "fedavg",
    "cafa",
    "semi-decentralized",
    "embedding",
    "haccs",
    "cfic",
    "covey",
    "scaffold",
    "ditto",
    "oort",
]
FLEET = {
    "rounds": 4,
    "seed": 7,
    "data": {"name": "digits", "clients": 10},
    "partition": {"name": "dir-class", "alpha": 0.3},
    "devices": {"profile": "haccs", "dropout": 0.1},
    "engine": {"mode": "serial"},
}


def digests(method: str, folder: Path) -> tuple[str, str, str]:
    """Of the final rows, of every measurement, and of what these are called."""
    config = resolve({**FLEET, "method": {"name": method}})
    done = run_config(config, folder, report=False)
    rows = hashlib.sha256(done.state.models.numpy().tobytes())
    measured, names = hashlib.sha256(), hashlib.sha256()
    table = pq.read_table(folder / "metrics.parquet")
    for name in sorted(table.column_names):
        values = table[name].to_pylist()
        if isinstance(values[0], str):
            names.update(repr(values).encode())
        else:
            measured.update(np.asarray(values, dtype=np.float64).tobytes())
    return rows.hexdigest(), measured.hexdigest(), names.hexdigest()


def main(methods: list[str]) -> None:
    for method in methods or METHODS:
        with tempfile.TemporaryDirectory() as folder:
            rows, measured, names = digests(method, Path(folder) / "run")
        print(f"{method:20} rows {rows[:16]} measured {measured[:16]} names {names[:8]}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
