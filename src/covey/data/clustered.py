"""Clusters of clients that differ by any mixture of the four shifts, each with a strength from 0 to 1."""

from typing import Annotated, Literal

import numpy as np

from covey.data.effects import EFFECTS, Effect
from covey.data.types import Dataset, Indices, Shift
from covey.errors import UserError
from covey.settings.ranges import Range, Share
from covey.settings.registry import register
from covey.settings.spelling import spelled


def group_of(clients: int, groups: int, sizes: tuple[float, ...]) -> Indices:
    """The group of every client: in turn where sizes are equal, else the first share of them is cluster 0, and so
    on."""
    if not sizes:
        return np.arange(clients) % groups
    edges = np.cumsum(sizes) / sum(sizes)
    return np.minimum(np.searchsorted(edges, (np.arange(clients) + 0.5) / clients), groups - 1).astype(
        np.int64
    )


def permuted(classes: int, share: float, by: int, how: Literal["permute", "swap"]) -> tuple[int, ...]:
    """What each class is called: the first `share` of them trade names, in a circle moved by `by`, or in pairs."""
    names = list(range(classes))
    traded = round(share * classes)
    if how == "swap":
        for first in range(0, traded - 1, 2):
            if by % 2:
                names[first], names[first + 1] = names[first + 1], names[first]
    else:
        names[:traded] = [(name + by) % traded for name in range(traded)]
    return tuple(names)


@register("shift", "clustered")
def clustered(
    dataset: Dataset,
    counts: Indices,
    *,
    clusters: Annotated[int, Range(2, 1000)] = 2,
    sizes: tuple[float, ...] = (),
    images: tuple[str, ...] = (),
    strength: Share = 1.0,
    of_classes: Share = 1.0,
    label_permutation: Share = 0.0,
    trade: Literal["permute", "swap"] = "permute",
) -> list[Shift]:
    """Clusters of clients that differ in images, P(x) or P(x|y), and in what labels mean, P(y|x), by any strength.

    Cluster 0 has the data as they are; cluster g has every effect of `images` at the strength `strength` g / (clusters
    - 1), on the images of the first `of_classes` of the classes, and the first `label_permutation` of the classes trade
    their names g times. The label mix, P(y), is the partition's. Training and test data alike.

    Args:
        clusters: how many clusters of clients.
        sizes: their shares of the clients; empty: equal, and clients take turns.
        images: effects in their order: brightness, contrast, noise, blur, rotation, colour.
        strength: of the effects in the last group; 0 is none.
        of_classes: share of the classes whose images change; below 1 it is a shift of P(x|y).
        label_permutation: share of the classes whose labels trade places.
        trade: whether labels move on in a circle or swap in pairs.
    """
    if sizes and (len(sizes) != clusters or min(sizes) <= 0):
        raise UserError(
            f"sizes is {list(sizes)}; allowed: one number above 0 for each of the {clusters} clusters"
        )
    images = tuple(spelled(name, EFFECTS) for name in images)
    for name in images:
        if name not in EFFECTS:
            raise UserError(f"images names {name!r}; allowed: {', '.join(EFFECTS)}")
    if images and dataset.x.dim() != 4:
        raise UserError(f"shift = 'clustered': {dataset.name} does not hold images, so images must be empty")
    if (label_permutation or of_classes < 1) and not dataset.classes:
        raise UserError(
            f"shift = 'clustered': {dataset.name} has no classes, so label_permutation must be 0 and of_classes 1"
        )
    classes = len(dataset.classes)
    befallen = () if of_classes == 1 else tuple(range(round(of_classes * classes)))
    shifts = []
    for group in range(clusters):
        power = strength * group / (clusters - 1)
        effects = tuple(Effect(name, power, befallen) for name in images) if power and of_classes else ()
        names = permuted(classes, label_permutation, group, trade) if label_permutation else ()
        shifts.append(Shift(effects=effects, permutation=() if names == tuple(range(classes)) else names))
    return [shifts[group] for group in group_of(len(counts), clusters, sizes)]
