"""Survival: Cox's partial likelihood as an objective, and the C-index.

A label is a time, with a minus where nothing had happened by then (the sample is censored), as in XGBoost.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from covey.errors import UserError
from covey.settings.registry import register
from covey.training.metrics import metric

AT_ONCE = 1000  # events that are compared with everybody at a time


@register("objective", "cox")
@dataclass(frozen=True)
class Cox:
    """The negative partial log likelihood of proportional hazards per sample, ties by Efron; scored by its own loss.

    An event at time t costs log(sum of exp(f_j) over all j with t_j >= t) - f, where of d events at the same time the
    l-th (from 0) leaves l / d of their own sum out. Who is at risk is taken from the same client (and, in training, the
    same batch): as if every client had a baseline hazard of its own. `f` is the model's one output, a log hazard.
    """

    kernel: ClassVar[str] = ""
    main: ClassVar[str] = "loss"
    higher_is_better: ClassVar[bool] = False
    told: ClassVar[tuple[str, ...]] = ("loss",)
    mixes_samples: ClassVar[bool] = True

    def target(self, x: Tensor, y: Tensor) -> Tensor:  # noqa: ARG002
        if not y.is_floating_point():
            raise UserError(
                'objective is "cox", and the labels are classes; it needs times, with a minus where nothing had '
                'happened by then (data.task = "regression" for whole numbers)'
            )
        return y

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        return partial_losses(outputs.flatten(), target.flatten()).mean()

    def scores(self, outputs: Tensor, target: Tensor) -> dict[str, Tensor]:
        return {"loss": partial_losses(outputs.flatten(), target.flatten()).detach()}


def partial_losses(hazard: Tensor, label: Tensor) -> Tensor:
    """What each sample adds to the negative partial log likelihood; 0 for censored ones."""
    if not len(hazard):
        return hazard
    event, time = label > 0, label.abs()
    largest = hazard.detach().max()
    weight = torch.exp(hazard - largest)
    order = torch.argsort(time, stable=True)
    not_before = weight[order].flip(0).cumsum(0).flip(0)  # the sum over all times that are not before each
    at_risk = not_before[torch.searchsorted(time[order], time)]
    of_event = torch.where(event, weight, torch.zeros_like(weight))
    same, place = torch.unique(time, return_inverse=True)
    tied = weight.new_zeros(len(same)).index_add(0, place, of_event)[place]
    share = _shares(place, event, len(same)).to(hazard)
    cost = torch.log((at_risk - share * tied).clamp(min=1e-30)) + largest - hazard
    return torch.where(event, cost, torch.zeros_like(cost))


def _shares(place: Tensor, event: Tensor, times: int) -> Tensor:
    """l / d for the l-th of d events at the same time; `place` is the number of each sample's time."""
    where, happened = place.cpu().numpy(), event.cpu().numpy()
    counts = np.bincount(where[happened], minlength=times)
    order = np.argsort(where[happened], kind="stable")
    firsts = np.cumsum(counts) - counts
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order)) - firsts[where[happened][order]]
    share = np.zeros(len(where), np.float32)
    share[happened] = rank / counts[where[happened]]
    return torch.from_numpy(share)


@metric(higher_is_better=True, share=True)
def c_index(outputs: Tensor, target: Tensor) -> float | None:
    """Harrell's C: of all pairs whose order is known, the share in which the higher hazard has the earlier event.

    Equal hazards count half. A pair is known if the earlier of two times is an event; of equal times, if one is
    censored.
    """
    hazard, label = (part.flatten().double().numpy() for part in (outputs, target))
    time, event = np.abs(label), label > 0
    known = agreed = 0.0
    places = np.flatnonzero(event)
    for part in np.split(places, range(AT_ONCE, len(places), AT_ONCE)):
        later = (time > time[part, None]) | ((time == time[part, None]) & ~event)
        known += later.sum()
        agreed += (later & (hazard < hazard[part, None])).sum()
        agreed += 0.5 * (later & (hazard == hazard[part, None])).sum()
    return float(agreed / known) if known else None
