"""Fig. 6 of the embedding paper: what a client pays for its bits, beside one local epoch of training.

Both are measured in CPU time in the same process, so that their ratio does not depend on how busy the machine is.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from covey.bench import Bench, Recipe
from covey.bench.choose import choose_bench
from covey.config import Config, fleet_of, resolve
from covey.core import stream
from covey.data.types import View
from covey.experiments.merge import merged
from covey.experiments.spec import Findings, read_experiment
from covey.fleet.local import LocalFleet
from covey.model import read_row
from covey.models.encoders import autoencoder, encode, encoder
from covey.steps.embedding import Bits, answers, class_means, quantise, respond


def cost(settings: dict[str, Any], seed: int) -> Findings:
    """CPU time of an epoch and of the bits, mean over some clients, for each case of the experiment `of`.

    `data` changes the data of a case (a machine may not have all of the paper's). The last column is what training
    takes for the whole run: clients a round times local epochs times rounds, without measuring and pre-training.
    """
    experiment = read_experiment(settings["of"], settings["scale"])
    rows = {}
    for case in experiment.cases:
        own = {"data": settings.get("data", {}).get(case.name, {})}
        config = resolve(merged(experiment.tables(experiment.rows[-1], case, seed), own))
        fleet = fleet_of(config)
        try:
            rows[case.name] = costs(fleet, config, settings["clients"], settings["repeats"])
        finally:
            fleet.close()
    return Findings(rows=rows)


def costs(fleet: LocalFleet, config: Config, clients: int, repeats: int) -> Mapping[str, float]:
    """The row of one case."""
    benches = {name: bench_of(fleet, lanes=name == "lanes") for name in ("PyTorch", "lanes")}
    views = [fleet.client_data.train(client, 1) for client in range(clients)]
    batch = int(config["train"]["batch"])
    epoch = {
        name: statistics.fmean(
            cpu_seconds(partial(one_epoch, fleet, bench, view, batch), repeats) for view in views
        )
        for name, bench in benches.items()
    }
    dataset = fleet.data.dataset
    row = read_row(encoder(autoencoder("auto", tuple(dataset.x.shape[1:]), dataset.scale)))
    bits = statistics.fmean(cpu_seconds(partial(embed, row, view), 5 * repeats) for view in views)
    epochs = config["method"]["per_round"] * config["train"]["epochs"] * config.top.rounds
    return {
        "pictures": statistics.fmean(len(view) for view in views),
        "epoch, PyTorch, CPU s": epoch["PyTorch"],
        "epoch, lanes, CPU s": epoch["lanes"],
        "embedding, CPU s": bits,
        "epoch / embedding": epoch["PyTorch"] / bits,
        "epoch / embedding, lanes": epoch["lanes"] / bits,
        "a whole run, CPU min": min(epoch.values()) * epochs / 60,
    }


def bench_of(fleet: LocalFleet, *, lanes: bool) -> Bench:
    """The trainer that is asked for."""
    shape = tuple(fleet.data.dataset.x.shape[1:])
    make, _ = choose_bench(fleet.model, fleet.objective, shape, lanes=lanes, device="cpu")
    return make()


def one_epoch(fleet: LocalFleet, bench: Bench, view: View, batch: int) -> None:
    """Every picture once, in batches, by Adam."""
    x, y = view.tensors()
    order = np.arange(len(x))
    batches = [order[start : start + batch] for start in range(0, len(order), batch)]
    bench.fit(fleet.start(), x, y, batches, Recipe(optimiser="adam", lr=1e-3), seed=0)


def embed(row: Tensor, view: View) -> Bits:
    """Algorithm 1 with the encoder `row`; an untrained one costs what a trained one does."""
    x, y = view.tensors()
    codes = encode(row, x, "auto", view.dataset.scale).numpy()
    means = class_means(codes, y.numpy(), len(view.dataset.classes), stream(0, "fillers"))
    bits = quantise(means)
    return respond(bits, answers(bits.shape, 0.1, stream(0, "answers")))


def cpu_seconds(work: Callable[[], Any], repeats: int) -> float:
    """The median CPU time of some repetitions, after one for warming up."""
    times = []
    for _ in range(repeats + 1):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return statistics.median(times[1:])
