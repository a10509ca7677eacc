"""`python -m tests.fuzz SECONDS [SEED]`: configurations until the time is over, and a count of what became of them."""

from __future__ import annotations

import reprlib
import sys
import time
import warnings
from collections import Counter
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz.outcomes import carried_out, read
from tests.fuzz.strategies import configurations

AT_ONCE = 200  # examples of one seed


def main(seconds: float, first: int) -> int:
    """Fuzzes; 1 where there was a fault."""
    counts: Counter[str] = Counter()
    examples: dict[str, Any] = {}
    end = time.monotonic() + seconds
    number = first
    warnings.simplefilter("ignore")

    def one(tables: dict[str, Any]) -> None:
        if time.monotonic() > end:
            return
        result, config = read(tables)
        if config is not None:
            result = f"accepted, {carried_out(config)}"
        counts[result] += 1
        if "fault" in result:
            examples.setdefault(result, tables)

    quick = settings(
        max_examples=AT_ONCE,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    while time.monotonic() < end:
        quick(seed(number)(given(configurations(["digits"]))(one)))()
        number += 1
    print(f"{sum(counts.values())} configurations, seeds {first} to {number - 1}")
    for result, count in counts.most_common():
        print(f"{count:7} {result} {reprlib.repr(examples[result]) if result in examples else ''}".rstrip())
    return 1 if examples else 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
