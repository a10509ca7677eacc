"""`covey predict`: what a trained model answers, for a table, pictures or an array, as a CSV file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from covey.errors import UserError
from covey.terminal import say

if TYPE_CHECKING:
    from covey.folder.served_model import ServedModel


def register(app: typer.Typer) -> None:
    app.command()(predict)


def predict(
    model: Annotated[Path, typer.Argument(help="A run folder, or a model file.", show_default=False)],
    samples: Annotated[
        Path,
        typer.Argument(
            metavar="INPUT",
            help="A table (CSV, Parquet, Excel), a picture, a folder of pictures, or an array (.npy).",
            show_default=False,
        ),
    ],
    client: Annotated[
        str | None, typer.Option(help="Whose model, by name or number. [default: a newcomer's]")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The CSV file to write. [default: the standard output]")
    ] = None,
    changed_code: Annotated[
        bool, typer.Option("--changed-code", help="Also where the code of your own network has changed.")
    ] = False,
) -> None:
    """Say what a trained model answers: the class of every sample with the probability of each, or its value."""
    from covey.files import storing, write_atomically

    if not samples.exists():
        raise UserError(f"INPUT {samples} is not there")
    answers = model_at(model, client, changed_code).predict(as_input(samples))
    say(f"{len(answers):,} answers of {answers.given}")
    lines = answers.csv(names_in(samples))
    if out is None:
        print(lines, end="")
        return
    with storing(out.parent):
        write_atomically(out, lines)
    say(f"wrote {out}")


def model_at(path: Path, client: str | None, changed_code: bool) -> ServedModel:
    """The model of a file, or of a client or a newcomer of a run folder."""
    if path.is_dir():
        from covey.runs.models import load_models

        return load_models(path, changed_code=changed_code).model_for(client)
    from covey.folder.served_model import read_model

    found = read_model(path)
    if client is not None and client != found.facts.client:
        whose = f"that of {found.facts.client}" if found.facts.client else "of no single client"
        raise UserError(f"--client is {client}, but the model in {path} is {whose}")
    return found


def as_input(path: Path) -> Any:
    """What `predict` of a model takes: an array, or the path of a table, a picture or a folder of them."""
    if path.suffix.lower() != ".npy":
        return path
    import numpy as np

    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"INPUT {path} is not an array that NumPy can read") from error


def names_in(path: Path) -> list[str]:
    """What the samples are called: pictures have the names of their files."""
    if not path.is_dir():
        return []
    from covey.data.samples import picture_files

    return [file.name for file in picture_files(path)]
