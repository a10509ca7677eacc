"""`covey export`: the trained models of a run as files for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from covey.terminal import console


def register(app: typer.Typer) -> None:
    app.command()(export)


def export(
    folder: Annotated[Path, typer.Argument(help="A run folder.", show_default=False)],
    format: Annotated[str, typer.Option(help="safetensors, torch or onnx.")] = "safetensors",
    out: Annotated[
        Path | None, typer.Option(help="The folder to write. [default: models in the run folder]")
    ] = None,
    client: Annotated[
        str | None, typer.Option(help="Only the model of this client, by name or number.")
    ] = None,
    changed_code: Annotated[
        bool, typer.Option("--changed-code", help="Also where the code of your own network has changed.")
    ] = False,
) -> None:
    """Write the trained models of a run as clients use them, one file per model."""
    from covey.runs.models import export as write

    for path in write(folder, format=format, out=out, client=client, changed_code=changed_code):  # type: ignore[arg-type]
        console.print(f"wrote {path}", highlight=False)
