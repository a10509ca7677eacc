"""FedAvg on a workload with PFLlib: its own server and clients, which read their data from files as they do there.

It leaves out each client's last, smaller batch. Its server also measures everybody's training data when it measures;
that is left out here, so that everybody measures the same.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from benchmarks import raw
from benchmarks.peers.gate import Gate
from benchmarks.workloads import EVERY, Workload

CHECKOUT = Path(os.environ["COVEY_PFLLIB"])
sys.path.insert(0, str(CHECKOUT / "system"))

from flcore.servers.serveravg import FedAvg  # noqa: E402


def write(workload: Workload, place: Path) -> None:
    """Every client's samples, and its part of the test set, in PFLlib's files."""
    parts = raw.data_of(workload)
    x, y = raw.test_of(workload)
    # a client without test data would end it: where there are fewer samples than clients, several have the same one
    dealt = [range(i % len(x), len(x), len(parts)) for i in range(len(parts))]
    tests = [(x[list(own)], y[list(own)]) for own in dealt]
    for folder, told in (("train", parts), ("test", tests)):
        (place / folder).mkdir(parents=True)
        for i, (inputs, labels) in enumerate(told):
            data = {"x": inputs.numpy(), "y": labels.numpy()}
            np.savez_compressed(place / folder / f"{i}.npz", data=np.array(data, dtype=object))


def settings(workload: Workload, rounds: int) -> SimpleNamespace:
    """What PFLlib's command line would say."""
    return SimpleNamespace(
        algorithm="FedAvg",
        auto_break=False,
        batch_num_per_client=2,
        batch_size=workload.batch,
        client_drop_rate=0.0,
        dataset=workload.name,
        device="cpu",
        dlg_eval=False,
        dlg_gap=100,
        eval_gap=1 if workload.digits else rounds + 1,
        few_shot=0,
        fine_tuning_epoch_new=0,
        global_rounds=rounds,
        goal="test",
        join_ratio=workload.per_round / workload.clients,
        learning_rate_decay=False,
        learning_rate_decay_gamma=0.99,
        local_epochs=1,
        local_learning_rate=workload.lr,
        model=raw.model_of(workload),
        num_classes=10,
        num_clients=workload.clients,
        num_new_clients=0,
        random_join_ratio=False,
        save_folder_name="items",
        send_slow_rate=0.0,
        time_select=False,
        time_threthold=10000,
        top_cnt=100,
        train_slow_rate=0.0,
    )


class Turns(FedAvg):
    """Waits for its turn before every round. PFLlib measures before a round, so one more would follow the last."""

    gate: Gate

    def select_clients(self) -> Any:
        self.gate()
        return super().select_clients()

    def train_metrics(self) -> tuple[list[int], list[int], list[float]]:
        return [0], [1], [0.0]

    def evaluate(self, acc: Any = None, loss: Any = None) -> None:
        super().evaluate(acc, loss)
        if len(self.rs_test_acc) > 1:
            self.gate.tell(self.rs_test_acc[-1])
        if len(self.rs_test_acc) > self.global_rounds:
            self.gate.close()
            os._exit(0)


def main() -> None:
    workload, rounds = EVERY[sys.argv[1]], int(sys.argv[2])
    torch.set_num_threads(1)
    kept = Path(sys.argv[3]) if len(sys.argv) > 3 else None  # files written by an earlier call
    with tempfile.TemporaryDirectory() as temporary:
        place = kept or Path(temporary)
        if not (place / "dataset").exists():
            write(workload, place / "dataset" / workload.name)
        if rounds == 0:
            return
        (place / "system").mkdir(exist_ok=True)
        os.chdir(place / "system")
        gate = Gate(waits=not workload.digits)  # before the server, which prints
        server = Turns(settings(workload, rounds), 0)
        server.gate = gate
        server.train()


if __name__ == "__main__":
    main()
