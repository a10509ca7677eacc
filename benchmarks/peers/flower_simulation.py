"""FedAvg on a workload with Flower's simulator: its own strategy, two actors of one CPU each."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import nn

from benchmarks import raw
from benchmarks.peers.flower_client import client_app
from benchmarks.peers.gate import Gate
from benchmarks.workloads import EVERY, Workload


class Gated(FedAvg):
    """Waits for its turn before every round."""

    def __init__(self, gate: Gate, **settings: float) -> None:
        super().__init__(**settings)
        self.gate = gate

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        self.gate()
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """A round that some clients failed in would look fast: it ends everything."""
        answers = list(replies)
        failed = [answer for answer in answers if answer.has_error()]
        if failed or len(answers) < self.min_train_nodes:
            reason = failed[0].error.reason if failed else "no answer"
            print(
                f"{len(failed)} of {len(answers)} clients failed in round {server_round}: {reason}",
                file=sys.stderr,
                flush=True,
            )
            os._exit(1)  # Flower would catch an exception and continue
        return super().aggregate_train(server_round, answers)


def measured(model: nn.Module, gate: Gate, workload: Workload) -> Callable[[int, ArrayRecord], MetricRecord]:
    """What the server measures after every round."""
    x, y = raw.test_of(workload)

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        model.load_state_dict(arrays.to_torch_state_dict())
        accuracy = raw.accuracy(model, x, y)
        if server_round:
            gate.tell(accuracy)
        return MetricRecord({"accuracy": accuracy})

    return evaluate


def main() -> None:
    name, rounds = sys.argv[1], int(sys.argv[2])
    workload = EVERY[name]
    gate = Gate(waits=not workload.digits)
    app = ServerApp()

    @app.main()
    def serve(grid: Grid, _context: Context) -> None:
        strategy = Gated(
            gate,
            fraction_train=workload.per_round / workload.clients,
            fraction_evaluate=0.0,
            min_train_nodes=workload.per_round,
            min_available_nodes=workload.clients,
        )
        model = raw.model_of(workload)
        strategy.start(
            grid,
            ArrayRecord(model.state_dict()),
            num_rounds=rounds,
            evaluate_fn=measured(model, gate, workload) if workload.digits else None,
        )
        gate.close()

    try:
        run_simulation(
            server_app=app,
            client_app=client_app(name),
            num_supernodes=workload.clients,
            backend_config={
                "init_args": {"num_cpus": 2},
                "client_resources": {"num_cpus": 1, "num_gpus": 0.5 if raw.DEVICE != "cpu" else 0.0},
            },
        )
    except Exception as error:  # the server's thread would wait for ever
        print(f"{type(error).__name__}: {error.__cause__ or error}", file=sys.stderr, flush=True)
        os._exit(1)


if __name__ == "__main__":
    main()
