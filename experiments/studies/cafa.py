"""CAFA's Tables II and III: does the largest cluster of label shares hold exactly the clients whose data are IID?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.core import stream
from covey.methods.cafa import IID
from covey.parts.group.figures import plane
from covey.parts.group.silhouette import Clusters, cluster
from covey.settings.catalogue import PARTITIONS
from experiments.spec import Findings

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
MEASURES = ("accuracy", "precision", "recall", "F1")


def classify(settings: Mapping[str, Any], seed: int) -> Findings:
    """One line a case of `cases`, each [IID clients, other clients], and the average over them.

    The partition is P1 (`iid-of-n`, published) on labels alone: `samples` of them, evenly over `classes`. Clients are
    shuffled, so that their order tells nothing. Pictures are of the last case, label curves of the first.
    """
    rows: dict[str, dict[str, float]] = {}
    curves = {}
    pictures: dict[str, Any] = {}
    for number, (iid, others) in enumerate(settings["cases"], start=1):
        shares, truth = label_shares(settings, iid, iid + others, seed)
        found = cluster(shares, stream(seed, "clusters", iid, others))
        name = f"{iid} + {others} clients"
        rows[name] = {"k": found.chosen, **measures(truth, found.labels == IID)}
        curves[name] = (found.k, found.score)
        if number == 1:
            pictures["label-curves.png"] = lambda path, s=shares, t=truth: draw_labels(s, t, path)
        if number == len(settings["cases"]):
            pictures.update(maps(shares, truth, found))
    rows["average"] = {name: float(np.mean([row[name] for row in rows.values()])) for name in MEASURES}
    return Findings(rows=rows, curves=curves, pictures=pictures)


def label_shares(settings: Mapping[str, Any], iid: int, clients: int, seed: int) -> tuple[Array, Flags]:
    """The clients' label shares in random order, and which of them are IID."""
    labels = np.arange(settings["samples"]) % settings["classes"]
    rng = stream(seed, "partition", iid, clients)
    parts = PARTITIONS["iid-of-n"](
        labels,
        clients=clients,
        rng=rng,
        iid_clients=iid,
        most_classes=settings["most_classes"],
        published=True,
    )
    counts = np.stack([np.bincount(labels[part], minlength=settings["classes"]) for part in parts])
    order = rng.permutation(clients)
    return (counts / counts.sum(axis=1, keepdims=True))[order], (np.arange(clients) < iid)[order]


def measures(truth: Flags, called: Flags) -> dict[str, float]:
    """Accuracy, precision, recall and F1 of calling those clients IID."""
    hits, wrong, missed = (truth & called).sum(), (~truth & called).sum(), (truth & ~called).sum()
    return {
        "accuracy": float((truth == called).mean()),
        "precision": float(hits / max(hits + wrong, 1)),
        "recall": float(hits / max(hits + missed, 1)),
        "F1": float(2 * hits / max(2 * hits + wrong + missed, 1)),
    }


def maps(shares: Array, truth: Flags, found: Clusters) -> dict[str, Any]:
    """Fig. 5: the clients in the plane of their first two principal components, before and after."""
    from experiments.figures import draw_scatter

    x, y = plane(shares).T
    axes = {"x_label": "first component", "y_label": "second component"}

    def before(path: Path) -> None:
        draw_scatter(x, y, path=path, groups=np.where(truth, 0, 1).tolist(), title="Truth (0: IID)", **axes)

    def after(path: Path) -> None:
        draw_scatter(x, y, path=path, groups=found.labels.tolist(), title="Clusters (0: called IID)", **axes)

    return {"map-before.png": before, "map-after.png": after}


def draw_labels(shares: Array, truth: Flags, path: Path) -> None:
    """Fig. 2: the label shares of every client, IID ones in one colour."""
    from covey.report.figures import hue, one_picture

    with one_picture(path, (7.0, 4.0), "Label shares of every client") as axes:
        kinds: Sequence[tuple[bool, str]] = ((False, "skewed"), (True, "IID"))
        for kind, name in kinds:
            lines = axes.plot(shares[truth == kind].T, color=hue(0 if kind else 1), alpha=0.7, linewidth=1.2)
            lines[0].set_label(name)
        axes.set(xlabel="label", ylabel="share of the client's data")
        axes.legend(loc="upper right")
