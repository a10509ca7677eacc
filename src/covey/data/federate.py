"""Partition a data set among clients."""

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from covey.data.ground_truth import UNKNOWN, with_shifts
from covey.data.local_tests import OWN_SHARE, from_groups, from_pool, hold_out
from covey.data.partitions.cutting import DealtOut, Parts, TestRule
from covey.data.pieces import Pieces, table_of_counts
from covey.data.together import units_of
from covey.data.types import UNSHIFTED, Dataset, Federation, Indices, Samples, Shares
from covey.errors import UserError
from covey.settings.catalogue import PARTITIONS, SHIFTS
from covey.settings.ranges import Count, Range, Seed
from covey.settings.signatures import checked, settings_of, validated
from covey.streams import stream

# Arguments that the program fills in; all others of a partition or shift are the user's settings.
INPUTS = ("samples", "labels", "groups", "domains", "pixels")
FEDERATED_BY = frozenset({"dataset", *INPUTS, "counts", "clients", "rng"})


@validated
def federate(
    dataset: Dataset,
    *,
    partition: str,
    clients: Count,
    seed: Seed,
    shift: str | None = None,
    test_fraction: Annotated[float, Range(above=0, below=1)] | None = None,
    **settings: Any,
) -> Federation:
    """Partitions a data set among clients, and shifts their data if wanted.

    Local test data follow each client's own training data, by the rule that the partition returns with its parts
    (`TestRule`), and are shifted as the training data are; the global test set is not. The same seed gives the same
    shares.

    Args:
        dataset: all samples.
        partition: by name (see `covey partitions`).
        clients: how many.
        seed: of the partition.
        shift: by name (see `covey shifts`).
        test_fraction: the share of a client's samples that are its local test data.
        settings: of the partition and the shift, by their names.

    Returns:
        The federation.

    Raises:
        UserError: for a name or setting that is not known, or data that cannot be partitioned so.

    Examples:
        >>> data = covey.federate(covey.load("digits"), partition="dir-class", clients=10, alpha=0.3, seed=0)
        >>> data.label_counts().shape
        (10, 10)
    """
    cut = PARTITIONS.find(partition)
    move = None if shift is None else SHIFTS.find(shift)
    cut_settings = settings_of(cut, given=FEDERATED_BY)
    move_settings = settings_of(move, given=FEDERATED_BY) if move else {}
    settings = checked("partition", cut_settings | move_settings, settings)

    given = cut(
        *_inputs(dataset, partition, cut),
        clients=clients,
        rng=stream(seed, "partition"),
        **_only(settings, cut_settings),
    )
    found = given if isinstance(given, DealtOut) else DealtOut(given)
    parts = Pieces(dataset.train[found.parts.whole], found.parts.ends)
    counts = table_of_counts(dataset.strata(), parts, max(1, len(dataset.classes)))
    train, test = _local_tests(
        dataset,
        parts,
        "own" if test_fraction is not None and found.tests != "leaky" else found.tests,
        test_fraction or OWN_SHARE,
        groups=partial(_groups, dataset, partition, cut),
        rng=stream(seed, "local test"),
    )
    shifts = [UNSHIFTED] * len(parts)
    clusters = np.full(len(parts), UNKNOWN) if found.truth is None else found.truth
    if move:
        shifts = move(dataset, counts, **_only(settings, move_settings))
        clusters = with_shifts(clusters, shifts)
    names = _names(dataset, found.tests, train)
    shares = Shares(
        dataset, train=Pieces.of(train), test=Pieces.of(test), shifts=shifts, clusters=clusters, names=names
    )
    left_out = _group_names(dataset, found.left_out)
    return Federation(dataset, shares, Samples(dataset, dataset.test), left_out)


def _only(settings: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key in names}


def _inputs(dataset: Dataset, partition: str, cut: Callable[..., Parts]) -> list[NDArray[Any]]:
    """What the partition looks at, of the training samples: labels, natural groups, pixels."""
    wanted = _wanted(cut)
    if not dataset.classes and "labels" in wanted:
        others = (name for name in PARTITIONS.builtin if "labels" not in _wanted(PARTITIONS[name]))
        raise UserError(
            f"partition = {partition!r}: {dataset.name} has no classes; allowed: {', '.join(sorted(others))}"
        )
    inputs: list[NDArray[Any]] = []
    for name in wanted:
        if name == "samples":
            inputs.append(np.arange(len(dataset.train)))
        elif name == "labels":
            inputs.append(dataset.strata()[dataset.train])
        elif name in ("groups", "domains"):
            inputs.append(_groups(dataset, partition, cut)[dataset.train])
        else:
            inputs.append(dataset.x.numpy()[dataset.train].reshape(len(dataset.train), -1).astype(np.float32))
    return inputs


def _wanted(cut: Callable[..., Parts]) -> list[str]:
    """What a partition goes by, read off its signature."""
    return [name for name in INPUTS if name in inspect.signature(cut).parameters]


def _groups(dataset: Dataset, partition: str, cut: Callable[..., Parts]) -> Indices:
    """The natural group of every sample: its domain where the partition asks for domains, else whatever there is."""
    by_domain = "domains" in inspect.signature(cut).parameters
    wanted = "domain" if by_domain else _grouping(dataset) or "writer"
    if wanted not in dataset.natural:
        have = ", ".join(sorted(dataset.natural)) or "none"
        raise UserError(
            f"partition = {partition!r}: {dataset.name} has no {wanted} of its samples (it has {have})"
        )
    return dataset.natural[wanted]


def _grouping(dataset: Dataset) -> str:
    """The grouping that is meant where none is named: that of the clients, or the only one there is."""
    return dataset.clients_by or next(iter(sorted(dataset.natural, reverse=True)), "")


def _names(dataset: Dataset, tests: TestRule, parts: Parts) -> list[str]:
    """What the clients are called, where each is one natural group with a name."""
    key = _grouping(dataset)
    if tests != "group" or not dataset.group_names.get(key):
        return [""] * len(parts)
    return list(_group_names(dataset, [int(dataset.natural[key][part[0]]) for part in parts]))


def _group_names(dataset: Dataset, groups: Sequence[int]) -> tuple[str, ...]:
    """What natural groups are called; their numbers where they have no names."""
    names = dataset.group_names.get(_grouping(dataset), ())
    return tuple(names[group] if names else str(group) for group in groups)


def _local_tests(
    dataset: Dataset,
    parts: Pieces,
    rule: TestRule,
    share: float,
    *,
    groups: Callable[[], Indices],
    rng: np.random.Generator,
) -> tuple[Parts, Parts]:
    """Training and local test parts, by the partition's rule."""
    labels, units = dataset.strata(), units_of(dataset)
    if rule == "own":
        return hold_out(parts, labels, share, rng, units)
    if rule == "leaky":
        return parts, hold_out(parts, labels, share, rng, units)[1]
    if rule == "group":
        return from_groups(parts, groups(), labels, dataset.test, rng, units)
    if rule == "mix-in-group":
        labels = groups() * len(dataset.classes) + labels
    return from_pool(parts, labels, dataset.test, rng)
