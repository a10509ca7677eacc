"""A schema: what the columns of a table are, there and back as JSON, compared, united, and fitted by sums."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from covey.data.encoding import encode, far_outside
from covey.data.realign import added, bounded_sums, realigned, sums, unbounded, without_range
from covey.data.schema import BUCKETS, Column, Schema, differences, read_schema, union
from covey.data.table import read_table
from covey.data.types import Dataset
from covey.errors import UserError
from covey.folder.about import About, Inputs, read_about

SCHEMA = Schema(
    columns=(
        Column(name="age", fill=50.0, indicator=True, mean=50.0, std=10.0, low=20, high=90, unit="years"),
        Column(name="ward", kind="category", categories=("er", "icu"), fill="er"),
        Column(name="admitted", kind="month", fill=6.0, mean=6.0, std=2.0),
    ),
    label="ill",
    classes=("no", "yes"),
)
ROWS = {"ward": ["icu", None, "er"], "admitted": ["2024-03-01", "2024-12-31", None], "age": [61, None, 40.5]}


def test_rows_become_inputs_by_name_with_empty_cells_filled() -> None:
    assert SCHEMA.inputs == ("age", "age (missing)", "ward=er", "ward=icu", "admitted.month")
    assert encode(SCHEMA, ROWS).tolist() == [[61, 0, 0, 1, 3], [50, 1, 1, 0, 12], [40.5, 0, 1, 0, 6]]
    assert SCHEMA.scale == ((50.0, 0.0, 0.0, 0.0, 6.0), (10.0, 1.0, 1.0, 1.0, 2.0))
    unscaled = replace(SCHEMA, columns=tuple(replace(c, mean=None, std=None) for c in SCHEMA.columns))
    assert unscaled.scale is None


def test_it_is_plain_json_there_and_back(tmp_path: Path) -> None:
    path = tmp_path / "study.json"
    path.write_text(json.dumps(SCHEMA.plain()))
    assert read_schema(path) == SCHEMA


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ([], "the schema is \\[\\]; allowed: a table with names"),
        ({"columns": 3}, "columns is 3; allowed: a list"),
        ({"columns": []}, "needs at least one column"),
        ({"pickle": "x"}, "has an entry 'pickle'; allowed: columns, label"),
        ({"classes": ["a", "a"]}, "names a class twice"),
        ({"classes": "ab"}, "classes is 'ab'; allowed: a list of texts"),
        ({"label": "age"}, "'age' is the label"),
        ({"columns": [{"kind": "number"}]}, r"columns\[0\] has no name"),
        ({"columns": [{"name": "a", "kind": "tensor"}]}, "kind 'tensor'; allowed: number, category"),
        ({"columns": [{"name": "a", "kind": "category"}]}, "'a' needs categories"),
        ({"columns": [{"name": "a", "fill": "x"}]}, "fills empty cells with 'x'; allowed: a number"),
        ({"columns": [{"name": "a", "mean": 1.0}]}, "mean and std go together"),
        ({"columns": [{"name": "a", "mean": 1.0, "std": 0}]}, "std is 0.0; allowed: a number above 0"),
        ({"columns": [{"name": "a", "fill": float("nan")}]}, "fill is nan; allowed: a finite number"),
        ({"columns": [{"name": "a", "fill": 10**400}]}, "fill is 1000.*; allowed: a finite number"),
        ({"columns": [{"name": "a", "indicator": 1}]}, "indicator is 1; allowed: true or false"),
        ({"columns": [{"name": "a", "indicator": True}]}, "so it needs a fill value"),
        ({"columns": [{"name": "a"}, {"name": "a"}]}, "two columns would give an input called 'a'"),
        (
            {"columns": [{"name": "a=b"}, {"name": "a", "kind": "category", "categories": ["b"]}]},
            "two columns would give an input called 'a=b'",
        ),
    ],
)
def test_what_is_no_schema_is_one_sentence(change: Any, sentence: str) -> None:
    plain = {**SCHEMA.plain(), **change} if isinstance(change, dict) else change
    with pytest.raises(UserError, match=sentence):
        Schema.from_plain(plain)


@pytest.mark.parametrize("content", ["{", "[" * 100_000, "\xff"])
def test_a_file_that_is_no_schema_is_one_sentence(tmp_path: Path, content: str) -> None:
    (tmp_path / "odd.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(UserError, match=r"odd.json cannot be read as a schema"):
        read_schema(tmp_path / "odd.json")


def test_what_differs_is_named() -> None:
    age, ward, admitted = SCHEMA.columns

    def other(*columns: Column, **changes: Any) -> list[str]:
        return differences(SCHEMA, replace(SCHEMA, columns=columns, **changes))

    assert other(age, ward, admitted) == []
    assert other(ward, age, admitted) == ["column 1 is 'age' here and 'ward' there"]
    assert other(age, replace(ward, categories=("er", "day")), admitted) == [
        "the column 'ward' has the category 'icu' here and not there",
        "the column 'ward' has the category 'day' there and not here",
    ]
    assert other(replace(age, unit="months"), ward, admitted) == [
        "the column 'age': unit is 'years' here and 'months' there"
    ]
    assert other(age, ward) == ["the column 'admitted' is only here"]
    assert other(age, Column(name="ward"), admitted) == [
        "the column 'ward' holds category here and number there"
    ]
    assert other(age, ward, admitted, classes=("no",)) == ["the classes here: ('no', 'yes'); there: ('no',)"]


def test_several_tables_have_the_categories_of_all_and_the_scale_of_their_sums() -> None:
    here = {"age": [10.0, 20.0, None], "ward": ["er", "er", "icu"], "ill": ["no", "yes", "no"]}
    there = {"ward": ["day", "er"], "age": [60.0, 30.0], "ill": ["no", "no"]}
    read = [read_table(rows, label="ill", test=rows) for rows in (here, there)]
    both = union([one.schema for one in read])
    assert [c.categories for c in both.columns] == [(), ("day", "er", "icu")]
    assert both.classes == ("no", "yes")
    total = added(both, [(one.schema, sums(one, one.train)) for one in read])
    assert total.tolist() == [4, 120, 5000, 1, 3, 1]
    fitted = both.fitted(total)
    age, ward = fitted.columns
    assert (age.mean, age.std, age.fill) == (30.0, pytest.approx(np.sqrt(350)), 30.0)
    assert ward.fill == "er"
    assert encode(fitted, there).shape == (2, len(fitted.inputs))
    with pytest.raises(UserError, match="are not 6 finite numbers"):
        both.fitted(total[:-1])


def test_tables_that_cannot_go_together_are_one_sentence() -> None:
    schema = replace(SCHEMA, columns=(Column(name="age"), Column(name="ward")))
    with pytest.raises(
        UserError, match="cannot be used together: the column 'ward' holds category here and number"
    ):
        union([replace(SCHEMA, columns=SCHEMA.columns[:2]), schema])


def test_a_table_is_read_by_somebody_elses_schema(tmp_path: Path) -> None:
    path = tmp_path / "study.json"
    path.write_text(json.dumps(SCHEMA.plain()))
    rows = {**ROWS, "ill": ["yes", "yes", "yes"]}
    data = read_table(rows, label="ill", schema=path, test_share=0.4)
    assert data.classes == ("no", "yes")
    assert torch.equal(data.x, encode(SCHEMA, ROWS))
    assert data.y.tolist() == [1, 1, 1]
    with pytest.raises(
        UserError, match="the label 'ill' is 'perhaps' in row 2; the schema's classes are no, yes"
    ):
        read_table({**rows, "ill": ["yes", "perhaps", "no"]}, label="ill", schema=SCHEMA)
    with pytest.raises(UserError, match="the column 'ward' holds 'day' in row 1"):
        read_table({**rows, "ward": ["day", "er", "er"]}, label="ill", schema=SCHEMA)
    with pytest.raises(UserError, match="do not go with a schema"):
        read_table(rows, label="ill", schema=SCHEMA, exclude=["age"])


def test_older_folders_have_names_of_inputs_only() -> None:
    schema = Schema.of_inputs(("age", "sex=f", "sex=m"))
    assert schema.inputs == ("age", "sex=f", "sex=m")
    assert encode(schema, {"age": [3], "sex": ["m"]}).tolist() == [[3, 0, 1]]
    with pytest.raises(UserError, match="so fill them"):
        encode(schema, {"age": [None], "sex": ["m"]})


def test_about_json_keeps_it_and_older_ones_are_read(tmp_path: Path) -> None:
    rows = {"age": [3.0, None, 5.0], "sex": ["m", "f", "m"], "ill": ["no", "yes", "no"]}
    told = Inputs.of(read_table(rows, label="ill"))
    about = About(inputs=told, classes=("no", "yes"))
    (tmp_path / "about.json").write_text(about.json())
    assert read_about(tmp_path).inputs == told
    plain = json.loads(about.json())
    for new in ("schema", "resized", "low", "high", "reach"):
        del plain["inputs"][new]
    plain["inputs"] |= {"features": ["age", "sex=f", "sex=m"], "shape": [3], "scale": None}
    (tmp_path / "about.json").write_text(json.dumps(plain))
    old = read_about(tmp_path).inputs
    assert old.samples({"age": [4], "sex": ["m"]}).tolist() == [[4, 0, 1]]
    with pytest.raises(UserError, match="the column 'age' has 1 empty cells"):
        old.samples({"age": [None], "sex": ["m"]})
    plain["inputs"]["schema"] = {"columns": [{"name": "age", "kind": "pickle"}]}
    (tmp_path / "about.json").write_text(json.dumps(plain))
    with pytest.raises(UserError, match="kind 'pickle'; allowed: number, category"):
        read_about(tmp_path)


@pytest.mark.parametrize(
    ("known", "row", "said"),
    [
        ({"low": 40.0, "high": 100.0}, [[160.0, -20.0]], ""),  # 60 wide: -20 to 160
        (
            {"low": 40.0, "high": 100.0},
            [[70.0, 161.0]],
            "holds 161 in row 2; in training it ran from 40 to 100",
        ),
        (
            {"low": 40.0, "high": 100.0},
            [[-21.0, math.nan]],
            "holds -21 in row 1; in training it ran from 40 to 100",
        ),
        ({"mean": 70.0, "std": 10.0}, [[170.0, -30.0]], ""),  # ten deviations
        (
            {"mean": 70.0, "std": 10.0},
            [[70000.0, 70.0]],
            "was 70 on average with a deviation of 10: is it the same",
        ),
        ({}, [[1e9, 0.0]], ""),
    ],
)
def test_numbers_far_from_those_of_training_are_named(
    known: dict[str, float], row: list[list[float]], said: str
) -> None:
    schema = Schema(columns=(Column(name="kg", **known),))
    (found, *_) = [*far_outside(schema, [np.array(values) for values in row]), ""]
    assert said in found
    assert bool(said) == bool(found)


def test_bounded_sums_by_hand() -> None:
    """Ages 20, 60 and 200 in 0..100 are -0.6, 0.2 and, cut off, 1: sum 0.6, squares 0.36 + 0.04 + 1 = 1.4.

    Back in years, of 20, 60 and 100, the sum is 180, of squares 14,000. One row changes three numbers and a category by
    at most sqrt(4) = 2.
    """
    columns = (
        Column(name="age", low=0.0, high=100.0),
        Column(name="ward", kind="category", categories=("a", "b")),
    )
    schema = Schema(columns=columns)
    x = torch.tensor([[20.0, 1.0, 0.0], [60.0, 0.0, 1.0], [200.0, 1.0, 0.0], [50.0, 1.0, 0.0]])
    rows = np.arange(3)
    data = Dataset(
        name="t",
        x=x,
        y=torch.zeros(4, dtype=torch.int64),
        train=rows,
        test=np.array([3]),
        classes=("c",),
        schema=schema,
    )
    told, change = bounded_sums(data, rows)
    assert told == pytest.approx([3, 0.6, 1.4, 2, 1])
    assert change == 2.0
    assert unbounded(schema, told) == pytest.approx([3, 180, 14_000, 2, 1])


def test_what_noise_has_drowned_is_as_of_even_spread_over_the_range() -> None:
    """Range 0..100, half of it 50: without a count 50 and 50 / sqrt(3), a tiny variance is 50^2 .01."""
    schema = Schema(columns=(Column(name="age", low=0.0, high=100.0),))
    (drowned,) = schema.fitted(np.array([-2.0, 30.0, 9.0]), noisy=True).columns
    assert (drowned.mean, drowned.std) == (50.0, pytest.approx(50 / 3**0.5))
    (narrow,) = schema.fitted(np.array([10.0, 300.0, 9_001.0]), noisy=True).columns
    assert (narrow.mean, narrow.std) == (30.0, pytest.approx(5.0))
    (outside,) = schema.fitted(np.array([10.0, 1_500.0, 250_000.0]), noisy=True).columns
    assert (outside.mean, outside.std) == (100.0, pytest.approx(50.0))
    assert without_range(schema) == []
    dates = Schema(columns=(Column(name="d", kind="month"), Column(name="d", kind="year"), Column(name="n")))
    assert without_range(dates) == ["d", "n"]


MANY = [f"town {number % 300}" for number in range(900)]


def test_a_column_of_many_texts_is_hashed_and_new_texts_are_taken() -> None:
    table = {"town": MANY, "age": list(range(900)), "ill": ["no", "yes"] * 450}
    data = read_table(table, label="ill")
    town = data.schema.columns[0] if data.schema else None
    assert town is not None
    assert town.hashed
    assert data.x[:, : len(BUCKETS)].sum(dim=1).tolist() == [1.0] * 900
    assert any("share an input" in note for note in data.notes)
    assert data.schema is not None
    new = encode(data.schema, {"town": ["town 7", "never seen"], "age": [5, 6]})
    assert new[0].tolist()[:128] == data.x[7].tolist()[:128]
    assert new[1, :128].sum() == 1


def test_a_hundred_texts_have_an_input_each() -> None:
    table = {"dest": [f"airport {n % 102}" for n in range(900)], "ill": ["no", "yes"] * 450}
    assert len(read_table(table, label="ill").features) == 102


def test_a_site_with_few_texts_is_put_under_a_schema_that_hashes_them() -> None:
    many = read_table({"town": MANY, "ill": ["no", "yes"] * 450}, label="ill")
    few = read_table({"town": ["town 1", "town 2"] * 50, "ill": ["no", "yes"] * 50}, label="ill")
    assert many.schema is not None
    assert few.schema is not None
    shared = union([few.schema, many.schema])
    assert shared == union([many.schema, few.schema])
    here, there = realigned(few, shared), realigned(many, shared)
    assert here.x[0].tolist() == there.x[1].tolist()  # both are town 1
