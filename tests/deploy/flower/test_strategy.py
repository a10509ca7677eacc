"""Covey's methods for foreign ClientApps, on a Grid in this process."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

import covey.flower
from covey.errors import RunError, UserError
from covey.flower import Names
from tests.deploy.flower.grid import HereGrid

SIGN = (1.0, 1.0, -1.0, -1.0)  # nodes 2 and 3 have the opposite law
START = ArrayRecord([np.zeros((1, 2)), np.zeros(1)])


def samples(place: int) -> tuple[np.ndarray, np.ndarray]:
    """y = sign (x_0 + 2 x_1), without noise."""
    x = np.random.default_rng(place).normal(size=(40 + 10 * place, 2))
    return x, SIGN[place] * (x @ [1.0, 2.0])


def foreign(place: int, mods: list[Any] | None = None) -> ClientApp:
    """An app that knows nothing of covey: linear regression by gradient descent."""
    app = ClientApp(mods=mods)
    x, y = samples(place)

    def loss(w: np.ndarray) -> float:
        return float(((x @ w - y) ** 2).mean())

    def train(message: Message, context: Context) -> Message:
        w, b = message.content["arrays"].to_numpy_ndarrays()
        w = w[0].copy()
        for _ in range(5):
            w -= 0.1 * 2 * x.T @ (x @ w - y) / len(y)
        metrics = MetricRecord({"train_loss": loss(w), "num-examples": len(y)})
        return Message(
            RecordDict({"arrays": ArrayRecord([w[None], b]), "metrics": metrics}), reply_to=message
        )

    def evaluate(message: Message, context: Context) -> Message:
        w = message.content["arrays"].to_numpy_ndarrays()[0][0]
        metrics = MetricRecord({"eval_loss": loss(w), "num-examples": len(y)})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    app.train()(train)
    app.evaluate()(evaluate)
    return app


def started(strategy: covey.flower.Strategy, grid: Any, rounds: int = 6) -> Any:
    return strategy.start(grid=grid, initial_arrays=START, num_rounds=rounds)


def test_fedavg_is_the_weighted_mean_of_what_clients_send(tmp_path: Path) -> None:
    grid = HereGrid(foreign, 4, tmp_path)
    strategy = covey.flower.Strategy("fedavg", per_round=4)
    found = started(strategy, grid, rounds=1).arrays.to_numpy_ndarrays()
    sent = []
    for place in range(4):
        x, y = samples(place)
        w = np.zeros(2)
        for _ in range(5):
            w -= 0.1 * 2 * x.T @ (x @ w - y) / len(y)
        sent.append(w)
    expected = np.average(sent, axis=0, weights=[40, 50, 60, 70])
    np.testing.assert_allclose(found[0][0], expected, rtol=1e-5)
    assert found[0].dtype == np.float64  # as it was given
    assert found[0].shape == (1, 2)


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("ifca", {"k": 2, "per_round": 4}),
        ("fesem", {"k": 2, "per_round": 4}),
        ("cfl", {"patience": 1, "still": 1.0, "apart": 1.2}),
    ],
)
def test_two_laws_are_two_clusters_without_a_word_about_the_data(
    method: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    grid = HereGrid(foreign, 4, tmp_path)
    strategy = covey.flower.Strategy(method, seed=1, **settings)
    result = started(strategy, grid, rounds=12)
    groups = strategy.clusters
    assert list(groups) == list(grid.apps)
    first, second, third, fourth = groups.values()
    assert first == second != third == fourth
    assert result.evaluate_metrics_clientapp[12]["eval_loss"] < 0.05
    assert f"cluster-{third}/eval_loss" in result.evaluate_metrics_clientapp[12]
    assert len(strategy.models) == 2
    assert {kind for _, kind in grid.sent} == {"train", "evaluate"}


def labelled(context: Context) -> tuple[np.ndarray, np.ndarray]:
    """Two classes whose means swap places at nodes 3 to 5."""
    place = int(context.node_config["partition-id"])
    rng = np.random.default_rng(place)
    y = np.arange(60) % 2
    side = 1.0 if place < 3 else -1.0
    x = rng.normal(size=(60, 4)) * 0.3 + np.where(y == 1, side, -side)[:, None]
    return x.astype(np.float32), y


def six(place: int, mods: list[Any]) -> ClientApp:
    app = ClientApp(mods=mods)

    def train(message: Message, context: Context) -> Message:
        arrays = message.content["arrays"].to_numpy_ndarrays()
        moved = [array + (1.0 if place < 3 else -1.0) for array in arrays]
        metrics = MetricRecord({"loss": 1.0, "num-examples": 60})
        return Message(RecordDict({"arrays": ArrayRecord(moved), "metrics": metrics}), reply_to=message)

    def evaluate(message: Message, context: Context) -> Message:
        return Message(
            RecordDict({"metrics": MetricRecord({"acc": 1.0, "num-examples": 60})}), reply_to=message
        )

    app.train()(train)
    app.evaluate()(evaluate)
    return app


def test_the_mod_lets_covey_find_clusters_before_any_training(tmp_path: Path) -> None:
    mod = covey.flower.portraits(labelled)
    grid = HereGrid(lambda place: six(place, [mod]), 6, tmp_path)
    strategy = covey.flower.Strategy(per_round=6)  # covey
    started(strategy, grid, rounds=1)
    groups = list(strategy.clusters.values())
    assert groups[:3] == [groups[0]] * 3
    assert groups[3:] == [groups[3]] * 3
    assert groups[0] != groups[3]
    ours, theirs = (strategy.models[groups[place]].to_numpy_ndarrays()[1] for place in (0, 3))
    assert ours > 0 > theirs


def test_without_the_mod_the_line_that_is_missing_is_named(tmp_path: Path) -> None:
    strategy = covey.flower.Strategy("covey", per_round=4)
    with pytest.raises(RunError, match=r"ClientApp\(mods=\[covey.flower.portraits\(load\)\]\)"):
        started(strategy, HereGrid(foreign, 4, tmp_path), rounds=1)


def test_who_sends_other_arrays_is_left_out_and_the_round_goes_on(tmp_path: Path) -> None:
    def apps(place: int) -> ClientApp:
        if place:
            return foreign(place)
        app = ClientApp()

        def train(message: Message, context: Context) -> Message:
            wrong = ArrayRecord([np.zeros((3, 3)), np.zeros(1)])
            return Message(
                RecordDict({"arrays": wrong, "metrics": MetricRecord({"num-examples": 1})}), reply_to=message
            )

        app.train()(train)
        return app

    said: list[str] = []
    strategy = covey.flower.Strategy("fedavg", per_round=4, fraction_evaluate=0, say=said.append)
    started(strategy, HereGrid(apps, 4, tmp_path), rounds=1)
    (line,) = [line for line in said if "round 1" in line]
    assert "3 of 4 trained" in line
    assert "its array 0 is float64 of (3, 3), not floats of (1, 2)" in line


def test_a_round_without_an_answer_leaves_the_models_as_they_are(tmp_path: Path) -> None:
    def apps(place: int) -> ClientApp:
        return ClientApp()  # no train function: an error each time

    strategy = covey.flower.Strategy("fedavg", per_round=2, fraction_evaluate=0)
    assert not started(strategy, HereGrid(apps, 2, tmp_path), rounds=3).arrays
    with pytest.raises(RunError, match="round 4: none of 2 clients answered"):
        started(strategy, HereGrid(apps, 2, tmp_path), rounds=1)


@pytest.mark.parametrize("method", ["scaffold", "fedrep", "ditto", "fedbuff", "fine-tuned"])
def test_methods_that_train_in_their_own_way_are_refused(method: str) -> None:
    with pytest.raises(UserError, match=f"method is '{method}', which"):
        covey.flower.Strategy(method)


def test_what_a_method_misses_in_the_metrics_is_named(tmp_path: Path) -> None:
    strategy = covey.flower.Strategy("fednova", per_round=2)
    with pytest.raises(RunError, match="the method fednova needs 'batches' of every training"):
        started(strategy, HereGrid(foreign, 2, tmp_path), rounds=1)


def test_fedprox_tells_its_weight_as_flowers_does(tmp_path: Path) -> None:
    seen: list[Any] = []

    def apps(place: int) -> ClientApp:
        def look(message: Message, context: Context, go: Any) -> Message:
            seen.append(message.content["config"])
            return go(message, context)

        return foreign(place, [look])

    strategy = covey.flower.Strategy("fedprox", per_round=2, mu=0.5, fraction_evaluate=0)
    started(strategy, HereGrid(apps, 2, tmp_path), rounds=1)
    assert all(config["proximal-mu"] == 0.5 for config in seen)
    assert all(config["server-round"] == 1 for config in seen)


def test_the_names_of_metrics_can_be_said() -> None:
    metrics = {"my_loss": 1.0, "other_loss": 2.0, "acc": 0.5}
    assert Names().value(metrics, "loss") == 1.0
    assert Names(loss="other_loss").value(metrics, "loss") == 2.0
    assert Names().value(metrics, "accuracy") == 0.5
    assert Names(loss="none").value(metrics, "loss") is None


def test_a_number_of_samples_that_nobody_can_have_is_refused(tmp_path: Path) -> None:
    def boast(message: Message, context: Context, go: Any) -> Message:
        reply = go(message, context)
        reply.content["metrics"]["num-examples"] = 10**9
        return reply

    said: list[str] = []
    strategy = covey.flower.Strategy("fedavg", per_round=4, fraction_evaluate=0, say=said.append)
    started(
        strategy, HereGrid(lambda place: foreign(place, [boast] if place == 3 else []), 4, tmp_path), rounds=1
    )
    (line,) = [line for line in said if "round 1" in line]
    assert "3 of 4 trained" in line
    assert "Client 3 was refused" in line
