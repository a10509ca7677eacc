"""A few of the cases of `python -m tests.fuzz.wire 100000`."""

from tests.fuzz.frame import fuzz
from tests.fuzz.wire import subjects


def test_nothing_on_the_wire_raises_anything() -> None:
    assert fuzz(subjects(), 60, first=1) == []
