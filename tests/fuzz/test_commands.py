"""No command prints a traceback: a few of the cases of `python -m tests.fuzz.commands 100000`, and some by name."""

import pytest

pytest.importorskip("uvicorn")
from tests.fuzz.commands import prepare, subjects, tried
from tests.fuzz.frame import fuzz

LINES = [
    ["tune", "fedavg", "--over", "train.lr=nan..inf"],
    ["tune", "fedavg", "--over", "seed=0..9"],
    ["certs", "list", "certs"],
    ["certs", "make", "certs"],
    ["certs", "make", "folder", "--host", "evil host;rm"],
    ["watch", ".", "--host", "evil host;rm"],
    ["report", "damaged"],
    ["run", "--resume", "damaged"],
    ["run", "--set", "name=\udcff"],
    ["run", "--resume", "pipes"],
]


@pytest.mark.parametrize("line", LINES, ids=" ".join)
def test_a_mistake_on_the_command_line_is_a_sentence(line: list[str]) -> None:
    prepare()
    assert tried(line) == "refused"


def test_no_command_line_ends_in_a_traceback() -> None:
    assert fuzz(subjects(), 15, first=5) == []
