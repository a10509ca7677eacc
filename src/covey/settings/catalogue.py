"""One registry for each kind of thing that a configuration can name.

What is built in registers itself where it is written (`@register`), and is imported when it is first used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from covey.settings.registry import Registry

if TYPE_CHECKING:
    from torch import nn

    from covey.core import Method, Rule, Step
    from covey.data.types import Dataset, Shift
    from covey.fleet.profiles import Device
    from covey.runs.tracking import Tracker
    from covey.training.metrics import Metric
    from covey.training.objective import Objective

# train, settings -> a method
METHODS: Registry[Callable[..., Method]] = Registry("method", "covey.methods")

# settings -> a data set
DATASETS: Registry[Callable[..., Dataset]] = Registry("data set", "covey.datasets")

# labels, groups or pixels, clients, rng, settings -> the positions that each client gets
PARTITIONS: Registry[Callable[..., Any]] = Registry("partition", "covey.partitions")

# a data set, the clients' label counts, settings -> one shift per client
SHIFTS: Registry[Callable[..., list[Shift]]] = Registry("shift", "covey.shifts")

# input_shape, outputs, settings -> a network
MODELS: Registry[Callable[..., nn.Module]] = Registry("model", "covey.models")

# settings -> a frozen encoder (`covey.training.pretrained.Encoder`), or a network
ENCODERS: Registry[Callable[..., Any]] = Registry("encoder", "covey.encoders")

# a model, settings -> nothing: it adds a few trained numbers to the model and freezes the others
ADAPTERS: Registry[Callable[..., Any]] = Registry("adapter", "covey.adapters")

# shape, seed, settings -> a network that a method trains beside the run's own, and what it is trained for
CHILD_MODELS: Registry[Callable[..., tuple[nn.Module, Objective]]] = Registry(
    "model of a method", "covey.child_models"
)

# -> an objective: loss, target, scores
OBJECTIVES: Registry[Callable[[], Objective]] = Registry("objective", "covey.objectives")

# a metric over all predictions, with its direction
METRICS: Registry[Metric] = Registry(
    "metric",
    "covey.metrics",
    {
        "accuracy": "covey.training.metrics:accuracy",
        "loss": "covey.training.metrics:loss",
        "mse": "covey.training.metrics:mse",
        "mae": "covey.training.metrics:mae",
        "macro-f1": "covey.training.metrics:macro_f1",
        "balanced-accuracy": "covey.training.metrics:balanced_accuracy",
        "auc": "covey.training.metrics:auc",
        "brier": "covey.training.metrics:brier",
        "perplexity": "covey.training.metrics:perplexity",
        "calibration-error": "covey.training.metrics:calibration_error",
        "rmse": "covey.training.metrics:rmse",
        "r2": "covey.training.metrics:r2",
        "c-index": "covey.training.survival:c_index",
    },
)

# parameters, lr, momentum and weight_decay where it takes them, settings -> a torch.optim.Optimizer
OPTIMISERS: Registry[Callable[..., Any]] = Registry("optimiser", "covey.optimisers")

# five uniform numbers from 0 to 1, the device's own, and settings -> a device
PROFILES: Registry[Callable[..., Device]] = Registry("device profile", "covey.profiles")

# settings -> a tracker, which is told of every round (`covey.runs.tracking.Tracker`)
TRACKERS: Registry[Callable[..., Tracker]] = Registry("tracker", "covey.trackers")

# What a client may be asked, by the name of the class: the same name travels to real sites.
STEPS: Registry[type[Step]] = Registry("step", "covey.steps")

# settings -> a rule that combines replies, some of which may be hostile
RULES: Registry[Callable[..., Rule]] = Registry("robust combine", "covey.rules")

# the parts that a method can be composed of, by the question that they answer: parts, or makers of parts
PARTS: dict[str, Registry[Callable[..., Any]]] = {
    "group": Registry("group part", "covey.groupings"),
    "bank": Registry("bank part", "covey.banks"),
    "select": Registry("select part", "covey.selections"),
    "send": Registry("send part", "covey.sends"),
    "local": Registry("local part", "covey.locals"),
    "mix": Registry("mix part", "covey.mixings"),
    "combine": Registry("combine part", "covey.combines"),
    "update": Registry("update part", "covey.updates"),
    "after": Registry("after part", "covey.afters"),
}

# the question that each family of methods answers
FAMILIES: dict[str, str] = {
    "everything": "Nobody knows how the clients differ: one method with nothing to set",
    "aggregation": "One model for all: how do updates become a model?",
    "drift": "One model for all, clients drift apart: how are local steps corrected?",
    "label skew": "One model for all, labels skewed: who counts for how much?",
    "clusters": "One model per cluster of clients: who is alike?",
    "trees": "Tables: boosted trees in place of a network",
    "personalised": "One model, and something of each client's own: what stays at home?",
    "devices": "Weak and strong devices: who trains how wide a network?",
    "selection": "Who works in a round?",
    "asynchronous": "Slow devices: does anybody wait?",
    "topology": "No server: over which links do models travel?",
    "robust": "Malicious clients: what is a robust mean?",
    "own": "Your own, from parts",
    "reference": "References: alone, and all data in one place",
}
