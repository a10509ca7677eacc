"""FedAvg on a workload with FedLab: its own handler, serial trainer and pipeline, one process and one thread."""

from __future__ import annotations

import sys

import torch
from fedlab.contrib.algorithm.fedavg import FedAvgSerialClientTrainer, FedAvgServerHandler
from fedlab.core.standalone import StandalonePipeline
from fedlab.utils.functional import evaluate
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks import raw
from benchmarks.peers.gate import Gate
from benchmarks.workloads import EVERY, Workload


class Clients:
    """What FedLab asks of a data set: a loader per client, and one of the test set."""

    def __init__(self, workload: Workload) -> None:
        self.parts = [TensorDataset(*part) for part in raw.data_of(workload)]
        self.test = TensorDataset(*raw.test_of(workload))

    def get_dataloader(
        self, client: int | None = None, batch_size: int = 1, type: str = "train"
    ) -> DataLoader:
        if type == "test" or client is None:
            return DataLoader(self.test, batch_size=1000)
        return DataLoader(self.parts[client], batch_size=batch_size, shuffle=True)


class Turns(StandalonePipeline):
    """Waits for its turn before every round; measures where the workload is measured."""

    gate: Gate
    measured: bool

    def evaluate(self) -> None:
        if self.measured:
            tested = self.trainer.dataset.get_dataloader(type="test")
            self.gate.tell(evaluate(self.handler.model, nn.CrossEntropyLoss(), tested)[1])
        if not self.handler.if_stop:
            self.gate()


def main() -> None:
    workload, rounds = EVERY[sys.argv[1]], int(sys.argv[2])
    torch.set_num_threads(1)
    gate = Gate(waits=not workload.digits)
    model, clients = raw.model_of(workload), Clients(workload)
    handler = FedAvgServerHandler(model, rounds, workload.per_round / workload.clients)
    trainer = FedAvgSerialClientTrainer(model, workload.clients)
    trainer.setup_optim(1, workload.batch, workload.lr)
    trainer.setup_dataset(clients)
    turns = Turns(handler, trainer)
    turns.gate, turns.measured = gate, workload.digits
    gate()
    turns.main()
    gate.close()


if __name__ == "__main__":
    main()
