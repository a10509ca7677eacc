"""50 rounds of FedAvg on MNIST with and without Winograd's method: python -m benchmarks.winograd_rounds [seed ...]

100 clients with Dirichlet(0.5) shares of the classes, 10 a round, `lenet-tanh` (its second convolution is the smallest
one that Winograd's method is faster for), SGD 0.05, batch 32, one epoch; the same seeds, the same order of samples. The
last row of a seed is the first one again with one thread in place of two: the same bits, or the benchmark stops.
"""

import sys
import tempfile
import time

import numpy as np

import covey
from lanes import timing

WAYS = {"Winograd": (1e9, 2), "direct": (0.0, 2), "Winograd, one thread": (1e9, 1)}


def run(seed: int, margin: float, workers: int) -> tuple[float, bytes]:
    """Accuracy on the global test set after the last round, and the model's bits."""
    timing.MARGIN = margin  # what wins whatever was timed, or never
    with tempfile.TemporaryDirectory() as folder:
        done = covey.run(
            "fedavg",
            "mnist",
            "lenet-tanh",
            rounds=50,
            clients=100,
            seed=seed,
            out=f"{folder}/run",
            progress=False,
            report=False,
            partition={"name": "dir-class", "alpha": 0.5},
            train={"lr": 0.05, "batch": 32, "epochs": 1},
            measure={"every": 50},
            engine={"workers": workers},
        )
        chosen = done.summary.engine["winograd"]
        if not chosen:
            raise SystemExit("no layer could use Winograd's method: nothing would be compared")
        accuracy = done.summary.last["global-test/accuracy"]
        return accuracy, np.asarray(done.state.models).tobytes()


def main(seeds: list[int]) -> None:
    print("| seed | way | accuracy | CPU s |\n| --- | --- | ---: | ---: |")
    for seed in seeds or (0, 1, 2):
        bits = {}
        for way, (margin, workers) in WAYS.items():
            started = time.process_time()
            accuracy, bits[way] = run(seed, margin, workers)
            print(f"| {seed} | {way} | {accuracy:.4f} | {time.process_time() - started:.1f} |", flush=True)
        if bits["Winograd"] != bits["Winograd, one thread"]:
            raise SystemExit(f"seed {seed}: the bits depend on the number of threads")
        if bits["Winograd"] == bits["direct"]:
            raise SystemExit(f"seed {seed}: both ways gave the same bits: nothing was compared")


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]])
