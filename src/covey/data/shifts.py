"""How clients' data differ besides their label mix: rotated images, other labels for the same images."""

from typing import Annotated

import numpy as np

from covey.data.types import Dataset, Indices, Shift
from covey.errors import UserError
from covey.settings.ranges import NotEmpty
from covey.settings.registry import register

Several = Annotated[tuple[int, ...], NotEmpty()]


@register("shift", "rotation")
def rotation(dataset: Dataset, counts: Indices, *, rotations: Several = (0, 1, 2, 3)) -> list[Shift]:
    """Client i's images are rotated counter-clockwise by rotations[i mod 4] quarter turns, training and test alike.

    The embedding paper and IFCA: (0, 1, 2, 3) are four clusters of clients, (0, 2) two.

    Args:
        rotations: quarter turns of client i: rotations[i mod n].
    """
    _check_images(dataset, "rotation", square=any(turn % 2 for turn in rotations))
    return [Shift(rotations=rotations[client % len(rotations)]) for client in range(len(counts))]


@register("shift", "label")
def label(dataset: Dataset, counts: Indices, *, offsets: Several = (0, 1, 2, 3)) -> list[Shift]:
    """Client i's labels become y' = (y - s) mod C with s = offsets[i mod 4], training and test alike.

    The embedding paper's "label flipping": the same images mean different classes to different clients.

    Args:
        offsets: of client i's labels: offsets[i mod n].
    """
    if not dataset.classes:
        raise UserError(f"shift = 'label': {dataset.name} has no classes")
    return [Shift(label_offset=offsets[client % len(offsets)]) for client in range(len(counts))]


@register("shift", "tilt")
def tilt(dataset: Dataset, counts: Indices) -> list[Shift]:
    """Half of the images are rotated by 45 degrees; a client's majority-label images all have the same angle.

    HACCS Figure 10. Of the clients with the same most frequent label every second has the images of that
    label rotated, the others have them upright; of their other labels every second image is rotated. Bilinear,
    zero outside.
    """
    _check_images(dataset, "tilt", square=False)
    if not dataset.classes:
        raise UserError(f"shift = 'tilt': {dataset.name} has no classes")
    shares = np.full(counts.shape, 0.5)
    for label in range(counts.shape[1]):
        alike = np.flatnonzero(counts.argmax(axis=1) == label)
        shares[alike, label] = np.arange(len(alike)) % 2
    return [Shift(tilt=tuple(row)) for row in shares.tolist()]


def _check_images(dataset: Dataset, shift: str, *, square: bool) -> None:
    shape = tuple(dataset.x.shape[1:])
    if len(shape) != 3 or (square and shape[1] != shape[2]):
        wanted = "square images" if square else "images"
        raise UserError(
            f"shift = {shift!r}: {dataset.name} does not hold {wanted}, its inputs have shape {shape}"
        )
