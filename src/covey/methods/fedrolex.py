"""FedRolex: model-heterogeneous federated learning with rolling sub-model extraction (Alam et al., 2022)."""

from __future__ import annotations

from covey.core import Method, method
from covey.methods.heterofl import heterofl
from covey.parts.mix.average import Weighting
from covey.parts.selection.plain import Uniform
from covey.parts.steps.narrow import TrainNarrow
from covey.parts.steps.train import Train
from covey.parts.widths import AverageCovered, ServeWidths, ToWidths, WidthShare
from covey.settings import Count, takes


@method("fedrolex", family="devices", paper="https://arxiv.org/abs/2212.01548")
@takes(heterofl)
def fedrolex(
    train: Train,
    *,
    per_round: Count = 10,
    weighting: Weighting = "equal",
    widths: tuple[WidthShare, ...] = (1.0, 0.5, 0.25),
) -> Method:
    """HeteroFL whose parts roll: in round t a narrow client trains the units from t on, so that all are trained evenly.

    Of n units of a hidden layer a client of width r has those numbered t, t + 1, ..., t + ceil(r n) - 1 modulo n
    (Alam et al., 2022). A client uses the part that it would train next.
    """
    return Method(
        name="fedrolex",
        select=Uniform(per_round=per_round),
        send=ToWidths(widths=widths, rolling=True),
        local=TrainNarrow(train=train),
        mix=AverageCovered(weighting=weighting),
        serve=ServeWidths(widths=widths, rolling=True),
    )
