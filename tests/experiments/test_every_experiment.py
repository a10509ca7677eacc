"""Every experiment runs at its smoke scale: one of each kind in the gate, all of them by `make slow`."""

import pytest

from experiments.reproduction import reproduce_experiment
from experiments.spec import all_experiments

IN_THE_GATE = {
    "cafa/table4",
    "cfic/fig4",
    "covey/scoreboard",
    "embedding/unseen-clients",
    "fedavg/mnist",
    "haccs/fig5a",
    "topologies/table1",
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n in IN_THE_GATE else pytest.mark.slow) for n in all_experiments()],
)
def test_smoke(name: str, tmp_path) -> None:  # type: ignore[no-untyped-def]
    result = reproduce_experiment(name, scale="smoke", seeds=1, out=tmp_path)
    assert result["cells"], "an experiment without a number"
    assert (tmp_path / "result.json").exists()
