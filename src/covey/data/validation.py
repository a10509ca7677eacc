"""What is measured in place of the test data: validation data, to choose settings on, fewer test samples, and numbers
to predict in deviations from their mean."""

from dataclasses import replace

import numpy as np

from covey.data.convert import draw_test
from covey.data.local_tests import hold_out
from covey.data.together import units_of
from covey.data.types import ClientShare, Dataset, Federation, Samples
from covey.errors import UserError
from covey.streams import stream


def on_validation(federation: Federation, fraction: float, seed: int) -> Federation:
    """The same clients, each with a share `fraction` of its training data as its test data.

    Their own test data are gone, and the global test set is everybody's validation data together: nothing that is
    measured or chosen on this federation has seen a test sample.
    """
    dataset = federation.dataset
    parts = [share.train.index for share in federation.shares]
    kept, held = hold_out(parts, dataset.strata(), fraction, stream(seed, "validation"), units_of(dataset))
    pool = np.concatenate(held)
    seen = replace(dataset, train=np.concatenate(kept), test=pool)
    shares = tuple(
        ClientShare(
            Samples(seen, train, share.train.shift),
            Samples(seen, test, share.train.shift),
            share.cluster,
            share.name,
        )
        for share, train, test in zip(federation.shares, kept, held, strict=True)
    )
    return Federation(seen, shares, Samples(seen, pool, federation.test.shift), federation.left_out)


def resplit(dataset: Dataset, seed: int) -> Dataset:
    """The same samples with other test samples, drawn with the seed: as many, by client and label, or whole units."""
    rows = np.sort(np.concatenate([dataset.train, dataset.test]))
    share = len(dataset.test) / len(rows)
    if not len(dataset.test):
        raise UserError(f"data.resplit is true; {dataset.name} has no test samples to draw anew")
    clients = dataset.natural[dataset.clients_by][rows] if dataset.clients_by else None
    units = units_of(dataset)
    train, test = draw_test(
        dataset.labels()[rows],
        len(dataset.classes),
        share,
        stream(seed, "resplit"),
        clients,
        None if units is None else units[rows],
    )
    return replace(dataset, train=rows[train], test=rows[test])


def evenly_spaced(test: Samples, count: int) -> Samples:
    """`count` of n test samples, the same ones in every run: those at floor(i n / count), i = 0, 1, ..."""
    if count > len(test):
        raise UserError(
            f"data.test_samples is {count}; the global test set has {len(test)}, so allowed: 1 to {len(test)}"
        )
    return test.select(np.arange(count) * len(test) // count)


def in_deviations(dataset: Dataset) -> Dataset:
    """A table's numbers to predict, as deviations from their mean over training rows.

    Prices of some 100,000 make the first step of training diverge at any usual learning rate. What is scaled about so
    already stays as it is. `Schema` keeps both numbers, which turn predictions back.
    """
    schema, known = dataset.schema, dataset.y[dataset.train].double()
    if schema is None or dataset.classes or len(known) < 2:
        return dataset
    mean, std = schema.label_mean, schema.label_std
    if std == 1:
        mean, std = float(known.mean()), float(known.std(unbiased=False))
        if std == 0 or (0.5 <= std <= 2 and abs(mean) <= 1):
            return dataset
    said = (
        f"{schema.label} is learned in deviations of {_short(std)} from its mean of {_short(mean)}: "
        "errors are in deviations, predictions in its own unit"
    )
    return replace(
        dataset,
        y=((dataset.y.double() - mean) / std).float(),
        schema=replace(schema, label_mean=mean, label_std=std),
        notes=(*dataset.notes, said),
    )


def _short(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.4g}"
