"""Six tables whose clients are real: hospitals, airlines, states, authorities and schools."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from covey.data.sources import Source
from covey.data.table import read_table
from covey.data.types import Dataset
from covey.data.usual import Usual, declare
from covey.settings.registry import register


@dataclass(frozen=True, kw_only=True)
class NaturalTable:
    """One table: its columns, how many clients it has, and where people get it."""

    label: str
    client: str
    clients: int
    origin: str
    exclude: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    together: str | None = None
    is_number: bool = False
    columns: str = field(default="")

    def read(self, name: str, folder: Path | None) -> Dataset:
        """The table as a data set; a number to predict is told in deviations from its mean over the training rows."""
        source = Source(
            folder="natural", files=f"{name}.csv with the columns {self.columns}", origin=self.origin
        )
        place = source.place(folder)
        source.need(place, [f"{name}.csv"])
        made = read_table(
            place / f"{name}.csv",
            label=self.label,
            client=self.client,
            together=self.together,
            exclude=self.exclude,
            categories=self.categories,
            task="regression" if self.is_number else "classification",
            name=name,
        )
        if not self.is_number:
            return made
        known = made.y[torch.from_numpy(made.train)]
        return replace(made, y=(made.y - known.mean()) / known.std())


TABLES = {
    "heart": NaturalTable(
        label="ill",
        client="hospital",
        clients=4,
        categories=("cp", "restecg", "slope", "thal"),
        columns="age, sex, cp, ..., thal, hospital, ill",
        origin="UCI Heart Disease (https://archive.ics.uci.edu/dataset/45, CC BY 4.0): its four processed files in one",
    ),
    "flights": NaturalTable(
        label="late",
        client="carrier",
        clients=16,
        together="date",
        exclude=("dest",),
        columns="late, carrier, date, month, day, weekday, hour, minute, origin, dest, distance",
        origin="nycflights13 (https://github.com/tidyverse/nycflights13, CC0)",
    ),
    "votes": NaturalTable(
        label="vote",
        client="state",
        clients=51,
        columns="vote, state, racef, age, female, ..., prayerfreq",
        origin="CCES 2016 as in the R package stevedata (https://github.com/svmiller/stevedata)",
    ),
    "exams": NaturalTable(
        label="top",
        client="lea",
        clients=131,
        columns="top, lea, gender, age, gcsescore",
        origin="Chem97 of the R package mlmRev (https://cran.r-project.org/package=mlmRev)",
    ),
    "schools": NaturalTable(
        label="mAch",
        client="school",
        clients=160,
        is_number=True,
        columns="mAch, school, minrty, sx, ses",
        origin="Hsb82 of the R package mlmRev (https://cran.r-project.org/package=mlmRev)",
    ),
    "reading": NaturalTable(
        label="read",
        client="sch",
        clients=80,
        together="pupil",
        is_number=True,
        columns="read, sch, pupil, gr, cltype, ..., birthy",
        origin="star of the R package mlmRev (https://cran.r-project.org/package=mlmRev)",
    ),
}


@register("data set", "heart")
def heart(*, folder: Path | None = None) -> Dataset:
    """920 patients of 4 hospitals, 13 measurements, ill or not (UCI Heart Disease, CC BY 4.0); clients: hospitals.

    One hospital asked for other tests than the next: a sixth of all cells is empty, mostly whole columns of a hospital.
    """
    return TABLES["heart"].read("heart", folder)


@register("data set", "flights")
def flights(*, folder: Path | None = None) -> Dataset:
    """60,000 flights of 16 airlines from New York in 2013, late or not (nycflights13, CC0); clients: airlines.

    Only what is known before departure; all flights of a day are on one side of a split, as weather makes days late.
    The destination (102 airports) is left out: the distance says most of it.
    """
    return TABLES["flights"].read("flights", folder)


@register("data set", "votes")
def votes(*, folder: Path | None = None) -> Dataset:
    """37,813 voters of 2016, and whom they voted for (CCES, as in the R package stevedata); clients: 51 states.

    Age, income, education, religion and party: what decides a vote is much the same in all states, how common it
    is differs.
    """
    return TABLES["votes"].read("votes", folder)


@register("data set", "exams")
def exams(*, folder: Path | None = None) -> Dataset:
    """31,022 pupils, an upper or a lower score in chemistry (Chem97 of mlmRev); clients: 131 school authorities.

    Three inputs: sex, age in months about 18.5 years, and the mean mark of an earlier examination.
    """
    return TABLES["exams"].read("exams", folder)


@register("data set", "schools")
def schools(*, folder: Path | None = None) -> Dataset:
    """7,185 pupils and their mathematics score, a number (Hsb82 of mlmRev); clients: 160 schools.

    The score is told in deviations from its mean over the training rows.
    """
    return TABLES["schools"].read("schools", folder)


@register("data set", "reading")
def reading(*, folder: Path | None = None) -> Dataset:
    """24,262 reading scores of pupils in up to four grades, a number (star of mlmRev); clients: 80 schools.

    All rows of a pupil are on one side of a split. The score is told in deviations from its mean over the training
    rows.
    """
    return TABLES["reading"].read("reading", folder)


def _declare(loader: Any, name: str) -> None:
    table = TABLES[name]

    objective = "regression" if table.is_number else None
    usual = Usual(partition="natural", clients=table.clients, objective=objective)

    def files(**_: Any) -> list[Path]:
        return [Source(folder="natural", files="", origin="").place() / f"{name}.csv"]

    declare(loader, usual=usual, files=files)


for _loader in (heart, flights, votes, exams, schools, reading):
    _declare(_loader, _loader.__name__)
