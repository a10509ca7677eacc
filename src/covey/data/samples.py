"""What people have (rows, arrays, pictures, folders of them) as a model takes it, exactly as in training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from covey.data.image_folder import ENDINGS, as_bytes, open_picture
from covey.data.schema import Schema
from covey.data.types import Indices, Scale, scaled
from covey.errors import UserError, user_error

if TYPE_CHECKING:
    from covey.folder.about import Inputs

DARK = 0.5  # if the largest value is below this share of what every training sample reached, the range is another one
BRIGHT = 10  # this many times the largest value of training is another range, too


def samples_of(told: Inputs, x: Any) -> Tensor:
    """Samples as the model takes them; a `UserError` for what would give a wrong answer."""
    from covey.data.table_files import is_table

    pictures = _pictures_in(x)
    if pictures:
        samples = torch.from_numpy(np.stack([_pixels(told, picture) for picture in pictures]))
    elif isinstance(x, str | Path) and Path(x).is_dir():
        raise UserError(f"{x} holds no pictures; allowed: {', '.join(sorted(ENDINGS))} files")
    elif not isinstance(x, Tensor | np.ndarray) and is_table(x):
        samples = _rows(told, x)
    else:
        samples = _array(told, x)
    if not len(samples):
        raise UserError("there are no samples to predict")
    if told.dtype == "int64":
        low, high = float(samples.min()), float(samples.max())
        known = told.high is None or high <= told.high
        if low < 0 or not known or bool((samples != samples.round()).any()):
            top = "" if told.high is None else f" to {told.high:g}"
            raise UserError(
                f"samples run from {low:g} to {high:g}; those of the run are whole numbers from 0{top} (tokens)"
            )
        return samples.to(torch.int64)
    samples = samples.to(torch.float32, copy=True)
    _finite(samples, told)
    _in_range(samples, told)
    samples = samples.div_(255) if told.dtype == "uint8" else samples
    return scaled(samples, Scale(*told.scale)) if told.scale else samples


def picture_files(folder: Path) -> list[Path]:
    """The pictures in a folder, in the order of their names."""
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in ENDINGS)


def _pictures_in(x: Any) -> list[Any]:
    if isinstance(x, str | Path):
        path = Path(x)
        if path.is_dir():
            return picture_files(path)
        return [path] if path.suffix.lower() in ENDINGS else []
    several = list(x) if isinstance(x, list | tuple) else [x]
    if isinstance(x, list | tuple) and not x:
        raise UserError("there are no samples to predict")
    if several and all(_is_picture(one) for one in several):
        return several
    if several and all(isinstance(one, str | Path) for one in several):
        return [Path(one) for one in several]
    return []


def _is_picture(x: Any) -> bool:
    return hasattr(x, "convert") and hasattr(x, "getbands")  # PIL.Image.Image, without a need for Pillow


def _pixels(told: Inputs, picture: Any) -> np.ndarray[Any, np.dtype[np.uint8]]:
    if told.dtype != "uint8" or len(told.shape) != 3:
        raise UserError(
            f"the run was not on pictures: its samples are {told.dtype} of shape {told.shape}; give arrays of that form"
        )
    channels, high, wide = told.shape
    with open_picture(picture) as opened:
        if not told.resized and opened.size != (wide, high):
            raise UserError(
                f"a picture has {opened.size[0]} x {opened.size[1]} pixels; the models take {wide} x {high}"
            )
        wanted = "L" if channels == 1 else "RGB"
        if not told.resized and opened.mode != wanted:
            raise UserError(
                f"a picture has the mode {opened.mode}; the models take {wanted}: convert it first"
            )
        return as_bytes(opened, (wide, high), grey=channels == 1)


def _rows(told: Inputs, x: Any) -> Tensor:
    from covey.data.encoding import encode

    schema = told.schema
    if schema is None and told.features:  # of an older run folder, or of data that came without a table
        schema = Schema.of_inputs(told.features)
    if schema is None:
        raise UserError(
            f"the run was not on a table, so its inputs have no names: give arrays of shape {told.shape}"
        )
    return encode(schema, x)


def _array(told: Inputs, x: Any) -> Tensor:
    with user_error(f"samples must be numbers of shape {told.shape} each"):
        values = x if isinstance(x, Tensor) else np.asarray(x)
        if isinstance(values, np.ndarray) and values.dtype.kind not in "biuf":
            raise UserError(f"samples hold {values.dtype}; allowed: numbers of shape {told.shape} each")
        samples = torch.as_tensor(values)
    if samples.is_complex():
        raise UserError(f"samples hold {samples.dtype}; allowed: real numbers")
    shape = told.shape
    if tuple(samples.shape) == shape:  # one sample
        samples = samples[None]
    elif len(shape) == 3:
        last = (*shape[1:], shape[0])  # channels last, as files have them
        if shape[0] == 1 and tuple(samples.shape[1:]) == shape[1:]:
            samples = samples[:, None]
        elif tuple(samples.shape[1:]) == last and last != shape:
            samples = samples.movedim(-1, 1)
    if tuple(samples.shape[1:]) != shape:
        raise UserError(f"samples have shape {tuple(samples.shape[1:])}; the models take {shape}")
    _ranks(told.schema, samples)
    return samples


def _ranks(schema: Schema | None, samples: Tensor) -> None:
    """Refuses numbers as they are where a model takes their rank."""
    at = 0
    for column in schema.columns if schema is not None else ():
        if column.quantiles and bool(((samples[:, at] < 0) | (samples[:, at] > 1)).any()):
            raise UserError(
                f"the models take {column.name} by its rank, 0 to 1: give rows with the table's columns, not arrays"
            )
        at += len(column.inputs)


def _finite(samples: Tensor, told: Inputs) -> None:
    odd = ~torch.isfinite(samples)
    if not bool(odd.any()):
        return
    place = odd.nonzero()[0].tolist()
    named = told.features[place[1]] if told.features and len(place) == 2 else str(tuple(place[1:]))
    raise UserError(
        f"sample {place[0] + 1} holds {float(samples[tuple(place)])} for the input {named}; give finite numbers"
        + (" (or rows with the table's columns, whose empty cells are filled)" if told.features else "")
    )


def _in_range(samples: Tensor, told: Inputs) -> None:
    """Refuses pixels of 0 to 1, or 0 to 16, where the run had 0 to 255, and the other way round."""
    low, high = float(samples.min()), float(samples.max())
    if told.dtype == "uint8" and (low < 0 or high > 255):
        raise UserError(f"samples run from {low:g} to {high:g}; the run had 0 to 255")
    if told.features or told.high is None or told.low is None or told.low < 0:
        return
    dark = told.reach is not None and 0 < high < DARK * told.reach
    dim = told.dtype == "uint8" and 0 < high <= 1
    bright = len(told.shape) == 3 and told.high > 0 and high > BRIGHT * told.high
    if dark or dim or bright:
        raise UserError(
            f"samples run from {low:g} to {high:g}; those of the run did from {told.low:g} to {told.high:g}: "
            "bring them to the same range"
        )


Reach = tuple[float, float, float] | tuple[None, None, None]


def reach_of(x: Tensor, train: Indices, most: int = 2000) -> Reach:
    """The smallest and largest value of some training samples, and what the darkest of them reaches."""
    some = train[:: 1 if x.dtype == torch.int64 else max(1, len(train) // most)]  # of tokens all are counted
    if not len(some) or not x[0].numel():
        return None, None, None
    values = x.index_select(0, torch.from_numpy(some)).flatten(1)
    return float(values.min()), float(values.max()), float(values.amax(1).min())
