"""Boosting as a run: own trees, groups, private sums, and the answers of the exported model."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import covey
from covey.core.round import run_rounds, served
from covey.data.types import Samples
from covey.errors import UserError
from covey.parts.measure import scores
from covey.runs.config import fleet_of, resolve
from covey.training.trees.forest import Grove

SMALL = {"trees": 3, "depth": 2, "bins": 17}


def config(method: str = "boosting", data: dict[str, Any] | None = None, **settings: Any) -> Any:
    private = settings.pop("private", None)
    return resolve(
        {
            "method": {"name": method, **SMALL, **settings},
            "data": {"name": "digits", "clients": 6, **(data or {})},
            **({"private": private} if private else {}),
        }
    )


def finished(made: Any) -> tuple[Any, Any]:
    """The last state of the run, and its fleet."""
    fleet = fleet_of(made)
    return run_rounds(made.method, fleet, rounds=made.top.rounds), fleet


def test_a_run_has_one_round_for_the_base_and_one_for_each_level() -> None:
    assert config().top.rounds == 1 + 3 * 2
    assert config(base=0.0).top.rounds == 3 * 2
    assert config("boosting-personal").top.rounds == 1 + 3 * 2 + 2
    state, fleet = finished(config())
    assert Grove(fleet.layout, state.models[0]).grown == 3 * 2


def test_rounds_beyond_the_last_tree_change_nothing() -> None:
    made = config()
    state, fleet = finished(made)
    again = run_rounds(made.method, fleet, rounds=made.top.rounds + 1, state=state)
    assert torch.equal(state.models, again.models)


def test_what_travels_is_the_sum_and_not_the_row() -> None:
    _, fleet = finished(config(base=0.0))
    grove = Grove(fleet.layout, fleet.start())
    sums = [grove.heads * 2**level * grove.features * grove.bins * 2 for level in (0, 1)] * 3
    loss, clients = 8, 6
    assert fleet.ledger.total["train.histogram"].bytes_up == clients * sum(4 * s + loss for s in sums)


def test_own_trees_stay_at_home_and_serve_the_client() -> None:
    made = config("boosting-personal", own=4, holdout=0.3, learning_rate=0.5)
    state, fleet = finished(made)
    grove = Grove(fleet.layout, state.models[0])
    assert 0 < grove.own <= 4  # with three small common trees a few own ones help
    assert (grove.feature[3:] == -1).all()
    measured = scores(made.method, state, fleet)
    common, common_fleet = finished(config(learning_rate=0.5))
    without = scores(config(learning_rate=0.5).method, common, common_fleet)
    assert measured["local-test/accuracy-mean"] > without["local-test/accuracy-mean"]


def test_an_unseen_client_is_served_the_common_trees() -> None:
    made = config("boosting-personal", own=2)
    state, fleet = finished(made)
    task = served(made.method, state, fleet, [99])[99]
    assert torch.equal(task.models[0], state.models[0])


def test_groups_share_their_first_trees_and_differ_in_the_others() -> None:
    made = config(group="summary", shared=1, data={"clients": 12})
    state, fleet = finished(made)
    assert len(state.models) > 1
    groves = [Grove(fleet.layout, row) for row in state.models]
    for grove in groves[1:]:
        assert (grove.feature[0] == groves[0].feature[0]).all()
        assert (grove.value[0] == groves[0].value[0]).all()
    assert any((grove.value[1] != groves[0].value[1]).any() for grove in groves[1:])


def test_secure_sums_grow_nearly_the_same_forest() -> None:
    plain, fleet = finished(config(cuts="grid"))
    made = config(cuts="grid", private={"secure": True, "clip": 10.0})
    secure, _ = finished(made)
    exact, masked = (Grove(fleet.layout, state.models[0]) for state in (plain, secure))
    same = (exact.feature == masked.feature).mean()
    assert same > 0.9
    assert np.abs(exact.base - masked.base).max() < 1e-2


def test_noise_is_accounted_for() -> None:
    made = config(cuts="grid", private={"epsilon": 50.0, "clip": 1.0})
    state, fleet = finished(made)
    assert torch.isfinite(state.models).all()
    assert sorted(fleet.ledger.told) == list(range(6))


def test_quantiles_and_private_sums_do_not_go_together() -> None:
    with pytest.raises(UserError, match=r'quantiles of every client.*set method.cuts = "grid"'):
        config(private={"epsilon": 1.0})


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"method": {"name": "fedavg"}, "model": {"name": "trees"}}, "which method fedavg cannot train"),
        ({"method": {"name": "boosting"}, "model": {"name": "mlp"}}, "grows a model of its own"),
        ({"method": {"name": "boosting"}, "model": {"depth": 2}}, "or set method.depth"),
    ],
)
def test_a_model_that_the_method_does_not_train_is_refused(tables: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        resolve(tables)


def test_the_run_folder_answers_as_the_forest_was_measured(tmp_path: Path) -> None:
    covey.run({"name": "boosting", **SMALL}, "digits", out=tmp_path / "run")
    models = covey.load_models(tmp_path / "run")
    digits = covey.load("digits")
    answers = models.predict(digits.x[:50], client=3)
    made = covey.export(tmp_path / "run", format="onnx")
    runtime = pytest.importorskip("onnxruntime").InferenceSession(str(made[0]))
    inputs = Samples(digits, np.arange(50)).tensors()[0].numpy()
    assert answers.probabilities is not None
    logits = runtime.run(None, {runtime.get_inputs()[0].name: inputs})[0]
    assert np.allclose(torch.softmax(torch.from_numpy(logits), 1).numpy(), answers.probabilities, atol=1e-6)
