"""FedPer (Arivazhagan et al., 2019), FedRep (Collins et al., 2021), FedBN, Ditto (Li et al., 2021); fine-tuning."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from covey.core.round import Method
from covey.methods.baselines import fedavg, fedavg_around
from covey.parts.steps.home import TrainWithHome
from covey.parts.steps.personal import DittoTrain
from covey.parts.steps.train import Train
from covey.settings.ranges import Count
from covey.settings.registry import register
from covey.settings.signatures import takes, validated


@register("method", "fine-tuned", family="personalised")
@validated
@takes(fedavg)
def fine_tuned(train: Train, **settings: Any) -> Method:
    """FedAvg whose clients train the common model once more on their own data before they use it."""
    return replace(fedavg(train, **settings), name="fine-tuned", adapt=train)


@register("method", "fedper", family="personalised")
@validated
@takes(fedavg, TrainWithHome, without=("norms", "head_epochs"))
def fedper(train: Train, **settings: Any) -> Method:
    """FedAvg in which the last tensors of the model, its head, stay with each client (Arivazhagan et al., 2019).

    An unseen client starts from the head of the first model. Only the rest of the model travels.
    """
    return fedavg_around("fedper", TrainWithHome, train, **settings)


@register("method", "fedrep", family="personalised")
@validated
@takes(fedavg, TrainWithHome, without=("norms",))
def fedrep(train: Train, *, head_epochs: Count = 5, **settings: Any) -> Method:
    """FedPer whose clients first train their head alone, and then the common rest alone (Collins et al., 2021).

    An unseen client starts from the head of the first model. Only the rest of the model travels.

    Args:
        head_epochs: epochs of the head before the rest is trained as [train] says.
    """
    return fedavg_around("fedrep", TrainWithHome, train, head_epochs=head_epochs, **settings)


@register("method", "fedbn", family="personalised")
@validated
@takes(fedavg)
def fedbn(train: Train, **settings: Any) -> Method:
    """FedAvg in which BatchNorm's weights, biases and statistics stay with each client (Li et al., 2021).

    For a model without BatchNorm it is FedAvg. An unseen client starts from those of the first model.
    """
    return fedavg_around("fedbn", TrainWithHome, train, last=0, norms=True, **settings)


@register("method", "ditto", family="personalised")
@validated
@takes(fedavg, DittoTrain)
def ditto(train: Train, **settings: Any) -> Method:
    """FedAvg beside which every client trains a model of its own that is held to the common one (Li et al., 2021).

    v_k minimises F_k(v) + (pull / 2) ||v - w||^2 in the rounds in which the client works, and is what it uses.
    """
    return fedavg_around("ditto", DittoTrain, train, **settings)
