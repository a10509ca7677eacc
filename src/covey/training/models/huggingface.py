"""Networks of Hugging Face by their folder, on batches as they take them: tokens with a mask, cut to the longest."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from torch import Tensor, nn

from covey.errors import UserError
from covey.settings.registry import register
from covey.training.models.sequences import PAD
from covey.training.pretrained.named import network_of

KINDS = {
    "next-token": "AutoModelForCausalLM",
    "texts": "AutoModelForSequenceClassification",
    "pictures": "AutoModelForImageClassification",
}


class Batched(nn.Module):
    """Tokens (N, steps), 0 behind the end of a text, become a dict of input_ids and attention_mask, no longer than the
    longest text of the batch; logits come back as (N, tokens, steps) or (N, classes)."""

    def __init__(self, network: nn.Module, outputs: int, *, each: bool) -> None:
        super().__init__()
        self.network, self.outputs, self.each = network, outputs, each

    def forward(self, x: Tensor) -> Tensor:
        there = x != PAD
        longest = max(1, int(there.sum(1).max()))
        batch = {"input_ids": x[:, :longest], "attention_mask": there[:, :longest].long()}
        logits: Tensor = self.network(**batch).logits[..., : self.outputs]
        if not self.each:
            return logits
        return nn.functional.pad(logits.transpose(1, 2), (0, x.shape[1] - longest))


class OfPictures(nn.Module):
    """Logits of pictures."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.network(pixel_values=x).logits
        return logits


def _configured(path: str = "", config: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """For sites: the configuration in place of the folder that it is in here."""
    told = json.loads((Path(path) / "config.json").read_text()) if path else config
    return {**more, "config": told}


@register("model", "huggingface", told=_configured)
def huggingface(
    outputs: int,
    *,
    task: Literal["next-token", "texts", "pictures"] = "next-token",
    path: str = "",
    config: Mapping[str, Any] | None = None,
) -> nn.Module:
    """A network of Hugging Face from a folder with config.json and model.safetensors; nothing is downloaded.

    Args:
        task: next-token (a causal language model), texts or pictures (with a head for the data's classes).
        path: the folder; pickles and code of one's own in it are not read.
        config: in place of a folder, what its config.json says; the network begins with random numbers. Sites are told
            this, and are sent what is frozen.
    """
    if not path and config is None:
        raise UserError(
            "model.path is missing; allowed: a folder with config.json and a safetensors file, or model.config"
        )
    named = {} if task == "next-token" else {"num_labels": outputs}
    network, _ = network_of(KINDS[task], path, config, "model", **named)
    if task == "pictures":
        return OfPictures(network)
    settings: Any = network.config
    known = int(settings.vocab_size)
    if task == "next-token" and known < outputs:
        raise UserError(
            f"the model knows {known} tokens, the data have {outputs}; give data.tokeniser the model's own"
        )
    settings.use_cache = False
    return Batched(network, outputs, each=task == "next-token")
