"""People who draw, speak and move: drawings by alphabet, spoken digits, a watch at the wrist."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from covey.data.convert import stratified_split
from covey.data.files import read_npz
from covey.data.loaders.images import Scaling, as_images, check_labels, scale_for
from covey.data.log_mel import log_mel
from covey.data.sources import Source
from covey.data.types import Dataset, Indices, Scale
from covey.data.usual import Usual, declare
from covey.errors import UserError
from covey.files import cache_folder
from covey.settings.ranges import Range
from covey.settings.registry import register

TEST_SHARE = 0.2
RATE = 8_000  # samples of a spoken second

DRAWERS = Source(
    folder="natural",
    files="drawers.npz with images (N,28,28 bytes), drawer, alphabet, alphabets and character",
    origin="Omniglot, its small background sets (https://github.com/brendenlake/omniglot, MIT)",
)
SPOKEN = Source(
    folder="natural",
    files="spoken_digits.npz with waves (all recordings end to end), lengths, digit and speaker",
    origin="the Free Spoken Digit Dataset (https://github.com/Jakobovski/free-spoken-digit-dataset, CC BY-SA 4.0)",
)
WATCH = Source(
    folder="natural",
    files="watch.npz, which `covey convert watch seglearn-1.2.5-py3-none-any.whl` writes",
    origin="the package seglearn (`pip download --no-deps seglearn==1.2.5`, BSD)",
)


def found_in(source: Source, file: str, folder: Path | None) -> Path:
    """The file: in the given folder, among the data sets, or where `covey convert` puts it."""
    places = [source.place(folder), cache_folder() / source.folder]
    there = [place / file for place in places if (place / file).is_file()]
    if not there:
        raise source.lacks(places[0], [file])
    return there[0]


def numbered_people(values: NDArray[Any]) -> tuple[Indices, tuple[str, ...]]:
    """A number for every value, in the order of the values, and what they are called."""
    names, ids = np.unique(values, return_inverse=True)
    return ids.astype(np.int64), tuple(map(str, names))


@register("data set", "drawers")
def drawers(
    *,
    folder: Path | None = None,
    scaling: Scaling = "standard",
    label: Literal["alphabet", "character"] = "alphabet",
) -> Dataset:
    """5,840 drawings of 242 characters by 40 people, 28x28 pixels (Omniglot, MIT); clients: the people.

    Twenty people drew five alphabets, twenty others five, two of which are the same: most pairs of clients share some
    of the 8 classes, not all. Nobody drew a character twice, so a client's test characters were trained on by others
    only. 20 % of each person's drawings of an alphabet are test.

    Args:
        label: what is to be told: the alphabet (8), or the character (242).
    """
    path = found_in(DRAWERS, "drawers.npz", folder)
    stored = read_npz(path, ["images", "drawer", "alphabet", "alphabets", "character"])
    drawer, alphabet = stored["drawer"].astype(np.int64), stored["alphabet"].astype(np.int64)
    names = tuple(map(str, stored["alphabets"]))
    if label == "character":
        names = tuple(map(str, range(int(stored["character"].max()) + 1)))
    images = as_images(stored["images"], path)
    strata = drawer * len(stored["alphabets"]) + alphabet
    train, test = stratified_split(strata, test_fraction=TEST_SHARE, rng=np.random.default_rng(0))
    return Dataset(
        name="drawers",
        x=images,
        y=check_labels(stored[label], len(images), len(names), path),
        train=train,
        test=test,
        classes=names,
        scale=scale_for(scaling, images, train),
        natural={"drawer": drawer},
        group_names={"drawer": tuple(f"drawer {n}" for n in range(int(drawer.max()) + 1))},
        clients_by="drawer",
    )


@register("data set", "spoken-digits")
def spoken_digits(
    *,
    folder: Path | None = None,
    bands: Annotated[int, Range(8, 128)] = 32,
    frames: Annotated[int, Range(8, 256)] = 32,
) -> Dataset:
    """3,000 spoken digits of 6 people, 8 kHz (Free Spoken Digit Dataset, CC BY-SA 4.0); clients: the speakers.

    A sample is the log-mel spectrogram of the first `frames` / 40 seconds, 1 x `bands` x `frames`; shorter recordings
    are followed by silence. 20 % of each person's recordings of a digit are test.

    Args:
        bands: of the spectrogram, evenly spaced on the mel scale.
        frames: of 25 ms each.
    """
    path = found_in(SPOKEN, "spoken_digits.npz", folder)
    stored = read_npz(path, ["waves", "lengths", "digit", "speaker"])
    waves = pieces_of(stored["waves"], stored["lengths"], path)
    x = log_mel(waves, rate=RATE, bands=bands, frames=frames)
    speaker, people = numbered_people(stored["speaker"])
    digit = check_labels(stored["digit"], len(x), 10, path)
    train, test = stratified_split(
        speaker * 10 + digit.numpy(), test_fraction=TEST_SHARE, rng=np.random.default_rng(0)
    )
    return Dataset(
        name="spoken-digits",
        x=torch.from_numpy(x[:, None]),
        y=digit,
        train=train,
        test=test,
        classes=tuple("0123456789"),
        scale=Scale((float(x[train].mean()),), (float(x[train].std()),)),
        natural={"speaker": speaker},
        group_names={"speaker": people},
        clients_by="speaker",
    )


@register("data set", "watch")
def watch(*, folder: Path | None = None, window: Annotated[int, Range(10, 900)] = 100) -> Dataset:
    """7 shoulder exercises of 10 people under a watch, 6 sensors at 50 Hz (seglearn, BSD); clients: the people.

    A sample is a `window` of a recording, 6 x `window` numbers, none overlapping the next. Every person did each
    exercise with the right and the left arm, and windows of one recording are much alike: a fifth of the recordings is
    test, as a whole, and they stay together in every other split. `covey convert watch` makes the file.

    Args:
        window: steps of a sample, 50 a second.
    """
    path = found_in(WATCH, "watch.npz", folder)
    stored = read_npz(path, ["values", "lengths", "exercise", "subject", "exercises"])
    series = pieces_of(stored["values"], stored["lengths"], path)
    whole = [one[: len(one) // window * window].reshape(-1, window, one.shape[1]) for one in series]
    counts = np.array([len(part) for part in whole])
    recording = np.repeat(np.arange(len(whole)), counts)
    x = np.concatenate(whole).transpose(0, 2, 1).astype(np.float32)
    person, people = numbered_people(stored["subject"])
    # of every person's fourteen recordings three are test recordings, of different exercises as far as there are any
    (_, held) = stratified_split(person, test_fraction=TEST_SHARE, rng=np.random.default_rng(0))
    is_test = np.isin(recording, held)
    train = np.flatnonzero(~is_test)
    mean, std = x[train].mean(axis=(0, 2)), x[train].std(axis=(0, 2))
    return Dataset(
        name="watch",
        x=torch.from_numpy(np.ascontiguousarray(x)),
        y=torch.from_numpy(stored["exercise"].astype(np.int64)[recording]),
        train=train,
        test=np.flatnonzero(is_test),
        classes=tuple(map(str, stored["exercises"])),
        scale=Scale(tuple(mean.tolist()), tuple(std.tolist())),
        natural={"person": person[recording], "recording": recording},
        group_names={"person": tuple(f"person {name}" for name in people)},
        clients_by="person",
        together="recording",
    )


def pieces_of(whole: NDArray[Any], lengths: NDArray[Any], path: Path) -> Sequence[NDArray[Any]]:
    """What lies end to end, cut apart."""
    if int(lengths.sum()) != len(whole) or (len(lengths) and lengths.min() < 1):
        raise UserError(f"{path} is damaged: its lengths add up to {int(lengths.sum()):,} of {len(whole):,}")
    return np.split(whole, np.cumsum(lengths)[:-1])


def _people(count: int, file: str, source: Source) -> dict[str, Any]:
    usual = Usual(partition="natural", clients=count)
    return {"usual": usual, "files": lambda **_: [found_in(source, file, None)]}


declare(drawers, **_people(40, "drawers.npz", DRAWERS))
declare(spoken_digits, **_people(6, "spoken_digits.npz", SPOKEN))
declare(watch, **_people(10, "watch.npz", WATCH))
