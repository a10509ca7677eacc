"""The embedding paper's clusters: Ward's tree over the clients' vectors, cut at the best Calinski-Harabasz score.

The tree is built once; a merge of clusters a and b adds

    cost = n_a n_b / (n_a + n_b) * |mean_a - mean_b|^2

to the within-cluster sum of squares W, so that the score of the cut into k clusters,

    CH(k) = (B / (k - 1)) / (W / (n - k)),  B = sum of the last k - 1 costs,  W = sum of all others,

is known for every k from one running sum. Where the points carry noise of a known size, W / (n - k) cannot fall
below it but by fitting the noise; `noise` is the floor that it is then given. Points may carry weights (a weight
of 3 is three equal points), which no library's Ward offers and which `pregrouped` needs for fleets whose distance
matrix would not fit.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray

from covey.arrays import Labels, Numbers
from covey.data.ground_truth import numbered
from covey.errors import importing
from covey.settings import Count, Range, validated

Search = Literal["exact", "bayes", "published"]

# The paper's optimiser: 30 random thresholds, 5 steps of the Gaussian process.
RANDOM_POINTS, BAYES_STEPS = 30, 5
# Scores of thresholds that the published objective calls invalid.
PUBLISHED_INVALID = -500.0


@dataclass(frozen=True)
class Tree:
    """Ward's tree: merge m joins the cluster of slot `merges[m, 0]` to that of `merges[m, 1]`, cheapest first."""

    merges: NDArray[np.int64]
    costs: NDArray[np.float64]
    sizes: NDArray[np.float64]  # weight of the two clusters of each merge
    weight: float  # of all points
    inside: float  # sum of squares inside the points themselves, when they stand for groups
    noise: float  # squared distance to the mean that every point has for noise alone

    @property
    def points(self) -> int:
        return len(self.costs) + 1

    @property
    def heights(self) -> NDArray[np.float64]:
        """Merge distances as scikit-learn and SciPy count them: sqrt(2 cost)."""
        return np.sqrt(2 * self.costs)


@dataclass(frozen=True)
class WardCut:
    """One clustering: a label per point, numbered by first appearance, with its Calinski-Harabasz score."""

    labels: Labels
    clusters: int
    score: float


def ward_tree(
    points: Numbers, weights: Numbers | None = None, inside: float = 0.0, noise: float = 0.0
) -> Tree:
    """Ward's tree by nearest-neighbour chains: n^2 time, one n x n matrix of 4-byte squared distances."""
    n = len(points)
    weight = np.ones(n) if weights is None else np.asarray(weights, np.float64)
    merges, rough = _chains(points, weight)
    order = np.argsort(rough, kind="stable")
    merges = merges[order]
    costs, sizes = _replay(points, weight, merges)
    return Tree(merges, costs, sizes, float(weight.sum()), inside, noise)


def _squared_distances(points: Numbers) -> NDArray[np.float32]:
    values = np.asarray(points, np.float32)
    norms = np.einsum("nd,nd->n", values, values)
    square: NDArray[np.float32] = values @ values.T
    square *= -2
    square += norms[:, None]
    square += norms[None, :]
    np.maximum(square, 0, out=square)
    return square


def _chains(points: Numbers, weight: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Merges in the order found, and squared heights (single precision) that never fall towards the root."""
    n = len(points)
    size = weight.astype(np.float32)
    far = _squared_distances(points)
    for i in range(n):
        far[i] *= 2 * size[i] * size / (size[i] + size)
    np.fill_diagonal(far, np.inf)
    gone = np.zeros(n, np.float32)  # infinity where a slot's cluster was merged away
    below = np.zeros(n)
    row, term = np.empty(n, np.float32), np.empty(n, np.float32)
    merges, heights = np.empty((n - 1, 2), np.int64), np.empty(n - 1)
    chain: list[int] = []
    first = 0
    for m in range(n - 1):
        if not chain:
            while gone[first]:
                first += 1
            chain.append(first)
        while True:
            np.add(far[chain[-1]], gone, out=row)
            near = int(row.argmin())
            if len(chain) > 1 and row[chain[-2]] <= row[near]:
                break
            chain.append(near)
        keep, drop = chain.pop(), chain.pop()
        between = far[drop, keep]
        heights[m] = below[keep] = max(float(between), below[keep], below[drop])
        merges[m] = drop, keep
        # Lance and Williams: distance of every other cluster to the union of the two.
        np.add(size, size[drop], out=row)
        row *= far[drop]
        np.add(size, size[keep], out=term)
        term *= far[keep]
        row += term
        np.multiply(size, between, out=term)
        row -= term
        size[keep] += size[drop]
        np.add(size, size[keep], out=term)
        row /= term
        row[keep] = np.inf
        far[keep] = row
        far[:, keep] = row
        gone[drop] = np.inf
    return merges, heights


def _replay(
    points: Numbers, weight: NDArray[np.float64], merges: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The exact cost of every merge from the clusters' means, in double precision."""
    means = np.array(points, np.float32)
    size = weight.copy()
    costs, sizes = np.empty(len(merges)), np.empty((len(merges), 2))
    for m, (drop, keep) in enumerate(merges):
        a, b = size[drop], size[keep]
        apart = means[drop].astype(np.float64) - means[keep]
        costs[m] = a * b / (a + b) * (apart @ apart)
        sizes[m] = a, b
        means[keep] += a / (a + b) * apart
        size[keep] = a + b
    return costs, sizes


def scores(tree: Tree) -> NDArray[np.float64]:
    """CH of the cut into k clusters at index k; NaN where it is not defined (k < 2, k = n)."""
    n = tree.points
    k = np.arange(n + 1)
    between = np.zeros(n + 1)
    between[2:] = np.cumsum(tree.costs[::-1])
    within = np.zeros(n + 1)
    within[1:] = tree.inside + np.concatenate([[0.0], np.cumsum(tree.costs)])[::-1]
    result = np.full(n + 1, np.nan)
    valid = (k >= 2) & (k < tree.weight)
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = np.maximum(within[valid] / (tree.weight - k[valid]), tree.noise)
        result[valid] = between[valid] / (k[valid] - 1) / spread
    return result


def most_clusters(tree: Tree, min_size: int) -> int:
    """Clusters of the finest cut in which all hold `min_size` clients: every smaller one is merged by then."""
    small = np.flatnonzero(tree.sizes.min(axis=1) < min_size)
    return tree.points - (int(small[-1]) + 1 if len(small) else 0)


def cut(tree: Tree, clusters: int) -> WardCut:
    """The clustering with exactly `clusters` clusters."""
    target = np.arange(tree.points)
    done = tree.merges[: tree.points - clusters]
    target[done[:, 0]] = done[:, 1]
    while not np.array_equal(target, target[target]):
        target = target[target]
    return WardCut(numbered(target), clusters, float(scores(tree)[clusters]))


def best_cut(tree: Tree, min_size: int = 2) -> WardCut:
    """The cut with the highest CH of all with 2 or more clusters of `min_size`; one cluster if there is none.

    Clusters without any spread score infinity; of several such cuts the one with fewest clusters is taken.
    """
    known = scores(tree)[: most_clusters(tree, min_size) + 1]
    if np.isnan(known).all():
        return cut(tree, 1)
    return cut(tree, int(np.nanargmax(known)))


def bayes_cut(tree: Tree, min_size: int = 2, *, published: bool = False, seed: int = 1) -> WardCut:
    """Algorithm 2: the distance threshold by Bayesian optimisation (30 random points, 5 UCB steps) of CH.

    `published` is the authors' objective: threshold in (1, 100), more than 2 clusters, CH MINIMISED
    (-CH maximised), -500 for invalid thresholds. Otherwise CH is maximised over (0, highest merge].
    """
    with importing("search = 'bayes' needs the package bayesian-optimization (pip install 'covey[bayes]')"):
        from bayes_opt import BayesianOptimization
    heights, known, most = tree.heights, scores(tree), most_clusters(tree, min_size)
    fewest = 3 if published else 2

    def clusters_at(threshold: float) -> int:
        return tree.points - int(np.searchsorted(heights, threshold, side="left"))

    def value(threshold: float) -> float:
        k = clusters_at(threshold)
        valid = fewest <= k <= most and np.isfinite(known[k])
        if published:
            return -float(known[k]) if valid else PUBLISHED_INVALID
        return float(known[k]) if valid else 0.0

    bounds = (1.0, 100.0) if published else (0.0, float(heights[-1]))
    optimiser = BayesianOptimization(
        f=value,
        pbounds={"threshold": bounds},
        random_state=seed,
        verbose=0,
        allow_duplicate_points=True,
    )
    with warnings.catch_warnings():  # the Gaussian process complains about plateaus, which steps are
        warnings.simplefilter("ignore")
        optimiser.maximize(init_points=RANDOM_POINTS, n_iter=BAYES_STEPS)
    best = optimiser.max
    return cut(tree, clusters_at(float(best["params"]["threshold"])) if best else 1)


@validated
class Ward:
    """Group vectors by Ward's tree, cut where the Calinski-Harabasz index is best.

    `search`: "exact" scores every cut, "bayes" is the paper's optimiser with the sign put right,
    "published" the authors' own. Above `largest` points they are first grouped into `centres` by
    mini-batch k-means, and the tree is built on the centres with their weights.
    """

    search: Search = "exact"
    min_size: Count = 2
    largest: Annotated[int, Range(2)] = 12_000
    centres: Annotated[int, Range(2)] = 1_000

    def fit_predict(self, points: Numbers) -> Labels:
        return self.cut(points, np.random.default_rng(0)).labels

    def cut(self, points: Numbers, rng: np.random.Generator, noise: float = 0.0) -> WardCut:
        """The clustering of the rows of `points`; `rng` matters to pre-grouping only."""
        if len(points) < 2:
            return WardCut(np.zeros(len(points), np.int64), 1, float("nan"))
        choose: Callable[[Tree], WardCut] = {
            "exact": lambda tree: best_cut(tree, self.min_size),
            "bayes": lambda tree: bayes_cut(tree, self.min_size),
            "published": lambda tree: bayes_cut(tree, self.min_size, published=True),
        }[self.search]
        if len(points) <= self.largest:
            return choose(ward_tree(points, noise=noise))
        return pregrouped(points, self.centres, choose, rng, noise)


def pregrouped(
    points: Numbers,
    centres: int,
    choose: Callable[[Tree], WardCut],
    rng: np.random.Generator,
    noise: float = 0.0,
) -> WardCut:
    """Group many points by mini-batch k-means first, then cut the weighted tree of the groups' means.

    The k-means sees a random sample (100 per centre); everybody is then put to the nearest centre, a block
    at a time, and the groups' means, weights and inner sums of squares are exact, so the score is the CH
    of the final clustering of all points.
    """
    from sklearn.cluster import MiniBatchKMeans

    sample = rng.choice(len(points), min(len(points), 100 * centres), replace=False)
    means = MiniBatchKMeans(centres, batch_size=4096, n_init=1, random_state=int(rng.integers(2**31)))
    means.fit(np.asarray(points[np.sort(sample)], np.float32))
    group, sums, counts, squares = _assign(points, means.cluster_centers_)
    used = counts > 0
    group = (np.cumsum(used) - 1)[group]
    sums, counts = sums[used], counts[used]
    inside = squares - float(np.einsum("gd,gd,g->", sums, sums, 1 / counts))
    small = choose(ward_tree(sums / counts[:, None], counts, max(inside, 0.0), noise))
    return WardCut(numbered(small.labels[group]), small.clusters, small.score)


def _assign(
    points: Numbers, centres: Numbers, block: int = 20_000
) -> tuple[Labels, NDArray[np.float64], NDArray[np.float64], float]:
    """Nearest centre of every point, and each centre's sum and count of points; the sum of all squares."""
    near = np.empty(len(points), np.int64)
    sums, counts = np.zeros(centres.shape), np.zeros(len(centres))
    squares = 0.0
    centres = np.asarray(centres, np.float32)
    half = 0.5 * np.einsum("gd,gd->g", centres, centres)
    for start in range(0, len(points), block):
        part = np.asarray(points[start : start + block], np.float32)
        here = (part @ centres.T - half).argmax(axis=1)
        near[start : start + block] = here
        order = np.argsort(here, kind="stable")
        groups, first = np.unique(here[order], return_index=True)
        sums[groups] += np.add.reduceat(part[order], first, axis=0, dtype=np.float64)
        counts += np.bincount(here, minlength=len(centres))
        squares += float(np.einsum("nd,nd->", part, part, dtype=np.float64))
    return near, sums, counts, squares
