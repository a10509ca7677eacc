"""Covey: federated learning for clients that do not look alike."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from covey.version import __version__

if TYPE_CHECKING:
    from covey import data, methods
    from covey.core.round import run
    from covey.data import (
        federate,
        from_clients,
        from_huggingface,
        from_tensors,
        from_torch,
        load,
        read_images,
        read_leaf,
        read_split,
        read_table,
    )
    from covey.fleet.devices import Devices
    from covey.fleet.engine import Engine
    from covey.fleet.local import LocalFleet
    from covey.folder.served_model import read_model
    from covey.parts.measure import Measuring, scores
    from covey.parts.steps import Train
    from covey.runs.api import compare, simulate
    from covey.runs.config import resolve
    from covey.runs.models import export, load_models
    from covey.runs.results import Comparison, Run, Study
    from covey.runs.run import Interrupted
    from covey.training import models
    from covey.training.metrics import Metric, metric

# Where each public name lives; imported when it is first used, so that `import covey` costs nothing.
_HOMES = {
    "run": "covey.core.round",
    "load": "covey.data",
    "federate": "covey.data",
    "from_clients": "covey.data",
    "from_huggingface": "covey.data",
    "from_tensors": "covey.data",
    "from_torch": "covey.data",
    "read_images": "covey.data",
    "read_leaf": "covey.data",
    "read_split": "covey.data",
    "read_table": "covey.data",
    "Metric": "covey.training.metrics",
    "metric": "covey.training.metrics",
    "Devices": "covey.fleet.devices",
    "Engine": "covey.fleet.engine",
    "LocalFleet": "covey.fleet.local",
    "Measuring": "covey.parts.measure",
    "scores": "covey.parts.measure",
    "Train": "covey.parts.steps",
    "resolve": "covey.runs.config",
    "simulate": "covey.runs.api",
    "compare": "covey.runs.api",
    "load_models": "covey.runs.models",
    "export": "covey.runs.models",
    "read_model": "covey.folder.served_model",
    "Interrupted": "covey.runs.run",
    "Run": "covey.runs.results",
    "Comparison": "covey.runs.results",
    "Study": "covey.runs.results",
}
_ROOMS = {"data": "covey.data", "methods": "covey.methods", "models": "covey.training.models"}

__all__ = [
    "Comparison",
    "Devices",
    "Engine",
    "Interrupted",
    "LocalFleet",
    "Measuring",
    "Metric",
    "Run",
    "Study",
    "Train",
    "__version__",
    "compare",
    "data",
    "export",
    "federate",
    "from_clients",
    "from_huggingface",
    "from_tensors",
    "from_torch",
    "load",
    "load_models",
    "methods",
    "metric",
    "models",
    "read_images",
    "read_leaf",
    "read_model",
    "read_split",
    "read_table",
    "resolve",
    "run",
    "scores",
    "simulate",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in _ROOMS:
        return import_module(_ROOMS[name])
    raise AttributeError(f"module 'covey' has no attribute {name!r}")
