"""Every sample through the encoder once: features by the digest of the picture, kept on disk for all runs."""

import hashlib
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from covey.data.types import ClientShare, EncodedFrom, Federation, Samples
from covey.errors import UserError
from covey.training.bench.base import one_thread
from covey.training.pretrained import Encoder, encoder_of, weights_folder

TOGETHER = 64  # pictures between two writes: what an interrupt may cost
SAY_FROM = 200  # new pictures that are worth a line


class FeatureStore:
    """A file of features; several runs may use it at a time."""

    def __init__(self, encoder: Encoder, folder: Path | None = None) -> None:
        self.encoder = encoder
        place = (folder or weights_folder()) / "features"
        place.mkdir(parents=True, exist_ok=True)
        self.path = place / f"{encoder.digest}.sqlite"
        with self._open() as file:
            file.execute(
                "CREATE TABLE IF NOT EXISTS features (picture BLOB PRIMARY KEY, numbers BLOB) WITHOUT ROWID"
            )

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=600.0)

    def __call__(self, x: Tensor, say: Callable[[str], None] | None = None) -> Tensor:
        """The features of pictures with pixels of 0 to 1; what is not known yet is encoded."""
        keys = [hashlib.blake2b(one.numpy().tobytes(), digest_size=16).digest() for one in x]
        with self._open() as file:
            known = {key: self._get(file, key) for key in set(keys)}
        places = {key: at for at, key in enumerate(keys)}
        new = [key for key in dict.fromkeys(keys) if known[key] is None]
        if say is not None and len(new) >= SAY_FROM:
            say(
                f"{len(new):,} of {len(places):,} pictures go through the encoder, once; features in {self.path}"
            )
        for first in range(0, len(new), TOGETHER):
            some = new[first : first + TOGETHER]
            with one_thread():
                found = self.encoder(torch.stack([x[places[key]] for key in some])).numpy()
            with self._open() as file:
                rows = [(key, one.tobytes()) for key, one in zip(some, found, strict=True)]
                file.executemany("INSERT OR IGNORE INTO features VALUES (?, ?)", rows)
            known.update(zip(some, found, strict=True))
        return torch.from_numpy(np.stack([known[key] for key in keys]))

    @staticmethod
    def _get(file: sqlite3.Connection, key: bytes) -> Any:
        found = file.execute("SELECT numbers FROM features WHERE picture = ?", (key,)).fetchone()
        return None if found is None else np.frombuffer(found[0], np.float32)


def encoded(
    federation: Federation,
    setting: Any,
    say: Callable[[str], None] | None = None,
    *,
    encoder: Encoder | None = None,
    folder: Path | None = None,
) -> Federation:
    """The same clients with the features of their samples, as these look under each client's shift.

    `encoder` is what the setting names, where it is there already; `folder` where features are kept.
    """
    dataset = federation.dataset
    if dataset.augment != "none":
        raise UserError(
            f'data.augment is "{dataset.augment}", which changes pictures each time they are shown; with data.encoder '
            'every picture is encoded once: leave one of them out (allowed: "none")'
        )
    encoder = encoder or encoder_of(setting)
    store = FeatureStore(encoder, folder)
    views = [view for share in federation.shares for view in (share.train, share.test)]
    views.append(federation.test)
    plain = replace(dataset, scale=None)
    pictures = [replace(view, dataset=plain).tensors()[0] for view in views]
    features = store(torch.cat(pictures), say)
    ends = np.cumsum([len(view) for view in views])
    places = np.split(np.arange(len(features)), ends[:-1])
    origin = np.concatenate([view.index for view in views])
    made = replace(
        dataset,
        x=features,
        y=torch.from_numpy(np.concatenate([np.asarray(view.labels()) for view in views])),
        train=np.concatenate([*places[:-1:2], np.zeros(0, np.int64)]).astype(np.int64),
        test=places[-1],
        scale=None,
        natural={name: groups[origin] for name, groups in dataset.natural.items()},
        encoded_from=EncodedFrom(dataset=dataset, setting=setting, digest=encoder.digest),
    )
    parts = [Samples(made, place) for place in places]
    shares = tuple(
        ClientShare(parts[2 * number], parts[2 * number + 1], share.cluster, share.name)
        for number, share in enumerate(federation.shares)
    )
    return Federation(made, shares, parts[-1], federation.left_out)


def features_of(x: Tensor, setting: Any, digest: str) -> Tensor:
    """The features of new pictures (pixels of 0 to 1), by the very encoder of a run."""
    encoder = encoder_of(setting)
    if encoder.digest != digest:
        raise UserError("the encoder here has other weights than the run's: its digest is another one")
    with one_thread():
        return encoder(x)
