"""Time and memory of clustering 1,000, 5,000 and 10,000 clients by their summaries.

Each case runs in a process of its own, so that its peak memory is its own. Usage: python benchmarks/density.py
"""

import json
import resource
import subprocess
import sys
import time

import numpy as np

from covey.parts.group.density import Density
from covey.parts.group.distances import conditional, hellinger_points

SIZES = (1_000, 5_000, 10_000)
LABELS, BINS = 10, 20
CASES = (
    "P(y) optics eps",
    "P(y) optics xi",
    "P(y) dbscan",
    "P(y) hdbscan",
    "P(X|y) optics eps",
    "P(X|y) optics xi",
)


def label_shares(clients: int, rng: np.random.Generator) -> np.ndarray:
    """75/12/7/6 % on four labels with Laplace noise for epsilon 0.1 on 1,000 samples, as the clients send it."""
    counts = np.zeros((clients, LABELS))
    for row in counts:
        row[rng.permutation(LABELS)[:4]] = (750, 120, 70, 60)
    noisy = np.maximum(counts + rng.laplace(0, 10, counts.shape), 0)
    return noisy / noisy.sum(axis=1, keepdims=True)


def pixel_shares(clients: int, rng: np.random.Generator) -> np.ndarray:
    """P(X|y): each client's labels follow one of four styles, 20 bins."""
    styles = rng.dirichlet(np.ones(BINS), size=(4, LABELS))
    return (
        rng.dirichlet(np.ones(BINS), size=(clients, LABELS)) * 0.1
        + 0.9 * styles[rng.integers(4, size=clients)]
    )


def run(case: str, clients: int) -> dict[str, float]:
    rng = np.random.default_rng(0)
    import sklearn.cluster  # noqa: F401  (its import is not part of the clustering)

    wide = case.startswith("P(X|y)")
    data = pixel_shares(clients, rng) if wide else label_shares(clients, rng)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    _, algorithm, *extract = case.split()
    density = Density(algorithm=algorithm, extract="xi" if extract == ["xi"] else "dbscan", eps=0.25)
    if wide:
        has = np.ones(data.shape[:2], dtype=bool)
        labels = density(conditional(data, data, has, has), metric="precomputed")
    else:
        labels = density(data if density.cut else hellinger_points(data))
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"seconds": seconds, "MB": (peak - before) / 1024, "clusters": int(labels.max()) + 1}


def main() -> None:
    if len(sys.argv) == 3:
        print(json.dumps(run(sys.argv[1], int(sys.argv[2]))))
        return
    print(f"{'summary and clustering':<22}{'clients':>9}{'seconds':>9}{'extra MB':>10}{'clusters':>10}")
    for case in CASES:
        for clients in SIZES:
            command = [sys.executable, __file__, case, str(clients)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            r = json.loads(done.stdout)
            print(
                f"{case:<22}{clients:>9,}{r['seconds']:>9.1f}{r['MB']:>10,.0f}{r['clusters']:>10,}",
                flush=True,
            )


if __name__ == "__main__":
    main()
