"""How long and how much memory the grouping of synthetic embeddings takes, and whether it finds the truth.

    python benchmarks/clustering.py [--out FILE.json] [N ...]

200 bits, 20 groups (the largest three times the smallest), 10 % of the bits flipped. Four ways: `exact` (one
tree, every cut scored), `bayes` (the paper's optimiser on one tree), `paper` (the paper's optimiser, which builds
a tree with scikit-learn for each of its 35 thresholds) and, above 12,000, `grouped` (mini-batch k-means, then the
weighted tree).
Each measurement runs in a process of its own; memory is its peak above what data and libraries take.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import AgglomerativeClustering
from sklearn.metrics import adjusted_rand_score, calinski_harabasz_score

from covey.group.ward import BAYES_STEPS, RANDOM_POINTS, Ward

SIZES = (100, 1_000, 3_550, 10_000, 100_000, 1_000_000)
BITS, GROUPS, FLIP, MIN_SIZE = 200, 20, 0.1, 2
PAPER_LIMIT = 10_000  # 35 trees of 10,000 points take minutes


def embeddings(n: int, seed: int = 0) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """n clients in groups whose sizes fall from the largest to a third of it."""
    rng = np.random.default_rng(seed)
    shares = np.linspace(3, 1, GROUPS)
    truth = rng.choice(GROUPS, n, p=shares / shares.sum())
    patterns = (rng.random((GROUPS, BITS)) < 0.5).astype(np.uint8)
    points = patterns[truth]
    for start in range(0, n, 50_000):
        part = points[start : start + 50_000]
        part ^= rng.random(part.shape, np.float32) < FLIP
    return points, truth


def paper(points: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Algorithm 2 with the sign put right: every threshold is a new tree and a new score."""
    from bayes_opt import BayesianOptimization

    tall = float(np.sqrt(len(points) * BITS))

    def labels_at(threshold: float) -> NDArray[np.int64]:
        model = AgglomerativeClustering(n_clusters=None, distance_threshold=threshold)
        return np.asarray(model.fit_predict(points))

    def score(threshold: float) -> float:
        labels = labels_at(max(threshold, 1e-6))
        sizes = np.bincount(labels)
        if len(sizes) < 2 or len(sizes) >= len(points) or sizes.min() < MIN_SIZE:
            return 0.0
        return float(calinski_harabasz_score(points, labels))

    search = BayesianOptimization(
        f=score,
        pbounds={"threshold": (0.0, tall)},
        random_state=1,
        verbose=0,
        allow_duplicate_points=True,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search.maximize(init_points=RANDOM_POINTS, n_iter=BAYES_STEPS)
    best: Any = search.max
    return labels_at(best["params"]["threshold"])


def megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def one(n: int, how: str) -> dict[str, Any]:
    """One measurement, in this process."""
    points, truth = embeddings(n)
    if how == "paper":
        import bayes_opt  # noqa: F401  (libraries are not what is measured)
    before, start = megabytes(), time.perf_counter()
    if how == "paper":
        labels = paper(points)
    else:
        search = "bayes" if how == "bayes" else "exact"
        labels = Ward(search=search, min_size=MIN_SIZE).cut(points, np.random.default_rng(0)).labels
    seconds, peak = time.perf_counter() - start, megabytes()
    return {
        "clients": n,
        "how": how,
        "seconds": round(seconds, 3),
        "megabytes": round(peak - before, 1),
        "clusters": int(labels.max()) + 1,
        "ch": round(float(calinski_harabasz_score(points, labels)), 2) if n <= 100_000 else None,
        "ari": round(float(adjusted_rand_score(truth, labels)), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="*", type=int)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--one", nargs=2, metavar=("N", "HOW"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(one(int(given.one[0]), given.one[1])))
        return
    rows = []
    print(f"{'clients':>9} {'how':>8} {'seconds':>9} {'MB':>8} {'clusters':>8} {'CH':>10} {'ARI':>7}")
    for n in given.sizes or SIZES:
        ways = ["exact", "bayes", *(["paper"] if n <= PAPER_LIMIT else [])] if n <= 12_000 else ["grouped"]
        for how in ways:
            command = [sys.executable, __file__, "--one", str(n), how]
            row = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            rows.append(row)
            score = "" if row["ch"] is None else f"{row['ch']:.2f}"
            print(
                f"{n:>9,} {how:>8} {row['seconds']:>9.2f} {row['megabytes']:>8.0f} {row['clusters']:>8}"
                f" {score:>10} {row['ari']:>7.4f}",
                flush=True,
            )
    if given.out:
        machine = {"python": platform.python_version(), "machine": platform.machine()}
        given.out.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
