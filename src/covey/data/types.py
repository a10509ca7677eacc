"""What a client sees of the data: one tensor held once, and index views into it."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey.data.augment import Augment
from covey.data.effects import Effect, applied, rotated
from covey.data.pieces import Pieces, table_of_counts
from covey.data.together import units_of

if TYPE_CHECKING:
    from covey.data.schema import Schema

Indices: TypeAlias = NDArray[np.int64]

# Consecutive multiples of the golden ratio fill [0, 1) evenly, so any run of samples holds the asked share.
GOLDEN = (math.sqrt(5) - 1) / 2


def class_name(value: object) -> str:
    """The class name of a cell of the label column."""
    return str(value).lower() if isinstance(value, bool) else str(value)


class EncodedFrom(NamedTuple):
    """The samples of which features were made, and by which encoder: its setting and its digest."""

    dataset: Dataset
    setting: Any
    digest: str


class Scale(NamedTuple):
    """Mean and standard deviation of each channel, for pixels already divided by 255."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Dataset:
    """All samples of one data set, training and test together, held once; `covey.from_tensors` makes one.

    When samples are gathered, uint8 images are divided by 255, then shifted, then, with a `scale`, become
    (x - mean) / std.

    Args:
        name: of the data set.
        x: uint8 images (N, C, H, W), float features or int64 tokens.
        y: int64 labels, or float32 targets with `classes` empty.
        train: positions of the training samples in `x`.
        test: positions of the test samples in `x`.
        classes: names of the labels.
        scale: mean and standard deviation by which inputs are standardised.
        natural: groupings: a group id for every sample, by the grouping's name ("writer", "domain").
        group_names: what these groups are called.
        clients_by: the grouping whose groups are the clients, where the data say so.
        together: the grouping whose groups stay on one side of every split (all rows of a patient).
        features: the names of a table's inputs.
        augment: how images change each time they are trained on (`covey.data.augment`).
        schema: how the inputs are made of a table's columns.
        resized: whether images of any size were brought to this one.
        notes: what was decided while the data were read, in a sentence each.
        encoded_from: where `x` are features, the samples that they were made of, and by which encoder.

    Examples:
        >>> data = covey.load("digits")
        >>> len(data.x), data.classes[:3]
        (1797, ('0', '1', '2'))
    """

    name: str
    x: Tensor
    y: Tensor
    train: Indices
    test: Indices
    classes: tuple[str, ...]
    scale: Scale | None = None
    natural: Mapping[str, Indices] = field(default_factory=dict)
    group_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    clients_by: str = ""
    together: str = ""
    features: tuple[str, ...] = ()
    augment: Augment = "none"
    schema: Schema | None = None
    resized: bool = False
    notes: tuple[str, ...] = ()
    encoded_from: EncodedFrom | None = None

    def __repr__(self) -> str:
        return f"Dataset({self.name!r}: {_about(self.x, len(self.train), len(self.test), self.classes)})"

    def labels(self) -> NDArray[np.generic]:
        """The labels (or targets) of all samples, without a copy."""
        array: NDArray[np.generic] = self.y.numpy()
        return array

    def strata(self) -> Indices:
        """The label of every sample; 0 for all where there are targets instead of classes."""
        return self.labels().astype(np.int64) if self.classes else np.zeros(len(self.y), dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class Shift:
    """How a client's data differ from the stored ones.

    `rotations`: quarter turns of the images, counter-clockwise. `label_offset` s: y' = (y - s) mod C. `tilt`: for each
    label (before the offset) the share of its images rotated by another 45 degrees counter-clockwise; empty for none.
    Which images are tilted depends only on their place in the data set, so a sample looks the same in every
    selection. `effects` happen to the images before anything else (data/effects.py); `permutation` is what each label
    is called, before the offset; empty for no change.
    """

    rotations: int = 0
    label_offset: int = 0
    tilt: tuple[float, ...] = ()
    effects: tuple[Effect, ...] = ()
    permutation: tuple[int, ...] = ()


UNSHIFTED = Shift()


class View(Protocol):
    """Some samples of one data set, at one client or pooled from several: all that a step may ask of its data."""

    @property
    def dataset(self) -> Dataset: ...

    def __len__(self) -> int: ...

    def labels(self) -> NDArray[np.generic]:
        """Labels (or targets) as the client has them, without touching the inputs."""
        ...

    def units(self) -> Indices | None:
        """The unit of every sample, all of whose samples stay on one side of a split; None where there are none."""
        ...

    def select(self, positions: NDArray[np.integer] | slice) -> View:
        """The samples at these positions of this view, in this order."""
        ...

    def tensors(self) -> tuple[Tensor, Tensor]:
        """Inputs and labels."""
        ...


@dataclass(frozen=True, eq=False)
class Samples:
    """A view of some samples of a data set under a shift; nothing is copied before `tensors()`."""

    dataset: Dataset
    index: Indices
    shift: Shift = UNSHIFTED

    def __repr__(self) -> str:
        shifted = "" if self.shift == UNSHIFTED else f", {self.shift}"
        return f"Samples({len(self):,} of {self.dataset.name!r}{shifted})"

    def __len__(self) -> int:
        return len(self.index)

    def labels(self) -> NDArray[np.generic]:
        """Shifted labels (or targets), without touching the images."""
        labels = self.dataset.labels()[self.index]
        if self.shift.permutation:
            labels = np.asarray(self.shift.permutation)[labels.astype(np.int64)]
        if self.shift.label_offset:
            labels = (labels.astype(np.int64) - self.shift.label_offset) % len(self.dataset.classes)
        return labels

    def units(self) -> Indices | None:
        """The unit of every sample, where the data set says what belongs together."""
        units = units_of(self.dataset)
        return None if units is None else units[self.index]

    def select(self, positions: NDArray[np.integer] | slice) -> Samples:
        """The samples at these positions of this view."""
        return replace(self, index=self.index[positions])

    def shifted(self, shift: Shift) -> Samples:
        """The same samples under another shift (it replaces the present one)."""
        return replace(self, shift=shift)

    def tensors(self) -> tuple[Tensor, Tensor]:
        """Inputs and labels, one gather each: contiguous float32 inputs (tokens stay int64)."""
        stored = self.dataset.x.numpy()[self.index]
        x = torch.from_numpy(stored / np.float32(255) if stored.dtype == np.uint8 else stored)
        y = torch.from_numpy(np.ascontiguousarray(self.labels()))
        if self.shift.effects:
            own = torch.from_numpy(self.dataset.labels()[self.index].astype(np.int64))
            x = applied(self.shift.effects, x, own, torch.from_numpy(self.index))
        if self.shift.tilt:
            tilted = torch.from_numpy(self._is_tilted())
            x[tilted] = tilt(x[tilted])
        if self.shift.rotations % 4:
            x = torch.rot90(x, self.shift.rotations, dims=(-2, -1))
        if self.dataset.scale is not None:
            x = scaled(x, self.dataset.scale)
        return x.contiguous(), y

    def _is_tilted(self) -> NDArray[np.bool_]:
        share = np.asarray(self.shift.tilt)[self.dataset.labels()[self.index].astype(np.int64)]
        tilted: NDArray[np.bool_] = (self.index * GOLDEN) % 1.0 < share
        return tilted


def mark_of(view: View) -> tuple[Dataset, Hashable]:
    """The data set that samples are of, and what tells these from all other samples of it."""
    if isinstance(view, Samples):
        return view.dataset, (view.shift, view.index.tobytes())
    return view.dataset, tuple(blake2b(part.numpy().tobytes()).digest() for part in view.tensors())


@dataclass(frozen=True, eq=False)
class ClientShare:
    """One client's part: training data, local test data, its true cluster (-1: not known), and its name, if it has
    one."""

    train: Samples
    test: Samples
    cluster: int = -1
    name: str = ""


@dataclass(frozen=True, eq=False)
class Shares(Sequence[ClientShare]):
    """All clients' parts in a few arrays; each is put together when it is asked for."""

    dataset: Dataset
    train: Pieces
    test: Pieces
    shifts: Sequence[Shift]
    clusters: Indices
    names: Sequence[str]

    def __len__(self) -> int:
        return len(self.train)

    @overload
    def __getitem__(self, client: int) -> ClientShare: ...
    @overload
    def __getitem__(self, client: slice) -> tuple[ClientShare, ...]: ...
    def __getitem__(self, client: int | slice) -> ClientShare | tuple[ClientShare, ...]:
        if isinstance(client, slice):
            return tuple(self[i] for i in range(len(self))[client])
        shift = self.shifts[client]
        train, test = (Samples(self.dataset, part[client], shift) for part in (self.train, self.test))
        return ClientShare(train, test, int(self.clusters[client]), self.names[client])


@dataclass(frozen=True, eq=False)
class Federation:
    """A data set partitioned among clients, with the global test set; `covey.federate` makes one.

    Args:
        dataset: all samples.
        shares: what each client has.
        test: the global test set.
        left_out: clients with too few samples to participate.

    Examples:
        >>> data = covey.federate(covey.load("digits"), partition="iid", clients=5, seed=0)
        >>> len(data.shares)
        5
    """

    dataset: Dataset
    shares: Sequence[ClientShare]
    test: Samples
    left_out: tuple[str, ...] = ()

    def __repr__(self) -> str:
        sizes = self.sizes()[:, 0].tolist() or [0]
        per_client = f"{min(sizes):,} to {max(sizes):,} training samples each"
        return f"Federation({self.dataset.name!r}: {len(self.shares):,} clients, {per_client})"

    def label_counts(self) -> Indices:
        """Training samples of each client (row) and label (column), after the clients' shifts."""
        classes = len(self.dataset.classes)
        if classes and isinstance(self.shares, Shares) and all(s is UNSHIFTED for s in self.shares.shifts):
            return table_of_counts(self.dataset.labels().astype(np.int64), self.shares.train, classes)
        counts = np.zeros((len(self.shares), classes), dtype=np.int64)
        if classes:
            for row, share in zip(counts, self.shares, strict=True):
                row += np.bincount(share.train.labels().astype(np.int64), minlength=len(row))
        return counts

    def sizes(self) -> Indices:
        """Training samples and test samples (columns) of each client (row)."""
        if isinstance(self.shares, Shares):
            return np.stack([self.shares.train.sizes, self.shares.test.sizes], axis=1)
        sizes = [(len(share.train), len(share.test)) for share in self.shares]
        return np.array(sizes, dtype=np.int64).reshape(len(sizes), 2)

    def names(self) -> tuple[str, ...]:
        """What the clients are called; nothing where none has a name."""
        names = self.shares.names if isinstance(self.shares, Shares) else [s.name for s in self.shares]
        return tuple(names) if any(names) else ()


def scaled(x: Tensor, scale: Scale) -> Tensor:
    """(x - mean) / std, in place: by channel of images, by feature of vectors."""
    mean, std = (torch.tensor(values).view(-1, *(1,) * (x.dim() - 2)) for values in scale)
    return x.sub_(mean).div_(std)


def unscaled(x: Tensor, scale: Scale) -> Tensor:
    """x std + mean: the numbers before `scaled`."""
    mean, std = (x.new_tensor(values).view(-1, *(1,) * (x.dim() - 2)) for values in scale)
    return x * std + mean


def _about(x: Tensor, train: int, test: int, classes: tuple[str, ...]) -> str:
    """How many samples of what, in a few words."""
    kind = f"{len(classes)} classes" if classes else "real targets"
    return f"{train:,} training and {test:,} test samples of shape {tuple(x.shape[1:])}, {kind}"


def tilt(images: Tensor) -> Tensor:
    """The images rotated by 45 degrees counter-clockwise about their centres: bilinear, zero outside, same size."""
    return rotated(images, 45)
