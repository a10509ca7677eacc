"""Every experiment runs at its smoke scale."""

import pytest

from experiments.reproduction import reproduce_experiment
from experiments.spec import all_experiments


@pytest.mark.parametrize("name", all_experiments())
def test_smoke(name: str, tmp_path) -> None:  # type: ignore[no-untyped-def]
    result = reproduce_experiment(name, scale="smoke", seeds=1, out=tmp_path)
    assert result["cells"], "an experiment without a number"
    assert (tmp_path / "result.json").exists()
