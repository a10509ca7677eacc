"""`python -m benchmarks.loaded [METHOD ...]`: the accuracy that a run reports beside that of the models it stores.

Digits, dir-class with alpha 0.3, 20 clients, 10 rounds, seed 0, every method with its defaults: the mean over clients
on their own test data, once as `summary.json` has it, once of `covey.load_models(folder).predict` on the same samples.
A table in Markdown; it fails where the two columns differ.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

import covey
from covey.data import federate, load
from covey.data.types import Federation
from covey.settings.catalogue import METHODS

ROUNDS = 10
SAME = 1e-9


def fleet() -> Federation:
    return federate(load("digits"), partition="dir-class", clients=20, seed=0, alpha=0.3)


def both(method: str, data: Federation, folder: Path) -> tuple[float, float]:
    """What was reported, and what the loaded models give."""
    done = covey.run(
        method,
        data,
        rounds=ROUNDS,
        seed=0,
        out=folder,
        progress=False,
        report=False,
        engine={"mode": "serial"},
        train={"lr": 0.1},
    )
    models = covey.load_models(folder, data=data)
    names = np.array(data.dataset.classes)
    shares = []
    for client, share in enumerate(data.shares):
        if len(share.test):
            answers = models.predict(data.dataset.x[share.test.index], client=client)
            shares.append(float((answers == names[share.test.labels().astype(int)]).mean()))
    return float(done.summary.last["local-test/accuracy-mean"]), float(np.mean(shares))


def main(methods: list[str]) -> int:
    data, differ = fleet(), 0
    print("| method | reported | loaded |\n| --- | --- | --- |", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for method in methods or list(METHODS):
            reported, loaded = both(method, data, Path(folder) / method)
            differ += abs(reported - loaded) > SAME
            print(f"| `{method}` | {reported:.4f} | {loaded:.4f} |", flush=True)
    return int(differ > 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
