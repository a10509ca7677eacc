"""What a run or a study gives back: a table in a terminal, a table and curves in a notebook, frames and models."""

from __future__ import annotations

import html
import io
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from covey.folder.checkpoint import read_checkpoint
from covey.folder.place import index_in, summary_in
from covey.folder.read import RunView, read_run
from covey.folder.summary import Summary
from covey.report.payload import kept_rounds
from covey.report.replicas import Replicas, against_words, mean_curves, mean_of, replica_columns
from covey.report.table import TableColumn, headline_metric, known_metrics, rich_table, summary_columns
from covey.report.wording import metric_title
from covey.runs.config import Config, config_in
from covey.training.metrics import higher_is_better

if TYPE_CHECKING:
    from covey.core.round import State
    from covey.report.seeds import Paired
    from covey.runs.models import TrainedModels


class Result:
    """Some runs with their labels; `print` shows their table, a notebook their table and curves."""

    width = 100  # characters of a printed table

    def __init__(self, folders: Mapping[str, Path], folder: Path) -> None:
        self.folder = folder
        self._folders = dict(folders)

    @property
    def views(self) -> list[RunView]:
        """The runs as their folders tell them."""
        return [read_run(folder) for folder in self._folders.values()]

    def title(self) -> str:
        """What the table's numbers are."""
        return metric_title(headline_metric(self.views))

    def note(self) -> str:
        """The note beneath the table."""
        return ""

    def columns(self, metric: str | None = None) -> list[TableColumn]:
        """The table: one row per run."""
        views = self.views
        columns = summary_columns(views, metric)
        labels = (label or view.label for label, view in zip(self._folders, views, strict=True))
        return [TableColumn(head="method", cells=tuple(labels), right=False), *columns[1:]]

    def __str__(self) -> str:
        if not self._folders:
            return "no run came to its end"
        from covey.terminal import Console

        screen = io.StringIO()
        title = self.title()
        table = rich_table(self.columns(), title[0].upper() + title[1:])
        console = Console(file=screen, width=self.width, color_system=None, force_jupyter=False)
        console.print(table)
        if note := self.note():
            console.print(note)
        return "\n".join(line.rstrip() for line in screen.getvalue().rstrip().splitlines())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Table and curves for a notebook."""
        if not self._folders:
            return f"<pre>{html.escape(str(self))}</pre>"
        title, columns = html.escape(self.title()), self.columns()
        heads = "".join(f"<th>{html.escape(column.head)}</th>" for column in columns)
        rows = "".join(
            "<tr>" + "".join(_cell(column, row) for column in columns) + "</tr>"
            for row in range(len(columns[0].cells))
        )
        table = (
            f"<table><caption>{title}</caption><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
        )
        note = f"<p>{html.escape(words)}</p>" if (words := self.note()) else ""
        return f"<div>{table}{note}{self.curves()}</div>"

    def curves(self, metric: str | None = None) -> str:
        """The curves of a metric (the headline's, if none is named) as an SVG picture."""
        views = self.views
        name = metric or headline_metric(views)
        lines = {
            label or view.label: (curve.round.tolist(), curve.value.tolist())
            for label, view in zip(self._folders, views, strict=True)
            if len(curve := view.rows.overall(name))
        }
        return _picture(lines, metric_title(name))

    def plot(self, path: str | Path | None = None, metric: str | None = None) -> Any:
        """The curves as a picture: written to `path` as SVG where one is given, else shown by a notebook."""
        picture = self.curves(metric)
        if path is not None:
            Path(path).write_text(picture, encoding="utf-8")
        return Picture(picture)

    def frame(self) -> Any:
        """All measurements, one per row, as a pandas or polars data frame if one is installed, else an Arrow table."""
        tables = []
        for label, view in zip(self._folders, self.views, strict=True):
            tables.append(pa.table({**self._key(label, view), **columns_of(view)}))
        return framed(pa.concat_tables(tables))

    def _key(self, label: str, view: RunView) -> dict[str, list[Any]]:
        """The columns of the frame that say which run it is."""
        return {"method": [label or view.label] * len(view.rows)}


class Run(Result):
    """A run as its folder tells it: its table, its frame, its models.

    Args:
        folder: the run folder, finished or not.
        label: what tables call the run; empty: its name.
        state: what the server remembered at the end, where that is at hand.
        summary: what summary.json holds, where that is at hand.

    Raises:
        UserError: when something is asked of it and the folder is not that of a run, or is damaged.

    Examples:
        >>> run = covey.run("fedavg", rounds=1, out="runs/one", progress=False)
        >>> covey.Run("runs/one").state.round
        1
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        label: str = "",
        state: State | None = None,
        summary: Summary | None = None,
    ) -> None:
        super().__init__({label: Path(folder)}, Path(folder))
        self._label, self._state, self._summary = label, state, summary

    @property
    def label(self) -> str:
        """What tables call it."""
        return self._label or read_run(self.folder).label

    @property
    def config(self) -> Config:
        """The settings that it was made with."""
        return config_in(self.folder)

    @property
    def state(self) -> State:
        """All that the server remembered at the end, or at the last checkpoint."""
        if self._state is None:
            self._state = read_checkpoint(self.folder, index_in(self.folder)).state
        return self._state

    @property
    def summary(self) -> Summary:
        """What summary.json holds (docs/run-folder.md)."""
        if self._summary is None:
            self._summary = summary_in(self.folder)
        return self._summary

    @property
    def accuracy(self) -> float | None:
        """The main number after the last round: the mean accuracy over clients, unless the run is about another."""
        return self.summary.last.get(headline_metric([read_run(self.folder)]))

    @property
    def best(self) -> float | None:
        """The best value that the main number had in any round."""
        found = self.summary.best.get(headline_metric([read_run(self.folder)]))
        return None if found is None else found.value

    def models(self) -> TrainedModels:
        """The trained models, ready to use."""
        from covey.runs.models import load_models

        return load_models(self.folder)


class Study(Result):
    """Several methods on the same clients, seeds and failures, each with one seed or with several.

    With one seed its table is one row per run; with several, means with 95 % intervals and paired tests against the
    first method. `study[label]` is a method's run (with the first of its seeds).

    Args:
        runs: by label and seed.
        folder: where they are.
        failed: what became of the other runs, in one sentence each.
        settings: of each label, where a table shows them.

    Examples:
        >>> study = covey.compare(
        ...     ["fedavg", "local"], rounds=1, seeds=2, clients=4, processes=1, out="runs/seeds", progress=False
        ... )
        >>> sorted(study.values("fedavg"))
        [0, 1]
        >>> study.tests()["local"].distinguishable
        False
    """

    def __init__(
        self,
        runs: Mapping[str, Mapping[int, Run]],
        folder: Path,
        failed: Mapping[str, str] | None = None,
        *,
        settings: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self.runs = {label: dict(sorted(seeds.items())) for label, seeds in runs.items()}
        self.failed = dict(failed or {})
        self.settings = dict(settings or {})  # of each label, where a table shows them
        self.replicated = bool(settings) or any(len(seeds) > 1 for seeds in self.runs.values())
        one = {label: run.folder for label, seeds in self.runs.items() for run in seeds.values()}
        every = {
            f"{label} seed {seed}": run.folder
            for label, seeds in self.runs.items()
            for seed, run in seeds.items()
        }
        super().__init__(every if self.replicated else one, folder)
        self.width = 160 if self.replicated else self.width

    def __iter__(self) -> Iterator[str]:
        return iter(self.runs)

    def __getitem__(self, label: str) -> Run:
        return next(iter(self.runs[label].values()))

    @property
    def best(self) -> str:
        """The label with the best mean of the main number."""
        replicas = self.replicas
        means = {label: mean_of(replicas.last(label, replicas.metric)) for label in self.runs}
        known = {label: value for label, value in means.items() if value is not None}
        pick = max if higher_is_better(replicas.metric, known_metrics(replicas.every)) else min
        return pick(known, key=lambda label: known[label])

    @property
    def replicas(self) -> Replicas:
        """The runs by label, one per seed."""
        return Replicas(
            runs={
                label: [read_run(run.folder) for run in seeds.values()] for label, seeds in self.runs.items()
            },
            columns=self.settings,
        )

    def title(self) -> str:
        if not self.replicated:
            return super().title()
        replicas = self.replicas
        return f"{metric_title(replicas.metric)}; {replicas.in_words()}"

    def note(self) -> str:
        return against_words(self.replicas) if self.replicated else ""

    def columns(self, metric: str | None = None) -> list[TableColumn]:
        """The table: one row per method; with several seeds means, intervals and the test against the first."""
        return replica_columns(self.replicas, metric) if self.replicated else super().columns(metric)

    def values(self, label: str, metric: str | None = None) -> dict[int, float | None]:
        """The last value of a metric (the headline's, if none is named) with every seed."""
        replicas = self.replicas
        return dict(zip(replicas.seeds, replicas.last(label, metric or replicas.metric), strict=True))

    def tests(self, metric: str | None = None) -> dict[str, Paired | None]:
        """Each further method less the first one, seed by seed: `difference`, `interval`, `p`, `distinguishable`."""
        replicas = self.replicas
        found = replicas.against_first(metric or replicas.metric)
        return dict(list(zip(self.runs, found, strict=True))[1:])

    def curves(self, metric: str | None = None) -> str:
        """The means over seeds as an SVG picture, with their 95 % intervals as bands, or with the few single runs."""
        if not self.replicated:
            return super().curves(metric)
        replicas = self.replicas
        name = metric or replicas.metric
        lines, bands, singles = {}, {}, {}
        for label, views in replicas.runs.items():
            curve = mean_curves(views, [name])[name]
            lines[label] = (kept_rounds(views[0]).tolist(), numbers(curve["all"]))
            if "runs" in curve["seeds"]:
                singles[label] = [numbers(run) for run in curve["seeds"]["runs"]]
            else:
                bands[label] = (numbers(curve["seeds"]["low"]), numbers(curve["seeds"]["high"]))
        return _picture(lines, metric_title(name), bands, singles)

    def _key(self, label: str, view: RunView) -> dict[str, list[Any]]:
        if not self.replicated:
            return super()._key(label, view)
        name, _, seed = label.rpartition(" seed ")
        return {"method": [name] * len(view.rows), "seed": [int(seed)] * len(view.rows)}

    def __str__(self) -> str:
        return "\n".join([super().__str__(), *(f"{run} failed: {why}" for run, why in self.failed.items())])

    __repr__ = __str__

    def failures(self) -> str:
        """What failed, in one sentence; empty where nothing did."""
        if not self.failed:
            return ""
        total = len(self.failed) + sum(map(len, self.runs.values()))
        runs: dict[str, list[str]] = {}
        for run, why in self.failed.items():
            runs.setdefault(why, []).append(run)
        words = "; ".join(f"{', '.join(which)}: {why}" for why, which in runs.items())
        return f"{len(self.failed)} of {total} runs failed: {words}"


class Picture:
    """An SVG that a notebook shows."""

    def __init__(self, svg: str) -> None:
        self.svg = svg

    def _repr_svg_(self) -> str:
        return self.svg


def numbers(curve: Sequence[float | None]) -> list[float]:
    """A curve with gaps where nothing was measured."""
    return [math.nan if value is None else value for value in curve]


def _picture(
    lines: Mapping[str, tuple[Any, Any]],
    y_label: str,
    bands: Mapping[str, tuple[Any, Any]] | None = None,
    singles: Mapping[str, Any] | None = None,
) -> str:
    """Curves as SVG; nothing where there are none."""
    if not lines:
        return ""
    from covey.report.figures import draw_curves

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "curves.svg"
        draw_curves(lines, path=path, x_label="round", y_label=y_label, bands=bands, singles=singles)
        picture = path.read_text(encoding="utf-8")
    return picture[picture.index("<svg") :]


def framed(table: pa.Table) -> Any:
    """The table as the kind of frame that is installed here."""
    try:
        import pandas  # noqa: F401

        return table.to_pandas()
    except ImportError:
        pass
    try:
        import polars

        return polars.from_arrow(table)
    except ImportError:
        return table


def _cell(column: TableColumn, row: int) -> str:
    text = html.escape(column.cells[row])
    return f"<td>{f'<b>{text}</b>' if row in column.best else text}</td>"


def columns_of(view: RunView) -> dict[str, Any]:
    """The columns of metrics.parquet, and the clients' names where they have some."""
    rows, clients = view.rows, view.about.clients
    names = [view.rows.names[number].partition("/") for number in rows.name.tolist()]
    columns = {name: getattr(rows, name) for name in ("round", "seconds", "bytes", "client", "group")}
    named = {"client_name": [clients[i] if i >= 0 else "" for i in rows.client.tolist()]} if clients else {}
    parts = {"split": [split for split, _, _ in names], "metric": [metric for _, _, metric in names]}
    return {**columns, **named, **parts, "value": rows.value}
