"""What `--check` compares of a study."""

from types import SimpleNamespace
from typing import Any

import pytest

from covey.errors import UserError
from experiments import check
from experiments.spec import Findings


def checked(monkeypatch: pytest.MonkeyPatch, rows: dict[str, dict[str, float]]) -> check.Check:
    """Seed 1 of a stored study of three seeds; the row `some` is not in every seed, and was in two."""
    monkeypatch.setattr(check, "the_study", lambda _: lambda *_: Findings(rows=rows))
    experiment: Any = SimpleNamespace(name="paper/study", settings={}, study="x:y", timed={"seconds"})
    cells = [
        {"row": "all", "column": "a", "values": [1.0, 2.0, 3.0]},
        {"row": "all", "column": "seconds", "values": [0.1, 0.2, 0.3]},
        {"row": "some", "column": "a", "values": [5.0, 7.0]},
    ]
    runs = [{"case": "", "row": "", "seed": 1, "cpu_seconds": 1.0}]
    return check.check_study(experiment, {"seeds": 3, "cells": cells, "runs": runs})


@pytest.mark.parametrize(
    ("rows", "differs"),
    [
        ({"all": {"a": 2.0}}, []),
        ({"all": {"a": 2.0, "seconds": 9.9}}, []),  # no second run takes as long to the last digit
        ({"all": {"a": 2.0}, "some": {"a": 7.0}}, []),
        ({"all": {"a": 2.0}, "some": {"a": 6.0}}, ["some: a"]),
        ({"all": {"a": 1.0}}, ["all: a"]),
        ({"some": {"a": 5.0}}, ["all: a"]),
    ],
)
def test_a_row_that_not_every_seed_has_is_compared_where_it_is(
    monkeypatch: pytest.MonkeyPatch, rows: dict[str, dict[str, float]], differs: list[str]
) -> None:
    assert checked(monkeypatch, rows).differs == differs


def test_it_is_said_by_how_much_a_number_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert checked(monkeypatch, {"all": {"a": 2.000008}}).differences == ["all: a by 8e-06"]
    assert checked(monkeypatch, {"some": {"a": 7.0}}).differences == ["all: a"]


@pytest.mark.parametrize(
    ("then", "under"), [(2.0, ""), (1.0, "guard.norm = 10, the default when it was made"), (3.0, "")]
)
def test_a_study_that_differs_is_tried_with_the_old_guard(
    monkeypatch: pytest.MonkeyPatch, then: float, under: str
) -> None:
    """It gives 2 by default and 1 with guard.norm = 10; stored is 2 (the same), 1 (of before) or 3 (neither)."""

    def study(settings: dict[str, Any], _seed: int) -> Findings:
        return Findings(rows={"all": {"a": 1.0 if settings["base"].get("guard") == {"norm": 10.0} else 2.0}})

    monkeypatch.setattr(check, "the_study", lambda _: study)
    experiment: Any = SimpleNamespace(
        name="paper/study", settings={"base": {"rounds": 3}}, study="x:y", timed=set()
    )
    cells = [{"row": "all", "column": "a", "values": [then], "case": ""}]
    found = check.check_study(experiment, {"seeds": 1, "cells": cells})
    assert found.under == under
    assert bool(found.differs) == (then == 3.0)


def test_the_cheapest_run_of_a_named_row() -> None:
    runs = [
        {"row": "a", "cpu_seconds": 1.0},
        {"row": "b", "cpu_seconds": 3.0},
        {"row": "b", "cpu_seconds": 2.0},
    ]
    assert check.cheapest(check.of_rows({"runs": runs}, ()))["row"] == "a"
    assert check.cheapest(check.of_rows({"runs": runs}, ["b"])) == {"row": "b", "cpu_seconds": 2.0}
    with pytest.raises(UserError, match="--only is 'c'; stored runs are of: a, b"):
        check.of_rows({"runs": runs}, ["c"])
