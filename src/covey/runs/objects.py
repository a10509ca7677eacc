"""Objects of a Python program in place of names: each gets a name that says what it was, with the digest of all of it.

The run folder records the provenance of data, models and methods that only the program has, so that such a run is not
mistaken for another: its config.toml runs in a program that gives the same objects, and is refused anywhere else.
"""

import dataclasses
import hashlib
import inspect
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from covey.core.round import Method
from covey.data.clients import as_dataset
from covey.data.types import Dataset, Federation
from covey.errors import UserError
from covey.parts.steps import Train
from covey.settings.catalogue import DATASETS, METHODS, METRICS, MODELS, OBJECTIVES, PARTITIONS
from covey.training.frozen import Frozen
from covey.training.metrics import Metric
from covey.training.objective import Objective
from covey.training.rows import read_row

AnyData = Any  # a name, a table with a name, a Dataset, a Federation, or whatever `as_dataset` takes
AnyModel = str | Mapping[str, Any] | nn.Module
PLACE = re.compile(r" at 0x[0-9a-f]+")  # an object's address in memory says nothing about it


def method_tables(method: str | Method | dict[str, Any]) -> dict[str, Any]:
    """The tables for a method: its name (with settings), or an object with its own way of training."""
    if isinstance(method, str):
        return {"method": {"name": method}}
    if isinstance(method, dict):
        return {"method": method}
    if not isinstance(method, Method):
        raise UserError(
            f"method is a {type(method).__name__}; allowed: a name, a table with a name, or a Method"
        )
    named = METHODS.give(method.name, lambda train: method, digest_of_code(method))  # noqa: ARG005
    train = method.local if isinstance(method.local, Train) else getattr(method.local, "train", None)
    said = {"train": dataclasses.asdict(train)} if isinstance(train, Train) else {}
    return {"method": {"name": named}, **said}


def given_data(
    data: AnyData, label: str | None = None, client: str | None = None
) -> str | Mapping[str, Any] | Dataset | Federation:
    """The data of a program: a name, a table with a name, or partitioned data; anything else becomes a data set."""
    settings = isinstance(data, Mapping) and any(
        isinstance(v, str | int | float | Path) for v in data.values()
    )
    if not settings and not isinstance(data, str | Federation):
        return as_dataset(data, label=label, client=client)
    for name, column in (("label", label), ("client", client)):
        if column is not None:
            raise UserError(
                f"{name} is {column!r}, which is for data that have columns; say it where these are named (data = "
                f'{{"name": ..., "{name}": {column!r}}})'
            )
    named: str | Mapping[str, Any] | Federation = data
    return named


def data_tables(data: str | Mapping[str, Any] | Dataset | Federation) -> dict[str, Any]:
    """The tables for the data: a name (with settings), a data set that is still to be partitioned, or one that is."""
    if isinstance(data, str):
        return {"data": {"name": data}}
    if isinstance(data, Mapping):
        return {"data": dict(data)}
    if isinstance(data, Dataset):
        return {"data": {"name": DATASETS.give(data.name, lambda: data, digest_of_data(data))}}
    digest = digest_of_shares(data)
    dataset = DATASETS.give(data.dataset.name, lambda: data.dataset, digest)
    partition = PARTITIONS.give(data.dataset.name, data, digest)
    return {
        "data": {"name": dataset, "clients": len(data.shares)},
        "partition": {"name": partition},
    }


def model_tables(model: AnyModel) -> dict[str, Any]:
    """The table for a model: a name (with settings), or a module with its first weights."""
    if isinstance(model, str):
        return {"model": {"name": model}}
    if isinstance(model, Mapping):
        return {"model": dict(model)}
    if not isinstance(model, nn.Module):
        raise UserError(
            f"model is a {type(model).__name__}; allowed: a name, a table with a name, or a torch.nn.Module"
        )
    if any(nn.parameter.is_lazy(parameter) for parameter in model.parameters()):
        raise UserError(
            f"the model ({type(model).__name__}) has lazy layers, whose shape nobody knows yet; call it once on a batch"
        )
    numbers = read_row(model).numpy().tobytes() + Frozen.of(model).digest.encode()
    digest = hashlib.sha256(repr(model).encode() + numbers).hexdigest()
    return {"model": {"name": MODELS.give(type(model).__name__, model, digest)}}


def objective_name(objective: str | Objective) -> str:
    """The name of an objective, or one for an object."""
    if isinstance(objective, str):
        return objective
    return OBJECTIVES.give(type(objective).__name__, objective, digest_of_code(objective))


def metric_names(metrics: Iterable[str | Metric]) -> list[str]:
    """The names of metrics, or ones for objects."""
    if isinstance(metrics, str | Metric):
        raise UserError(f"metrics is {metrics!r}; allowed: a list, such as [{metrics!r}]")
    return [m if isinstance(m, str) else METRICS.give(m.name, m, digest_of_code(m)) for m in metrics]


# ---------------------------------------------------------------------------------------------- digests


def digest_of_data(data: Dataset) -> str:
    """Of all samples, which are for training and which for testing, and how they are scaled."""
    digest = hashlib.sha256(repr((data.name, data.classes, data.scale, data.features)).encode())
    groups = [data.natural[key] for key in sorted(data.natural)]
    for array in (data.x.numpy(), data.y.numpy(), data.train, data.test, *groups):
        _add(digest, array)
    return digest.hexdigest()


def digest_of_shares(data: Federation) -> str:
    """Of the data set, and who holds what of it under which shift."""
    digest = hashlib.sha256(digest_of_data(data.dataset).encode())
    for part in (data.test, *(samples for share in data.shares for samples in (share.train, share.test))):
        digest.update(repr(part.shift).encode())
        _add(digest, part.index)
    return digest.hexdigest()


def _add(digest: Any, array: NDArray[Any]) -> None:
    values = np.ascontiguousarray(array)
    digest.update(f"{values.dtype}{values.shape}".encode())
    digest.update(values.data)


def digest_of_code(thing: object) -> str:
    """Of an object's settings and of the source of everything in it that is not covey's."""
    texts = [PLACE.sub("", repr(thing)), *sorted(_sources(thing))]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def _sources(thing: object) -> set[str]:
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        found = set(_source(type(thing)))
        for field in dataclasses.fields(thing):
            found |= _sources(getattr(thing, field.name))
        return found
    if inspect.isfunction(thing) or inspect.isclass(thing):
        return set(_source(thing))
    return set(_source(type(thing)))


def _source(thing: Any) -> list[str]:
    if thing.__module__.partition(".")[0] in ("covey", "builtins", "torch"):
        return []
    try:
        return [inspect.getsource(thing)]
    except (OSError, TypeError):  # typed into an interpreter: what it compiled to is all there is
        code = getattr(thing, "__code__", None)
        return [code.co_code.hex()] if code is not None else []
