"""FedAvg on a workload with BlazeFL: its own handler and trainer, one process and one thread."""

from __future__ import annotations

import sys
from enum import StrEnum

import torch
from blazefl.contrib.fedavg import FedAvgBaseClientTrainer, FedAvgBaseServerHandler, FedAvgPartitionType
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks import raw
from benchmarks.peers.gate import Gate
from benchmarks.workloads import EVERY, Workload


class Network(StrEnum):
    """What BlazeFL calls the one model that there is."""

    OF_WORKLOAD = "workload"


class Clients:
    """What BlazeFL asks of a data set and of a choice of models."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.parts = [TensorDataset(*part) for part in raw.data_of(workload)]
        self.test = TensorDataset(*raw.test_of(workload))

    def get_dataloader(
        self,
        type_: FedAvgPartitionType,
        cid: int | None,
        batch_size: int | None,
        generator: torch.Generator | None,
    ) -> DataLoader:
        if type_ == FedAvgPartitionType.TEST or cid is None:
            return DataLoader(self.test, batch_size=1000)
        return DataLoader(self.parts[cid], batch_size=batch_size, shuffle=True, generator=generator)

    def select_model(self, _: Network) -> nn.Module:
        return raw.model_of(self.workload)


def main() -> None:
    workload, rounds = EVERY[sys.argv[1]], int(sys.argv[2])
    torch.set_num_threads(1)
    gate = Gate(waits=not workload.digits)
    clients = Clients(workload)
    alike = {
        "model_selector": clients,
        "model_name": Network.OF_WORKLOAD,
        "dataset": clients,
        "device": "cpu",
        "num_clients": workload.clients,
        "batch_size": workload.batch,
        "seed": 0,
    }
    # half a client more: it rounds down
    share = (workload.per_round + 0.5) / workload.clients
    handler = FedAvgBaseServerHandler(global_round=rounds, sample_ratio=share, **alike)
    trainer = FedAvgBaseClientTrainer(epochs=1, lr=workload.lr, **alike)
    while not handler.if_stop():
        gate()
        trainer.local_process(handler.downlink_package(), handler.sample_clients())
        for package in trainer.uplink_package():
            handler.load(package)
        if workload.digits:
            gate.tell(handler.get_summary()["server_acc"])
    gate.close()


if __name__ == "__main__":
    main()
