"""A topology drawn in dots, for the terminal."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from covey.parts.mix.topology import Ints

Point = tuple[float, float]
Loads = Mapping[tuple[int, int], float]
"""(sender, receiver) -> messages per round."""


def positions(clusters: Ints, lead: Mapping[int, int]) -> list[Point]:
    """Clusters on a circle, clockwise from the top; a representative inside, its members fanned out around it."""
    count = int(clusters.max()) + 1
    points: list[Point] = [(0.0, 0.0)] * len(clusters)
    for cluster in range(count):
        angle = math.pi / 2 - 2 * math.pi * cluster / count
        members = [node for node in np.flatnonzero(clusters == cluster).tolist() if node != lead.get(cluster)]
        if cluster in lead:
            points[lead[cluster]] = (math.cos(angle), math.sin(angle))
        fan = min(math.pi / 3, 1.5 * math.pi / count)
        for k, node in enumerate(members):
            turn = angle + fan * ((k + 0.5) / len(members) - 0.5)
            points[node] = (1.5 * math.cos(turn), 1.5 * math.sin(turn))
    return points


def dots(points: Sequence[Point], links: Loads, *, columns: int = 64, lines: int = 28) -> str:
    """The graph in Braille characters, 2 x 4 dots each; a node is a filled square of dots."""
    wide, high = 2 * columns, 4 * lines
    field = np.zeros((high, wide), dtype=np.bool_)
    reach = max(max(abs(x), abs(y)) for x, y in points) or 1.0
    # The picture is square: a character is about twice as high as it is wide, and so are its 4 x 2 dots.
    side = min(wide, high) - 5
    at = [(wide / 2 + x / reach * side / 2, high / 2 - y / reach * side / 2) for x, y in points]
    for sender, receiver in links:
        steps = np.linspace(0.0, 1.0, 2 * side)
        xs = at[sender][0] + steps * (at[receiver][0] - at[sender][0])
        ys = at[sender][1] + steps * (at[receiver][1] - at[sender][1])
        field[ys.astype(int), xs.astype(int)] = True
    for x, y in at:
        field[int(y) - 1 : int(y) + 2, int(x) - 1 : int(x) + 2] = True
    bits = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])
    cells = field.reshape(lines, 4, columns, 2).transpose(0, 2, 1, 3)
    codes = 0x2800 + (cells * bits).sum(axis=(2, 3))
    rows = ("".join(chr(code) for code in row).replace("\u2800", " ").rstrip() for row in codes)
    return "\n".join(row for row in rows if row)
