"""`covey predict` and `covey export`: a trained model's predictions as a CSV file, and models for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from covey.errors import UserError
from covey.terminal import say

if TYPE_CHECKING:
    from covey.data.schema import Schema
    from covey.folder.served_model import ServedModel


def export(
    folder: Path,
    *,
    format: str = "safetensors",
    out: Path | None = None,
    client: str | None = None,
    changed_code: bool = False,
) -> None:
    """Write the trained models of a run as clients use them, one file per model.

    Args:
        folder: a run folder.
        format: of the files: safetensors, torch or onnx.
        out: the folder to write. [default: models in the run folder]
        client: only the model of this client, by name or number.
        changed_code: also if the code of your own network has changed.
    """
    from covey.runs.models import export as write

    for path in write(folder, format=format, out=out, client=client, changed_code=changed_code):  # type: ignore[arg-type]
        say(f"wrote {path}")


def predict(
    model: Path,
    input_: Path,
    *,
    client: str | None = None,
    examples: Path | None = None,
    out: Path | None = None,
    changed_code: bool = False,
) -> None:
    """Predict with a trained model: the class of every sample with the probability of each class, or its value.

    Columns of a table that the model does not use, such as IDs, are copied beside the predictions.

    Args:
        model: a run folder, or a model file.
        input_: a table (CSV, Parquet, Excel), a picture, a folder of pictures, or an array (.npy).
        client: whose model, by name or number. [default: an unseen client's]
        examples: of an unseen client: a table with the label column, for which the best of the run's models is taken.
        out: the CSV file to write. [default: the standard output]
        changed_code: also where the code of your own network has changed.
    """
    from covey.files import storing, write_atomically

    if not input_.exists():
        raise UserError(f"INPUT {input_} is not there")
    if out is not None and (out.is_dir() or any(same_file(out, one) for one in (model, input_, examples))):
        raise UserError(f"--out is {out}; it must be a file of its own, which the predictions are written to")
    served = model_at(model, client, examples, changed_code)
    rows = as_input(input_, served.facts.inputs.schema)
    answers = served.predict(rows)
    lines = answers.csv(names_in(input_), beside=unused(rows, served.facts.inputs.schema))
    say(f"{len(answers):,} answers of {answers.given}")
    if out is None:
        print(lines, end="")
        return
    with storing(out.parent):
        write_atomically(out, lines)
    say(f"wrote {out}")


def same_file(one: Path, other: Path | None) -> bool:
    return other is not None and one.exists() and other.exists() and one.samefile(other)


def model_at(path: Path, client: str | None, examples: Path | None, changed_code: bool) -> ServedModel:
    """The model of a file, or of a client or an unseen client of a run folder."""
    if path.is_dir():
        from covey.runs.models import load_models

        models = load_models(path, changed_code=changed_code)
        return models.model_for(client, labelled(examples, models.about.inputs.schema) if examples else None)
    from covey.folder.served_model import read_model

    if examples is not None:
        raise UserError(f"--examples choose one of a run's models; {path} is one model: give the run folder")
    found = read_model(path)
    if client is not None and client != found.facts.client:
        whose = f"that of {found.facts.client}" if found.facts.client else "of no single client"
        raise UserError(f"--client is {client}, but the model in {path} is {whose}")
    return found


def labelled(path: Path, schema: Schema | None) -> tuple[Any, Any]:
    """Rows and their labels; a `UserError` where the run was not on a table."""
    from covey.data.encoding import open_rows

    if schema is None:
        raise UserError(
            "--examples is a table, and the run was not on one: from Python predict(x, examples=(x, y))"
        )
    rows = open_rows(schema, path)
    if schema.label not in rows.column_names:
        raise UserError(f"--examples {path} has no column {schema.label!r}, which is the label")
    labels = rows[schema.label]
    if labels.null_count:
        raise UserError(f"--examples {path} has {labels.null_count} rows without the label {schema.label!r}")
    return rows, labels.to_pylist()


def unused(rows: Any, schema: Schema | None) -> dict[str, list[Any]]:
    """The columns of a table that are no inputs of the model."""
    import pyarrow as pa

    if schema is None or not isinstance(rows, pa.Table):
        return {}
    used = {column.name for column in schema.columns}
    return {name: rows[name].to_pylist() for name in rows.column_names if name not in used}


def as_input(path: Path, schema: Schema | None) -> Any:
    """What `predict` of a model takes: an array, a table, or the path of a picture or a folder of them."""
    from covey.data.encoding import open_rows
    from covey.data.image_folder import ENDINGS

    ending = path.suffix.lower()
    if schema is not None and path.is_file() and ending not in (".npy", *ENDINGS):
        return open_rows(schema, path)
    if ending != ".npy":
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
