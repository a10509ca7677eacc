"""What every clustering leaves for the report: silhouettes, the map of clients before and after, label curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from covey.core import Round

MOST_POINTS = 2000  # more clients than this are thinned out evenly: no picture shows more
DECIMALS = 5


def note_groups(
    now: Round,
    vectors: Mapping[int, NDArray[np.floating]],
    groups: Mapping[int, int],
    *,
    curve: tuple[Sequence[int], Sequence[float]] | None = None,
    shares: Mapping[int, NDArray[np.floating]] | None = None,
    title: str = "Clients by likeness",
) -> None:
    """Leaves the pictures of a clustering in `now.notes`: of `vectors` (client -> what it was compared by) in `groups`.

    `curve` is the mean silhouette of every k that was tried; without it, and where the method left no such curve, that
    of the clustering itself. `shares` are the clients' label shares where the server knows them. Call it when the
    groups change, not every round.
    """
    clients = sorted(set(vectors) & set(groups))
    clients = clients[:: -(-len(clients) // MOST_POINTS) or 1]
    if not clients:
        return
    points = np.stack([np.asarray(vectors[i], dtype=np.float64).ravel() for i in clients])
    labels = np.array([groups[i] for i in clients])
    if curve is None and len(now.notes.get("silhouette", {}).get("k", ())) < 2:
        curve = _own_silhouette(points, labels)
    if curve:
        k, score = [int(v) for v in curve[0]], _short(curve[1])
        now.notes["silhouette"] = {"k": k, "score": score, "chosen": len(set(groups.values()))}
    x, y = plane(points).T
    spots = {"x": _short(x), "y": _short(y), "client": clients}
    now.notes["scatter-before"] = {**spots, "title": title}
    now.notes["scatter-after"] = {**spots, "group": labels.tolist(), "title": title}
    if shares:
        known = [i for i in clients if i in shares]
        now.notes["labels"] = {
            "client": known,
            "shares": [_short(np.asarray(shares[i])) for i in known],
            "group": [int(groups[i]) for i in known],
        }


def plane(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """The first two principal components of every point."""
    from sklearn.decomposition import PCA

    count = min(2, *points.shape)
    flat = np.zeros((len(points), 2))
    if np.ptp(points, axis=0).any():
        flat[:, :count] = PCA(n_components=count, random_state=0).fit_transform(points)
    return flat


def _own_silhouette(
    points: NDArray[np.float64], labels: NDArray[np.int64]
) -> tuple[Sequence[int], Sequence[float]] | None:
    """The mean silhouette of a clustering; None where it says nothing (one cluster, or everybody alone)."""
    from covey.group.silhouette import distances, mean_silhouette

    dense = np.unique(labels, return_inverse=True)[1]
    if not 1 < dense.max() + 1 < len(labels):
        return None
    return (int(dense.max()) + 1,), (mean_silhouette(distances(points), dense),)


def _short(values: Sequence[float] | NDArray[np.floating]) -> list[float]:
    return [round(float(value), DECIMALS) for value in values]
