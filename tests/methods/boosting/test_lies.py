"""What no client can have is refused: sums of more samples than it has, inputs that are not there, false counts."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from covey.core.reply_schema import Known, objection
from covey.core.round import Reply, Task, run_rounds
from covey.methods.boosting.cuts import POINTS, TellQuantiles
from covey.parts.measure import scores
from covey.runs.config import fleet_of, resolve
from experiments.hostile import hostile

LIAR = 2


def after(method: str, lie: Callable[[Reply], Reply]) -> tuple[float, list[str]]:
    """The accuracy after a run of six clients, one of which lies, and why its replies were refused."""
    tables = {
        "method": {"name": method, "trees": 6, "depth": 3, "bins": 16},
        "data": {"name": "digits", "clients": 6},
    }
    made = resolve(tables)

    def told(_call: Any, _tasks: Any, outcomes: Any) -> list[Any]:
        return [
            replace(one, reply=lie(one.reply)) if one.id == LIAR and one.reply is not None else one
            for one in outcomes
        ]

    fleet = hostile(fleet_of(made), told)
    try:
        state = run_rounds(made.method, fleet, rounds=made.top.rounds)
        accuracy = scores(made.method, state, fleet)["global-test/accuracy"]
    finally:
        fleet.close()
    assert {problem.client for _, problem in fleet.ledger.problems} <= {LIAR}
    return accuracy, [problem.reason for _, problem in fleet.ledger.problems]


def times_1000(reply: Reply) -> Reply:
    return reply if reply.vector is None else replace(reply, vector=1000 * reply.vector)


def counts_of_everybody(reply: Reply) -> Reply:
    stats = {name: np.full_like(value, 1e30) for name, value in reply.stats.items() if name != "loss"}
    return replace(reply, stats={**reply.stats, **stats})


@pytest.mark.parametrize(
    ("method", "why"), [("boosting", "its sums add up to"), ("bagging", "its tree asks for input")]
)
def test_sums_and_trees_beyond_a_clients_samples_are_refused(method: str, why: str) -> None:
    honest, nothing = after(method, lambda reply: reply)
    silent, _ = after(method, lambda reply: replace(reply, vector=None))
    bent, said = after(method, times_1000)
    assert nothing == []
    assert any(why in reason for reason in said)
    assert bent > min(honest, silent) - 0.05  # a refused answer is none


def test_counts_beyond_a_clients_samples_do_not_place_the_cuts() -> None:
    honest, _ = after("boosting", lambda reply: reply)
    bent, said = after("boosting", counts_of_everybody)
    assert "its counts holds" in said[0] or "its counts adds up to" in said[0]
    assert bent > honest - 0.05


def test_the_bound_on_counts_by_hand() -> None:
    """Of two inputs, five samples each: five are believed, six are not, and none below zero is."""
    expected = TellQuantiles().expects(Known(shape=(2,), train=5))
    values, counts = np.zeros((2, POINTS), np.float32), np.zeros((2, POINTS), np.float32)
    counts[:, 0], counts[:, 1] = 3, 2
    assert objection({"values": values, "counts": counts}, expected) == ""
    counts[1, 1] = 3
    assert objection({"values": values, "counts": counts}, expected).startswith("its counts adds up to 5")
    counts[1, 1] = -1
    assert objection({"values": values, "counts": counts}, expected).startswith("its counts holds -1")


def test_second_derivatives_are_not_negative() -> None:
    made = resolve({"method": {"name": "boosting", "trees": 1, "depth": 1, "bins": 4, "base": 0.0}})
    fleet = fleet_of(made)
    row = fleet.start()
    task = Task(models=row[None], slots=(0,))
    step, layout = made.method.local, fleet.layout
    sums = torch.zeros_like(layout.tensors(row)["sums"])
    for value, why in ((0.001, ""), (-0.001, "its second derivatives are below 0")):
        sums[1] = value
        reply = step.unpacked(Reply(id=0, vector=sums, slot=0), task, layout)
        assert step.misfit(reply, layout, Known(classes=10, train=50)) == why
