"""FedPer (Arivazhagan et al., 2019), FedRep (Collins et al., 2021), FedBN, Ditto (Li et al., 2021); fine-tuning."""

from __future__ import annotations

from dataclasses import replace

from covey.core import Method
from covey.methods.baselines import fedavg
from covey.mix.average import Weighting
from covey.ranges import Count
from covey.settings import validated
from covey.steps.home import TrainWithHome
from covey.steps.personal import DittoTrain
from covey.steps.train import Train


@validated
def fine_tuned(train: Train, *, per_round: Count = 10, weighting: Weighting = "samples") -> Method:
    """FedAvg whose clients train the common model once more on their own data before they use it.

    Args:
        per_round: clients that train in each round.
        weighting: what a model counts: by its client's samples or batches, or equal.
    """
    return replace(fedavg(train, per_round=per_round, weighting=weighting), name="fine-tuned", adapt=train)


@validated
def fedper(train: Train, *, per_round: Count = 10, last: int = 2, weighting: Weighting = "samples") -> Method:
    """FedAvg in which the last tensors of the model, its head, stay with each client (Arivazhagan et al., 2019).

    A newcomer starts from the head of the first model. Only the rest of the model travels.

    Args:
        per_round: clients that train in each round.
        last: how many tensors stay; a layer usually has two, weight and bias.
        weighting: what a model counts: by its client's samples or batches, or equal.
    """
    local = TrainWithHome(train=train, last=last)
    return replace(fedavg(train, per_round=per_round, weighting=weighting), name="fedper", local=local)


@validated
def fedrep(
    train: Train,
    *,
    per_round: Count = 10,
    last: int = 2,
    head_epochs: Count = 5,
    weighting: Weighting = "samples",
) -> Method:
    """FedPer whose clients first train their head alone, and then the common rest alone (Collins et al., 2021).

    A newcomer starts from the head of the first model. Only the rest of the model travels.

    Args:
        per_round: clients that train in each round.
        last: how many tensors stay; a layer usually has two, weight and bias.
        head_epochs: epochs of the head before the rest is trained as [train] says.
        weighting: what a model counts: by its client's samples or batches, or equal.
    """
    local = TrainWithHome(train=train, last=last, head_epochs=head_epochs)
    return replace(fedavg(train, per_round=per_round, weighting=weighting), name="fedrep", local=local)


@validated
def fedbn(train: Train, *, per_round: Count = 10, weighting: Weighting = "samples") -> Method:
    """FedAvg in which BatchNorm's weights, biases and statistics stay with each client (Li et al., 2021).

    For a model without BatchNorm it is FedAvg. A newcomer starts from those of the first model.

    Args:
        per_round: clients that train in each round.
        weighting: what a model counts: by its client's samples or batches, or equal.
    """
    local = TrainWithHome(train=train, last=0, norms=True)
    return replace(fedavg(train, per_round=per_round, weighting=weighting), name="fedbn", local=local)


@validated
def ditto(
    train: Train, *, per_round: Count = 10, pull: float = 0.1, weighting: Weighting = "samples"
) -> Method:
    """FedAvg beside which every client trains a model of its own that is held to the common one (Li et al., 2021).

    v_k minimises F_k(v) + (pull / 2) ||v - w||^2 in the rounds in which the client works, and is what it uses.

    Args:
        per_round: clients that train in each round.
        pull: how strongly the own model is held to the common one (the paper's lambda); 0: each for itself.
        weighting: what a model counts: by its client's samples or batches, or equal.
    """
    local = DittoTrain(train=train, pull=pull)
    return replace(fedavg(train, per_round=per_round, weighting=weighting), name="ditto", local=local)
