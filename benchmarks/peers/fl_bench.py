"""FedAvg on a workload with FL-bench: its own server, clients and trainer, in its serial mode (its default).

Clients do not measure themselves before and after training, as they do there by default: everybody measures the same.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from omegaconf import OmegaConf
from torch import nn

from benchmarks import raw
from benchmarks.peers.gate import Gate
from benchmarks.workloads import EVERY, Workload

CHECKOUT = Path(os.environ["COVEY_FL_BENCH"])
sys.path.insert(0, str(CHECKOUT))
# A torchvision that was built for another PyTorch cannot be imported without these operators, which nobody
# here calls.
OPERATORS = torch.library.Library("torchvision", "FRAGMENT")
for name in ("nms", "qnms"):
    OPERATORS.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

from data.utils.datasets import BaseDataset  # noqa: E402
from src.server import fedavg  # noqa: E402
from src.utils.models import DecoupledModel  # noqa: E402


class Model(DecoupledModel):
    """Covey's model, taken apart before its last layer."""

    def __init__(self, model: nn.Sequential) -> None:
        super().__init__()
        self.base, self.classifier = model[:-1], model[-1]


class Turns(fedavg.FedAvgServer):
    """Waits for its turn before every round."""

    workload: Workload
    gate: Gate

    def init_model(self, *_: Any, **__: Any) -> None:
        super().init_model(Model(raw.model_of(self.workload)))

    def get_dataset(self) -> BaseDataset:
        parts = [*raw.data_of(self.workload), raw.test_of(self.workload)]
        x, y = (torch.cat(column) for column in zip(*parts, strict=True))
        scaled = BaseDataset(torch.zeros_like(x[:1]), y, list(range(10)))
        scaled.data = x  # as it is: only bytes would be divided by 255
        return scaled

    def train_one_round(self) -> None:
        self.gate()
        super().train_one_round()

    def test_global_model(self) -> None:
        super().test_global_model()
        found = self.test_results[self.current_epoch + 1]["centralized"]["after"]["test"]
        self.gate.tell(found.accuracy / 100)


def write(workload: Workload, place: Path) -> None:
    """Who has which samples, in FL-bench's files; the test set is dealt out, and measured as one."""
    place.mkdir(parents=True)
    ends = np.cumsum([len(share.train) for share in workload.federation().shares])
    tested = np.arange(ends[-1], ends[-1] + len(workload.federation().test))
    everybody = list(range(workload.clients))
    indices = [
        {"train": np.arange(start, end), "val": np.zeros(0, int), "test": tested[i :: workload.clients]}
        for i, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True))
    ]
    separation = {"train": everybody, "val": everybody, "test": everybody, "total": workload.clients}
    (place / "partition.pkl").write_bytes(pickle.dumps({"separation": separation, "data_indices": indices}))
    (place / "args.json").write_text(json.dumps({"split": "sample"}))


def settings(workload: Workload, rounds: int) -> Any:
    """FL-bench's defaults, and what its command line would say."""
    told = {
        "dataset": {"name": "mnist"},
        "optimizer": {"lr": workload.lr},
        "common": {
            "join_ratio": workload.per_round / workload.clients,
            "global_epoch": rounds,
            "local_epoch": 1,
            "batch_size": workload.batch,
            "client_side_evaluation": False,
            "test": {
                "client": {"interval": -1, "test": False},
                "server": {"interval": 1 if workload.digits else -1, "test": True},
            },
            "use_cuda": False,
            "save_learning_curve_plot": False,
        },
    }
    return OmegaConf.merge(OmegaConf.load(CHECKOUT / "config" / "defaults.yaml"), told)


def main() -> None:
    workload, rounds = EVERY[sys.argv[1]], int(sys.argv[2])
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        write(workload, place / "data" / "mnist")
        fedavg.FLBENCH_ROOT = place
        output = SimpleNamespace(runtime=SimpleNamespace(output_dir=str(place / "out")))
        fedavg.HydraConfig = SimpleNamespace(get=lambda: output)
        Turns.workload, Turns.gate = workload, Gate(waits=not workload.digits)
        Turns(args=settings(workload, rounds)).train()
        Turns.gate.close()


if __name__ == "__main__":
    main()
