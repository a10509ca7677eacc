"""What a client has told, as an accountant needs to know it: which mechanism, how much noise, how often."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

What = Literal["summaries", "embeddings", "labels", "updates", "evaluations"]
Mechanism = Literal["stated", "sum", "local", "promised", "steps"]


@dataclass(frozen=True, kw_only=True)
class Loss:
    """One thing that was told.

    stated: an answer that says its own epsilon, `noise`, without a delta, for one sample or (`whole`) for all data of
    the client. sum: in a sum of clients' clipped updates with Gaussian noise of `noise` clip lengths, drawn with
    probability `rate`, or `chosen` of `of`. local: one clipped update with such noise. promised: the client
    itself sees to it that all its updates together cost a sample at most epsilon `noise` at a delta of `rate`. steps:
    one step on a sum of samples' clipped gradients with such noise, every sample drawn with probability `rate`.
    """

    what: What
    mechanism: Mechanism
    noise: float
    rate: float = 1.0
    chosen: int = 0
    of: int = 0
    whole: bool = False


IN_A_FILE = tuple(field.name for field in fields(Loss))
Told = dict[Loss, int]  # how often each was told


def answers_called(kind: str) -> What:
    """What an answer to a step of that kind is booked as."""
    if kind.startswith("evaluate."):
        return "evaluations"
    called: dict[str, What] = {
        "query.embedding": "embeddings",
        "query.portrait": "embeddings",
        "query.sketch": "embeddings",
        "query.label-feature": "labels",
    }
    return called.get(kind, "summaries")


def add_loss(told: Told, loss: Loss, times: int = 1) -> None:
    """Adds it to the counts."""
    told[loss] = told.get(loss, 0) + times


def plain_losses(told: Mapping[Loss, int]) -> list[list[Any]]:
    """The losses as a file keeps them."""
    # not `astuple`, whose deep copies would be most of a large fleet's checkpoint
    return [[*(getattr(loss, name) for name in IN_A_FILE), times] for loss, times in told.items()]


def plain_by_client(told: Mapping[int, Mapping[Loss, int]]) -> dict[str, list[list[Any]]]:
    """Everybody's as a file keeps them; those of clients that told the same are made once."""
    made: dict[tuple[tuple[Loss, int], ...], list[list[Any]]] = {}
    found: dict[str, list[list[Any]]] = {}
    for client, losses in told.items():
        key = tuple(losses.items())
        if key not in made:
            made[key] = plain_losses(losses)
        found[str(client)] = made[key]
    return found


def losses_of(plain: Iterable[Iterable[Any]]) -> Told:
    """The losses that a file kept."""
    told: Told = {}
    for entry in plain:
        what, mechanism, noise, rate, chosen, of, whole, times = entry
        loss = Loss(
            what=what,
            mechanism=mechanism,
            noise=float(noise),
            rate=float(rate),
            chosen=int(chosen),
            of=int(of),
            whole=bool(whole),
        )
        told[loss] = int(times)
    return told
