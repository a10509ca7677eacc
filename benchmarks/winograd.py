"""Convolutions directly and by Winograd's method, layer by layer: python -m benchmarks.winograd [model ...]

CPU milliseconds of a training step of the layer alone (forward and the gradient by its weights, 32 samples), and of a
step of the whole model (64 samples) with all, or none, of its layers by Winograd's method. LANES_ISA=avx2: on
narrower vectors.
"""

import sys
import time
from dataclasses import replace

import numpy as np

import lanes
from benchmarks.lane_speed import CASES
from covey.training.models import build
from lanes.stages import stages
from lanes.timing import alone_in_a_graph, stage_key, step_seconds
from lanes.winograd import form_of_stage

MODELS = ("W2", "cnn-cifar", "cnn-emnist", "cnn-femnist", "cnn-fashion")


def main(names: list[str]) -> None:
    """Two tables."""
    whole = []
    print("| layer | direct ms | Winograd ms | times faster |\n| --- | ---: | ---: | ---: |")
    for name in names or MODELS:
        case = CASES[name]
        model = build(case.model, input_shape=case.shape, outputs=case.outputs, seed=1)
        plan = lanes.plan(model, case.shape, case.objective, "sgd")
        if isinstance(plan, lanes.Refusal):
            raise SystemExit(f"{name}: {plan.reason}")
        plan.compile(print)
        fits = [number for number, stage in enumerate(stages(plan.graph)) if form_of_stage(stage)]
        for number in fits:
            stage = stages(plan.graph)[number]
            graph = alone_in_a_graph(stage)
            alone = replace(plan, graph=graph, objective="mse")
            ways = (frozenset[int](), frozenset([0]))
            direct, fast = (step_seconds(replace(alone, fast=way).trainer(), graph) for way in ways)
            print(
                f"| {name}: {stage_key(stage)} | {1e3 * direct:.2f} | {1e3 * fast:.2f} | {direct / fast:.2f} |"
            )
        direct, fast = (step_of(replace(plan, fast=way)) for way in (frozenset[int](), frozenset(fits)))
        whole.append(f"| {name} | {1e3 * direct:.1f} | {1e3 * fast:.1f} | {direct / fast:.2f} |")
    print(
        "\n| model | direct ms | Winograd ms | times faster |\n| --- | ---: | ---: | ---: |", *whole, sep="\n"
    )


def step_of(plan: lanes.Plan, repeats: int = 5) -> float:
    """CPU seconds of a step of the whole model: the shortest of some."""
    graph, samples = plan.graph, 64
    rng = np.random.default_rng(0)
    x = rng.standard_normal((samples, graph.input.features), dtype=np.float32)
    y = rng.integers(0, graph.output.features, samples)
    row = rng.standard_normal(graph.size, dtype=np.float32) * np.float32(0.01)
    trainer, times = plan.trainer(), []
    for _ in range(1 + repeats):
        start = time.thread_time()
        trainer.fit(row.copy(), x, y, [np.arange(samples, dtype=np.int64)], lr=1e-6)
        times.append(time.thread_time() - start)
    return min(times[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
