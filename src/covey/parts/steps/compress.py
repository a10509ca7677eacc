"""Updates that travel in a shorter form: a stage that any method's local step can have."""

import math
from dataclasses import replace
from typing import Annotated, Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from covey.core import Client, Method, Reply, Task, step
from covey.errors import UserError
from covey.parts.steps.around import AroundStep
from covey.parts.steps.narrow import TrainNarrow
from covey.settings import Range, only_with, validated_in
from covey.training.rows import Layout

How = Literal["top-k", "8-bit", "1-bit", "mask"]
PART = Annotated[float, Range(above=0, most=1)]


@validated_in("compress")
class Compression:
    """How updates are shortened on their way to the server.

    Args:
        name: top-k (the largest numbers), 8-bit (levels between the smallest and the largest), 1-bit (signs and one
            length), mask (numbers at random places); none: they travel whole.
        share: of the numbers that travel, for top-k and mask.
        feedback: whether a client adds what was left out to its next update.
    """

    name: How | None = None
    share: PART = 0.05
    feedback: bool = True

    def __post_init__(self) -> None:
        by_share = self.name in ("top-k", "mask")
        only_with("compress", self, "share", by_share, 'compress.name = "top-k" or "mask"')
        every = ", ".join(get_args(How))
        only_with("compress", self, "feedback", self.name is not None, f"compress.name, one of {every}")


@step(kind="train.compressed")
class Compressed(AroundStep):
    """The step `step`, whose update w_k - w travels shortened; what is left out waits at the client for the next time.

    Numbers behind the trainable ones (statistics of norms) travel whole.

    Args:
        how: top-k, 8-bit, 1-bit or mask.
        share: of the numbers that travel, for top-k and mask.
        feedback: whether a client adds what was left out to its next update.
    """

    how: How
    share: PART = 0.05
    feedback: bool = True

    def __call__(self, client: Client, task: Task) -> Reply:
        layout = client.bench.layout
        reply = self.step.unpacked(self.step(client, task), task, layout)
        if reply.vector is None:
            return reply
        start = task.models[task.slots.index(reply.slot)]
        update = (reply.vector - start)[: layout.trainable]
        if not bool(torch.isfinite(update).all()):  # it is refused as it is
            return reply
        owed = dict(client.state.get("owed", {}))
        if self.feedback and reply.slot in owed:
            update = update + owed[reply.slot]
        packed = packed_update(update, self.how, self.share, client.rng)
        if self.feedback:
            client.state["owed"] = owed | {
                reply.slot: update - unpacked_update(packed, self.how, len(update))
            }
        if layout.has_buffers:
            packed["rest"] = reply.vector[layout.trainable :].numpy()
        return replace(reply, vector=None, stats={**reply.stats, "packed": packed})

    def unpacked(self, reply: Reply, task: Task, layout: Layout) -> Reply:
        """The row that was sent, with the shortened update added."""
        if "packed" not in reply.stats:
            return reply
        packed, row = reply.stats["packed"], task.models[task.slots.index(reply.slot)].clone()
        row[: layout.trainable] += unpacked_update(packed, self.how, layout.trainable)
        if layout.has_buffers:
            row[layout.trainable :] = torch.as_tensor(packed["rest"])
        stats = {name: value for name, value in reply.stats.items() if name != "packed"}
        return replace(reply, vector=row, stats=stats)


def with_compression(method: Method, compression: Compression) -> Method:
    """The method, whose clients' updates travel shortened."""
    if compression.name is None:
        return method
    if isinstance(method.local, TrainNarrow):
        raise UserError(
            f"compress.name is {compression.name!r}, but clients of {method.name} send parts of the model; leave it out"
        )
    step = Compressed(
        step=method.local, how=compression.name, share=compression.share, feedback=compression.feedback
    )
    return replace(method, local=step)


def packed_update(update: Tensor, how: How, share: float, rng: np.random.Generator) -> dict[str, Any]:
    """The update as it travels: arrays and plain numbers."""
    values = update.numpy()
    count = max(1, math.ceil(share * len(values)))
    if how == "top-k":
        places = np.sort(np.argpartition(-np.abs(values), count - 1)[:count]).astype(np.int32)
        return {"places": places, "values": values[places]}
    if how == "mask":
        seed = int(rng.integers(2**31))
        return {"seed": seed, "values": values[mask_places(seed, len(values), count)]}
    if how == "1-bit":
        return {"signs": np.packbits(values >= 0), "length": float(np.abs(values).mean())}
    low, high = float(values.min()), float(values.max())
    levels = (values - low) / max(high - low, 1e-30) * 255
    return {"low": low, "high": high, "levels": np.floor(levels + rng.random(len(levels))).astype(np.uint8)}


def unpacked_update(packed: Any, how: How, size: int) -> Tensor:
    """The update that the shortened form stands for; a ValueError where it stands for none."""
    found = np.zeros(size, np.float32)
    if how in ("top-k", "mask"):
        values = np.asarray(packed["values"], np.float32)
        if how == "mask":
            places = mask_places(int(packed["seed"]), size, len(values))
        else:
            places = np.asarray(packed["places"])
            if places.shape != values.shape or not len(places) or places.min() < 0 or places.max() >= size:
                raise ValueError("its places are not those of a row")
        found[places] = values
    elif how == "1-bit":
        signs = np.unpackbits(np.asarray(packed["signs"], np.uint8))[:size]
        if len(signs) != size:
            raise ValueError("it has too few signs")
        found[:] = np.where(signs, packed["length"], -packed["length"])
    else:
        levels = np.asarray(packed["levels"], np.float32)
        if levels.shape != (size,):
            raise ValueError("it does not have as many levels as the row has numbers")
        found[:] = packed["low"] + levels / 255 * (packed["high"] - packed["low"])
    return torch.from_numpy(found)


def mask_places(seed: int, size: int, count: int) -> np.ndarray:
    """The places that a seed stands for."""
    if not 0 < count <= size:
        raise ValueError("it does not have as many numbers as its mask")
    return np.sort(np.random.default_rng(seed).choice(size, count, replace=False))
