"""FLUX's four shifts by level."""

from covey.config import resolve
from covey.experiments.studies.flux import shifts


def test_the_levels_are_the_published_ones() -> None:
    """Level 1: 2 angles, all 10 classes, 1 label; level 8: 5 angles and colours, 3 classes, 8 labels."""
    weak, strong = shifts(1), shifts(8)
    assert (weak["P(x)"]["shift"]["kinds"], strong["P(x)"]["shift"]["kinds"]) == (2, 5)
    assert (weak["P(x)"]["shift"]["pictures"], strong["P(x)"]["shift"]["pictures"]) == (
        ["turn"],
        ["turn", "colour"],
    )
    assert [shifts(level)["P(x)"]["shift"]["kinds"] for level in range(1, 9)] == [2, 3, 4, 5, 2, 3, 4, 5]
    assert (weak["P(y)"]["partition"]["most_classes"], strong["P(y)"]["partition"]["most_classes"]) == (10, 3)
    assert strong["P(y|x)"]["shift"]["relabel"] == strong["P(x|y)"]["shift"]["of_classes"] == 0.8
    for table in strong.values():
        resolve({**table, "data": {"clients": 10}})
