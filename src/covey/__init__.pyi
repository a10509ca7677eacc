from . import data, methods, testing
from .core.messages import Reply, Task
from .core.protocols import Client, Mixing, Step
from .core.round import Method, Round, RoundEnd, State, run_rounds
from .data import (
    Dataset,
    Federation,
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
from .errors import RunError, UserError
from .fleet.devices import Devices
from .fleet.engine import Engine
from .fleet.local import LocalFleet
from .folder.served_model import read_model
from .parts.measure import Measuring, scores
from .parts.steps import Train
from .runs.advise import Advice
from .runs.api import advise, compare, resume, run
from .runs.config import Config, resolve
from .runs.models import export, load_models
from .runs.results import Run, Study
from .runs.run import Interrupted
from .training import models
from .training.metrics import Metric, metric
from .training.objective import Objective
from .version import __version__

__all__ = [
    "Advice",
    "Client",
    "Config",
    "Dataset",
    "Devices",
    "Engine",
    "Federation",
    "Interrupted",
    "LocalFleet",
    "Measuring",
    "Method",
    "Metric",
    "Mixing",
    "Objective",
    "Reply",
    "Round",
    "RoundEnd",
    "Run",
    "RunError",
    "State",
    "Step",
    "Study",
    "Task",
    "Train",
    "UserError",
    "__version__",
    "advise",
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
    "resume",
    "run",
    "run_rounds",
    "scores",
    "testing",
]
