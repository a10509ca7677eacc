"""Cox's partial likelihood and the C-index: by hand, and as `lifelines` has them."""

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import covey
from covey.errors import UserError
from covey.training.survival import Cox, c_index, partial_losses


def test_the_partial_likelihood_by_hand() -> None:
    # hazards 1, 2, 4; events at 1 and 3, censored at 2: log(7 / 1) and log(4 / 4)
    hazard = torch.log(torch.tensor([1.0, 2.0, 4.0]))
    found = partial_losses(hazard, torch.tensor([1.0, -2.0, 3.0]))
    assert found.tolist() == pytest.approx([math.log(7), 0.0, 0.0], abs=1e-6)


def test_ties_are_efrons() -> None:
    # two events at 1 among hazards 1, 2, 4: log(7) - log(1), and log(7 - 3 / 2) - log(2)
    hazard = torch.log(torch.tensor([1.0, 2.0, 4.0]))
    found = partial_losses(hazard, torch.tensor([1.0, 1.0, -5.0]))
    assert found.tolist() == pytest.approx([math.log(7), math.log(5.5 / 2), 0.0], abs=1e-6)


def test_the_c_index_by_hand() -> None:
    # known pairs: (1, 2), (1, 3), (1, 4) and (3, 4); of the censored one at 2 nothing else is known
    label, hazard = torch.tensor([1.0, -2.0, 3.0, 4.0]), torch.tensor([2.0, 1.0, 3.0, 3.0])
    assert c_index.value(hazard[:, None], label[:, None]) == pytest.approx((1 + 0 + 0 + 0.5) / 4)


def test_without_an_event_there_is_no_c_index() -> None:
    assert c_index.value(torch.zeros(3, 1), torch.tensor([[-1.0], [-2.0], [-3.0]])) is None


def test_classes_are_refused_in_a_sentence() -> None:
    with pytest.raises(UserError, match="it needs times, with a minus"):
        Cox().target(torch.zeros(2, 1), torch.tensor([0, 1]))


@pytest.fixture(scope="module")
def lung() -> Any:
    """228 patients of 18 institutions, of which those without an empty cell are taken."""
    datasets = pytest.importorskip("lifelines.datasets")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return datasets.load_lung().dropna(subset=["inst", "ph.ecog", "age", "sex"])


def test_likelihood_and_c_index_are_those_of_lifelines(lung: Any) -> None:
    lifelines = pytest.importorskip("lifelines")
    table = lung[["time", "status", "age", "sex", "ph.ecog"]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = lifelines.CoxPHFitter().fit(table, "time", "status")
    x = torch.tensor(table[["age", "sex", "ph.ecog"]].to_numpy(np.float64))
    label = torch.tensor(np.where(table["status"] == 1, table["time"], -table["time"]))
    hazard = x @ torch.tensor(fitted.params_.to_numpy())
    assert float(partial_losses(hazard, label).sum()) == pytest.approx(-fitted.log_likelihood_, rel=1e-6)
    assert c_index.value(hazard, label) == pytest.approx(fitted.concordance_index_, abs=1e-9)


def test_institutions_learn_a_common_hazard(lung: Any) -> None:
    table = lung[["inst", "age", "sex", "ph.ecog"]].assign(
        label=np.where(lung["status"] == 1, lung["time"], -lung["time"]).astype(float)
    )
    result = covey.run(
        "fedavg",
        table,
        label="label",
        client="inst",
        objective="cox",
        model="softmax",
        rounds=15,
        train={"batch": 64, "lr": 0.05},
        measure={"metrics": ["c-index"], "every": 15},
    )
    reached = result.summary.last["global-test/c-index"]
    assert reached > 0.58


@pytest.mark.parametrize("method", ["fedavg", "fine-tuned"])
def test_who_is_at_risk_is_of_the_same_client(method: str, tmp_path: Path) -> None:
    """Whoever is alone in a client's test data costs nothing there, whoever else is at risk elsewhere."""
    table = tmp_path / "times.csv"
    table.write_text("\n".join(["x,time,who", *(f"{i},{i + 1}.5,c{i % 20}" for i in range(100))]))
    result = covey.run(
        method,
        covey.read_table(table, label="time", client="who"),
        objective="cox",
        model="softmax",
        rounds=1,
        measure={"global_test": False},
    )
    assert result.summary.last["local-test/loss-mean"] == pytest.approx(0.0, abs=1e-6)
