"""A few of the cases of `python -m tests.fuzz.readers 100000`, which `make fuzz` runs for an hour."""

from tests.fuzz.frame import fuzz
from tests.fuzz.readers import subjects


def test_every_reader_reads_or_refuses_in_a_sentence() -> None:
    assert fuzz(subjects(), 12, first=3) == []
