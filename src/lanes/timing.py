"""Which convolutions are faster by Winograd's method: timed once on a machine, and kept in the user's cache folder."""

import functools
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from lanes.compiled.isa import Isa
from lanes.compiled.library import alone, object_files
from lanes.graph import Conv, Graph, Node
from lanes.stages import RELU, SQUARE, Stage
from lanes.trainer import Trainer

SAMPLES = 32
REPEATS = 5
MARGIN = 0.95  # what is only a little faster may be so by chance


@dataclass(frozen=True, kw_only=True)
class Timing:
    """CPU seconds of a training step of one layer, by both methods."""

    direct: float
    winograd: float

    @property
    def wins(self) -> bool:
        return self.winograd < MARGIN * self.direct


Seconds = Callable[
    [Graph, frozenset[int]], float
]  # of a step of a graph, with these stages by Winograd's method


def timing_of(stage: Stage, isa: Isa, seconds: Seconds) -> Timing:
    """What was timed for such a layer on this machine, or is timed now."""
    path, key = _path(isa), stage_key(stage)
    known = _read(path)
    if key not in known:
        with alone():  # of several processes, one takes the time
            known = _read(path)
            if key not in known:
                graph = alone_in_a_graph(stage)
                direct, winograd = (seconds(graph, fast) for fast in (frozenset[int](), frozenset([0])))
                known = {**known, key: Timing(direct=direct, winograd=winograd)}
                text = {name: asdict(timing) for name, timing in known.items()}
                draft = path.with_suffix(".tmp")
                draft.write_text(json.dumps(text, indent=1))
                draft.replace(path)
    return known[key]


@functools.cache
def _path(isa: Isa) -> Path:
    """Beside the kernels that were timed, and named after them."""
    kernels = object_files(isa)["vector"]
    return kernels.with_name(kernels.name.replace("-vector.o", "-timings.json"))


def _read(path: Path) -> dict[str, Timing]:
    try:
        return {name: Timing(**timing) for name, timing in json.loads(path.read_text()).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}  # not there yet, or damaged: timed again


def stage_key(stage: Stage) -> str:
    """All that the time depends on, e.g. "32x14x14 to 64, kernel 5, padding 2, pooled"."""
    kind, x = stage.kind, stage.input
    if not isinstance(kind, Conv):
        return ""
    pooled = ", pooled" if stage.pooled else ""
    size = f"{x.channels}x{x.rows}x{x.columns} to {stage.inner.channels}"
    return f"{size}, kernel {kind.kernel[0]}, padding {kind.padding[0]}{pooled}"


def alone_in_a_graph(stage: Stage) -> Graph:
    """The layer as a model of its own."""
    kind = stage.kind
    if not isinstance(kind, Conv):
        raise ValueError(f"{kind} is no convolution")
    size = stage.inner.channels * stage.input.channels * kind.kernel[0] * kind.kernel[1]
    kind = replace(kind, weight=0, bias=size)
    nodes = [Node(kind=kind, inputs=(0,), input=stage.input, output=stage.inner)]
    if stage.pooled:
        nodes.append(Node(kind=SQUARE, inputs=(1,), input=stage.inner, output=stage.output))
    nodes.append(Node(kind=RELU, inputs=(len(nodes),), input=stage.output, output=stage.output))
    total = size + stage.inner.channels
    return Graph(nodes=tuple(nodes), input=stage.input, output=stage.output, parameters=total, size=total)


def step_seconds(trainer: Trainer, graph: Graph) -> float:
    """The shortest of some steps, in CPU seconds of this thread."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((SAMPLES, graph.input.features), dtype=np.float32)
    y = np.zeros((SAMPLES, graph.output.features), np.float32)
    row = rng.standard_normal(graph.size, dtype=np.float32) * np.float32(0.01)
    batches = [np.arange(SAMPLES, dtype=np.int64)]
    times = []
    for _ in range(1 + REPEATS):
        start = time.thread_time()
        trainer.fit(row, x, y, batches, lr=1e-6)
        times.append(time.thread_time() - start)
    return min(times[1:])
