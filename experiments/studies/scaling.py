"""How long and how much memory the grouping of synthetic embeddings takes, and whether it finds the truth.

200 bits, 20 groups (the largest three times the smallest), 10 % of the bits flipped. Four ways: `exact` (one tree,
every cut scored), `bayes` (the paper's optimiser on one tree), `paper` (the paper's optimiser, which builds a tree with
scikit-learn for each of its 35 thresholds) and, for more than 12,000 clients, `grouped` (mini-batch k-means, then the
weighted tree). Each measurement runs in a process of its own; memory is its peak above data and libraries.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.methods.embedding.ward import BAYES_STEPS, RANDOM_POINTS, Ward
from experiments.spec import Findings

BITS, GROUPS, FLIP, MIN_SIZE = 200, 20, 0.1, 2


def clustering(settings: dict[str, Any], seed: int) -> Findings:
    """Seconds, megabytes, clusters, score and agreement with the truth, for every number of clients and way."""
    rows: dict[str, dict[str, float]] = {}
    for clients, ways in settings["sizes"].items():
        for way in ways:
            found = measured(int(clients), way, seed)
            rows[f"{int(clients):,} clients, {way}"] = {k: v for k, v in found.items() if v is not None}
    return Findings(rows=rows)


def measured(clients: int, way: str, seed: int = 0) -> dict[str, float | None]:
    """One measurement in a process of its own."""
    command = [sys.executable, "-m", __name__, str(clients), way, str(seed)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, float | None] = json.loads(done.stdout)
    return result


def embeddings(clients: int, seed: int = 0) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Noisy bits of clients in groups whose sizes fall from the largest to a third of it, and the groups."""
    rng = np.random.default_rng(seed)
    shares = np.linspace(3, 1, GROUPS)
    truth = rng.choice(GROUPS, clients, p=shares / shares.sum())
    points = (rng.random((GROUPS, BITS)) < 0.5).astype(np.uint8)[truth]
    for start in range(0, clients, 50_000):
        part = points[start : start + 50_000]
        part ^= rng.random(part.shape, np.float32) < FLIP
    return points, truth


def paper(points: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Algorithm 2 with the sign put right: every threshold is a new tree and a new score."""
    from bayes_opt import BayesianOptimization
    from sklearn.cluster import AgglomerativeClustering
    from sklearn.metrics import calinski_harabasz_score

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
        pbounds={"threshold": (0.0, float(np.sqrt(len(points) * BITS)))},
        random_state=1,
        verbose=0,
        allow_duplicate_points=True,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search.maximize(init_points=RANDOM_POINTS, n_iter=BAYES_STEPS)
    best: Any = search.max
    return labels_at(best["params"]["threshold"])


def one(clients: int, way: str, seed: int) -> dict[str, float | None]:
    """One measurement, in this process."""
    import bayes_opt  # noqa: F401  (loading libraries is not what is measured)
    import sklearn.cluster  # noqa: F401
    from sklearn.metrics import adjusted_rand_score, calinski_harabasz_score

    points, truth = embeddings(clients, seed)
    before, start = megabytes(), time.perf_counter()
    if way == "paper":
        labels = paper(points)
    else:
        ward = Ward(search="bayes" if way == "bayes" else "exact", min_size=MIN_SIZE)
        labels = ward.cut(points, np.random.default_rng(seed)).labels
    seconds, peak = time.perf_counter() - start, megabytes()
    score = float(calinski_harabasz_score(points, labels)) if clients <= 100_000 else None
    return {
        "seconds": round(seconds, 3),
        "MB": round(peak - before, 1),
        "clusters": float(labels.max()) + 1,
        "CH": None if score is None else round(score, 2),
        "agreement": round(float(adjusted_rand_score(truth, labels)), 4),
    }


def megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    print(json.dumps(one(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))))
