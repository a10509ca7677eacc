"""Share a data set out among clients."""

from __future__ import annotations

import difflib
import inspect
from typing import Any

import numpy as np

from covey.data.local_tests import from_pool, hold_out
from covey.data.partitions import PARTITIONS
from covey.data.types import Dataset, Federation, Samples, Share
from covey.errors import UserError


def federate(
    dataset: Dataset,
    *,
    partition: str,
    clients: int,
    seed: int,
    test_fraction: float | None = None,
    **settings: Any,
) -> Federation:
    """Share out `dataset` among `clients` by a named partition.

    Local test data come from the global test set in each client's own label mix, or, with `test_fraction`,
    from the client's own samples.
    """
    cut = pick("partition", partition, PARTITIONS)
    check_settings("partition", partition, cut, settings)
    labels = (
        dataset.labels().astype(np.int64) if dataset.classes else np.zeros(len(dataset.y), dtype=np.int64)
    )
    places = cut(labels[dataset.train], clients=clients, rng=_stream(seed, "partition"), **settings)
    parts = [dataset.train[place] for place in places]
    rng = _stream(seed, "local test")
    if test_fraction is None:
        parts, tests = from_pool(parts, labels, dataset.test, rng)
    else:
        if not 0 < test_fraction < 1:
            raise UserError(f"test_fraction = {test_fraction}: it must lie between 0 and 1")
        parts, tests = hold_out(parts, labels, test_fraction, rng)
    shares = tuple(
        Share(Samples(dataset, train), Samples(dataset, test))
        for train, test in zip(parts, tests, strict=True)
    )
    return Federation(dataset, shares, Samples(dataset, dataset.test))


def pick(field: str, name: str, registry: dict[str, Any]) -> Any:
    """The registered entry, or one sentence that lists what there is."""
    if name in registry:
        return registry[name]
    near = difflib.get_close_matches(name, registry, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise UserError(f"{field} = {name!r} is not known: {hint}there are {', '.join(sorted(registry))}")


def check_settings(field: str, name: str, function: Any, settings: dict[str, Any]) -> None:
    """Refuse settings that the function does not have."""
    taken = set(inspect.signature(function).parameters)
    allowed = {key for key in inspect.signature(function).parameters if key not in GIVEN}
    for key in settings:
        if key not in taken or key in GIVEN:
            near = difflib.get_close_matches(key, allowed, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            listed = ", ".join(sorted(allowed)) or "none"
            raise UserError(f"{key!r} is not a setting of {field} {name!r}: {hint}its settings are {listed}")


GIVEN = frozenset({"labels", "groups", "pixels", "clients", "rng", "classes"})


def _stream(seed: int, name: str) -> np.random.Generator:
    return np.random.default_rng([seed, *name.encode()])
