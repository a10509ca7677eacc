"""Many clients trained at once with stacked parameters (`torch.func`): one small model leaves a GPU idle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from covey.bench.base import Batches, Fit, Recipe

if TYPE_CHECKING:
    from covey.bench.torch_bench import TorchBench

RANDOM_OR_STATEFUL = (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd)


def refusal(model: nn.Module, recipe: Recipe) -> str:
    """Why a model cannot be trained in a cohort, or an empty string."""
    for module in model.modules():
        if isinstance(module, RANDOM_OR_STATEFUL):
            return f"{type(module).__name__} has randomness or statistics of its own"
    return "" if recipe.optimiser == "sgd" else f"the optimiser {recipe.optimiser} is not supported"


def fit_cohort(
    bench: TorchBench,
    recipe: Recipe,
    rows: Sequence[Tensor],
    data: Sequence[tuple[Tensor, Tensor]],
    batches: Sequence[Batches],
) -> list[Fit]:
    """What `bench.fit` gives for each client, up to rounding; clients with fewer batches wait for the others."""
    device, trainable = bench.device, bench.layout.trainable
    weights = torch.stack([row[:trainable] for row in rows]).to(device)
    start = weights.clone()
    velocity = torch.zeros_like(weights)
    target = [bench.objective.target(x, y) for x, y in data]
    losses: list[list[float]] = [[] for _ in rows]
    names = [n for n, p in bench.model.named_parameters() if p.requires_grad]
    shapes = [p.shape for p in bench.model.parameters() if p.requires_grad]
    sizes = [shape.numel() for shape in shapes]
    bench.load(rows[0], training=True)

    def loss(flat: Tensor, x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
        parts = torch.split(flat, sizes)
        tensors = {n: part.view(shape) for n, part, shape in zip(names, parts, shapes, strict=True)}
        each = bench.objective.scores(functional_call(bench.model, tensors, (x,)), y)["loss"]
        return (each * mask).sum() / mask.sum()

    gradients = vmap(grad_and_value(loss))
    for number in range(max((len(b) for b in batches), default=0)):
        active = [number < len(b) for b in batches]
        width = max(len(b[number]) for b, on in zip(batches, active, strict=True) if on)
        index = [
            padded(b[number] if on else np.zeros(1, np.int64), width)
            for b, on in zip(batches, active, strict=True)
        ]
        x = torch.stack([d[0][i] for d, i in zip(data, index, strict=True)]).to(device)
        y = torch.stack([t[i] for t, i in zip(target, index, strict=True)]).to(device)
        real = [len(b[number]) if on else 1 for b, on in zip(batches, active, strict=True)]
        mask = (torch.arange(width)[None] < torch.tensor(real)[:, None]).float().to(device)
        gradient, value = gradients(weights, x, y, mask)
        if recipe.prox:
            gradient = gradient + recipe.prox * (weights - start)
        if recipe.clip is not None:
            gradient = gradient * (recipe.clip / (gradient.norm(dim=1, keepdim=True) + 1e-6)).clamp(max=1.0)
        gradient = gradient + recipe.weight_decay * weights
        on_device = torch.tensor(active, device=device)[:, None]
        velocity = torch.where(on_device, recipe.momentum * velocity + gradient, velocity)
        weights = torch.where(on_device, weights - recipe.lr * velocity, weights)
        for k, on in enumerate(active):
            if on:
                losses[k].append(float(value[k]))
    trained = weights.cpu()
    return [
        Fit(
            row=torch.cat([trained[k], row[trainable:]]),
            losses=np.array(losses[k]),
            velocity=velocity[k].cpu(),
        )
        for k, row in enumerate(rows)
    ]


def padded(index: np.ndarray, width: int) -> Tensor:
    """Positions filled up to a width with the first one, which the mask then leaves out."""
    return torch.from_numpy(np.concatenate([index, np.full(width - len(index), index[0])]))
