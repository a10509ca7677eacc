"""One training step as a server asks for it, for tests that change a part of it."""

import json
from typing import Any

import torch

import covey
from covey.core.codec import to_bytes
from covey.deploy.wire import ModelSpec, step_to_plain
from covey.parts.steps import Train

SPEC = ModelSpec(
    name="mlp", settings={"hidden": (64,)}, shape=(1, 8, 8), outputs=10, objective="classification"
)


def one_request(**changes: Any) -> bytes:
    """The request with changes."""
    whole = {
        "covey": covey.__version__,
        "run": "r",
        "session": "s",
        "seed": 1,
        "round": 1,
        "names": ("run", "train.sgd", 1, "round", 1),
        "client": 0,
        "step": step_to_plain(Train(lr=0.1)),
        "model": SPEC.plain(),
        "task": {"models": torch.zeros(1, 4810), "slots": (0,), "args": {}},
    }
    return to_bytes({**whole, **changes})


def with_header(header: dict[str, Any]) -> bytes:
    """A block that begins as safetensors do."""
    text = json.dumps({"__metadata__": {"plain": "{}"}, **header}).encode()
    return len(text).to_bytes(8, "little") + text
