"""HiCS-FL: heterogeneity-guided client sampling (Chen and Vikalo, 2024)."""

from dataclasses import replace

import numpy as np

from covey.arrays import Array
from covey.core import Key, Method, Round, Shows, method, part
from covey.methods.baselines import fedavg
from covey.parts.selection.plain import PerRound
from covey.parts.steps import Train
from covey.settings import NotNegative, Positive, inline

# client -> its last update of the last tensor
BIASES: Key[dict[int, Array]] = Key("hics.biases", 'add "biases" to after')
SHOWS_BIASES = Shows(
    what="the bias of every client's update, and with it its label mix", instead="use fedavg"
)


def entropy(update: Array, temperature: float) -> float:
    """Of softmax(update / temperature): high where the output biases moved alike, as under an even label mix."""
    scaled = update / temperature
    p = np.exp(scaled - scaled.max())
    p = p / p.sum()
    return float(-(p * np.log(np.maximum(p, 1e-300))).sum())


def heterogeneity(updates: Array, entropies: Array, weight: float) -> Array:
    """Angle between two updates + weight times the difference of their entropies."""
    lengths = np.maximum(np.linalg.norm(updates, axis=1), 1e-12)
    cosine = np.clip(updates @ updates.T / np.outer(lengths, lengths), -1, 1)
    table = np.arccos(cosine) + weight * np.abs(entropies[:, None] - entropies[None])
    np.fill_diagonal(table, 0)
    return np.asarray((table + table.T) / 2)


@part("select", "entropy", needs=(BIASES,), shows=SHOWS_BIASES)
class ByEntropy(PerRound):
    """Everybody once; then clusters by output biases, drawn by softmax of sharpness times mean entropy (HiCS-FL).

    Args:
        temperature: of the softmax over a bias update.
        weight: of the difference of entropies beside the angle.
        sharpness: how much clusters of even label mixes are preferred; 0: not at all.
    """

    temperature: Positive = 0.0025
    weight: NotNegative = 10.0
    sharpness: NotNegative = 4.0

    def __call__(self, now: Round) -> list[int]:
        known = BIASES.get(now.memory, {})
        rng, count = now.stream("select"), min(self.per_round, len(now.here))
        fresh = [i for i in rng.permutation(now.here).tolist() if i not in known][:count]
        tried = [i for i in now.here if i in known]
        return sorted(fresh + self.drawn(tried, known, count - len(fresh), rng))

    def drawn(
        self, tried: list[int], known: dict[int, Array], count: int, rng: np.random.Generator
    ) -> list[int]:
        """`count` of the tried clients, cluster by cluster."""
        if not count or not tried:
            return []
        from sklearn.cluster import AgglomerativeClustering

        updates = np.stack([known[i] for i in tried])
        told = np.array([entropy(update, self.temperature) for update in updates])
        labels = np.zeros(len(tried), np.int64)
        if len(tried) > self.per_round > 1:
            tree = AgglomerativeClustering(n_clusters=self.per_round, metric="precomputed", linkage="average")
            labels = tree.fit_predict(heterogeneity(updates, told, self.weight))
        left = np.ones(len(tried), bool)
        chosen: list[int] = []
        while len(chosen) < min(count, len(tried)):
            kinds = np.unique(labels[left])
            value = self.sharpness * np.array([told[(labels == kind) & left].mean() for kind in kinds])
            p = np.exp(value - value.max())
            kind = kinds[rng.choice(len(kinds), p=p / p.sum())]
            place = int(rng.choice(np.flatnonzero((labels == kind) & left)))
            left[place] = False
            chosen.append(tried[place])
        return chosen


@part("after", "biases", gives=(BIASES,), shows=SHOWS_BIASES)
def remember_biases(now: Round) -> None:
    """Keeps what every worker's update did to the last trainable tensor, usually the output biases."""
    layout = now.fleet.layout
    columns = [span for span in layout.spans.values() if span.stop <= layout.trainable][-1]
    told = {
        reply.id: (reply.vector - now.start_of(reply))[columns].double().numpy()
        for reply in now.replies
        if reply.vector is not None
    }
    BIASES.keep(now.memory, BIASES.get(now.memory, {}) | told)


@method("hics", family="selection", paper="https://arxiv.org/abs/2310.00198")
def hics(train: Train, *, select: ByEntropy = inline(ByEntropy)) -> Method:
    """FedAvg that prefers clients of even label mixes, which the server reads off the output biases of their updates.

    H = entropy of softmax(update of the output biases / temperature); clusters by angle + weight |H - H'| are drawn
    with probability ~ exp(sharpness mean H) (Chen and Vikalo, 2024, HiCS-FL, with a constant sharpness).
    """
    return replace(fedavg(train), name="hics", select=select, after=(remember_biases,))
