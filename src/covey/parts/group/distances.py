"""How different two clients' summaries are: distances between histograms, by matrix products.

Only one n x m table is ever held, and the rest is done in blocks of rows: no n x m x bins temporary.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from covey.arrays import Array, Mask

BLOCK = 512  # rows of a table worked on at a time


def l2(a: Array, b: Array) -> Array:
    """Euclidean distance between every row of `a` [n, bins] and of `b` [m, bins]."""
    return _same(_mean_distance([a], [b]), a is b)


def hellinger(a: Array, b: Array) -> Array:
    """Hellinger distance (HACCS, eq. 3), in [0, 1], between every row of `a` and of `b`, which are shares."""
    return _same(_mean_distance([hellinger_points(a)], [hellinger_points(b)]), a is b)


def hellinger_points(shares: Array) -> Array:
    """Points whose Euclidean distance is the Hellinger distance of the shares: sqrt(p / 2)."""
    return np.sqrt(shares * 0.5)


def conditional(a: Array, b: Array, has_a: Mask, has_b: Mask, *, over: Mask | None = None) -> Array:
    """Mean over the labels of the Hellinger distance between P(X|y) tables `a` [n, labels, bins] and `b`.

    `has_a` [n, labels] says which labels a client has. The mean runs over the labels of `over`, by default
    those that anybody in `a` or `b` has. A label that one of the two lacks counts 1/sqrt(2), one that both lack 0.
    """
    used = np.flatnonzero(has_a.any(axis=0) | has_b.any(axis=0) if over is None else over)
    if len(used) == 0:
        return np.zeros((len(a), len(b)))
    # A missing label is a row of zeros: its distance to any histogram is sqrt(1/2), to another zero row 0.
    left, right = (
        [hellinger_points(table[:, label] * has[:, label, None]) for label in used]
        for table, has in ((a, has_a), (b, has_b))
    )
    return _same(_mean_distance(left, right), a is b)


def over_shared(a: Array, b: Array, has_a: Mask, has_b: Mask) -> Array:
    """The same over the labels that both of two clients have; 1, the farthest, where they share none."""
    total, shared = np.zeros((len(a), len(b))), np.zeros((len(a), len(b)))
    for label in np.flatnonzero(has_a.any(axis=0) & has_b.any(axis=0)):
        both = np.outer(has_a[:, label], has_b[:, label])
        left, right = hellinger_points(a[:, label]), hellinger_points(b[:, label])
        total += np.where(both, _mean_distance([left], [right]), 0.0)
        shared += both
    return _same(np.where(shared > 0, total / np.maximum(shared, 1), 1.0), a is b)


def _mean_distance(left: Sequence[Array], right: Sequence[Array]) -> Array:
    """Mean over the pairs (x, y) of `left` and `right` of the Euclidean distances between their rows."""
    table = np.zeros((len(left[0]), len(right[0])))
    for rows in _blocks(len(table)):
        for x, y in zip(left, right, strict=True):
            part = x[rows] @ y.T
            part *= -2.0
            part += np.einsum("ij,ij->i", y, y)
            part += np.einsum("ij,ij->i", x[rows], x[rows])[:, None]
            np.maximum(part, 0.0, out=part)
            table[rows] += np.sqrt(part, out=part)
    table /= len(left)
    return table


def _same(table: Array, mirrored: bool) -> Array:
    """A set against itself: zero diagonal and symmetric to the last bit, whatever the rounding."""
    if mirrored:
        np.fill_diagonal(table, 0.0)
        for rows in _blocks(len(table)):
            corner = np.triu(table[rows, rows])
            table[rows, rows] = corner + corner.T
            table[rows.stop :, rows] = table[rows, rows.stop :].T
    return table


def _blocks(count: int) -> Iterator[slice]:
    for start in range(0, count, BLOCK):
        yield slice(start, min(start + BLOCK, count))
