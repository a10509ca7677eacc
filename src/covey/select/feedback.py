"""What a scheduler can know of its devices' losses and sizes, and what knowing it costs."""

from __future__ import annotations

from typing import Literal, get_args

from covey.core import Round, Task
from covey.errors import UserError
from covey.steps.evaluate import Evaluate
from covey.steps.summaries import SampleCount

Losses = Literal["reported", "asked", "published"]
MEMORY = "losses"
SIZES = "sizes"


def check_losses(losses: str) -> None:
    """Refuse a source of losses that does not exist."""
    if losses not in get_args(Losses):
        raise UserError(f'losses is "{losses}"; it must be one of {", ".join(get_args(Losses))}.')


def known_losses(now: Round, source: Losses) -> dict[int, float]:
    """The loss of each reachable device of which one is known.

    `reported`: the mean training loss of its last reply, free of charge but as old as that reply. `asked`: every
    device evaluates the present model on its training data, which costs a transfer and time. `published`: 1 -
    accuracy on every device's test data, free of charge, as the HACCS authors' simulation has it. Before the
    first round nothing is known.
    """
    if now.number == 1:
        return {}
    if source == "reported":
        kept = now.memory.get(MEMORY, {})
        return {i: kept[str(i)] for i in now.here if str(i) in kept}
    free = source == "published"
    step = Evaluate(split="test" if free else "train")
    task = Task(models=now.models[:1], slots=(0,))
    replies = now.fleet.ask(step, dict.fromkeys(now.here, task), measure=free)
    if free and now.fleet.objective.main == "accuracy":
        return {reply.id: 1.0 - float(reply.stats["accuracy"]) for reply in replies if reply.stats}
    return {reply.id: float(reply.stats["loss"]) for reply in replies if reply.stats}


def remember_losses(now: Round) -> None:
    """Keeps the training losses that the clients reported."""
    reported = {str(reply.id): float(reply.stats["loss"]) for reply in now.replies}
    now.memory[MEMORY] = {**now.memory.get(MEMORY, {}), **reported}


def known_sizes(now: Round) -> dict[int, float]:
    """How many samples each client has; asked once of everybody."""
    kept = dict(now.memory.get(SIZES, {}))
    unknown = [i for i in now.here if str(i) not in kept]
    if unknown:
        kept.update({str(reply.id): float(reply.size) for reply in now.ask(SampleCount(), unknown)})
        now.memory[SIZES] = kept
    return {int(i): size for i, size in kept.items()}
