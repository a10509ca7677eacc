"""What a number may be, declared where the setting is: `rho: Share = 0.5`, `count: Annotated[int, Range(2)] = 3`."""

from collections.abc import Sized
from dataclasses import KW_ONLY, dataclass
from typing import Annotated


@dataclass(frozen=True)
class Range:
    """The numbers from `least` to `most`, both allowed, or between `above` and `below`, both not."""

    least: float | None = None
    most: float | None = None
    _: KW_ONLY
    above: float | None = None
    below: float | None = None

    def __contains__(self, value: float) -> bool:
        return (
            (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    def __str__(self) -> str:
        if self.least is not None and self.most is not None:
            return f"from {_written(self.least)} to {_written(self.most)}"
        bounds = (
            ("at least", self.least),
            ("above", self.above),
            ("at most", self.most),
            ("below", self.below),
        )
        return " and ".join(f"{words} {_written(bound)}" for words, bound in bounds if bound is not None)


@dataclass(frozen=True)
class NotEmpty:
    """Lists with at least one entry."""

    most: None = None
    below: None = None

    def __contains__(self, value: Sized) -> bool:
        return len(value) > 0

    def __str__(self) -> str:
        return "with at least one entry"


def _written(bound: float) -> str:
    return f"{bound:,}" if isinstance(bound, int) else f"{bound:g}"


Count = Annotated[int, Range(1)]  # 1, 2, 3 ...
Natural = Annotated[int, Range(0)]  # 0, 1, 2 ...
Share = Annotated[float, Range(0, 1)]
Positive = Annotated[float, Range(above=0)]
NotNegative = Annotated[float, Range(0)]
UpTo100 = Annotated[float, Range(0, 100)]
Percentile = Annotated[float, Range(above=0, most=100)]
BelowHalf = Annotated[float, Range(0, below=0.5)]
Part = Annotated[float, Range(above=0, below=1)]  # of a whole that leaves something on either side
Chance = Annotated[float, Range(above=0, most=1)]
DecayRate = Annotated[float, Range(above=0, most=1)]
PartBelowOne = Annotated[float, Range(0, below=1)]
# of differential privacy; e^1000 protects nobody any more
Epsilon = Annotated[float, Range(above=0, most=1000)]
SHORTEST, LONGEST = 1e-9, 1e9  # beyond these float32 rounds or ends, and no noise hides at whose data it does
ClipLength = Annotated[float, Range(SHORTEST, LONGEST)]
Width = Annotated[int, Range(1, 100_000)]  # of a layer
Seed = Annotated[int, Range(0, 2**63 - 1)]
