"""What an experiment's TOML says.

title, paper, seeds            what it is, where its numbers come from, how many seeds
[columns]                      name = what to read off a finished run (see `read_cell`)
[figure]                       kind = "curves" | "bars", and what is drawn
[base]                         the configuration that all runs share
[scale.smoke|small|full]       seeds, runs, cases (which ones), and set = configuration on top;
                               seeds_of = {CASE = number}: cases with more seeds than the others
[[case]] name, set             optional: every run is made for every case (a data set, a partition);
                               small = {...}: configuration on top at that scale
[[run]]  name, set, paper      a row; paper = {column = number}, or {case = {column = number}};
                               refused = [CASE, ...]: where covey must refuse it, which the table then says
runs_of = "PAPER/TABLE"        instead of base, case and runs of its own: reads other numbers off the same runs, or off
                               some of them ([scale.X] cases = ...); of a study: the same one, [settings] on top
[tune], and tries of a run     optional: equal tuning on validation data first (see `tuning.py`)
headline = [CASE, ROW, COLUMN] the number that stands for the experiment in its paper's overview
why                            why ours is not the paper's; of what is not run, what it would take
study = "paper:function"       instead of runs: a function of experiments.studies
[settings]                     of the study; [scale.X.settings] on top
timed = [COLUMN, ...]          of a study: times and memory, which no second run repeats to the last digit
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from covey.errors import UserError
from covey.report.seeds import Number
from covey.settings.signatures import unknown
from covey.settings.toml import read_tables
from experiments.merge import forgotten, merged

ExperimentScale = Literal["smoke", "small", "full"]
KNOWN = (
    "title",
    "paper",
    "seeds",
    "columns",
    "figure",
    "base",
    "scale",
    "case",
    "run",
    "study",
    "settings",
    "note",
    "runs_of",
    "tune",
    "headline",
    "why",
    "timed",
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table: a run (or a study's row), and the paper's numbers for it."""

    name: str
    set: Mapping[str, Any] = field(default_factory=dict)
    paper: Mapping[str, Any] = field(default_factory=dict)
    refused: Sequence[str] = ()  # cases
    tries: Sequence[Mapping[str, Any]] = ()  # what else is tried on validation data


@dataclass(frozen=True, kw_only=True)
class Case:
    """A setting under which every run is made."""

    name: str
    layers: Sequence[Mapping[str, Any]] = ()  # its own configuration, and what the scale puts on top
    seeds: int = 1


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One experiment at one scale."""

    name: str  # PAPER/TABLE
    title: str
    paper: str
    scale: ExperimentScale
    seeds: int
    columns: Mapping[str, str]
    figure: Mapping[str, Any]
    layers: Sequence[Mapping[str, Any]]  # the base, and what the scale puts on top
    rows: Sequence[Row]
    cases: Sequence[Case]
    study: str
    settings: Mapping[str, Any]
    note: str
    file: Path
    runs_in: str  # the experiment whose runs these are; usually its own name
    headline: tuple[str, ...] = ()
    why: str = ""
    tune: Mapping[str, Any] = field(default_factory=dict)  # empty: every run with its own settings
    timed: frozenset[str] = frozenset()  # columns that `--check` does not compare
    moved: frozenset[str] = frozenset()  # cases whose target is not the one of full scale, the paper's

    def tables(self, row: Row, case: Case, seed: int) -> dict[str, Any]:
        """The configuration of one run."""
        layers = (*self.layers, *case.layers, row.set)
        for lost in forgotten(*layers):
            raise UserError(f"{self.file}: run {row.name!r}: {lost}")
        tables = merged(*layers)
        return {**tables, "seed": int(tables.get("seed", 0)) + seed, "name": row.name}

    def paper_number(self, case: str, row: str, column: str) -> float | None:
        """What the paper says, where it says something; not what another target than ours cost."""
        if case in self.moved and self.columns.get(column, "").startswith(("to:", "reach:")):
            return None
        paper = next(r.paper for r in self.rows if r.name == row)
        value = paper.get(case, paper).get(column) if isinstance(paper.get(case, paper), Mapping) else None
        return float(value) if isinstance(value, int | float) else None


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What a study found with one seed: numbers by row and column, curves by name, pictures by file name."""

    rows: Mapping[str, Mapping[str, Number]] = field(default_factory=dict)
    curves: Mapping[str, tuple[Sequence[float], Sequence[float]]] = field(default_factory=dict)
    # file name -> a function that draws into a path
    pictures: Mapping[str, Any] = field(default_factory=dict)


def experiments_folder() -> Path:
    """Where the experiments lie: COVEY_EXPERIMENTS, ./experiments, or those beside this file."""
    places = [Path("experiments"), Path(__file__).parent]
    if "COVEY_EXPERIMENTS" in os.environ:
        places.insert(0, Path(os.environ["COVEY_EXPERIMENTS"]))
    for place in places:
        if place.is_dir():
            return place
    looked = ", ".join(str(place) for place in places)
    raise UserError(f"no folder with experiments was found (looked in {looked}); set COVEY_EXPERIMENTS")


def all_experiments() -> dict[str, Path]:
    """Name -> file of every experiment there is."""
    folder = experiments_folder()
    return {f"{file.parent.name}/{file.stem}": file for file in sorted(folder.glob("*/*.toml"))}


def experiment_named(name: str) -> str:
    """PAPER/TABLE of a name or of a file; with a file, the experiments are those of the folders beside its own."""
    if not name.endswith(".toml"):
        return name
    file = Path(name).resolve()
    if not file.is_file():
        raise UserError(f"{name} does not exist")
    os.environ["COVEY_EXPERIMENTS"] = str(file.parent.parent)
    return f"{file.parent.name}/{file.stem}"


def read_experiment(name: str, scale: str, seeds: int | None = None) -> Experiment:
    """One experiment at a scale."""
    known = all_experiments()
    if name not in known:
        raise UserError(unknown(f"experiment {name!r}", name, known))
    if scale not in get_args(ExperimentScale):
        raise UserError(f"scale is {scale!r}; allowed: {', '.join(get_args(ExperimentScale))}")
    if seeds is not None and seeds < 1:
        raise UserError(f"seeds is {seeds}; allowed: a whole number, at least 1")
    file = known[name]
    tables = read_tables(file)
    for key in tables:
        if key not in KNOWN:
            raise UserError(unknown(f"{file}: {key}", key, KNOWN))
    if "runs_of" in tables:
        tables = on_runs_of(tables["runs_of"], tables, known, file)
    at = tables.get("scale", {}).get(scale, {})
    rows = [Row(**row) for row in tables.get("run", [])]
    usual = seeds or at.get("seeds", tables.get("seeds", 1))
    cases = cases_at(scale, tables, usual, {} if seeds else at.get("seeds_of", {}))
    return Experiment(
        name=name,
        title=tables.get("title", name),
        paper=tables.get("paper", ""),
        scale=scale,  # type: ignore[arg-type]
        seeds=usual,
        columns=tables.get("columns", {}),
        figure=tables.get("figure", {}),
        layers=(tables.get("base", {}), at.get("set", {})),
        rows=chosen("runs", file, rows, at.get("runs")),
        cases=chosen("cases", file, cases, at.get("cases")),
        study=tables.get("study", ""),
        settings=merged(tables.get("settings", {}), at.get("settings", {})),
        note=at.get("note", tables.get("note", "")),
        file=file,
        runs_in=tables.get("runs_of", name),
        headline=tuple(tables.get("headline", ())),
        why=tables.get("why", ""),
        timed=frozenset(tables.get("timed", ())),
        tune=merged(tables.get("tune", {}), at.get("tune", {})),
        moved=frozenset(
            ours.name
            for ours, papers in zip(cases, cases_at("full", tables), strict=True)
            if target_at(scale, tables, ours) != target_at("full", tables, papers)
        ),
    )


def cases_at(
    scale: str, tables: Mapping[str, Any], usual: int = 1, seeds_of: Mapping[str, int] | None = None
) -> list[Case]:
    """All cases of an experiment at a scale; a single nameless one where it has none."""
    found = [case_at(scale, **case) for case in tables.get("case", [])] or [Case(name="")]
    more = dict(seeds_of or {})
    known = [case.name for case in found]
    for name in more:
        if name not in known:
            raise UserError(unknown(f"seeds_of has {name!r}, which", name, known))
    return [replace(case, seeds=more.get(case.name, usual)) for case in found]


def target_at(scale: str, tables: Mapping[str, Any], case: Case) -> Any:
    """The target of a case's runs."""
    at = tables.get("scale", {}).get(scale, {})
    return merged(tables.get("base", {}), at.get("set", {}), *case.layers).get("target")


def on_runs_of(
    other: str, tables: Mapping[str, Any], known: Mapping[str, Path], file: Path
) -> dict[str, Any]:
    """The tables on top of the other experiment's, whose runs take the paper's numbers if some are given here."""
    if other not in known:
        raise UserError(unknown(f"{file}: runs_of = {other!r}", other, known))
    theirs = read_tables(known[other])
    rows = theirs.get("run", [])
    if "run" in tables:
        papers = {row["name"]: row.get("paper", {}) for row in tables["run"]}
        rows = [{**row, "paper": papers.get(row["name"], {})} for row in rows]
    own = {"headline", "why"}  # of the other experiment, not of this one
    inherited = {key: value for key, value in theirs.items() if key not in own}
    settings = merged(theirs.get("settings", {}), tables.get("settings", {}))
    return {**inherited, **tables, "settings": settings, "run": rows}


def case_at(scale: str, name: str, set: Mapping[str, Any], **scales: Mapping[str, Any]) -> Case:
    """A case with what its scale puts on top."""
    return Case(name=name, layers=(set, scales.get(scale, {})))


def chosen(what: str, file: Path, things: Sequence[Any], names: Sequence[str] | None) -> list[Any]:
    """Those that the scale names, or all."""
    if names is None:
        return list(things)
    by_name = {thing.name: thing for thing in things}
    for name in names:
        if name not in by_name:
            raise UserError(unknown(f"{file}: {what} has {name!r}, which", name, by_name))
    return [by_name[name] for name in names]
