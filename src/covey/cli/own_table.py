"""The options --data, --label and --client: a table of one's own in place of a data set with a name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from covey.errors import UserError

DataOption = Annotated[
    Path | None,
    typer.Option(help="A table of your own (CSV, Parquet, Excel): one row per sample.", show_default=False),
]
LabelOption = Annotated[
    str | None, typer.Option(help="With --data: the column to predict.", show_default=False)
]
ClientOption = Annotated[
    str | None, typer.Option(help="With --data: the column that says whose row it is.", show_default=False)
]


def with_own_table(
    settings: list[str] | None,
    data: Path | None,
    label: str | None,
    client: str | None,
    dataset: str | None = None,
) -> list[str]:
    """The settings of --set, on top of those that stand for --data, --label and --client."""
    if data is None:
        if label or client:
            raise UserError("--label and --client name columns of a file: add --data FILE.csv")
        return settings or []
    if dataset is not None:
        raise UserError(f"--data is {data} and --dataset is {dataset}; give one of them")
    if label is None and not any(one.startswith("data.label=") for one in settings or ()):
        raise UserError(f"--label is missing: which column of {data} is to be predicted")
    found = {"data.name": "table", "data.path": str(data), "data.label": label, "data.client": client}
    # as JSON, so that a column called 1 or true is a text
    own = [f"{key}={json.dumps(value)}" for key, value in found.items() if value is not None]
    return [*own, *(settings or [])]
