"""What one device is like, drawn from a profile: five uniform numbers -> its speed and its links."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from covey.settings.ranges import NotNegative, Positive, Share
from covey.settings.registry import register


@dataclass(frozen=True, kw_only=True)
class Device:
    """One client's machine: compute multiplier (1 = reference), Mbit/s, round trip in s, fixed delay in s."""

    compute: Positive = 1.0
    up: Positive = math.inf
    down: Positive = math.inf
    latency: NotNegative = 0.0
    delay: NotNegative = 0.0
    availability: Share = 1.0

    def seconds(self, *, bytes_down: int, bytes_up: int, work: float, pace: float) -> float:
        """Transfer both ways + round trip + `work` samples at `pace` reference seconds per sample (+ delay)."""
        transfer = 8e-6 * bytes_down / self.down + 8e-6 * bytes_up / self.up
        return transfer + self.latency + self.delay + work * pace * self.compute


@dataclass(frozen=True, kw_only=True)
class Category:
    """One line of a category table: its share of the devices and the range that values are drawn from."""

    share: float
    low: float
    high: float


# HACCS, Table II, fast to very slow. Compute and bandwidth are drawn separately; round trip 20-200 ms.
PAPER_COMPUTE = (
    Category(share=0.60, low=1.0, high=1.0),
    Category(share=0.20, low=1.5, high=2.0),
    Category(share=0.15, low=2.0, high=2.5),
    Category(share=0.05, low=2.5, high=3.0),
)
PAPER_BANDWIDTH = (
    Category(share=0.60, low=75.0, high=100.0),
    Category(share=0.20, low=50.0, high=75.0),
    Category(share=0.15, low=25.0, high=50.0),
    Category(share=0.05, low=1.0, high=25.0),
)
# The authors' code instead adds a compute delay of 10 s times these, with other shares, and a fixed transfer.
CODE_DELAY = (
    Category(share=0.60, low=0.0, high=0.5),
    Category(share=0.20, low=0.5, high=1.0),
    Category(share=0.14, low=1.0, high=1.5),
    Category(share=0.06, low=1.5, high=2.0),
)
CODE_BANDWIDTH = tuple(
    Category(share=code.share, low=paper.low, high=paper.high)
    for code, paper in zip(CODE_DELAY, PAPER_BANDWIDTH, strict=True)
)
CODE_DELAY_UNIT = 10.0  # seconds
CODE_TRANSFER = 10 * 2**20 * 8e-6  # Mbit: 10 MiB, one way, whatever the model
ROUND_TRIP = (0.020, 0.200)  # seconds


@register("device profile", "ideal")
def ideal(draws: np.ndarray) -> Device:  # noqa: ARG001
    """Equal devices and free links: every round takes as long as the work in it."""
    return Device()


@register("device profile", "haccs")
def haccs(draws: np.ndarray) -> Device:
    """The categories of HACCS, Table II: 60 % fast, 20 %, 15 % and 5 % ever slower; compute and links apart."""
    link = _pick(PAPER_BANDWIDTH, draws[2], draws[3])
    compute = _pick(PAPER_COMPUTE, draws[0], draws[1])
    return Device(compute=compute, up=link, down=link, latency=_latency(draws))


@register("device profile", "published")
def published(draws: np.ndarray) -> Device:
    """What the HACCS authors' code does instead: fixed delays in seconds, whatever the model."""
    wait = CODE_DELAY_UNIT * _pick(CODE_DELAY, draws[0], draws[1])
    transfer = CODE_TRANSFER / _pick(CODE_BANDWIDTH, draws[2], draws[3])
    return Device(delay=wait + transfer, latency=_latency(draws))


def _latency(draws: np.ndarray) -> float:
    return ROUND_TRIP[0] + float(draws[4]) * (ROUND_TRIP[1] - ROUND_TRIP[0])


def _pick(table: Sequence[Category], which: float, where: float) -> float:
    """The value at `where` in [0, 1) of the category that `which` in [0, 1) falls into."""
    edges = np.cumsum([line.share for line in table[:-1]])
    line = table[int(np.searchsorted(edges, which, side="right"))]
    return line.low + float(where) * (line.high - line.low)
