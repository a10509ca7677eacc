"""Your own data: tensors, torch data sets, Hugging Face data sets."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey.data.local_tests import hold_out
from covey.data.together import split_units
from covey.data.types import Dataset, Indices, Scale
from covey.errors import UserError, user_error, warn_caller
from covey.settings.ranges import Part
from covey.settings.signatures import validated

MOST_CLASSES = (
    100_000  # a label beyond is a number that was meant otherwise, and its classes' names would fill memory
)


def stratified_split(
    strata: Indices, *, test_fraction: float, rng: np.random.Generator
) -> tuple[Indices, Indices]:
    """Training and test positions, both ascending; every stratum gives its share of test samples, rounded."""
    (train,), (test,) = hold_out([np.arange(len(strata))], strata, test_fraction, rng)
    return np.sort(train), np.sort(test)


@validated
def from_tensors(
    x: Tensor,
    y: Tensor,
    *,
    test: tuple[Tensor, Tensor] | None = None,
    test_fraction: Part = 0.2,
    classes: Sequence[str] | None = None,
    scale: Scale | None = None,
    natural: Mapping[str, NDArray[np.integer] | Sequence[str]] | None = None,
    client: str | None = None,
    name: str = "own",
    seed: int = 0,
) -> Dataset:
    """A data set of a pair of tensors.

    Args:
        x: inputs.
        y: labels (whole numbers from 0) or targets (floats).
        test: another pair.
        test_fraction: without one, this share of the samples is the test set, by label.
        classes: names of the labels.
        scale: mean and standard deviation by which inputs are standardised.
        natural: groupings: an id or a name for each sample, training samples before test samples.
        client: the grouping whose groups are the clients of a run that says nothing else; none: the only one.
        name: of the data set.
        seed: of the test samples.

    Returns:
        The data set.

    Raises:
        UserError: where shapes, types or labels do not fit.

    Examples:
        >>> import torch
        >>> own = covey.from_tensors(torch.rand(300, 12), torch.arange(300) % 3, classes=["a", "b", "c"])
        >>> len(own.train), len(own.test)
        (240, 60)
    """
    x, y = _as_tensor(x, "inputs"), _as_tensor(y, "labels")
    cut = len(x)
    if test is not None:
        x, y = _with_test(x, y, test)
    else:
        _check_pair(x, y, "training")
    y, names = _targets(y, classes)
    if x.dtype.is_floating_point:
        x = x.to(torch.float32)
    elif x.dtype != torch.uint8:
        x = x.to(torch.int64)
    if test is not None:
        train_index, test_index = np.arange(cut), np.arange(cut, len(x))
    else:
        if cut < 2:
            raise UserError(f"there are {cut} samples; without a test pair allowed: at least 2")
        strata = y.numpy() if names else np.zeros(cut, dtype=np.int64)
        train_index, test_index = stratified_split(
            strata, test_fraction=test_fraction, rng=np.random.default_rng(seed)
        )
    numbered = {key: _group_numbers(key, ids, len(x)) for key, ids in (natural or {}).items()}
    groups = {key: ids for key, (ids, _) in numbered.items()}
    if client is not None and client not in groups:
        raise UserError(f"client is {client!r}; the groupings (natural) are {', '.join(groups) or 'none'}")
    clients_by = client or (next(iter(groups)) if len(groups) == 1 else "")
    if clients_by and test is None:
        train_index, test_index = with_everybody(train_index, test_index, groups[clients_by])
    return Dataset(
        name=name,
        x=x.contiguous(),
        y=y.contiguous(),
        train=train_index,
        test=test_index,
        classes=names,
        scale=scale,
        natural=groups,
        group_names={key: names for key, (_, names) in numbered.items() if names},
        clients_by=clients_by,
    )


def draw_test(
    labels: NDArray[Any],
    classes: int,
    share: float,
    rng: np.random.Generator,
    clients: Indices | None = None,
    units: Indices | None = None,
) -> tuple[Indices, Indices]:
    """Training and test positions: a `share` of every class of every client, or of whole units; everybody trains."""
    if units is not None:
        return split_units(units, share, rng, clients)
    strata = labels.astype(np.int64) if classes else np.zeros(len(labels), dtype=np.int64)
    if clients is None:
        return stratified_split(strata, test_fraction=share, rng=rng)
    train, test = stratified_split(clients * max(1, classes) + strata, test_fraction=share, rng=rng)
    return with_everybody(train, test, clients)


def with_everybody(train: Indices, test: Indices, clients: Indices) -> tuple[Indices, Indices]:
    """A split of samples in which every client trains: where all samples of one became test samples, it keeps them."""
    only = ~np.isin(clients[test], clients[train])
    if only.all():
        return train, test
    return np.sort(np.concatenate([train, test[only]])), test[~only]


@validated
def from_torch(dataset: Any, *, test: Any = None, **settings: Any) -> Dataset:
    """A data set of any torch map-style dataset whose items are (input, label) pairs of equal shape.

    Args:
        dataset: inputs may be tensors, arrays or images (height, width, channels of bytes become channels first).
        test: another such dataset.
        settings: those of `from_tensors`.

    Returns:
        The data set.

    Raises:
        UserError: where items are no such pairs.

    Examples:
        >>> import torch
        >>> own = covey.from_torch(torch.utils.data.TensorDataset(torch.rand(60, 4), torch.arange(60) % 2))
    """
    pair = None if test is None else collected(test)
    return from_tensors(*collected(dataset), test=pair, **settings)


@validated
def from_huggingface(
    dataset: Any,
    *,
    inputs: str | Sequence[str],
    labels: str,
    test: Any = None,
    groups: str | None = None,
    **settings: Any,
) -> Dataset:
    """A data set of a Hugging Face `datasets.Dataset`; needs the extra `huggingface`.

    The class names come from the column's own description.

    Args:
        dataset: the rows.
        inputs: one column (images, vectors, tokens) or several numeric ones that make up a vector.
        labels: the column of labels.
        test: another Dataset.
        groups: a column with natural groups (writer, hospital), which become the grouping of that name.
        settings: those of `from_tensors`.

    Returns:
        The data set.

    Raises:
        UserError: where a column is missing or cannot be used.

    Examples:
        >>> own = covey.from_huggingface(dataset, inputs="image", labels="label")  # doctest: +SKIP
    """
    tables = [dataset] if test is None else [dataset, test]
    wanted = [inputs] if isinstance(inputs, str) else list(inputs)
    for table in tables:
        absent = [
            column
            for column in (*wanted, labels, *([groups] if groups else []))
            if column not in table.column_names
        ]
        if absent:
            raise UserError(f"no column {', '.join(absent)}: there are {', '.join(table.column_names)}")
    read = [huggingface_pair(table, inputs, labels) for table in tables]
    names: Sequence[str] | None = read[0][2]
    pairs = []
    for x, y, _ in read:
        if y and isinstance(y[0], str):
            names = names or sorted({value for _, values, _ in read for value in values})
            y = [list(names).index(value) for value in y]
        pairs.append((x, torch.as_tensor(y)))
    natural = None
    if groups:
        ids = [value for table in tables for value in table[groups]]
        natural = {groups: ids if isinstance(ids[0], str) else _in_order(ids)}
    return from_tensors(
        *pairs[0], test=pairs[1] if test is not None else None, classes=names, natural=natural, **settings
    )


def huggingface_pair(
    table: Any, inputs: str | Sequence[str], labels: str
) -> tuple[Tensor, list[Any], tuple[str, ...] | None]:
    """Inputs, labels and the classes' names (None: they have none) of a Hugging Face data set."""
    wanted = [inputs] if isinstance(inputs, str) else list(inputs)
    columns = [_stack([_as_array(value) for value in table[column]], column) for column in wanted]
    x = columns[0] if isinstance(inputs, str) else torch.stack([c.to(torch.float32) for c in columns], dim=1)
    names = getattr(table.features[labels], "names", None)
    return x, list(table[labels]), None if names is None else tuple(names)


def _in_order(ids: Sequence[Any]) -> Indices:
    """Numbers for ids of any kind, in the order in which they first appear."""
    numbers: dict[Any, int] = {}
    return np.array([numbers.setdefault(value, len(numbers)) for value in ids], dtype=np.int64)


def _as_tensor(values: Any, what: str) -> Tensor:
    if not isinstance(values, Tensor) and np.asarray(values).dtype.kind in "OSU":
        raise UserError(
            f"{what} must be numbers in the form of a tensor or an array, not texts or mixed values; "
            "covey.read_table numbers the names in a table"
        )
    with user_error(f"{what} must be numbers in the form of a tensor or an array"):
        found = torch.as_tensor(values)
        if found.is_complex():
            raise UserError(f"{what} are {found.dtype}; give real and imaginary parts as inputs of their own")
        return found


def _group_numbers(key: str, ids: Any, count: int) -> tuple[Indices, tuple[str, ...]]:
    """Whole numbers as they are; texts numbered in the order in which they first appear, and these texts."""
    array = np.asarray(ids)
    names: tuple[str, ...] = ()
    if array.dtype.kind in "OSU":
        texts = [str(name) for name in array.ravel().tolist()]
        array, names = _in_order(texts).reshape(array.shape), tuple(dict.fromkeys(texts))
    elif array.dtype.kind not in "biu":
        raise UserError(f"natural[{key!r}] holds {array.dtype}; allowed: whole numbers from 0 on, or texts")
    if array.shape != (count,) or array.min() < 0:
        raise UserError(
            f"natural[{key!r}] must be {count} whole numbers from 0 on, not of shape {array.shape}"
        )
    return array.astype(np.int64), names


def _with_test(x: Tensor, y: Tensor, test: tuple[Any, Any]) -> tuple[Tensor, Tensor]:
    """Inputs and labels, followed by those of the test pair."""
    other_x, other_y = (_as_tensor(part, "test data") for part in test)
    _check_pair(other_x, other_y, "test")
    if other_x.shape[1:] != x.shape[1:] or other_x.dtype != x.dtype:
        raise UserError(
            f"test inputs are {other_x.dtype} of shape {tuple(other_x.shape[1:])}, "
            f"training inputs {x.dtype} of shape {tuple(x.shape[1:])}: they must be the same"
        )
    _check_pair(x, y, "training")
    return torch.cat([x, other_x]), torch.cat([y, other_y])


def _check_pair(x: Tensor, y: Tensor, what: str) -> None:
    if x.dim() < 1 or y.dim() < 1 or len(x) == 0:
        raise UserError(f"{what} data must have at least one sample, not {tuple(x.shape)} inputs")
    if len(x) != len(y):
        raise UserError(
            f"{what} data need as many inputs as labels, not {tuple(x.shape)} and {tuple(y.shape)}"
        )
    if y.dtype.is_floating_point:
        return
    if y.dim() != 1:
        raise UserError(f"{what} labels must be one whole number per sample, not of shape {tuple(y.shape)}")


def _targets(y: Tensor, classes: Sequence[str] | None) -> tuple[Tensor, tuple[str, ...]]:
    """Labels with their class names, or float targets with none."""
    if y.dtype.is_floating_point:
        if classes is not None:
            raise UserError(f"labels are {y.dtype}, but with classes they must be whole numbers from 0")
        return y.to(torch.float32), ()
    if classes is None and int(y.min()) > 0:
        raise UserError(
            f"labels run from {y.min()} to {y.max()}; allowed: whole numbers from 0 on (y - {y.min()}), or say classes="
        )
    if int(y.max()) >= MOST_CLASSES:
        raise UserError(
            f"labels run from {y.min()} to {y.max()}; allowed: whole numbers below {MOST_CLASSES:,}"
        )
    names = tuple(map(str, range(int(y.max()) + 1) if classes is None else classes))
    if int(y.min()) < 0 or int(y.max()) >= len(names):
        raise UserError(f"labels run from {y.min()} to {y.max()}, but there are {len(names)} classes")
    absent = sorted(set(range(len(names))) - set(np.unique(y.numpy()).tolist())) if classes is None else []
    if absent:
        warn_caller(
            f"labels run from 0 to {y.max()}, but {_some(absent)} never occur; say classes= if that is meant"
        )
    return y.to(torch.int64), names


def _some(numbers: Sequence[int], most: int = 5) -> str:
    return ", ".join(map(str, numbers[:most])) + (
        f" and {len(numbers) - most} more" if len(numbers) > most else ""
    )


def collected(dataset: Any) -> tuple[Tensor, Tensor]:
    """The inputs and labels of a torch data set."""
    items = [dataset[place] for place in range(len(dataset))]
    if not items or not all(isinstance(item, tuple | list) and len(item) == 2 for item in items):
        raise UserError("a torch dataset must hold at least one item, all of them (input, label) pairs")
    x = _stack([_as_array(item[0]) for item in items], "input")
    return x, _stack([_as_array(item[1]) for item in items], "label")


def _as_array(value: Any) -> Tensor:
    """A tensor of an input; pictures and byte arrays with channels last become channels first."""
    if isinstance(value, Tensor):
        return value
    array = np.array(value)
    if array.dtype.kind not in "biuf":
        raise UserError(f"inputs and labels must be numbers, not {value!r}; turn text into tokens first")
    if array.dtype == np.uint8 and array.ndim == 2:
        array = array[None]
    elif array.dtype == np.uint8 and array.ndim == 3 and array.shape[2] in (1, 3, 4):
        array = array.transpose(2, 0, 1)
    return torch.from_numpy(array.copy(order="C"))


def _stack(values: list[Tensor], what: str) -> Tensor:
    shapes = {tuple(value.shape) for value in values}
    if len(shapes) != 1:
        raise UserError(
            f"all samples must have one shape, but {what} has {len(shapes)}: {sorted(shapes)[:3]}"
        )
    return torch.stack(values)
