"""Early stopping: a run ends when a number has not become better for some rounds."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from covey.errors import UserError
from covey.settings.ranges import Count
from covey.settings.signatures import validated_in
from covey.settings.toml import shown

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

    def __str__(self) -> str:
        return f"{self.metric or 'value'} for {self.patience} rounds"

    def check(self, measured: Collection[str]) -> None:
        """Refuses what can never end a run, before there is one; `measured` are the numbers that could."""
        if not measured:
            raise UserError("[stop] has nothing to go by; it needs measure.global_test or measure.local_test")
        if self.metric and self.metric not in measured:
            raise UserError(
                f"stop.metric is {shown(self.metric)}, which is not measured or has no better and worse; allowed: "
                f"{', '.join(sorted(measured))}"
            )

    def watched(self, best: Mapping[str, Mapping[str, float]]) -> str:
        """The name of the number that is watched, among those that are measured."""
        name = self.metric or next((name for name in (*PREFERRED, *best) if name in best), "")
        if best:
            replace(self, metric=name).check(best)
        return name

    def is_over(self, round: int, best: Mapping[str, Mapping[str, float]]) -> bool:
        """Whether the best value is too long ago."""
        name = self.watched(best)
        return name in best and round - best[name]["round"] >= self.patience
