"""`covey convert`: the folders and archives of other libraries, split by client already, as files of plain arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from covey.errors import UserError
from covey.terminal import console


def register(app: typer.Typer) -> None:
    app.command()(convert)


def convert(
    kind: Annotated[str, typer.Argument(help="pfllib, fl-bench, shakespeare or watch.", show_default=False)],
    folder: Annotated[
        Path,
        typer.Argument(
            help="Its folder of a data set, such as dataset/MNIST, or the archive.", show_default=False
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Argument(help="The .npz file to write. [default: where shakespeare and watch are read]"),
    ] = None,
    shape: Annotated[str, typer.Option(help="Of one sample, such as 1,28,28. [default: as it is]")] = "",
) -> None:
    """Write PFLlib's or FL-bench's folder as a file that `covey run --dataset clients` takes, or the archive of a
    package as the data set of that name; pickles that name anything but arrays are refused."""
    from covey.data.foreign import convert as write

    if kind in ("shakespeare", "watch"):
        from covey.data.archives import convert_archive

        place, clients = convert_archive(kind, folder, out)
        console.print(
            f"wrote {place}: {clients:,} clients\ncovey run --dataset {kind}", highlight=False, soft_wrap=True
        )
        return
    if out is None:
        raise UserError(f"covey convert {kind} FOLDER OUT: say which .npz file to write")
    sizes = [part.strip() for part in shape.split(",")] if shape else []
    if not all(part.isdecimal() and int(part) > 0 for part in sizes):
        raise UserError(f"--shape is {shape!r}; allowed: whole numbers with commas, such as 1,28,28")
    made = write(kind, folder, out, [int(part) for part in sizes])
    console.print(
        f"wrote {out}: {made['clients']:,} clients, {made['training']:,} training and {made['test']:,} test samples\n"
        f"covey run --dataset clients --set data.path={out}",
        highlight=False,
        soft_wrap=True,
    )
