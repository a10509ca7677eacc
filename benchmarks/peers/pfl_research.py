"""FedAvg on a workload with pfl-research: its own algorithm and backend, one process and one thread."""

from __future__ import annotations

import sys

import torch
import torch.nn.functional as F
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn

from benchmarks import raw
from benchmarks.peers.gate import Gate
from benchmarks.workloads import EVERY


class WithLoss(nn.Module):
    """The model with the two functions that pfl asks for."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.model(x), y)

    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:  # noqa: ARG002
        return {}


class Turns(TrainingProcessCallback):
    """Waits for its turn before every round."""

    def __init__(self, gate: Gate, rounds: int, test: tuple[Tensor, Tensor] | None) -> None:
        self.gate = gate
        self.rounds = rounds
        self.test = test  # measured after every round

    def on_train_begin(self, *, model: PyTorchModel) -> Metrics:  # noqa: ARG002
        self.gate()
        return Metrics()

    def after_central_iteration(
        self,
        aggregate_metrics: Metrics,  # noqa: ARG002
        model: PyTorchModel,
        *,
        central_iteration: int,
    ) -> tuple[bool, Metrics]:
        if self.test is not None:
            self.gate.tell(raw.accuracy(model.pytorch_model.model, *self.test))
        if central_iteration + 1 < self.rounds:
            self.gate()
        return False, Metrics()


def main() -> None:
    workload, rounds = EVERY[sys.argv[1]], int(sys.argv[2])
    torch.set_num_threads(1)
    gate = Gate(waits=not workload.digits)
    clients = raw.data_of(workload)
    sampler = get_user_sampler("random", list(range(workload.clients)))
    data = FederatedDataset(lambda client: Dataset(list(clients[client]), user_id=client), sampler)
    module = WithLoss(raw.model_of(workload))
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=rounds,
            evaluation_frequency=rounds + 1,  # only in the first round, which is not counted
            train_cohort_size=workload.per_round,
            val_cohort_size=0,
        ),
        backend=SimulatedBackend(training_data=data, val_data=data),
        model=model,
        model_train_params=NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=workload.lr, local_batch_size=workload.batch
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=workload.batch),
        callbacks=[Turns(gate, rounds, raw.test_of(workload) if workload.digits else None)],
    )
    gate.close()


if __name__ == "__main__":
    main()
