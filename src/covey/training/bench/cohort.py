"""Many clients trained at once with stacked parameters (`torch.func`): one small model leaves a GPU idle.

A chunk of clients crosses to the device in a few copies and comes back in two; in between nothing waits for the device,
and the number of kernels depends on the steps, not on the clients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from covey.training.bench.base import Batches, Fit, Recipe
from covey.training.rows import activations

if TYPE_CHECKING:
    from covey.training.bench.torch_bench import TorchBench

RANDOM_OR_STATEFUL = (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd, nn.RNNBase)
ON_A_PROCESSOR = 1000  # megabytes of a chunk
ROWS = 8  # of each client: weights, start, velocity, gradient, and what a step makes of them
KEPT = 3  # of each activation: itself, its gradient, and what the next layer makes of it

Data = Sequence[tuple[Tensor, Tensor]]
# stacked weights, inputs, targets and which of them count -> stacked gradients and losses
Gradients = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True, kw_only=True)
class Stacking:
    """How a cohort uses its device.

    `megabytes`: what a chunk of clients may take; 0 is half of what a GPU has free, and 1,000 on a processor.
    `mixed`: layers compute in bfloat16; weights, losses and updates are float32. `compiled`: through `torch.compile`.
    """

    megabytes: int = 0
    mixed: bool = False
    compiled: bool = False

    def bytes_on(self, device: torch.device) -> int:
        if self.megabytes:
            return self.megabytes * 1_000_000
        if device.type == "cuda":
            return int(torch.cuda.mem_get_info(device)[0] // 2)
        return ON_A_PROCESSOR * 1_000_000


def refusal(model: nn.Module, recipe: Recipe) -> str:
    """Why a model cannot be trained in a cohort, or an empty string."""
    for module in model.modules():
        if isinstance(module, RANDOM_OR_STATEFUL):
            return f"{type(module).__name__} has randomness or statistics of its own"
    if not recipe.plain:
        return "several batches make a step, or another precision is asked for"
    return "" if recipe.optimiser == "sgd" else f"the optimiser {recipe.optimiser} is not supported"


def gradients_of(bench: TorchBench) -> Gradients:
    """The gradient of every client's batch at once; made once per bench, as compiling takes a while."""
    names = [n for n, p in bench.model.named_parameters() if p.requires_grad]
    shapes = [p.shape for p in bench.model.parameters() if p.requires_grad]
    sizes = [shape.numel() for shape in shapes]

    def loss(flat: Tensor, x: Tensor, y: Tensor, counts: Tensor) -> Tensor:
        parts = torch.split(flat, sizes)
        tensors = {n: part.view(shape) for n, part, shape in zip(names, parts, shapes, strict=True)}
        # fused attention cannot be stacked: it would run client by client
        plain = sdpa_kernel(SDPBackend.MATH)
        with plain, torch.autocast(bench.device.type, dtype=torch.bfloat16, enabled=bench.stacking.mixed):
            outputs = functional_call(bench.model, tensors, (x,))
        each = bench.objective.scores(outputs.float(), y)["loss"]
        return (each * counts).sum() / counts.sum().clamp(min=1)

    made: Gradients = vmap(grad_and_value(loss))
    return torch.compile(made) if bench.stacking.compiled else made


def fit_cohort(
    bench: TorchBench, recipe: Recipe, rows: Sequence[Tensor], data: Data, batches: Sequence[Batches]
) -> list[Fit]:
    """What `bench.fit` gives for each client, up to rounding, chunk by chunk."""
    bench.load(rows[0], training=True)
    chunks = math.ceil(len(rows) / at_once(bench, data, batches))
    ends = np.linspace(0, len(rows), chunks + 1).round().astype(int).tolist()
    return [
        fit
        for first, last in pairwise(ends)
        for fit in fit_chunk(bench, recipe, rows[first:last], data[first:last], batches[first:last])
    ]


def at_once(bench: TorchBench, data: Data, batches: Sequence[Batches]) -> int:
    """How many clients fit into the memory that a chunk may take; at least one."""
    width = max((len(b) for own in batches for b in own), default=1)
    sample = next((x[:1] for x, _ in data if len(x)), None)
    inside = activations(bench.model, sample.to(bench.device)) if sample is not None else 0
    held = max(x.nbytes + y.nbytes for x, y in data)
    each = 4 * (ROWS * bench.layout.trainable + KEPT * width * inside) + held
    return max(1, bench.stacking.bytes_on(bench.device) // each)


def fit_chunk(
    bench: TorchBench, recipe: Recipe, rows: Sequence[Tensor], data: Data, batches: Sequence[Batches]
) -> list[Fit]:
    """These clients together; one with fewer batches waits for the others, a smaller batch is filled up and masked."""
    if bench.gradients is None:
        bench.gradients = gradients_of(bench)
    trainable = bench.layout.trainable
    places, counts = plan(data, batches)
    x = sent(torch.cat([x for x, _ in data]), bench.device)
    y = sent(torch.cat([bench.objective.target(*one) for one in data]), bench.device)
    index, sizes = sent(places, bench.device), sent(counts, bench.device)
    weights = sent(torch.stack([row[:trainable] for row in rows]), bench.device)
    start, velocity, losses = weights, torch.zeros_like(weights), []
    for step in range(len(index)):
        on = sizes[step][:, None] > 0
        used = (torch.arange(index.shape[2], device=bench.device) < sizes[step][:, None]).float()
        gradient, loss = bench.gradients(weights, x[index[step]], y[index[step]], used)
        if recipe.prox:
            gradient = gradient + recipe.prox * (weights - start)
        if recipe.clip is not None:
            gradient = gradient * (recipe.clip / (gradient.norm(dim=1, keepdim=True) + 1e-6)).clamp(max=1.0)
        if recipe.weight_decay:
            gradient = gradient + recipe.weight_decay * weights
        velocity = torch.where(on, recipe.momentum * velocity + gradient, velocity)
        weights = torch.where(on, weights - recipe.lr * velocity, weights)
        losses.append(loss)
    trained, speed = torch.stack([weights, velocity]).cpu()  # the first time that anybody waits
    told = torch.stack(losses).double().cpu().numpy() if losses else np.zeros((0, len(rows)))
    return [
        Fit(
            row=torch.cat([trained[k], row[trainable:]]),
            losses=told[: len(own), k].copy(),
            velocity=speed[k],
        )
        for k, (row, own) in enumerate(zip(rows, batches, strict=True))
    ]


def plan(data: Data, batches: Sequence[Batches]) -> tuple[Tensor, Tensor]:
    """Positions of (step, client, place in the batch) among all the clients' samples, and how many places count."""
    steps = max((len(own) for own in batches), default=0)
    width = max((len(b) for own in batches for b in own), default=0)
    starts = np.cumsum([0, *(len(y) for _, y in data)])
    places = np.broadcast_to(
        np.minimum(starts[:-1], max(0, starts[-1] - 1))[None, :, None], (steps, len(data), width)
    )
    places = places.copy()  # filled up with the client's first sample
    counts = np.zeros((steps, len(data)), np.int64)
    for k, own in enumerate(batches):
        for step, batch in enumerate(own):
            places[step, k, : len(batch)] = starts[k] + batch
            counts[step, k] = len(batch)
    return torch.from_numpy(places), torch.from_numpy(counts)


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """A copy on the device; to a GPU from pinned memory, which nobody waits for."""
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)
