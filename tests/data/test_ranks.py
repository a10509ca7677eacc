"""Numbers by their rank: quantiles of the training rows, there and back, and where ranks are refused."""

from dataclasses import replace

import numpy as np
import pytest

from covey.data.encoding import encode
from covey.data.ranks import quantiles_of, ranks
from covey.data.realign import check_ranges, structure
from covey.data.samples import samples_of
from covey.data.schema import Column, Schema
from covey.data.table import read_table
from covey.data.types import Dataset
from covey.deploy.site_data import SiteData, own_columns
from covey.errors import Refused, UserError
from covey.folder.about import Inputs

TAIL = [float(2**n) for n in range(33)]  # 1 to 4,294,967,296


def table(**settings: str) -> Dataset:
    rows = {"income": [*TAIL, 3.0, None], "y": ["a", "b"] * 17 + ["a"], "part": [""] * 33 + ["test", ""]}
    return read_table(rows, label="y", split="part", **settings)  # type: ignore[arg-type]


def test_a_rank_lies_on_lines_between_quantiles_and_ties_share_their_middle() -> None:
    assert ranks((0, 10, 30), np.array([-5, 0, 5, 10, 20, 99])).tolist() == [0, 0, 0.25, 0.5, 0.75, 1]
    assert np.isnan(ranks((0, 10, 30), np.array([np.nan])))
    assert ranks((0, 0, 0, 1, 1), np.array([0.0, 0.5, 1.0])).tolist() == [0.25, 0.5625, 0.875]
    assert ranks((7, 7), np.array([1.0, 7.0])).tolist() == [0.5, 0.5]
    assert quantiles_of(np.array(TAIL)) == tuple(TAIL)


def test_a_long_tail_is_spread_evenly_where_a_deviation_leaves_nearly_all_alike() -> None:
    by_rank, plain = table(scaling="quantile"), table()
    income = by_rank.x[:33, 0].numpy()
    assert income.tolist() == pytest.approx([n / 32 for n in range(33)])
    assert by_rank.x[33, 0] == pytest.approx(1.5 / 32)  # 3 lies between 2 and 4
    assert by_rank.scale is not None
    assert plain.scale is not None
    assert by_rank.scale.mean[0] == pytest.approx(0.5)
    assert by_rank.scale.std[0] == pytest.approx(np.arange(33).std() / 32)
    scaled = (plain.x[:, 0].numpy() - plain.scale.mean[0]) / plain.scale.std[0]
    assert np.ptp(np.sort(scaled)[:25]) < 0.02


def test_new_rows_have_the_ranks_of_training_and_an_empty_cell_that_of_the_mean() -> None:
    schema = table(scaling="quantile").schema
    assert schema is not None
    assert Schema.from_plain(schema.plain()) == schema
    found = encode(schema, {"income": [6.0, 2.0**33, None]})
    mean = (2**33 - 1) / 33  # between 2^27 and 2^28
    assert found[:, 0].tolist() == pytest.approx([2.5 / 32, 1, (27 + mean / 2**27 - 1) / 32])
    assert found[:, 1].tolist() == [0, 0, 1]


def test_where_ranks_cannot_be_is_one_sentence() -> None:
    data = table(scaling="quantile")
    assert data.schema is not None
    with pytest.raises(UserError, match="'income' is taken by its rank, and sites do not tell quantiles"):
        structure(data.schema)
    with pytest.raises(UserError, match="'income' is taken by its rank"):
        check_ranges(data)
    with pytest.raises(Refused, match="sites do not tell quantiles"):
        own_columns(SiteData.of(data), strict=False)
    told = Inputs(shape=(2,), schema=data.schema, features=data.features)
    assert samples_of(told, np.array([[0.5, 0.0]])).tolist() == [[0.5, 0.0]]
    with pytest.raises(UserError, match="take income by its rank, 0 to 1: give rows"):
        samples_of(told, np.array([[40.0, 0.0]]))
    with pytest.raises(UserError, match="quantiles are \\(2, 1\\); allowed: of numbers, none below the last"):
        Column(name="a", quantiles=(2, 1))
    with pytest.raises(UserError, match="quantiles is \\['x'\\]; allowed: a list of numbers"):
        Schema.from_plain({"columns": [{"name": "a", "quantiles": ["x"]}]})
    with pytest.raises(UserError, match="fit"):
        replace(data.schema.columns[0], quantiles=(0.0, float("nan")), name="fit")
