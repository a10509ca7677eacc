"""How far a client should make a model its own: decided at home, on its own held-out data, and told to nobody."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from covey.arrays import Array
from covey.core import Client
from covey.data.types import View
from covey.parts.steps.adapted import trained_before_use
from covey.parts.steps.train import Train
from covey.training.metrics import brier_scores

HELD_OUT = "held-out"  # as a task's argument `own`: each client finds its share by itself
AT_HOME = -1.0  # as such a share is told where only the client knows it
TRIED = (0.0, 0.5, 1.0)  # shares of the client's own update in the model that would serve it
PARTS = 3  # of the training data: each is held out once
FEWEST = 6  # samples; with fewer the model is used as it is


def share_at_home(client: Client, train: Train, updates: int, row: Tensor) -> float:
    """The share of `TRIED` with the lowest loss on each third of the data after training on the other two."""
    part = client.train
    if len(part) < FEWEST:
        return 0.0
    held = client.stream("held out at home").permutation(len(part)) % PARTS
    total = np.zeros(len(TRIED))
    for number in range(PARTS):
        rest, judging = (part.select(np.flatnonzero(where)) for where in (held != number, held == number))
        rng = client.stream("held out at home", number, "round", client.round)
        trained = trained_before_use(replace(client, train=rest), train, updates, row, rng)
        losses = [score(client, torch.lerp(row, trained, share), judging)[1] for share in TRIED]
        total += len(judging) * np.array(losses)
    return TRIED[int(total.argmin())]


def score(client: Client, row: Tensor, judging: View) -> tuple[float, float]:
    """The main metric and the loss of a model, means over samples.

    For classes the loss is the Brier score, and a sample costs at most what it costs to rule its label out and to know
    nothing else, C / (C - 1) for C classes (for two that is no bound). By the log loss a few samples of which a model
    is wrongly sure would outweigh all others; without the bound, wrong labels would favour a model that is sure of
    nothing.
    """
    objective = client.bench.objective
    x, y = judging.tensors()
    outputs, target = client.bench.forward(row, x), objective.target(x, y)
    scores = objective.scores(outputs, target)
    of_classes = objective.kernel == "cross-entropy"
    losses = bounded(outputs, target) if of_classes else scores["loss"].double().numpy()
    return float(scores[objective.main].double().mean()), float(losses.mean())


def bounded(outputs: Tensor, target: Tensor) -> Array:
    """The samples' Brier scores, each at most that of an even share for every class but the true one."""
    classes = outputs.shape[1]
    return brier_scores(outputs, target).clip(max=classes / max(1, classes - 1))
