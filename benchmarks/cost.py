"""`python -m benchmarks.cost [METHOD ...]`: what every method sends and computes, as multiples of FedAvg.

Digits, dir-class with alpha 0.3, 20 clients, 10 rounds, seed 0, defaults, one process. Bytes are all messages of the
run; CPU seconds are those of this process, the measurement after the last round included, least of two runs. The
numbers go to `docs/methods/cost.json`, from which the reference of methods is made (`tools/reference.py`).
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

import covey
from covey.data import federate, load
from covey.data.types import Federation
from covey.settings.catalogue import METHODS

STORED = Path(__file__).parents[1] / "docs" / "methods" / "cost.json"
ROUNDS = 10


def cost_of(method: str, data: Federation, folder: Path) -> tuple[float, float]:
    """Bytes of all messages, CPU seconds."""
    began = time.process_time()
    done = covey.run(
        method,
        data,
        rounds=ROUNDS,
        seed=0,
        out=folder,
        progress=False,
        report=False,
        engine={"mode": "serial"},
        measure={"every": ROUNDS},
    )
    return float(done.summary.cost.bytes), time.process_time() - began


def main(methods: list[str]) -> int:
    data = federate(load("digits"), partition="dir-class", clients=20, seed=0, alpha=0.3)
    found: dict[str, dict[str, float]] = json.loads(STORED.read_text()) if methods else {}
    with tempfile.TemporaryDirectory() as folder:
        cost_of("fedavg", data, Path(folder) / "warm")
        base = [cost_of("fedavg", data, Path(folder) / f"base{turn}") for turn in range(2)]
        for method in methods or [name for name in METHODS if name != "compose"]:
            tries = [cost_of(method, data, Path(folder) / f"{method}{turn}") for turn in range(2)]
            sent, spent = (min(one[at] for one in tries) / min(one[at] for one in base) for at in (0, 1))
            found[method] = {"bytes": round(sent, 2), "cpu": round(spent, 1)}
            print(f"{method:20} {sent:6.2f} {spent:6.1f}", flush=True)
    STORED.write_text(json.dumps(dict(sorted(found.items())), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
