"""What is stored stays, with its commits: some rows are made again, or what is missing is added."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from covey.errors import UserError
from covey.report.seeds import Bound
from experiments.execute import execute_runs
from experiments.only import kept_of, only, rows_named, stored_runs, together
from experiments.result import result_of, seeds_in_words
from experiments.spec import Experiment, read_experiment

TABLE = """
title = "Two rows"
seeds = 2
[columns]
accuracy = "last:local-test/accuracy-mean"
more = "difference:accuracy:A"
rounds = "best90:round:local-test/accuracy-mean"
[base]
rounds = 1
data = { clients = 4 }
[[run]]
name = "A"
set = { method = { name = "fedavg" } }
[[run]]
name = "B"
set = { method = { name = "local" } }
"""


@pytest.fixture
def experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Experiment:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "table.toml").write_text(TABLE)
    monkeypatch.setenv("COVEY_EXPERIMENTS", str(tmp_path))
    return read_experiment("mine/table", "small")


def stored() -> dict:
    """Of both rows, as nobody could measure them: an accuracy of 2."""
    numbers = {"accuracy": [2.0, 2.0], "more": [7.0, 7.0], "rounds": [1.0, 1.0]}
    cells = [
        {"case": "", "row": row, "column": column, "values": values}
        for row in ("A", "B")
        for column, values in numbers.items()
    ]
    origin = {"commit": "0ldc0de", "instructions": "", "cpu_seconds": 1.0}
    runs = [{"case": "", "row": row, "seed": seed, **origin} for row in ("A", "B") for seed in range(2)]
    return {"seeds": 2, "cells": cells, "runs": runs}


def test_the_row_is_new_the_other_is_kept_with_its_commit(experiment: Experiment, tmp_path: Path) -> None:
    kept = kept_of(experiment, ["B"], stored())
    live = lambda *_: nullcontext(lambda *_: None)  # noqa: E731
    made = execute_runs(only(experiment, ["B"]), tmp_path / "out", live, lambda _: None, kept.values)
    found = together(experiment, kept, made)
    a, b = found.values[""]["A"], found.values[""]["B"]
    assert list(found.values[""]) == ["A", "B"]
    assert a == {"accuracy": [2.0, 2.0], "more": [0.0, 0.0], "rounds": [1.0, 1.0]}
    assert all(0 < value < 1 for value in b["accuracy"])
    assert b["more"] == pytest.approx([value - 2.0 for value in b["accuracy"]])
    assert all(isinstance(value, Bound) for value in b["rounds"])  # 90 % of 2 is beyond anybody
    assert [run["commit"] == "0ldc0de" for run in found.runs] == [True, True, False, False]
    assert "0ldc0de" in result_of(experiment, found)["made"]["commit"]


def test_what_is_not_stored_cannot_be_kept(experiment: Experiment) -> None:
    more = replace(experiment, cases=[replace(case, seeds=3) for case in experiment.cases])
    with pytest.raises(UserError, match="stored with 3 seeds: A, accuracy is not; run it without --only"):
        kept_of(more, ["B"], stored())
    incomplete = stored()
    incomplete["cells"] = incomplete["cells"][1:]
    with pytest.raises(UserError, match="2 seeds: A, accuracy is not"):
        kept_of(experiment, ["B"], incomplete)


def test_a_row_that_does_not_exist_is_one_sentence(experiment: Experiment) -> None:
    with pytest.raises(UserError, match=r"--only is 'C'; allowed, .*: A, B"):
        rows_named(experiment, ["C"])


def test_the_beginning_of_a_name_will_do_where_only_one_row_has_it(experiment: Experiment) -> None:
    first = experiment.rows[0]
    names = ("CFIC", "CFIC, published", "Clustered sampling", "FedAvg", "FedAvgM")
    several = replace(experiment, rows=tuple(replace(first, name=name) for name in names))
    assert rows_named(several, ["CFIC", "Clustered"]) == ("CFIC", "Clustered sampling")
    with pytest.raises(UserError, match="--only is 'Fed'"):
        rows_named(several, ["Fed"])


MORE = """
title = "More seeds of one fleet"
[columns]
accuracy = "last:local-test/accuracy-mean"
[base]
rounds = 1
data = { clients = 4 }
[scale.small]
seeds_of = { large = 2 }
[[case]]
name = "large"
set = {}
[[case]]
name = "one seed"
set = {}
[[run]]
name = "A"
set = { method = { name = "fedavg" } }
"""


def test_a_case_has_seeds_of_its_own_and_stored_runs_stay(experiment: Experiment, tmp_path: Path) -> None:
    (tmp_path / "mine" / "more.toml").write_text(MORE)
    more = read_experiment("mine/more", "small")
    assert [case.seeds for case in more.cases] == [2, 1]
    assert [case.seeds for case in read_experiment("mine/more", "small", seeds=4).cases] == [4, 4]
    origin = {"commit": "0ldc0de", "instructions": "", "cpu_seconds": 1}
    runs = [{"case": "large", "row": "A", "seed": 0, **origin}]
    cells = [{"case": "large", "row": "A", "column": "accuracy", "values": [2.0]}]
    live = lambda *_: nullcontext(lambda *_: None)  # noqa: E731
    had = stored_runs(more, {"cells": cells, "runs": runs})
    made = execute_runs(more, tmp_path / "out", live, lambda _: None, {}, had)
    first, second = made.values["large"]["A"]["accuracy"]
    assert (first, second < 1) == (2.0, True)
    assert made.values["one seed"]["A"]["accuracy"][0] < 1
    assert [run["commit"] == "0ldc0de" for run in made.runs] == [True, False, False]
    assert seeds_in_words(result_of(more, made)) == "1 to 2 seeds"
    assert (
        stored_runs(replace(more, figure={"kind": "curves", "y": "x"}), {"cells": cells, "runs": runs}) == had
    )
    tried = replace(more, tune={"seed": 1}, rows=[replace(more.rows[0], tries=[{}])])
    with pytest.raises(UserError, match="'A' was not tuned: use --only"):
        stored_runs(tried, {"cells": cells, "runs": runs})
    with pytest.raises(UserError, match="the column 'rounds': run it without"):
        stored_runs(experiment, stored())


def test_seeds_of_a_case_that_does_not_exist_is_one_sentence(experiment: Experiment, tmp_path: Path) -> None:
    (tmp_path / "mine" / "more.toml").write_text(MORE.replace("large = 2", "lrge = 2"))
    with pytest.raises(UserError, match="seeds_of has 'lrge'"):
        read_experiment("mine/more", "small")
