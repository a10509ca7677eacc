"""What was found once and mended: the tests that failed before and pass since, by name.

Each row is some tests of the suite, run again; which harm they stand for is the row's text.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hostile.frame import Outcome, attempt, broke, held

ROOT = Path(__file__).parents[2]


def by_tests(what: str, *names: str) -> Callable[[], Outcome]:
    """A try that runs these tests."""

    @attempt(what, seconds=300)
    def do() -> Outcome:
        os.chdir(ROOT)
        options = ["-p", "no:cacheprovider", "-W", "ignore", "-m", "not slow"]
        with contextlib.redirect_stdout(io.StringIO()) as said:
            code = pytest.main([*options, *names])
        last = (said.getvalue().strip().splitlines() or ["no output"])[-1]
        words = f"{', '.join(name.rpartition('/')[2] for name in names)}: {last}"
        return held(words) if code == 0 and " passed" in last else broke(words)  # skipped is not tried

    return do


longer = by_tests(
    "more rounds of a private run for which no budget is left: the noise grows without a word",
    "tests/privacy/test_longer.py::test_more_rounds_are_refused_before_anything_is_written",
    "tests/privacy/test_longer.py::test_the_same_noise_costs_what_is_said",
)
booked = by_tests(
    "a private run that books more than it promised, or than covey privacy quoted",
    "tests/privacy/test_true_epsilon.py::test_a_run_books_what_was_quoted_and_no_more_than_was_promised",
    "tests/privacy/test_true_epsilon.py::test_the_quoted_number_of_a_fixed_draw_is_that_of_dp_accounting",
)
byzantine = by_tests(
    "an update times -9 by one client of ten, with the default settings",
    "tests/experiments/test_hostile.py::test_by_default_an_update_times_minus_nine_does_little_harm",
)
own_code = by_tests(
    "own code that was edited after the run, loaded with the old numbers",
    "tests/runs/test_models.py::test_a_network_whose_code_has_changed_is_not_filled_with_the_old_numbers",
)
tables = by_tests(
    "tables with stray texts, empty clients, nested columns, numbers beyond 2^53, thousands of columns",
    "tests/data/test_bad_tables.py",
)
trackers = by_tests(
    "a tracker at a dead port, one that never answers, and a password in its address",
    "tests/runs/trackers/test_unreachable.py",
)
certificates = by_tests(
    "empty and early certificates, hosts that are none, a deleted list of sites",
    "tests/deploy/test_enrolment.py",
)
secure_sums = by_tests(
    "a site that lies in a secure sum: a flipped bit in a letter, a false share, an honest site blamed",
    "tests/deploy/test_secure_liars.py",
)
words = by_tests(
    "ranges that are none, hosts with a space, empty certificates, and names that LC_ALL=C cannot write",
    "tests/fuzz/test_commands.py::test_a_mistake_on_the_command_line_is_a_sentence",
    "tests/folder/test_read.py::test_a_folder_may_have_a_name_that_is_no_utf8",
    "tests/runs/test_config.py::test_text_that_is_no_utf8_is_refused",
)
