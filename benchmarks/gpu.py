"""Rounds on a GPU, in a quarter of an hour: `python -m benchmarks.gpu --write docs/speed.md` fills the table there.

Covey one client after another, and stacked (`engine.mode = "cohort"`) in float32, mixed precision and compiled; a raw
loop; and the other simulators that can be installed. W1 to W3, ResNet-18, LoRA on a small transformer, and W3 with 10
to 1,000 clients a round. Seconds by the clock, after the device has finished. `--device cpu` tries the command out.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks import engines, raw
from benchmarks.__main__ import VariantError, measure
from benchmarks.peers.environments import PEERS, command, prepare
from benchmarks.workloads import LARGE, WORKLOADS, Workload
from covey.errors import UserError
from covey.fleet.engine import Engine

ROUNDS, WARM_UP = 5, 2  # torch.compile works in the rounds that are not counted
CLIENTS = (10, 30, 100, 300, 1000)  # a round of W3
SIMULATORS = ("pfl-research, 1 process", "flower, 2 actors")
BEGIN, END = "<!-- gpu -->", "<!-- end gpu -->"


def variants(device: str) -> dict[str, Engine]:
    return {
        "one after another": Engine(mode="serial", lanes=False, device=device),
        "cohort": Engine(mode="cohort", device=device),
        "cohort, compiled": Engine(mode="cohort", device=device, compile=True),
        "cohort, mixed": Engine(mode="cohort", device=device, precision="mixed"),
        "cohort, mixed, compiled": Engine(mode="cohort", device=device, precision="mixed", compile=True),
    }


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A row of the table: a round's seconds, or why there are none."""

    workload: str
    how: str
    seconds: float = 0.0
    megabytes: float = 0.0
    why: str = ""

    def line(self) -> str:
        if self.why:
            return f"| {self.workload} | {self.how} | {self.why} | |"
        return f"| {self.workload} | {self.how} | {self.seconds:.3f} | {self.megabytes:.0f} |"


def timed(name: str, how: str, device: str, make: Callable[[], Callable[[int], object]]) -> Cell:
    """The median round by the clock, and the most memory that PyTorch held on the device."""
    on_gpu = device.startswith("cuda")
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    try:
        one_round, times = make(), []
        for number in range(WARM_UP + ROUNDS):
            start = time.perf_counter()
            one_round(number)
            if on_gpu:
                torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
    except UserError as error:  # e.g. batch normalisation in mixed precision
        return Cell(workload=name, how=how, why=str(error).split(";")[0])
    except torch.cuda.OutOfMemoryError:
        return Cell(workload=name, how=how, why="does not fit into the GPU's memory")
    held = torch.cuda.max_memory_allocated() / 1e6 if on_gpu else 0.0
    return Cell(workload=name, how=how, seconds=statistics.median(times[WARM_UP:]), megabytes=held)


def ours(name: str, workload: Workload, device: str, hows: list[str]) -> Iterator[Cell]:
    for how in hows:
        engine = variants(device)[how]
        yield timed(name, f"Covey, {how}", device, lambda engine=engine: engines.local(workload, engine))  # type: ignore[misc]


def others(name: str, workload: Workload, device: str) -> Iterator[Cell]:
    """A raw loop in this process, and simulators in environments of their own."""
    raw.DEVICE = os.environ["COVEY_BENCH_DEVICE"] = device
    yield timed(name, "raw PyTorch", device, lambda: raw.serial(workload, 1))
    for peer in SIMULATORS:
        if why := prepare(PEERS[peer]):
            yield Cell(workload=name, how=peer, why=f"not installed: {why}")
            continue
        commands = {peer: command(PEERS[peer], workload.name, WARM_UP + ROUNDS)}
        try:
            with tempfile.TemporaryDirectory() as logs:
                found = measure(commands, ROUNDS, Path(logs))[peer]
            yield Cell(workload=name, how=peer, seconds=found["wall"])
        except VariantError as error:
            yield Cell(workload=name, how=peer, why=str(error))


def cells(device: str, hows: list[str], names: list[str], clients: list[int], peers: bool) -> Iterator[Cell]:
    """All rows, those that are asked for most first."""
    for name in names:
        workload = (WORKLOADS | LARGE)[name]
        yield from ours(name, workload, device, hows)
        if peers and name in WORKLOADS:
            yield from others(name, workload, device)
    for count in clients:
        yield from ours(f"W3, {count} clients a round", WORKLOADS["W3"].each_round(count), device, hows[:2])


def written(text: str, table: str) -> str:
    """The page with the table between its marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "")
    parser.add_argument("--minutes", type=float, default=15, help="no further row is begun after them")
    parser.add_argument("--workloads", nargs="*", default=[*WORKLOADS, *LARGE], choices=[*WORKLOADS, *LARGE])
    parser.add_argument("--variants", nargs="+", default=list(variants("cpu")), choices=list(variants("cpu")))
    parser.add_argument("--clients", nargs="*", type=int, default=list(CLIENTS))
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--write", type=Path, help="the page whose table is filled")
    options = parser.parse_args()
    if not options.device:
        raise SystemExit("PyTorch finds no GPU here; --device cpu tries the command out on the processor")
    gpu = torch.cuda.get_device_name() if options.device.startswith("cuda") else "no GPU, the processor"
    lines = [
        f"{gpu}, PyTorch {torch.__version__}, medians of {ROUNDS} rounds, load {os.getloadavg()[0]:.0f}:",
        "",
    ]
    lines += ["| workload | how | seconds per round | MB on the device |", "| --- | --- | ---: | ---: |"]
    print("\n".join(lines), flush=True)
    until = time.monotonic() + 60 * options.minutes
    asked = (options.device, options.variants, options.workloads, options.clients, not options.no_peers)
    for cell in cells(*asked):
        lines.append(cell.line())
        print(lines[-1], flush=True)
        if time.monotonic() > until:
            lines += ["", f"(The other rows were not begun: {options.minutes:g} minutes were over.)"]
            break
    if options.write:
        options.write.write_text(written(options.write.read_text(), "\n".join(lines)))


if __name__ == "__main__":
    main()
