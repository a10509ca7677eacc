"""Covey: federated learning for clients that do not look alike."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from covey.version import __version__

if TYPE_CHECKING:
    from covey import data, methods, models
    from covey.api import compare, simulate
    from covey.config import resolve
    from covey.core import run
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
    from covey.measure import Measuring, scores
    from covey.metrics import Metric, metric
    from covey.results import Comparison, Run, Study
    from covey.runs import Interrupted
    from covey.served_model import read_model
    from covey.steps import Train
    from covey.trained import export, load_models

# Where each public name lives; imported when it is first used, so that `import covey` costs nothing.
_HOMES = {
    "run": "covey.core",
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
    "Metric": "covey.metrics",
    "metric": "covey.metrics",
    "Devices": "covey.fleet.devices",
    "Engine": "covey.fleet.engine",
    "LocalFleet": "covey.fleet.local",
    "Measuring": "covey.measure",
    "scores": "covey.measure",
    "Train": "covey.steps",
    "resolve": "covey.config",
    "simulate": "covey.api",
    "compare": "covey.api",
    "load_models": "covey.trained",
    "export": "covey.trained",
    "read_model": "covey.served_model",
    "Interrupted": "covey.runs",
    "Run": "covey.results",
    "Comparison": "covey.results",
    "Study": "covey.results",
}

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
    if name in ("data", "methods", "models"):
        return import_module(f"covey.{name}")
    raise AttributeError(f"module 'covey' has no attribute {name!r}")
