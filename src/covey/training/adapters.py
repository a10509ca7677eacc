"""Adapters, a few trained numbers beside frozen layers: LoRA (Hu et al., 2022), FFA-LoRA (Sun et al., 2024)."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from covey.errors import UserError, importing, user_error
from covey.settings.catalogue import ADAPTERS
from covey.settings.choices import OneOrNone
from covey.settings.ranges import Count, Positive
from covey.settings.registry import register
from covey.streams import stream
from covey.training.frozen import named_by

ADAPTER = OneOrNone(ADAPTERS, given=("model",))


class LoRA(nn.Module):
    """W x + scale B A x, with W as it came; B begins at zero, so that the first outputs are those of W."""

    def __init__(self, base: nn.Linear, rank: int, scale: float) -> None:
        super().__init__()
        self.base, self.scale = base, scale
        self.A = nn.Parameter(torch.empty(rank, base.in_features))
        self.B = nn.Parameter(torch.zeros(base.out_features, rank))
        nn.init.kaiming_uniform_(self.A, a=5**0.5)

    def forward(self, x: Tensor) -> Tensor:
        given: Tensor = self.base(x)
        return given + self.scale * (x @ self.A.T @ self.B.T)


@register("adapter", "lora")
def lora(
    model: nn.Module,
    *,
    rank: Count = 8,
    targets: tuple[str, ...] = ("*",),
    scale: Positive = 1.0,
    travels: Literal["B", "both", "product"] = "B",
) -> None:
    """Low-rank adapters beside linear layers. By default A is drawn from the seed and frozen, and B trains and travels.

    So the mean of clients' adapters is the adapter of the mean, sum w_k (B_k A) = (sum w_k B_k) A: clusters,
    corrections, secure sums and noise stay linear. Where A travels, too, a message has its numbers as well, and the
    means of A and of B are not the mean of B A.

    Args:
        rank: of B A.
        targets: which linear layers, by patterns of their names.
        scale: of B A.
        travels: B (FFA-LoRA), both (A and B are averaged separately), or product (both travel; the server averages
            B A and takes its largest singular values).
    """
    found = [
        (name, layer)
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Linear) and any(named_by(pattern, name) for pattern in targets)
    ]
    if not found:
        linear = ", ".join(n for n, layer in model.named_modules() if isinstance(layer, nn.Linear)) or "none"
        raise UserError(
            f"model.adapter.targets is {list(targets)}; allowed: patterns of linear layers: {linear}"
        )
    model.requires_grad_(False)
    for name, layer in found:
        made = LoRA(layer, rank, scale)
        made.A.requires_grad_(travels != "B")
        model.set_submodule(name, made)


def adapted(model: nn.Module, setting: Any, seed: int, train: Sequence[str]) -> nn.Module:
    """The model with an adapter; `train` names what trains beside it, such as the head."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(stream(seed, "adapter").integers(2**62)))
        whole = nn.Sequential(model) if isinstance(model, nn.Linear) else model
        ADAPTER.made("model.adapter", setting)(model=whole)
    names = [name for name, _ in whole.named_parameters()]
    for pattern in train:
        if not any(named_by(pattern, name) for name in names):
            raise UserError(f"model.train has {pattern!r}, which is no parameter or module of the model")
    for name, parameter in whole.named_parameters():
        if any(named_by(pattern, name) for pattern in train):
            parameter.requires_grad_(True)
    return whole


class Prompted(nn.Module):
    """Learned vectors before those of a sample: the layers behind look at them, and their outputs are dropped."""

    def __init__(self, base: nn.Module, count: int, width: int) -> None:
        super().__init__()
        self.base = base
        self.prompt = nn.Parameter(torch.randn(count, width) * 0.02)

    def forward(self, x: Tensor) -> Tensor:
        given: Tensor = self.base(torch.cat([self.prompt.expand(len(x), -1, -1), x], 1))
        return given[:, len(self.prompt) :]


@register("adapter", "prompt")
def prompt(model: nn.Module, *, count: Count = 8, target: str = "body") -> None:
    """Prompt tuning (Lester et al., 2021): a few learned vectors before every text; all else is frozen.

    Args:
        count: how many vectors.
        target: the layers that take a sample's vectors (N, places, width): body of decoder and lstm, blocks of vit.
    """
    layers = dict(model.named_modules()).get(target)
    first = next(iter(layers.parameters()), None) if layers is not None else None
    if not target or layers is None or first is None or first.dim() > 2:
        raise UserError(
            f"model.adapter.target is {target!r}; allowed: layers that take vectors (N, places, width), such as body "
            "of decoder or blocks of vit"
        )
    model.requires_grad_(False)
    model.set_submodule(target, Prompted(layers, count, first.shape[-1]))


@register("adapter", "peft")
def peft(
    model: nn.Module, *, type: str, targets: tuple[str, ...], settings: Mapping[str, Any] | None = None
) -> None:
    """An adapter of the package PEFT inside the network, such as IA3, LOHA or its own LORA: what it trains travels.

    Its numbers are averaged one by one.

    Args:
        type: as PEFT calls it: IA3, LOHA, LOKR, LORA, OFT and others that change layers.
        targets: which layers, by patterns of their names.
        settings: of the adapter, as PEFT calls them, such as {r = 8, lora_alpha = 16}.
    """
    with importing('model.adapter.name = "peft" needs the package peft: install covey[adapters]'):
        from peft import get_peft_config, inject_adapter_in_model
    found = [
        name
        for name, layer in model.named_modules()
        if any(True for _ in layer.parameters(recurse=False))
        and any(named_by(pattern, name) for pattern in targets)
    ]
    if not found:
        raise UserError(f"model.adapter.targets is {list(targets)}, which no layer of the model is called")
    own = dict(settings or {})
    with user_error(f"model.adapter.type is {type!r} with settings {own}, which PEFT refuses"):
        config = get_peft_config({"peft_type": type.upper(), "target_modules": found, **own})
        inject_adapter_in_model(config, model)
