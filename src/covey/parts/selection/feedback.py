"""What a scheduler can know about its devices' losses, and what it costs to know it."""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

from covey.core import Budget, Facts, Key, Round, Send, Shows, Step, part, to_everybody
from covey.parts.selection.plain import PerRound
from covey.parts.steps.evaluate import Evaluate

LossSource = Literal["reported", "asked", "published", "none"]
LOSSES: Key[dict[int, float]] = Key("losses", 'add "losses" to after')


@dataclass(frozen=True, kw_only=True)
class ByLosses(PerRound):
    """A selection that goes by latencies and losses.

    Args:
        step: what devices will do, for their latency.
        send: which model they would be sent, where they are asked for its loss.
        losses: how losses are known: reported with training, asked (and paid) each round, or as published.
    """

    step: Step
    send: Send = to_everybody
    losses: LossSource = "reported"

    anyway: ClassVar[Facts] = ()  # what the selection needs however losses are known

    @property
    def needs(self) -> Facts:
        """Only losses that come with the replies have to be kept by another part."""
        return (*self.anyway, LOSSES) if self.losses == "reported" else self.anyway

    def privately(self, budget: Budget) -> Self:  # noqa: ARG002
        """Without losses: all devices count alike, but for their age and speed."""
        return replace(self, losses="none")

    def known(self, now: Round) -> dict[int, float]:
        """The loss of each reachable device of which one is known.

        `reported`: the mean training loss of its last reply, free of charge but as old as that reply. `asked`: every
        device evaluates the model that it would be sent on its training data, which costs a transfer and time.
        `published`: 1 - accuracy on every device's test data, free of charge, as the HACCS authors' simulation has it.
        `none`: nobody is asked, and all count alike. Before the first round nothing is known.
        """
        if now.number == 1 or self.losses == "none":
            return {}
        if self.losses == "reported":
            kept = LOSSES.of(now.memory)
            return {i: kept[i] for i in now.here if i in kept}
        free = self.losses == "published"
        step = Evaluate(split="test" if free else "train")
        replies = now.fleet.ask(step, self.send(now, now.here), measure=free)
        if free and now.fleet.objective.main == "accuracy":
            return {reply.id: 1.0 - float(reply.stats["accuracy"]) for reply in replies if reply.stats}
        return {reply.id: float(reply.stats["loss"]) for reply in replies if reply.stats}


@part(
    "after",
    "losses",
    shows=Shows(what="every client's exact loss", instead='set method.losses = "none"'),
    gives=(LOSSES,),
)
def remember_losses(now: Round) -> None:
    """Keeps each client's training loss as it last reported it."""
    reported = {reply.id: float(reply.stats["loss"]) for reply in now.replies}
    LOSSES.keep(now.memory, LOSSES.get(now.memory, {}) | reported)
