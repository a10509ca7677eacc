"""What was found once and mended: the tests that failed before and pass since, by name.

Each row is some tests of the suite, run again; which harm they stand for is the row's text.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.hostile.frame import Outcome, attempt, broke, held

ROOT = Path(__file__).parents[2]


def by_tests(what: str, *names: str) -> Callable[[], Outcome]:
    """A try that runs these tests."""

    @attempt(what, seconds=300)
    def do() -> Outcome:
        options = ["-q", "-p", "no:cacheprovider", "-W", "ignore", "-m", "not slow", "--no-header"]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *names], cwd=ROOT, capture_output=True, text=True
        )
        last = (done.stdout.strip().splitlines() or ["no output"])[-1]
        return held(f"{', '.join(names)}: {last}") if done.returncode == 0 else broke(f"{names}: {last}")

    return do
