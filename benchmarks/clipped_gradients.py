"""CPU time of a step on clipped gradients, lanes against Opacus: python -m benchmarks.clipped_gradients [--repeats N]

The same batches and noise for both, turn by turn on one thread, and lanes' plain step beside them. Clipping sample by
sample needs the gradients' lengths first: Opacus keeps every sample's gradient, lanes go back twice.
"""

import argparse
from collections.abc import Callable

import numpy as np
import torch

from benchmarks.lane_speed import CASES, Case, cpu_time
from covey.training.bench import Bench, Recipe
from covey.training.bench.choose import choose_bench
from covey.training.bench.clipping import Clipping
from covey.training.models import build
from covey.training.objective import Classification
from covey.training.rows import read_row

MODELS = ("softmax", "mlp", "W3", "W1", "cnn-mnist-small")
STEPS = 5


def measure(case: Case, repeats: int) -> dict[str, float]:
    """Milliseconds of CPU per step."""
    torch.set_num_threads(1)
    model = build(case.model, input_shape=case.shape, outputs=case.outputs, seed=1)
    rng = np.random.default_rng(0)
    samples = case.batch * STEPS
    x = torch.from_numpy(rng.standard_normal((samples, *case.shape), np.float32))
    y = torch.from_numpy(rng.integers(0, case.outputs, samples))
    batches = np.split(rng.permutation(samples), STEPS)
    row, recipe = read_row(model), Recipe(lr=0.01)
    noise = rng.normal(0.0, 1.0, len(row))
    benches = {
        name: choose_bench(model, Classification(), case.shape, lanes=lanes, device="cpu", say=print)[0]()
        for name, lanes in (("lanes", True), ("Opacus", False))
    }
    clipping = Clipping(clip=1.0, expected=float(case.batch), noise=lambda: noise, seed=1)

    def clipped(bench: Bench) -> Callable[[], object]:
        return lambda: bench.fit_clipped(row, x, y, batches, recipe, clipping)

    works = {name: clipped(bench) for name, bench in benches.items()}
    works["lanes, plain"] = lambda: benches["lanes"].fit(row, x, y, batches, recipe, seed=1)
    for work in works.values():
        work()
    times = np.array([[cpu_time(work) for work in works.values()] for _ in range(repeats)])
    return dict(zip(works, np.median(times, axis=0) / STEPS * 1e3, strict=True)) | {"parameters": len(row)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=11)
    repeats = parser.parse_args().repeats
    print("| model | parameters | batch | Opacus ms | lanes ms | speed | lanes, plain ms |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name in MODELS:
        case = CASES[name]
        found = measure(case, repeats)
        speed = found["Opacus"] / found["lanes"]
        print(
            f"| {case.model} | {found['parameters']:,.0f} | {case.batch} | {found['Opacus']:.2f} | "
            f"{found['lanes']:.3f} | {speed:.1f}x | {found['lanes, plain']:.3f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
