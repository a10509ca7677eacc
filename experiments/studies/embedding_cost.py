"""What the embedding paper's methods cost: a client's bits beside one local epoch (Fig. 6), whole runs (Table IV).

Times are measured in CPU time in one process, so that their ratios do not depend on how busy the machine is; bytes
are counted.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from covey.core import stream
from covey.data.types import View
from covey.fleet.local import LocalFleet
from covey.parts.steps.embedding import Bits, answers, class_means, quantise, respond
from covey.runs.config import Config, fleet_of, resolve
from covey.training.bench import Bench, Recipe
from covey.training.bench.choose import choose_bench
from covey.training.bench.torch_bench import TorchBench
from covey.training.models.encoders import Pictures, autoencoder, encoded_rows, encoder
from covey.training.rows import Layout, read_row
from experiments.merge import merged
from experiments.spec import Findings, read_experiment


def cost(settings: dict[str, Any], seed: int) -> Findings:
    """CPU time of an epoch and of the bits, mean over some clients, for each case of the experiment `of`.

    `data` changes the data of a case (a machine may not have all of the paper's). The last column is what training
    takes for the whole run: clients per round times local epochs times rounds, without measuring and pre-training.
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
            cpu_seconds(partial(one_epoch, fleet.start(), bench, view, batch), repeats) for view in views
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


def one_epoch(row: Tensor, bench: Bench, view: View, batch: int) -> None:
    """Every picture once, in batches, by Adam."""
    x, y = view.tensors()
    order = np.arange(len(x))
    batches = [order[start : start + batch] for start in range(0, len(order), batch)]
    bench.fit(row, x, y, batches, Recipe(optimiser="adam", lr=1e-3), seed=0)


def embed(row: Tensor, view: View) -> Bits:
    """Algorithm 1 with the encoder `row`; an untrained one costs what a trained one does."""
    x, y = view.tensors()
    codes = encoded_rows(row, x, "auto", view.dataset.scale).numpy()
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


# ------------------------------------------------------------------------------------------ Table IV


def overheads(settings: dict[str, Any], seed: int) -> Findings:
    """Bytes of a whole run and a client's computing beside FedAvg's, for every method of each case of `of`."""
    experiment = read_experiment(settings["of"], settings["scale"])
    rows = {}
    for case in experiment.cases:
        own = {"data": settings.get("data", {}).get(case.name, {})}
        tables = [experiment.tables(row, case, seed) for row in experiment.rows]
        fleet = fleet_of(resolve(merged(tables[-1], own)))
        try:
            measured = parts(fleet, int(tables[-1]["train"]["batch"]), settings["repeats"])
        finally:
            fleet.close()
        of = {row.name: resolve(table) for row, table in zip(experiment.rows, tables, strict=True)}
        seconds = {name: computing(config, measured) for name, config in of.items()}
        for name, config in of.items():
            rows[f"{case.name}, {name}"] = {
                "total bytes": float(4 * floats_sent(config, fleet.layout, measured)),
                "computing, share of FedAvg's": seconds[name] / seconds["FedAvg"],
            }
    return Findings(rows=rows)


def parts(fleet: LocalFleet, batch: int, repeats: int) -> dict[str, float]:
    """CPU seconds of a client's parts of the work, and how many numbers autoencoder and encoder have."""
    dataset = fleet.data.dataset
    view = fleet.client_data.train(0, 1)
    whole = autoencoder("auto", tuple(dataset.x.shape[1:]), dataset.scale)
    row = read_row(encoder(whole))
    judge, learner = TorchBench(fleet.model, fleet.objective), TorchBench(whole, Pictures(dataset.scale))
    x, _ = view.tensors()
    return {
        "epoch": cpu_seconds(partial(one_epoch, fleet.start(), judge, view, batch), repeats),
        "autoencoder": cpu_seconds(partial(one_epoch, read_row(whole), learner, view, batch), repeats),
        "bits": cpu_seconds(partial(embed, row, view), repeats),
        "judging a batch": cpu_seconds(partial(judge.forward, fleet.start(), x[:batch]), repeats),
        "size of the autoencoder": len(read_row(whole)),
        "size of the encoder": len(row),
    }


def computing(config: Config, measured: Mapping[str, float]) -> float:
    """CPU seconds of a client that works in every round; LADD's Fourier amplitudes are not counted."""
    method = config["method"]
    total = float(config.top.rounds * config["train"]["epochs"] * measured["epoch"])
    if method["name"] == "embedding":
        total += measured["bits"]
        if method["pretrain"] == "federated":
            total += method["pretrain_rounds"] * method["pretrain_epochs"] * measured["autoencoder"]
    if method["name"] == "ifca":
        total += config.top.rounds * method["k"] * measured["judging a batch"]
    return total


def floats_sent(config: Config, layout: Layout, measured: Mapping[str, float]) -> int:
    """Numbers that travel: a model down, up, and down again for evaluation, for each client and round.

    IFCA sends all k models down, their common part once. The autoencoder's federated training is booked in the same
    way, and every client gets the encoder once. Bits, amplitudes and counts are left out: less than 0.01 %.
    """
    method = config["method"]
    down = layout.size
    if method["name"] == "ifca":
        common = sum(math.prod(shape) for shape in layout.shapes[: method["n_shared"]])
        down = common + method["k"] * (layout.size - common)
    total = config.top.rounds * method["per_round"] * (down + 2 * layout.size)
    if method["name"] == "embedding":
        total += config["data"]["clients"] * int(measured["size of the encoder"])
        if method["pretrain"] == "federated":
            exchanges = method["pretrain_rounds"] * method["pretrain_per_round"]
            total += 3 * exchanges * int(measured["size of the autoencoder"])
    return int(total)
