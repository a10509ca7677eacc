"""FedPer (Arivazhagan et al., 2019), FedRep (Collins et al., 2021), FedBN, Ditto (Li et al., 2021); fine-tuning."""

from dataclasses import replace

from covey.core import Method, method
from covey.methods.baselines import fedavg
from covey.parts.steps.home import TrainWithHome
from covey.parts.steps.personal import DittoTrain
from covey.parts.steps.train import Train
from covey.settings import Count, Natural, inline, takes


@method("fine-tuned", family="personalised")
def fine_tuned(train: Train, *, base: Method = inline(fedavg)) -> Method:
    """FedAvg whose clients train the common model once more on their own data before they use it."""
    return replace(base, name="fine-tuned", adapt=train)


@method("fedper", family="personalised", paper="https://arxiv.org/abs/1912.00818")
@takes(TrainWithHome, without=("norms", "head_epochs"))
def fedper(
    train: Train, *, base: Method = inline(fedavg), last: Natural = 2, home: tuple[str, ...] = ()
) -> Method:
    """FedAvg in which the last tensors of the model, its head, stay with each client (Arivazhagan et al., 2019).

    An unseen client starts from the head of the first model. Only the rest of the model travels. With adapters of which
    A and B train, `home = ["*.B"]` shares A and keeps B (FedSA-LoRA, Guo et al., 2025).
    """
    return replace(base, name="fedper", local=TrainWithHome(train=train, last=last, home=home))


@method("fedrep", family="personalised", paper="https://arxiv.org/abs/2102.07078")
@takes(TrainWithHome, without=("norms", "home"))
def fedrep(
    train: Train, *, head_epochs: Count = 5, base: Method = inline(fedavg), last: Natural = 2
) -> Method:
    """FedPer whose clients first train their head alone, and then the common rest alone (Collins et al., 2021).

    An unseen client starts from the head of the first model. Only the rest of the model travels.

    Args:
        head_epochs: epochs of the head before the rest is trained as [train] says.
    """
    local = TrainWithHome(train=train, last=last, head_epochs=head_epochs)
    return replace(base, name="fedrep", local=local)


@method("fedbn", family="personalised", paper="https://arxiv.org/abs/2102.07623")
def fedbn(train: Train, *, base: Method = inline(fedavg)) -> Method:
    """FedAvg in which BatchNorm's weights, biases and statistics stay with each client (Li et al., 2021).

    For a model without BatchNorm it is FedAvg. An unseen client starts from those of the first model.
    """
    return replace(base, name="fedbn", local=TrainWithHome(train=train, last=0, norms=True))


@method("ditto", family="personalised", paper="https://arxiv.org/abs/2012.04221")
def ditto(train: Train, *, base: Method = inline(fedavg), local: DittoTrain = inline(DittoTrain)) -> Method:
    """FedAvg beside which every client trains a model of its own that is held to the common one (Li et al., 2021).

    v_k minimises F_k(v) + (pull / 2) ||v - w||^2 in the rounds in which the client works, and is what it uses.
    """
    return replace(base, name="ditto", local=local)
