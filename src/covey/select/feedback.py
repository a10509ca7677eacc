"""What a scheduler can know of its devices' losses, and what knowing it costs."""

from __future__ import annotations

from typing import Literal

from covey.core import Round, Send, to_everybody
from covey.needs import Facts, Key, declares
from covey.steps.evaluate import Evaluate

Losses = Literal["reported", "asked", "published", "none"]
LOSSES: Key[dict[int, float]] = Key("losses", 'add "losses" to after')


def needs_of_losses(source: Losses) -> Facts:
    """Only losses that come with the replies have to be kept by somebody."""
    return (LOSSES,) if source == "reported" else ()


def known_losses(now: Round, source: Losses, send: Send = to_everybody) -> dict[int, float]:
    """The loss of each reachable device of which one is known.

    `reported`: the mean training loss of its last reply, free of charge but as old as that reply. `asked`: every
    device evaluates the model that it would be sent on its training data, which costs a transfer and time.
    `published`: 1 - accuracy on every device's test data, free of charge, as the HACCS authors' simulation has it.
    `none`: nobody is asked, and all count alike. Before the first round nothing is known.
    """
    if now.number == 1 or source == "none":
        return {}
    if source == "reported":
        kept = LOSSES.of(now.memory)
        return {i: kept[i] for i in now.here if i in kept}
    free = source == "published"
    step = Evaluate(split="test" if free else "train")
    replies = now.fleet.ask(step, send(now, now.here), measure=free)
    if free and now.fleet.objective.main == "accuracy":
        return {reply.id: 1.0 - float(reply.stats["accuracy"]) for reply in replies if reply.stats}
    return {reply.id: float(reply.stats["loss"]) for reply in replies if reply.stats}


@declares(gives=(LOSSES,))
def remember_losses(now: Round) -> None:
    """Keeps each client's training loss as it last reported it."""
    reported = {reply.id: float(reply.stats["loss"]) for reply in now.replies}
    LOSSES.keep(now.memory, LOSSES.get(now.memory, {}) | reported)
