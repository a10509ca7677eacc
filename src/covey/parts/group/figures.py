"""What every clustering leaves for the report: silhouettes, the map of clients before and after, label curves."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.core import Round

MOST_POINTS = 2000  # more clients than this are subsampled evenly: no picture shows more
DECIMALS = 5

DrawnVectors = Mapping[int, NDArray[np.floating]]
Curve = tuple[Sequence[int], Sequence[float]]


def note_groups(
    now: Round,
    vectors: DrawnVectors,
    groups: Mapping[int, int],
    *,
    curve: Curve | None = None,
    shares: DrawnVectors | None = None,
    title: str = "Clients by likeness",
) -> None:
    """Leaves the pictures of a clustering in `now.notes`: of `vectors` (client -> what it was compared by) in `groups`.

    `curve` is the mean silhouette of every k that was tried; without it, and where the method left no such curve, that
    of the clustering itself. `shares` are the clients' label shares where the server knows them. Call it when the
    groups change, not every round.
    """
    clients = _some(set(vectors) & set(groups))
    if not clients:
        return
    if curve or len(now.notes.get("silhouette", {}).get("k", ())) < 2:
        now.notes.update(_silhouette(vectors, groups, clients, curve))
    now.notes.update(_map(vectors, groups, clients, title))
    if shares:
        now.notes["labels"] = _label_curves(shares, groups, _some(set(shares) & set(groups)))


def with_true_labels(
    notes: Mapping[str, Any], groups: Mapping[int, int], counts: NDArray[np.integer]
) -> dict[str, Any]:
    """The notes of a simulated run, with the pictures that a method could not draw because its server knows too little.

    `counts` [clients, labels] are the clients' true labels, which only a simulation has: a method that groups clients
    by their models, or by one number, still shows how they are placed.
    """
    shares = {
        i: row / row.sum() for i, row in enumerate(counts.astype(np.float64)) if i in groups and row.sum() > 0
    }
    clients = _some(shares)
    if not clients:
        return dict(notes)
    pictures: dict[str, Any] = {}
    if "scatter-after" not in notes:
        pictures |= _silhouette(shares, groups, clients)
        pictures |= _map(
            shares, groups, clients, "Clients by their true labels, which only a simulation knows"
        )
    if "labels" not in notes:
        title = "True label mix of every client by group, which only a simulation knows"
        pictures["labels"] = {**_label_curves(shares, groups, clients), "title": title}
    return pictures | dict(notes)


def _some(clients: Iterable[int]) -> list[int]:
    """The clients in order, evenly subsampled where there are too many for a picture."""
    everybody = sorted(clients)
    return everybody[:: -(-len(everybody) // MOST_POINTS) or 1]


def _points(vectors: DrawnVectors, clients: Sequence[int]) -> NDArray[np.float64]:
    return np.stack([np.asarray(vectors[i], dtype=np.float64).ravel() for i in clients])


def _silhouette(
    vectors: DrawnVectors, groups: Mapping[int, int], clients: Sequence[int], curve: Curve | None = None
) -> dict[str, Any]:
    """The curve, or else the one point of the clustering itself; nothing where that is not defined."""
    labels = np.array([groups[i] for i in clients])
    if not (curve := curve or _own_silhouette(_points(vectors, clients), labels)):
        return {}
    k, score = [int(v) for v in curve[0]], _short(curve[1])
    return {"silhouette": {"k": k, "score": score, "chosen": len(set(groups.values()))}}


def _map(
    vectors: DrawnVectors, groups: Mapping[int, int], clients: Sequence[int], title: str
) -> dict[str, dict[str, Any]]:
    x, y = plane(_points(vectors, clients)).T
    spots = {"x": _short(x), "y": _short(y), "client": list(clients), "title": title}
    return {"scatter-before": spots, "scatter-after": {**spots, "group": [int(groups[i]) for i in clients]}}


def _label_curves(shares: DrawnVectors, groups: Mapping[int, int], clients: Sequence[int]) -> dict[str, Any]:
    return {
        "client": list(clients),
        "shares": [_short(np.asarray(shares[i])) for i in clients],
        "group": [int(groups[i]) for i in clients],
    }


def plane(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """The first two principal components of every point."""
    count = min(2, *points.shape)
    flat = np.zeros((len(points), 2))
    if np.ptp(points, axis=0).any():
        left, lengths, axes = np.linalg.svd(points - points.mean(axis=0), full_matrices=False)
        largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=1, keepdims=True), axis=1)
        flat[:, :count] = (left * lengths * np.sign(largest).T)[:, :count]
    return flat


def _own_silhouette(points: NDArray[np.float64], labels: NDArray[np.int64]) -> Curve | None:
    """The mean silhouette of a clustering; None where it is not defined (one cluster, or everybody alone)."""
    from covey.parts.group.silhouette import distances, mean_silhouette

    dense = np.unique(labels, return_inverse=True)[1]
    if not 1 < dense.max() + 1 < len(labels):
        return None
    return (int(dense.max()) + 1,), (mean_silhouette(distances(points), dense),)


def _short(values: Sequence[float] | NDArray[np.floating]) -> list[float]:
    return [round(float(value), DECIMALS) for value in values]
