"""Data as people have them: a frame, a torch or Hugging Face data set, a pair of arrays, or one of them per client."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from covey.data.convert import (
    collected,
    draw_test,
    from_huggingface,
    from_tensors,
    huggingface_pair,
)
from covey.data.types import Dataset
from covey.errors import UserError, user_error, warn_caller
from covey.settings.ranges import Part
from covey.settings.signatures import validated

SPLITS = frozenset({"train", "test", "validation", "valid", "val", "dev"})
LABELS = ("label", "labels", "y", "target", "fine_label")  # what a loader's batches call them
OTHERS = "nobody's"  # the group of test samples that belong to no client
KNOWN = "a (x, y) pair, a torch Dataset or DataLoader, a data frame, a Hugging Face Dataset, or one of these per client"


@validated
def from_clients(
    clients: Any,
    *,
    label: str | None = None,
    inputs: str | None = None,
    test: Any = None,
    test_share: Part = 0.2,
    classes: Sequence[str] | None = None,
    name: str = "clients",
    seed: int = 0,
) -> Dataset:
    """A data set that is split already: a list, or a dict by the clients' names, of what each client has.

    Args:
        clients: for each a pair of inputs and labels, a torch Dataset or DataLoader, a data frame or a Hugging Face
            Dataset; or {"train": ..., "test": ...} of two of them. Also a `flwr_datasets` FederatedDataset or
            Partitioner.
        label: the column to predict, of frames.
        inputs: the column of images or vectors of a Hugging Face data set, where there are several.
        test: test data that belong to no client.
        test_share: without any test data, this share of every client's samples, by label.
        classes: names of labels that are numbers.
        name: of the data set.
        seed: of the test samples.

    Returns:
        The data set; a run on it has these clients.

    Raises:
        UserError: where a client's data cannot be used, with its name.

    Examples:
        >>> import torch
        >>> pair = torch.rand(40, 4), torch.arange(40) % 2
        >>> own = covey.from_clients({"Bonn": pair, "Kiel": pair})
        >>> run = covey.run("fedavg", own, rounds=1, out="runs/hospitals", progress=False)
    """
    if is_federated(clients):
        clients, others = partitions_of(clients)
        test = others if test is None else test
    if isinstance(clients, Mapping):
        parts = {str(key): part for key, part in clients.items()}
    elif isinstance(clients, Iterable):
        parts = {str(place): part for place, part in enumerate(clients)}
    else:
        raise UserError(
            f"clients is a {type(clients).__name__}; allowed: a list, or a dict by the clients' names"
        )
    if not parts:
        raise UserError("clients is empty; there must be at least one client")
    split = {owner: _train_and_test(part, owner) for owner, part in parts.items()}
    train = {owner: one[0] for owner, one in split.items()}
    held = {owner: one[1] for owner, one in split.items() if one[1] is not None}
    if held and test is not None:
        raise UserError("test is given, and clients have test data of their own; leave one of them out")
    if test is not None:
        held = {OTHERS: test}
    if any(is_frame(part) and not has_arrays(part) for part in train.values()):
        return _of_frames(train, held, label, test_share, name, seed)
    pairs = {owner: _pair(part, label, inputs, f"client {owner!r}") for owner, part in train.items()}
    tests = {owner: _pair(part, label, inputs, f"the test data of {owner!r}") for owner, part in held.items()}
    return _of_pairs(pairs, tests, classes, test_share, name, seed)


def as_dataset(data: Any, *, label: str | None = None, client: str | None = None) -> Dataset:
    """A data set from whatever a program has; `label` and `client` are columns of what has columns."""
    if isinstance(data, Dataset):
        _no_columns(data, label, client)
        return data
    if is_federated(data):
        return from_clients(data, label=label)
    if (
        isinstance(data, Mapping)
        and data
        and all(is_frame(part) for part in data.values())
        and set(data) <= SPLITS
    ):
        return _of_splits(data, label, client)
    if is_frame(data):
        return _of_columns(data, None, label, client)
    if is_pair(data):
        _no_columns(data, label, client)
        pair = _pair(data, None, None, "data")
        return from_tensors(pair.x, pair.labels())
    if isinstance(data, Mapping | list | tuple):
        if client is not None:
            raise UserError(f"client is {client!r}, but the data are split by client already; leave it out")
        return from_clients(data, label=label)
    _no_columns(data, label, client)
    pair = _pair(data, None, None, "data")
    return from_tensors(pair.x, pair.labels(), classes=pair.classes)


def _no_columns(data: Any, label: str | None, client: str | None) -> None:
    for name, column in (("label", label), ("client", client)):
        if column is not None:
            raise UserError(f"{name} is {column!r}, but a {type(data).__name__} has no columns; leave it out")


# ---------------------------------------------------------------------------------------------- what it is


def is_frame(thing: Any) -> bool:
    """Whether it has columns: pandas, polars, Arrow, Hugging Face."""
    return hasattr(thing, "__arrow_c_stream__") or (
        hasattr(thing, "column_names") and hasattr(thing, "features")
    )


def has_arrays(frame: Any) -> bool:
    """Whether a column of a Hugging Face data set holds pictures, vectors or the like: one value is many inputs."""
    return any(
        type(f).__name__ not in ("Value", "ClassLabel")
        for f in (getattr(frame, "features", None) or {}).values()
    )


def is_pair(thing: Any) -> bool:
    """Whether it is inputs and labels; two frames are two clients."""
    if (
        not isinstance(thing, tuple | list)
        or len(thing) != 2
        or not all(hasattr(part, "shape") for part in thing)
    ):
        return False
    return not is_frame(thing[0]) or len(thing[1].shape) == 1


def is_federated(thing: Any) -> bool:
    """Whether it is a FederatedDataset or a Partitioner of flwr_datasets, or works as one."""
    return hasattr(thing, "load_partition") and (
        hasattr(thing, "partitioners") or hasattr(thing, "num_partitions")
    )


def partitions_of(federated: Any) -> tuple[dict[str, Any], Any]:
    """What each client has by flwr_datasets, and the test data that belong to no client."""
    if not hasattr(federated, "partitioners"):
        return _partitions(federated, federated.load_partition), None
    splits = list(federated.partitioners)
    found = {}
    for split in splits:
        federated.load_partition(0, split)  # gives the partitioner its data
        found[split] = _partitions(
            federated.partitioners[split], lambda place, split=split: federated.load_partition(place, split)
        )
    main = "train" if "train" in found else splits[0]
    if "test" in found and main != "test":
        return {
            owner: {"train": part, "test": found["test"][owner]} if owner in found["test"] else part
            for owner, part in found[main].items()
        }, None
    try:
        return found[main], federated.load_split("test") if main != "test" else None
    except (ValueError, KeyError):  # it has no such split
        return found[main], None


def _partitions(partitioner: Any, load: Any) -> dict[str, Any]:
    count = int(partitioner.num_partitions)
    names = getattr(partitioner, "partition_id_to_natural_id", None) or {}
    return {str(names.get(place, place)): load(place) for place in range(count)}


# ---------------------------------------------------------------------------------------------- pairs


@dataclass(frozen=True, eq=False)
class _Pair:
    """Inputs and labels, and what the labels are called where that is known."""

    x: Tensor
    y: Any
    classes: tuple[str, ...] | None = None

    def labels(self) -> Tensor:
        return torch.from_numpy(np.array(self.y)) if not isinstance(self.y, Tensor) else self.y


def _train_and_test(part: Any, owner: str) -> tuple[Any, Any]:
    if not isinstance(part, Mapping):
        return part, None
    if "train" not in part or not set(part) <= {"train", "test"}:
        raise UserError(
            f"client {owner!r} has {', '.join(map(repr, part)) or 'nothing'}; allowed: 'train' and 'test', or "
            f"one of them without names"
        )
    return part["train"], part.get("test")


def _pair(part: Any, label: str | None, inputs: str | None, whose: str) -> _Pair:
    if is_pair(part):
        return _Pair(_tensor(part[0], whose), part[1])
    if is_frame(part):
        column = label_of(part, label)
        x, y, names = huggingface_pair(part, inputs or _input_of(part, column), column)
        return _Pair(x, y, names)
    said = f"{whose}: the items must be (input, label) pairs of equal shape"
    with user_error(said, (TypeError, IndexError, RuntimeError)):
        if isinstance(part, DataLoader):
            batches = [_two(batch) for batch in part]
            return _Pair(
                torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches]), _names(part.dataset)
            )
        if (
            hasattr(part, "__len__")
            and hasattr(part, "__getitem__")
            and not isinstance(part, str | Tensor | np.ndarray)
        ):
            return _Pair(*collected(part), _names(part))
    raise UserError(f"{whose} is a {type(part).__name__}; allowed: {KNOWN}")


def _two(batch: Any) -> tuple[Any, Any]:
    """Inputs and labels of a loader's batch: a pair, or one of two names of which one is a label's."""
    if not isinstance(batch, Mapping):
        return batch[0], batch[1]
    labels = [name for name in batch if name in LABELS]
    if len(batch) != 2 or len(labels) != 1:
        raise TypeError(f"batches have {', '.join(map(str, batch))}")
    return next(batch[name] for name in batch if name not in LABELS), batch[labels[0]]


def _names(dataset: Any) -> tuple[str, ...] | None:
    """The class names that data sets of torchvision carry."""
    names = getattr(dataset, "classes", None)
    if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) for name in names):
        return None
    return tuple(names)


def _tensor(values: Any, whose: str) -> Tensor:
    with user_error(f"{whose}: inputs must be numbers in the form of a tensor or an array"):
        return values if isinstance(values, Tensor) else torch.from_numpy(np.array(values))


def _of_pairs(
    pairs: Mapping[str, _Pair],
    tests: Mapping[str, _Pair],
    classes: Sequence[str] | None,
    share: float,
    name: str,
    seed: int,
) -> Dataset:
    every = [*pairs.items(), *tests.items()]
    shapes = {(tuple(pair.x.shape[1:]), pair.x.dtype): owner for owner, pair in reversed(every)}
    if len(shapes) > 1:
        (shape, kind), (other, odd) = list(shapes)[:2]
        raise UserError(
            f"clients must have inputs of one shape: those of {shapes[shape, kind]!r} are {kind} of {shape}, those of "
            f"{shapes[other, odd]!r} {odd} of {other}"
        )
    for owner, pair in every:
        if len(pair.x) != len(pair.y) or not len(pair.x):
            raise UserError(f"client {owner!r} has {len(pair.x)} inputs and {len(pair.y)} labels")
    named = {pair.classes for _, pair in every if pair.classes}
    if classes is None and len(named) > 1:
        raise UserError("clients call the classes by different names; give classes=")
    known = tuple(classes) if classes is not None else next(iter(named), None)
    labels = [np.asarray(pair.y) for _, pair in every]
    if any(y.dtype.kind in "OSU" for y in labels):
        known = known or tuple(sorted({str(value) for y in labels for value in y.tolist()}))
        number = {text: place for place, text in enumerate(known)}
        labels = [np.array([number[str(value)] for value in y.tolist()], dtype=np.int64) for y in labels]
    ids = [owner for owner, pair in every for _ in range(len(pair.x))]
    cut = len(pairs)
    x, y = [pair.x for _, pair in every], [torch.as_tensor(values) for values in labels]
    held = (torch.cat(x[cut:]), torch.cat(y[cut:])) if tests else None
    dataset = from_tensors(
        torch.cat(x[:cut]),
        torch.cat(y[:cut]),
        test=held,
        classes=known,
        natural={"client": ids},
        name=name,
    )
    if tests:
        return dataset
    owners = dataset.natural["client"]
    rng = np.random.default_rng(seed)
    train, test = draw_test(dataset.labels(), len(dataset.classes), share, rng, owners)
    return replace(dataset, train=train, test=test)


# ---------------------------------------------------------------------------------------------- columns


def label_of(frame: Any, label: str | None) -> str:
    """The column to predict: the one that is named, or the only one that a Hugging Face data set calls a class."""
    columns = [str(column) for column in getattr(frame, "column_names", getattr(frame, "columns", ()))]
    kinds: Mapping[str, Any] = getattr(frame, "features", None) or {}
    found = [column for column, kind in kinds.items() if type(kind).__name__ == "ClassLabel"]
    if label is None and len(found) == 1:
        return found[0]
    if label is None or label not in columns:
        said = (
            "nothing says which column is to be predicted (label)" if label is None else f"label is {label!r}"
        )
        raise UserError(f"{said}; the columns are {', '.join(columns)}")
    return label


def _input_of(frame: Any, label: str) -> str:
    """The column of pictures or vectors, where there is one."""
    many: list[str] = [
        c for c, f in frame.features.items() if c != label and type(f).__name__ not in ("Value", "ClassLabel")
    ]
    if len(many) != 1:
        raise UserError(
            f"the columns {', '.join(many) or 'none'} hold pictures or vectors; say which one is the input "
            "(covey.from_huggingface, or inputs= of covey.from_clients)"
        )
    return many[0]


def _of_columns(frame: Any, test: Any, label: str | None, client: str | None) -> Dataset:
    from covey.data.table import read_table

    column = label_of(frame, label)
    if has_arrays(frame):
        return from_huggingface(
            frame, inputs=_input_of(frame, column), labels=column, groups=client, test=test
        )
    return read_table(frame, label=column, client=client, test=test)


def _of_splits(data: Mapping[str, Any], label: str | None, client: str | None) -> Dataset:
    """A DatasetDict of training and test data."""
    if "train" not in data:
        raise UserError(f"the data have the splits {', '.join(data)}; one must be 'train'")
    held = "test" if "test" in data else next((split for split in data if split != "train"), None)
    unused = [split for split in data if split not in ("train", held)]
    if unused:
        warn_caller(f"the splits {', '.join(unused)} are not used: train and {held} are")
    return _of_columns(data["train"], None if held is None else data[held], label, client)


def _of_frames(
    train: Mapping[str, Any], held: Mapping[str, Any], label: str | None, share: float, name: str, seed: int
) -> Dataset:
    import pyarrow as pa

    from covey.data.table import read_table
    from covey.data.table_files import open_table

    column = label_of(next(part for part in train.values() if is_frame(part)), label)

    def joined(parts: Mapping[str, Any]) -> pa.Table:
        tables = []
        for owner, part in parts.items():
            if not is_frame(part):
                raise UserError(
                    f"client {owner!r} has a {type(part).__name__}, others have frames; allowed: one kind"
                )
            rows = open_table(part).table
            if "client" in rows.column_names:
                rows = rows.drop_columns(["client"])
            tables.append(rows.append_column("client", pa.array([owner] * len(rows), pa.string())))
        first = tables[0].column_names
        for owner, rows in zip(parts, tables, strict=True):
            if set(rows.column_names) != set(first):
                odd = sorted(set(rows.column_names) ^ set(first))
                raise UserError(f"client {owner!r}: only some clients have the columns {', '.join(odd)}")
        return pa.concat_tables([rows.select(first) for rows in tables], promote_options="permissive")

    dataset = read_table(
        joined(train),
        label=column,
        client="client",
        test=joined(held) if held else None,
        test_share=share,
        name=name,
        seed=seed,
    )
    order = {owner: place for place, owner in enumerate([*train, *(o for o in held if o not in train)])}
    names = dataset.group_names["client"]
    number = np.array([order[owner] for owner in names], dtype=np.int64)
    return replace(
        dataset,
        natural={"client": number[dataset.natural["client"]]},
        group_names={"client": tuple(sorted(names, key=order.__getitem__))},
    )
