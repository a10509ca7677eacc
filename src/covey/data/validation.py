"""Validation data in place of test data: what settings are chosen on, so that test data stay unseen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from covey.data.local_tests import hold_out
from covey.data.types import Federation, Samples, Share
from covey.streams import stream


def on_validation(federation: Federation, fraction: float, seed: int) -> Federation:
    """The same clients, each with a share `fraction` of its training data as its test data.

    Their own test data are gone, and the global test set is everybody's validation data together: nothing that is
    measured or chosen on this federation has seen a test sample.
    """
    dataset = federation.dataset
    strata = (
        dataset.labels().astype(np.int64) if dataset.classes else np.zeros(len(dataset.y), dtype=np.int64)
    )
    parts = [share.train.index for share in federation.shares]
    kept, held = hold_out(parts, strata, fraction, stream(seed, "validation"))
    pool = np.concatenate(held)
    seen = replace(dataset, train=np.concatenate(kept), test=pool)
    shares = tuple(
        Share(
            Samples(seen, train, share.train.shift),
            Samples(seen, test, share.train.shift),
            share.kind,
            share.name,
        )
        for share, train, test in zip(federation.shares, kept, held, strict=True)
    )
    return Federation(seen, shares, Samples(seen, pool, federation.test.shift))
