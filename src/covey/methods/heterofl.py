"""HeteroFL (Diao et al., 2021) and FedRolex (Alam et al., 2022): weak devices train a part of every layer."""

from dataclasses import replace

from covey.core import Method, method
from covey.parts.mix.average import Weighting
from covey.parts.selection.plain import Uniform
from covey.parts.steps.narrow import TrainNarrow
from covey.parts.steps.train import Train
from covey.parts.widths import AverageCovered, ServeWidths, ToWidths, WidthShare
from covey.settings import Count, inline


@method("heterofl", family="devices", paper="https://arxiv.org/abs/2010.01264")
def heterofl(
    train: Train,
    *,
    per_round: Count = 10,
    weighting: Weighting = "equal",
    widths: tuple[WidthShare, ...] = (1.0, 0.5, 0.25),
) -> Method:
    """Weak devices train the first units of every hidden layer, strong ones all of them.

    A client of width r has the upper left part of every tensor of the global model, the first r of its outputs and of
    its inputs. A number is averaged over the clients that have it: the upper left part over all, what lies beyond it
    over the stronger ones. In a narrow network what a hidden layer gives is scaled by 1 / r before a norm, else by its
    square root. A client uses the part that it trains (Diao et al., 2021).
    """
    return Method(
        name="heterofl",
        select=Uniform(per_round=per_round),
        send=ToWidths(widths=widths),
        local=TrainNarrow(train=train),
        mix=AverageCovered(weighting=weighting),
        serve=ServeWidths(widths=widths),
    )


@method("fedrolex", family="devices", paper="https://arxiv.org/abs/2212.01548")
def fedrolex(train: Train, *, base: Method = inline(heterofl)) -> Method:
    """HeteroFL whose parts roll: in round t a narrow client trains the units from t on, so that all are trained evenly.

    Of n units of a hidden layer a client of width r has those numbered t, t + 1, ..., t + ceil(r n) - 1 modulo n
    (Alam et al., 2022). A client uses the part that it would train next.
    """
    assert isinstance(base.send, ToWidths)
    assert isinstance(base.serve, ServeWidths)
    send, serve = replace(base.send, rolling=True), replace(base.serve, rolling=True)
    return replace(base, name="fedrolex", send=send, serve=serve)
