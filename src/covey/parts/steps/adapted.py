"""Training before use, remembered for a round: what a run stores at its end are the rows that it has just measured."""

from collections.abc import Hashable
from dataclasses import replace
from hashlib import blake2b
from threading import Lock
from weakref import WeakKeyDictionary

import numpy as np
from torch import Tensor

from covey.core import Client
from covey.data.types import Dataset, mark_of
from covey.parts.steps.train import Train, local_fit

MOST_BYTES = 256_000_000  # of rows that a process remembers, all of one round
KEY_BYTES = 2500  # of what a row is remembered by, about
_ROWS: WeakKeyDictionary[Dataset, dict[Hashable, Tensor]] = WeakKeyDictionary()
_LOCK = Lock()


def trained_before_use(
    client: Client, train: Train, updates: int, start: Tensor, rng: np.random.Generator
) -> Tensor:
    """The row after that many local updates from `start`; the client's state stays as it is.

    A simulated client has the same answer for the same data, stream and start, unless momentum is kept between rounds.
    """
    if client.live or "velocity" in client.state:
        return trained(client, train, updates, start, rng)
    data, mark = mark_of(client.train)
    drawn = repr(rng.bit_generator.state)
    digest = blake2b(np.ascontiguousarray(start.numpy()).data, digest_size=16).digest()
    key = (client.round, client.seed, client.id, repr(train), updates, mark, drawn, digest)
    rows = _ROWS.setdefault(data, {})
    found = rows.get(key)
    if found is None:
        found = trained(client, train, updates, start, rng)
        with _LOCK:
            if rows and next(iter(rows))[:2] != key[:2]:  # type: ignore[index]
                rows.clear()  # another round
            if (len(rows) + 1) * (found.nbytes + KEY_BYTES) <= MOST_BYTES:
                rows[key] = found
    return found


def trained(client: Client, train: Train, updates: int, start: Tensor, rng: np.random.Generator) -> Tensor:
    alone = replace(client, state=dict(client.state), rng=rng)
    row = start
    for _ in range(updates):
        row = local_fit(train, alone, row).row
    return row
