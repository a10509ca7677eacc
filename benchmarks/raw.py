"""What anybody would write by hand: the same steps with torch.optim and no framework.

python -m benchmarks.raw whole 50
"""

from __future__ import annotations

import multiprocessing as mp
import os
import sys
from collections.abc import Callable
from multiprocessing.connection import wait

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.workloads import EVERY, Workload

DEVICE = os.environ.get("COVEY_BENCH_DEVICE", "cpu")  # where raw loops and other simulators train
State = dict[str, Tensor]
Data = list[tuple[Tensor, Tensor]]


def data_of(workload: Workload) -> Data:
    """Every client's data, ready in memory."""
    shares = workload.federation().shares
    return [(x.to(DEVICE), y.to(DEVICE)) for x, y in (share.train.tensors() for share in shares)]


def model_of(workload: Workload) -> nn.Module:
    return workload.network().to(DEVICE)


def train(model: nn.Module, start: State, x: Tensor, y: Tensor, workload: Workload, seed: int) -> State:
    """One client's local epoch."""
    model.load_state_dict(start)
    optimiser = torch.optim.SGD(model.parameters(), lr=workload.lr)
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(y)))
    for index in order.split(workload.batch):
        optimiser.zero_grad()
        F.cross_entropy(model(x[index]), y[index]).backward()
        optimiser.step()
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def test_of(workload: Workload) -> tuple[Tensor, Tensor]:
    """The global test set."""
    return workload.federation().test.tensors()


def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """The share of right answers."""
    model.eval()
    with torch.no_grad():
        right = sum(
            int((model(part).argmax(1) == told).sum())
            for part, told in zip(x.split(1000), y.split(1000), strict=True)
        )
    model.train()
    return right / len(y)


def average(states: list[State]) -> State:
    return {name: torch.stack([state[name] for state in states]).mean(0) for name in states[0]}


def chosen(workload: Workload, number: int) -> list[int]:
    rng = np.random.default_rng([11, number])
    return rng.choice(workload.clients, workload.per_round, replace=False).tolist()


def serial(workload: Workload, threads: int) -> Callable[[int], State]:
    """One client after another."""
    torch.set_num_threads(threads)
    data, model = data_of(workload), model_of(workload)
    state = [{name: tensor.clone() for name, tensor in model.state_dict().items()}]

    def one_round(number: int) -> State:
        state[0] = average([train(model, state[0], *data[i], workload, i) for i in chosen(workload, number)])
        return state[0]

    return one_round


def _work(line: mp.connection.Connection, data: Data, workload: Workload) -> None:  # type: ignore[name-defined]
    torch.set_num_threads(1)
    model = model_of(workload)
    while True:
        start, clients = line.recv()
        start = {name: torch.from_numpy(array) for name, array in start.items()}
        for i in clients:
            done = train(model, start, *data[i], workload, i)
            line.send({name: tensor.numpy() for name, tensor in done.items()})


def processes(workload: Workload, count: int) -> Callable[[int], State]:
    """Persistent processes of one thread each; every one gets its share of the clients at once."""
    torch.set_num_threads(1)
    data, model = data_of(workload), model_of(workload)
    state = [{name: tensor.clone() for name, tensor in model.state_dict().items()}]
    context = mp.get_context("fork")
    lines = []
    for _ in range(count):
        ours, theirs = context.Pipe()
        context.Process(target=_work, args=(theirs, data, workload), daemon=True).start()
        lines.append(ours)

    def one_round(number: int) -> State:
        clients = chosen(workload, number)
        start = {name: tensor.numpy() for name, tensor in state[0].items()}
        parts = [clients[k::count] for k in range(count)]
        for line, part in zip(lines, parts, strict=True):
            line.send((start, part))
        due = {line: len(part) for line, part in zip(lines, parts, strict=True) if part}
        replies = []
        while due:  # whoever is ready first: waiting for one worker would hold up the other
            for line in wait(list(due)):
                replies.append(line.recv())
                due[line] -= 1
                if not due[line]:
                    del due[line]
        state[0] = average([{n: torch.from_numpy(a) for n, a in reply.items()} for reply in replies])
        return state[0]

    return one_round


def main() -> None:
    """So many rounds of a workload in two processes, the test set measured after each of them."""
    workload, model = EVERY[sys.argv[1]], model_of(EVERY[sys.argv[1]])
    one_round, test = processes(workload, 2), test_of(workload)
    for number in range(int(sys.argv[2])):
        model.load_state_dict(one_round(number))
        print(f"{accuracy(model, *test):.4f}", flush=True)


if __name__ == "__main__":
    main()
