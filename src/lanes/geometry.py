"""Convolutions in one dimension: which places are read where."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Tooth:
    """Every stride-th place of a spread, from `offset` on: y[offset + i * stride] = sum_j w[...] * x[i - pad + j].

    j counts the taps `first + (taps - 1 - j) * stride` of the kernel.
    """

    offset: int
    first: int
    taps: int
    pad: int
    count: int


@dataclass(frozen=True, kw_only=True)
class Comb:
    """A convolution backwards, y[h] = sum of w[k] * x[(h + padding - k) / stride] where that is whole.

    It is the gradient of a convolution by its input, and the transposed convolution.
    """

    kernel: int
    stride: int
    padding: int

    def teeth(self, size: int) -> list[Tooth]:
        """For an output of this size, one for each remainder by the stride."""
        found = []
        for offset in range(min(self.stride, size)):
            first = (offset + self.padding) % self.stride
            taps = max(0, -(-(self.kernel - first) // self.stride))
            lead = (offset + self.padding) // self.stride  # the newest x that the first place reads
            count = -(-(size - offset) // self.stride)
            found.append(Tooth(offset=offset, first=first, taps=taps, pad=taps - 1 - lead, count=count))
        return found

    def margin(self, size: int, source: int) -> int:
        """How far outside its `source` places an output of `size` reads."""
        reach = [0]
        for tooth in self.teeth(size):
            if tooth.taps:
                reach += [tooth.pad, tooth.count - tooth.pad + tooth.taps - 1 - source]
        return max(reach)
