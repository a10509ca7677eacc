"""What a run or a comparison gives back: a table in a terminal, a table and curves in a notebook, frames and models."""

from __future__ import annotations

import html
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from covey.report.figures import draw_curves
from covey.report.folder import RunView, read_run
from covey.report.table import Column, headline_metric, rich_table, summary_columns
from covey.report.wording import metric_title

if TYPE_CHECKING:
    from covey.core import State
    from covey.trained import TrainedModels

WIDTH = 100  # characters of a printed table


class Result:
    """Some runs with their labels; `print` shows their table, a notebook their table and curves."""

    def __init__(self, folders: Mapping[str, Path], folder: Path) -> None:
        self.folder = folder
        self._folders = dict(folders)

    @property
    def views(self) -> list[RunView]:
        """The runs as their folders tell them."""
        return [read_run(folder) for folder in self._folders.values()]

    def columns(self, metric: str | None = None) -> list[Column]:
        """The table: one row per run."""
        columns = summary_columns(self.views, metric)
        return [Column(head="method", cells=tuple(self._folders), right=False), *columns[1:]]

    def __str__(self) -> str:
        from rich.console import Console

        screen = io.StringIO()
        title = metric_title(headline_metric(self.views))
        table = rich_table(self.columns(), title[0].upper() + title[1:])
        Console(file=screen, width=WIDTH, color_system=None, force_jupyter=False).print(table)
        return "\n".join(line.rstrip() for line in screen.getvalue().rstrip().splitlines())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Table and curves for a notebook."""
        title = html.escape(metric_title(headline_metric(self.views)))
        heads = "".join(f"<th>{html.escape(column.head)}</th>" for column in self.columns())
        rows = "".join(
            "<tr>" + "".join(_cell(column, row) for column in self.columns()) + "</tr>"
            for row in range(len(self._folders))
        )
        table = (
            f"<table><caption>{title}</caption><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
        )
        return f"<div>{table}{self.curves()}</div>"

    def curves(self, metric: str | None = None) -> str:
        """The curves of a metric (the headline's, if none is named) as an SVG picture."""
        views = self.views
        name = metric or headline_metric(views)
        lines = {
            label: (curve.round.tolist(), curve.value.tolist())
            for label, view in zip(self._folders, views, strict=True)
            if len(curve := view.rows.overall(name))
        }
        if not lines:
            return ""
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "curves.svg"
            draw_curves(lines, path=path, x_label="round", y_label=metric_title(name), title="")
            picture = path.read_text()
        return picture[picture.index("<svg") :]

    def frame(self) -> Any:
        """All measurements, one per row, as a pandas or polars data frame if one is installed, else an Arrow table."""
        tables = []
        for label, view in zip(self._folders, self.views, strict=True):
            tables.append(pa.table({"method": [label] * len(view.rows), **columns_of(view)}))
        return framed(pa.concat_tables(tables))


class Run(Result):
    """One finished run: `state`, `summary`, `folder`, its table, its frame and its models."""

    def __init__(self, label: str, folder: Path, state: State, summary: Mapping[str, Any]) -> None:
        super().__init__({label: folder}, folder)
        self.state = state
        self.summary = summary

    def models(self) -> TrainedModels:
        """The trained models, ready to use."""
        from covey.trained import load_models

        return load_models(self.folder)


class Comparison(Result):
    """Several finished runs by their labels; `failed` says what became of the others."""

    def __init__(self, runs: Mapping[str, Run], folder: Path, failed: Mapping[str, str]) -> None:
        super().__init__({label: run.folder for label, run in runs.items()}, folder)
        self.runs = dict(runs)
        self.failed = dict(failed)

    def __getitem__(self, label: str) -> Run:
        return self.runs[label]

    def __iter__(self) -> Iterator[str]:
        return iter(self.runs)

    def __str__(self) -> str:
        said = [f"{label} failed: {why}" for label, why in self.failed.items()]
        return "\n".join([super().__str__(), *said])

    __repr__ = __str__


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


def _cell(column: Column, row: int) -> str:
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
