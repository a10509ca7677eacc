"""Low-rank adapters averaged as what they are, B A, and not A and B separately (FlexLoRA, Bai et al., 2024)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor

from covey.arrays import Array
from covey.core import Method, Mix, Mixing, Round, Shows, like
from covey.errors import UserError
from covey.training.rows import Layout


@dataclass(frozen=True, kw_only=True)
class Product:
    """Of adapters (A, B) of one layer, side by side in a row: the best of their rank for the mean of the products.

    sum of p_k B_k A_k = U S V'; of its largest singular values, as many as the rank, the new B is U sqrt(S) and the new
    A is sqrt(S) V'.
    """

    rank: int
    inputs: int

    around_start: ClassVar[bool] = False

    def combine(self, rows: Sequence[Tensor], weights: Array, start: Tensor) -> Tensor:  # noqa: ARG002
        cut = self.rank * self.inputs
        mean = sum(
            float(p) * (row[cut:].view(-1, self.rank).double() @ row[:cut].view(self.rank, -1).double())
            for p, row in zip(weights, rows, strict=True)
        )
        u, s, v = torch.linalg.svd(mean, full_matrices=False)
        root = s[: self.rank].sqrt()
        new_b, new_a = u[:, : self.rank] * root, root[:, None] * v[: self.rank]
        return torch.cat([new_a.flatten(), new_b.flatten()]).to(rows[0].dtype)

    def fewest(self) -> int:
        return 1


def pairs(layout: Layout) -> list[tuple[slice, Product]]:
    """Where the A and B of every adapted layer lie in a row, one after the other."""
    found = []
    for (first, second), shape in zip(pairwise(layout.names), layout.shapes, strict=False):
        if first.endswith(".A") and second == f"{first[:-1]}B":
            rank, inputs = shape
            both = slice(layout.spans[first].start, layout.spans[second].stop)
            found.append((both, Product(rank=rank, inputs=inputs)))
    return found


@dataclass(frozen=True, kw_only=True)
class ByProducts:
    """A method's mix in which adapters are combined by their products, and all else as it is."""

    mix: Mix

    needs, gives = like("mix")
    shows: ClassVar[Shows] = Shows(
        what="single adapters, of whose products it makes the mean",
        instead='set model.adapter.travels = "B"',
        in_updates=True,
    )

    def __call__(self, now: Round) -> list[Mixing]:
        given = self.mix(now)
        found: list[Mixing] = []
        for mixing in [given] if isinstance(given, Mixing) else given:
            if not isinstance(mixing.columns, slice):
                raise UserError(
                    'model.adapter.travels is "product", which needs whole adapters of every client; allowed: B, both'
                )
            start, stop, _ = mixing.columns.indices(now.fleet.layout.size)
            for columns, product in pairs(now.fleet.layout):
                if start <= columns.start and columns.stop <= stop:
                    found += [replace(mixing, columns=slice(start, columns.start))] * (start < columns.start)
                    found.append(replace(mixing, columns=columns, rule=product))
                    start = columns.stop
            found += [replace(mixing, columns=slice(start, stop))] * (start < stop)
        return found


def with_products(method: Method) -> Method:
    """The method, whose adapters are averaged by their products."""
    if method.mix is None:
        raise UserError(
            f'model.adapter.travels is "product", but method {method.name} combines in a way of its own; allowed: B, '
            "both"
        )
    return replace(method, mix=ByProducts(mix=method.mix))
