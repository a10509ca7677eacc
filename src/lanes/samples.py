"""Writes the operations that look at single samples: the lengths of their gradients, and their weights."""

from lanes.compiled import instructions as do
from lanes.compiled.operations import Operation
from lanes.graph import Conv, Deconv, Graph, Linear, Norm
from lanes.workspace import Tensor, Writer


def no_lengths(graph: Graph) -> str:
    """Why the lengths of single samples' gradients are not found here; nothing where they are."""
    kinds = [node.kind for node in graph.nodes]
    if any(isinstance(kind, Norm) for kind in kinds):
        return "batch normalisation mixes samples"
    if any(isinstance(kind, Deconv) for kind in kinds):
        return "lengths of gradients are not written for transposed convolutions"
    return ""


def zero_squares(w: Writer) -> int:
    """One vector for each block, zero at the start."""
    lanes = w.isa.lanes
    place = w.place(w.blocks * lanes)
    w.do(Operation.ZERO, do.Zero(place, lanes, lanes), by_block=False)
    return place


def linear_squares(w: Writer, kind: Linear, d: Tensor, x: Tensor, squares: int) -> None:
    w.do(
        Operation.LINEAR_SQUARES,
        do.LinearSquares(
            **x.whole("x"),
            **d.whole("d"),
            inputs=x.shape.features,
            outputs=d.shape.features,
            bias=int(kind.bias is not None),
            squares=squares,
            scratch=w.place(4 * w.isa.lanes),
        ),
        by_block=False,
    )


def conv_squares(
    w: Writer, kind: Conv, delta: Tensor, x: Tensor, squares: int, *, rows: int, columns: int
) -> None:
    w.do(
        Operation.CONV_SQUARES,
        do.ConvSquares(
            x=x.column(-kind.padding[1]),
            x_block=x.block,
            x_m=x.plane,
            x_row=x.row,
            x_rows=x.shape.rows,
            channels=x.shape.channels,
            stride_down=kind.stride[0],
            stride_across=kind.stride[1],
            pad=kind.padding[0],
            **delta.by_channel("delta"),
            outputs=delta.shape.channels,
            rows=rows,
            columns=columns,
            height=kind.kernel[0],
            width=kind.kernel[1],
            bias=int(kind.bias is not None),
            squares=squares,
            scratch=w.place(2 * w.isa.lanes),
        ),
        by_block=True,
    )


def tell_lengths(w: Writer, squares: int) -> None:
    w.do(Operation.LENGTHS, do.Lengths(squares), by_block=False)


def weigh(w: Writer, d: Tensor) -> None:
    w.do(Operation.WEIGH, do.Weigh(d.place, d.block, d.shape.features), by_block=False)
