"""Covey's own engines on the workloads."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.workloads import Workload
from covey.core.round import empty_state, one_round
from covey.fleet.engine import Engine
from covey.fleet.local import LocalFleet
from covey.methods.baselines import fedavg
from covey.parts.steps import Train


def local(workload: Workload, engine: Engine) -> Callable[[int], None]:
    """FedAvg on the local engine."""
    fleet = LocalFleet(workload.federation(), workload.network(), engine=engine)
    method = fedavg(
        Train(lr=workload.lr, batch=workload.batch, epochs=1), per_round=workload.per_round, weighting="equal"
    )
    state = [empty_state(fleet)]

    def round_number(_: int) -> None:
        state[0] = one_round(method, state[0], fleet)

    return round_number
