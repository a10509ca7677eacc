"""The clustering's scaling table, `python benchmarks/clustering.py [N ...]`: see experiments.studies.scaling."""

from __future__ import annotations

import sys

from covey.methods.embedding.ward import Ward
from experiments.studies.scaling import measured

SIZES = (100, 1_000, 3_550, 10_000, 100_000, 1_000_000)


def main() -> None:
    columns = ("seconds", "MB", "clusters", "CH", "agreement")
    print(f"{'clients':>9} {'way':>8} " + " ".join(f"{column:>10}" for column in columns))
    for clients in [int(given) for given in sys.argv[1:]] or SIZES:
        for way in ("exact", "bayes", "paper") if clients <= Ward().largest else ("grouped",):
            row = measured(clients, way)
            cells = " ".join(f"{'-' if row[column] is None else row[column]:>10}" for column in columns)
            print(f"{clients:>9,} {way:>8} {cells}", flush=True)


if __name__ == "__main__":
    main()
