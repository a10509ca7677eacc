"""Early stopping: a run ends when a number has not become better for some rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from covey.errors import UserError
from covey.ranges import Count
from covey.settings import validated_in

PREFERRED = ("local-test/accuracy-mean", "global-test/accuracy", "local-test/loss-mean", "global-test/loss")


@validated_in("stop")
@dataclass(frozen=True, kw_only=True)
class Stopping:
    """When a run ends before its last round.

    Args:
        patience: rounds without a better value after which it ends.
        metric: any overall number that is measured, such as local-test/loss-mean; empty: the clients' mean accuracy.
    """

    patience: Count = 10
    metric: str = ""

    def watched(self, best: Mapping[str, Mapping[str, float]]) -> str:
        """The name of the number that is watched, among those that are measured."""
        name = self.metric or next((name for name in (*PREFERRED, *best) if name in best), "")
        if best and name not in best:
            raise UserError(
                f"stop.metric is {self.metric!r}, which is not measured or has no better and worse; allowed: "
                f"{', '.join(sorted(best))}"
            )
        return name

    def is_over(self, round: int, best: Mapping[str, Mapping[str, float]]) -> bool:
        """Whether the best value is too long ago."""
        name = self.watched(best)
        return name in best and round - best[name]["round"] >= self.patience
