"""A site's own data, and what it tells of its columns: as they are, or sums with noise that its account counts."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from covey.core.privacy_loss import Loss
from covey.data.realign import (
    asked,
    bounded_sums,
    check_ranges,
    realigned,
    refuse_ranks,
    structure,
    sums,
    without_range,
)
from covey.data.schema import NO_CATEGORY, Column, Schema
from covey.data.table import read_table
from covey.data.types import Dataset, Indices, Samples, Scale, View
from covey.deploy.privacy_account import DELTA, PrivacyAccount, kept_in, write_kept
from covey.errors import Refused, UserError
from covey.parts.steps.gaussian_noise import secure_gaussian
from covey.privacy.accountant import Sampling, noise_for

CHUNK = 1024  # samples of which a digest is taken at a time
OF_COLUMNS = (
    "features",
    "exclude",
    "categories",
    "missing",
    "standardise",
    "scaling",
    "na_values",
    "date_format",
    "task",
)


@dataclass(frozen=True, kw_only=True, eq=False)
class SiteTable:
    """A site's table, which is read again once it is known what its columns are to everybody.

    source: a file, or a table. label: the column to predict. settings: of `covey.data.read_table`, for the columns as
    they are here.
    """

    source: Any
    label: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def read(self, schema: Schema | None = None) -> Dataset:
        """The table as it looks by itself, or under everybody's schema; which rows are test rows stays the same."""
        if schema is None:
            return read_table(self.source, label=self.label, **self.settings)
        kept = {name: value for name, value in self.settings.items() if name not in OF_COLUMNS}
        return read_table(self.source, label=self.label, schema=schema, **kept)


@dataclass(frozen=True, kw_only=True, eq=False)
class SiteData:
    """A site's own data: the same in every round."""

    train_samples: View
    test_samples: View
    table: SiteTable | None = None

    def train(self, client: int, number: int) -> View:  # noqa: ARG002
        return self.train_samples

    def test(self, client: int, number: int) -> View:  # noqa: ARG002
        return self.test_samples

    @cached_property
    def digest(self) -> str:
        """Equal for equal training data in the same order."""
        mark = hashlib.sha256("\0".join(self.train_samples.dataset.classes).encode())
        for start in range(0, len(self.train_samples), CHUNK):
            for part in self.train_samples.select(slice(start, start + CHUNK)).tensors():
                mark.update(part.numpy().tobytes())
        return mark.hexdigest()

    def scaled(self, scale: Scale | None) -> SiteData:
        """The same data, standardised as the server says; as they are where it says nothing."""
        parts = self.train_samples, self.test_samples
        if scale is None or not all(isinstance(part, Samples) for part in parts):
            return self
        train, test = (replace(part, dataset=replace(part.dataset, scale=scale)) for part in parts)  # type: ignore[type-var]
        return SiteData(train_samples=train, test_samples=test)

    @property
    def dataset(self) -> Dataset:
        return self.train_samples.dataset

    @property
    def rows(self) -> Indices:
        """Which rows of the data set are for training."""
        samples = self.train_samples
        return samples.index if isinstance(samples, Samples) else np.arange(len(samples))

    def under(self, schema: Schema) -> SiteData:
        """The same rows with the inputs of everybody's schema, by their names; a refusal names what does not fit."""
        parts = self.train_samples, self.test_samples
        try:
            if self.table is not None:
                read = self.table.read(schema)
                check_ranges(read)
                return SiteData.of(read)
            if not all(isinstance(part, Samples) for part in parts):
                raise UserError("the samples have no column names to compare")
            made = realigned(self.dataset, schema)
            train, test = (replace(part, dataset=made) for part in parts)  # type: ignore[type-var]
            return SiteData(train_samples=train, test_samples=test)
        except UserError as error:
            raise Refused(f"its table does not fit the others': {error}") from error

    @classmethod
    def of(cls, data: Any) -> SiteData:
        """Of what a user's load function gives: a Dataset, a (train, test) pair of Samples, or a SiteData."""
        if isinstance(data, SiteData):
            return data
        if isinstance(data, SiteTable):
            return replace(cls.of(data.read()), table=data)
        if isinstance(data, Dataset):
            return cls(train_samples=Samples(data, data.train), test_samples=Samples(data, data.test))
        if isinstance(data, tuple) and len(data) == 2 and all(isinstance(part, Samples) for part in data):
            return cls(train_samples=data[0], test_samples=data[1])
        raise UserError(
            f"the load function gave a {type(data).__name__}; it must give a covey Dataset (see from_tensors) "
            "or a pair of Samples for training and test"
        )


TOLD = "columns.json"  # in a site's folder: noisy sums that were told, which are told again at no loss
KEPT = 100  # of these answers, the latest
MOST_EPSILON = 1e6


def own_columns(data: SiteData, *, strict: bool, exact: bool = True) -> dict[str, Any]:
    """Names, kinds, categories and ranges of a site's columns, and the sums of its rows; nothing, with a budget.

    exact: whether the sums are asked for; a server that wants them with noise asks for those later.
    """
    if strict:
        return {"private": True}
    if data.dataset.schema is None:
        raise Refused("its samples have no column names to compare; join with --table")
    try:
        columns = structure(data.dataset.schema).plain()
    except UserError as error:
        raise Refused(str(error)) from error
    told = sums(data.dataset, data.rows) if exact else None
    return {"schema": columns, **({} if told is None else {"sums": told})}


def noise_of(epsilon: float) -> float:
    """The noise for one answer of that loss, in lengths of what one row can change."""
    return noise_for(epsilon, DELTA, sampling=Sampling(), times=1)


def column_loss(epsilon: float) -> Loss:
    """The same as the accountant knows it: one sum over all rows, each there or not."""
    return Loss(what="summaries", mechanism="steps", noise=noise_of(epsilon))


COMPARED_FILE = "compared.json"  # in a site's folder: marks of the columns that its table was held against
FAILED_FILE = "failed.json"  # and of the questions at which its own data made a step fail
MOST_UNCOUNTED = 16  # of each, ever


class Uncounted:
    """Answers of yes or no that no noise covers; a site with a budget gives only a fixed number of them, ever.

    Whether its table fits the columns that a server names, or a step fails, may depend on a single row: a server that
    may try as often as it likes would find out which categories there are, and how large a number gets.
    """

    def __init__(self, folder: Path | None, name: str, what: str) -> None:
        self.file = None if folder is None else folder / name
        self.full = f"{what}, which is the most; whoever runs it can delete {name} in its --state"
        self.marks: list[str] = [] if self.file is None else kept_in(self.file, _marks, [])

    def check(self) -> None:
        """Refuses what would be one answer too many."""
        if len(self.marks) >= MOST_UNCOUNTED:
            raise Refused(self.full)

    def count(self, mark: str) -> None:
        """Counts the answer to a question; the same question asked again is not counted."""
        if mark in self.marks:
            return
        self.check()
        self.marks.append(mark)
        if self.file is not None:
            write_kept(self.file, json.dumps(self.marks))


def columns_mark(schema: Schema, data: str) -> str:
    """Equal for columns that the same rows fit; `data`: the mark of the data. A mean or a usual fill value changes
    nothing."""
    refuse_ranks(schema)
    columns = tuple(replace(c, mean=None, std=None, fill=_odd_fill(c)) for c in schema.columns)
    whole = replace(schema, columns=columns, label_mean=0.0, label_std=1.0)
    return hashlib.sha256(json.dumps([whole.plain(), data], sort_keys=True).encode()).hexdigest()


def _odd_fill(column: Column) -> float | str | None:
    """The fill value where it would tell who has empty cells: there is none, or none that the range allows."""
    if column.fill is None or isinstance(column.fill, str):
        return None if column.fill is None else NO_CATEGORY
    reach = column.reach
    return 0.0 if reach is None or reach[0] <= column.fill <= reach[1] else column.fill


def _marks(text: str) -> list[str]:
    return [str(mark) for mark in json.loads(text)]


class NoisyColumns:
    """A site's noisy sums: each is paid for once, and given again as it was."""

    def __init__(self, account: PrivacyAccount, folder: Path | None) -> None:
        self.account = account
        self.file = None if folder is None else folder / TOLD
        self.told: dict[str, list[float]] = {} if self.file is None else kept_in(self.file, _read, {})

    def answer(
        self, request: Mapping[str, Any], under: Callable[[Schema], SiteData], data: str
    ) -> dict[str, Any]:
        """Sums of this site's rows under the schema that was sent, with Gaussian noise; booked before they are told.

        under: this site's data under a schema. data: the mark of the data.
        """
        epsilon = float(request["epsilon"])
        if not 0 < epsilon <= MOST_EPSILON:
            raise Refused(f"an epsilon of {epsilon} was asked for; allowed: a number above 0")
        try:
            schema = Schema.from_plain(request["schema"])
        except UserError as error:
            raise Refused(str(error)) from error
        if odd := without_range(schema):
            raise Refused(f"sums with noise need a range for the column {odd[0]!r}")
        question = json.dumps([schema.plain(), epsilon, data], sort_keys=True)
        number = hashlib.sha256(question.encode()).hexdigest()
        if number not in self.told:
            found = under(asked(schema))
            exact, change = bounded_sums(found.dataset, found.rows)
            loss = column_loss(epsilon)
            self.account.lose(loss)
            self.told[number] = list(secure_gaussian(loss.noise * change)(exact.tolist()))
            self.told = dict(list(self.told.items())[-KEPT:])
            if self.file is not None:
                write_kept(self.file, json.dumps(self.told))
        return {"sums": np.array(self.told[number])}


def _read(text: str) -> dict[str, list[float]]:
    told = {str(number): [float(value) for value in values] for number, values in json.loads(text).items()}
    if not all(math.isfinite(value) for values in told.values() for value in values):
        raise ValueError("a sum is no finite number")
    return told
