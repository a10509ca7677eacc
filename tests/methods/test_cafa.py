"""CAFA and its halves: the weights worked out by hand, what the cross-evaluation costs, clusters over time."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from covey.core import Client, Reply, Round, Step, Task, run_rounds
from covey.core.ledger import Cost, Ledger
from covey.core.round import empty_state, one_round
from covey.errors import UserError
from covey.fleet.devices import Devices
from covey.fleet.local import LocalFleet
from covey.methods.baselines import fedavg
from covey.methods.cafa import LargestGroup, abfa, cafa, cbcc, cbcc_select
from covey.methods.cafa.accuracy import (
    LikenessAverage,
    accuracy_table,
    accuracy_weights,
    balanced_accuracy,
    cluster_weights,
)
from covey.parts.steps import Train
from covey.parts.steps.cross import CrossEvaluate
from covey.parts.steps.evaluate import Evaluate
from covey.runs.compare import on_equal_data
from covey.testing import final, small_federation, small_fleet
from covey.training.objective import Reconstruction

TRAIN = Train(lr=0.1, batch=16, holdout=0.2)

# Five clients in two clusters; 0, 2 and 3 work. a[i][j]: model i on the validation data of client j.
GROUPS = {0: 0, 1: 0, 2: 0, 3: 1, 4: 1}
ACCURACY = np.array([[0.5, 0.4, 0.2], [0.6, 0.8, 0.3], [0.1, 0.2, 0.9]])
SIZES = np.array([10.0, 30.0, 60.0])


class ThreeJudges:
    """A fleet that answers the cross-evaluation with the table above and keeps the tasks."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.tasks: dict[int, Task] = {}

    def ask(self, step: Step, tasks: dict[int, Task]) -> list[Reply]:
        self.tasks = tasks
        self.ledger.charge(step.kind, Cost(messages=9))
        return [
            Reply(id=i, size=int(size), stats={"accuracy": column})
            for i, size, column in zip(tasks, SIZES, ACCURACY.T, strict=True)
        ]


def three_replies(fleet: ThreeJudges) -> Round:
    replies = [Reply(id=i, vector=torch.full((4,), float(i)), size=100 + i) for i in (0, 2, 3)]
    now = SimpleNamespace(
        fleet=fleet, replies=replies, groups=GROUPS, models=torch.zeros(1, 4), notes={}, number=1
    )
    return cast(Round, now)


def weights_of(**switches: bool) -> list[float]:
    mixing = LikenessAverage(**switches)(three_replies(ThreeJudges()))
    return mixing.factors[0].toarray()[0].tolist()


def test_the_weights_worked_out_by_hand() -> None:
    """A = (0.29, 0.48, 0.61); w^K = (0.6, 0.6, 0.4); products 0.174, 0.288, 0.244 of 0.706."""
    assert accuracy_weights(ACCURACY, SIZES) == pytest.approx([0.210145, 0.347826, 0.442029], abs=5e-7)
    assert cluster_weights([0, 2, 3], GROUPS).tolist() == [0.6, 0.6, 0.4]
    both = weights_of(by_cluster=True, by_accuracy=True)
    assert both == pytest.approx([0, 0.246459, 0.407932, 0.345609], abs=5e-7)
    only_accuracy = weights_of(by_cluster=False, by_accuracy=True)
    assert only_accuracy == pytest.approx([0, 0.210145, 0.347826, 0.442029], abs=5e-7)
    only_cluster = weights_of(by_cluster=True, by_accuracy=False)
    assert only_cluster == pytest.approx([0, 0.375, 0.375, 0.25], abs=5e-7)


def test_every_client_gets_the_models_of_the_others_from_them() -> None:
    fleet = ThreeJudges()
    LikenessAverage(by_cluster=True, by_accuracy=True)(three_replies(fleet))
    assert [task.held for task in fleet.tasks.values()] == [(0,), (1,), (2,)]
    assert {task.source for task in fleet.tasks.values()} == {"peers"}
    assert all(task.models.tolist() == [[0.0] * 4, [2.0] * 4, [3.0] * 4] for task in fleet.tasks.values())


def test_models_that_get_nothing_right_weigh_the_same() -> None:
    assert accuracy_weights(np.zeros((4, 4)), np.ones(4)).tolist() == [0.25] * 4
    assert accuracy_weights(ACCURACY, np.zeros(3)).tolist() == [1 / 3] * 3, "nobody has validation data"
    assert accuracy_weights(np.zeros((2, 0)), np.zeros(0)).tolist() == [0.5, 0.5], "nobody answered"


def test_who_has_no_cluster_is_alone_in_one() -> None:
    assert cluster_weights([7, 4], GROUPS).tolist() == [0.2, 0.4]
    assert cluster_weights([7, 8], {}).tolist() == [1.0, 1.0]


def test_answers_that_are_no_accuracies_judge_nobody() -> None:
    good = Reply(id=1, size=10, stats={"accuracy": np.array([0.5, 1.0])})
    bad = [np.array([0.5]), np.array([0.5, 1.5]), np.array([np.nan, 0.5]), [0.5, 0.5], None]
    answers = [good, *(Reply(id=2, size=99, stats={"accuracy": value}) for value in bad)]
    table, sizes = accuracy_table(answers, 2)
    assert table.tolist() == [[0.5], [1.0]]
    assert sizes.tolist() == [10.0]


def test_balanced_by_class_worked_out_by_hand() -> None:
    """Two judges, classes 0, 1 and one that nobody has. Labels 8 + 0 and 0 + 2: the rare class counts as much.

    Model 0: 8/8 and 0/2, mean 1/2. Model 1: 4/8 and 2/2, mean 3/4.
    """
    answers = [
        Reply(
            id=0, size=8, stats={"hits": np.array([[8.0, 0, 0], [4, 0, 0]]), "labels": np.array([8.0, 0, 0])}
        ),
        Reply(
            id=1, size=2, stats={"hits": np.array([[0.0, 0, 0], [0, 2, 0]]), "labels": np.array([0.0, 2, 0])}
        ),
    ]
    assert balanced_accuracy(answers, 2).tolist() == [0.5, 0.75]
    more_hits_than_samples = Reply(id=2, stats={"hits": np.full((2, 3), 9.0), "labels": np.ones(3)})
    assert balanced_accuracy([*answers, more_hits_than_samples], 2).tolist() == [0.5, 0.75]
    assert balanced_accuracy([], 2).tolist() == [1.0, 1.0], "nobody answered"
    nothing = Reply(id=0, stats={"hits": np.zeros((2, 3)), "labels": np.ones(3)})
    assert balanced_accuracy([nothing], 2).tolist() == [1.0, 1.0]


def test_hits_by_class_add_up_to_the_accuracy() -> None:
    fleet = small_fleet()
    rows = torch.stack([fleet.start(), fleet.start(1)])
    tasks = dict.fromkeys(range(3), Task(models=rows, slots=(0, 1)))
    plain = fleet.ask(CrossEvaluate(holdout=0.2, models=2), tasks)
    by_class = fleet.ask(CrossEvaluate(holdout=0.2, models=2, by_class=True), tasks)
    for whole, parts in zip(plain, by_class, strict=True):
        assert parts.stats["labels"].sum() == whole.size == parts.size
        assert parts.stats["hits"].sum(axis=1) / whole.size == pytest.approx(whole.stats["accuracy"])
        assert (parts.stats["hits"] <= parts.stats["labels"]).all()


def test_wrong_settings_are_one_sentence() -> None:
    with pytest.raises(UserError, match="evaluation is 'fair'; allowed: balanced, published"):
        cafa(TRAIN, evaluation="fair")  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"power is -1.0; allowed: a number from 0 to 100"):
        abfa(TRAIN, power=-1.0)


# ------------------------------------------------------------------------------------------ known answers


def constant(value: float) -> Any:
    def answer(step: CrossEvaluate, client: Client, task: Task) -> Reply:
        return Reply(id=client.id, size=7, stats={"accuracy": np.full(step.models, value)})

    return answer


@pytest.mark.parametrize("accuracy", [0.0, 0.3, 1.0])
def test_equal_weights_are_fedavg_bit_for_bit(accuracy: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CrossEvaluate, "__call__", constant(accuracy))
    plain = final(fedavg(TRAIN, per_round=6, weighting="equal"), small_fleet())
    for method in (
        cafa(TRAIN, clusters=1, evaluation="published"),
        abfa(TRAIN, evaluation="published"),
        cbcc(TRAIN, clusters=1),
        cbcc_select(TRAIN, clusters=1),
    ):
        assert torch.equal(final(method, small_fleet()).models, plain.models), method.name


def test_without_them_the_result_is_another() -> None:
    plain = final(fedavg(TRAIN, per_round=6, weighting="equal"), small_fleet())
    for method in (cafa(TRAIN), abfa(TRAIN), cbcc(TRAIN), cbcc_select(TRAIN)):
        assert not torch.equal(final(method, small_fleet()).models, plain.models), method.name


def test_cross_evaluation_is_evaluation_of_each_model_on_the_validation_part() -> None:
    fleet = small_fleet()
    fleet.begin(1)
    rows = torch.stack([fleet.start(), fleet.start(1), fleet.start(2)])
    task = Task(models=rows, slots=(0, 1, 2))
    crossed = fleet.ask(CrossEvaluate(holdout=0.2, models=3), {2: task, 5: task})
    for place, row in enumerate(rows):
        alone = Task(models=row[None], slots=(0,))
        single = fleet.ask(Evaluate(split="validation", holdout=0.2), {2: alone, 5: alone})
        assert [r.stats["accuracy"] for r in single] == [r.stats["accuracy"][place] for r in crossed]
        assert [r.size for r in single] == [r.size for r in crossed]


def test_validation_data_are_never_trained_on() -> None:
    assert cafa(Train()).local == replace(Train(), holdout=0.2)
    assert cafa(replace(TRAIN, holdout=0.3)).local.holdout == 0.3  # type: ignore[attr-defined]
    assert cbcc(Train()).local == Train(), "clusters need no validation data"


def test_compared_methods_train_on_the_same_data_unless_the_user_says_otherwise() -> None:
    def runs(*names: str, **tables: object) -> dict[str, dict[str, Any]]:
        return {name: {**tables, "method": {"name": name}} for name in names}

    def trained(given: dict[str, dict[str, Any]]) -> list[object]:
        return [tables.get("train") for tables in on_equal_data(given).values()]

    assert trained(runs("fedavg", "cafa")) == [{"holdout": 0.2}] * 2
    assert trained(runs("cafa", "cbcc", train={"lr": 0.5})) == [{"lr": 0.5, "holdout": 0.2}] * 2
    assert trained(runs("fedavg", "cafa", train={"holdout": 0.0})) == [{"holdout": 0.0}] * 2
    assert trained(runs("fedavg", "fedprox")) == [None, None]


# ------------------------------------------------------------------------------------------ costs


def test_a_round_is_charged_k_times_k_minus_1_transfers_between_peers() -> None:
    fleet = small_fleet(devices=Devices(profile="haccs"))
    one_round(cafa(TRAIN, per_round=5, evaluation="published"), empty_state(fleet), fleet)
    cross = fleet.ledger.this_round["evaluate.cross"]
    assert cross.messages == 5 * 4 + 5, "20 models between peers and 5 answers to the server"
    assert cross.bytes_peer == 5 * 4 * 4 * fleet.layout.size
    assert cross.bytes_down == 0
    assert cross.bytes_up == 5 * 5 * 8, "five accuracies from each"
    assert cross.seconds > 0
    assert fleet.ledger.this_round["query.labels"].messages == 2 * 8
    one_round(abfa(TRAIN, per_round=1), empty_state(fleet), fleet)
    assert fleet.ledger.this_round["evaluate.cross"].bytes_peer == 0, "a single client has its own model"


def test_the_work_is_a_forward_pass_a_model_over_the_validation_part() -> None:
    assert CrossEvaluate(holdout=0.2, models=6).work(train=100, test=50) == pytest.approx(6 * 20 / 3)


def test_the_report_is_told_what_it_cost_and_who_sees_what() -> None:
    notes = final(cafa(TRAIN, by_cluster=True), small_fleet(), rounds=1).notes
    assert 0 < notes["cross-evaluation"]["share of the round's bytes"] < 1
    assert "label shares" in notes["privacy"]["text"]
    assert "each other's models" in notes["models"]["text"]
    assert {"silhouette", "scatter-before", "scatter-after", "labels", "clusters"} <= set(notes)


# ------------------------------------------------------------------------------------------ clusters over time


def queried(fleet: LocalFleet) -> int:
    return fleet.ledger.this_round.get("query.labels", Cost()).messages // 2


def test_clients_are_asked_once_and_unseen_are_placed() -> None:
    unseen = {"clients": [6, 7], "round": 3}
    fleet = small_fleet(devices=Devices(joins=(unseen,)))
    state, asked, groups = empty_state(fleet), [], []
    for _ in range(4):
        state = one_round(cbcc(TRAIN), state, fleet)
        asked.append(queried(fleet))
        groups.append(dict(state.groups))
    assert asked == [6, 0, 2, 0]
    assert set(groups[0]) == set(range(6))
    assert groups[1] == groups[0]
    assert set(groups[2]) == set(range(8))
    shares = state.memory["label mix"]
    counts = small_federation().label_counts()
    assert np.allclose(shares[7], counts[7] / counts[7].sum())


def test_with_epsilon_the_shares_are_noisy_and_the_budget_is_booked() -> None:
    fleet = small_fleet()
    state = final(cafa(TRAIN, by_cluster=True, epsilon=0.5), fleet, rounds=2)
    assert fleet.ledger.epsilon == dict.fromkeys(range(8), 0.5), "one summary in two rounds"
    counts = small_federation().label_counts()[0]
    assert not np.allclose(state.memory["label mix"][0], counts / counts.sum(), atol=1e-3)
    assert "epsilon 0.5" in state.notes["privacy"]["text"]


def test_nobody_tells_label_shares_that_would_change_nothing() -> None:
    fleet = small_fleet()
    state = final(cafa(TRAIN), fleet, rounds=2)
    assert "query.labels" not in fleet.ledger.total
    assert not state.groups
    with pytest.raises(UserError, match="clusters is 7, which only clusters that weigh use: set by_cluster"):
        cafa(TRAIN, clusters=7)
    with pytest.raises(UserError, match=r"epsilon is 0.5, which only clusters that weigh use"):
        cafa(TRAIN, epsilon=0.5)


def test_only_the_largest_group_is_selected() -> None:
    def select(groups: dict[int, int], here: list[int], count: int = 9) -> list[int]:
        now = SimpleNamespace(groups=groups, here=here, stream=lambda _: np.random.default_rng(1))
        return LargestGroup(per_round=count)(cast(Round, now))

    groups = {0: 1, 1: 0, 2: 0, 3: 0, 4: 1, 5: 2}
    assert select(groups, [0, 1, 2, 3, 4, 5]) == [1, 2, 3]
    assert len(select(groups, [0, 1, 2, 3, 4, 5], count=2)) == 2
    assert select(groups, [0, 2, 4, 5]) == [2], "size counts all members, reachable or not"
    assert select(groups, [0, 4, 5, 8]) == [0, 4], "nobody of the largest can be reached"
    assert select({}, [3, 4]) == [3, 4], "nobody has told anything"
    with pytest.raises(UserError, match="per_round is 0"):
        LargestGroup(per_round=0)


def test_without_accuracy_there_is_nothing_to_weigh_by() -> None:
    fleet = LocalFleet(small_federation(), torch.nn.Conv2d(1, 1, 1), objective=Reconstruction())
    with pytest.raises(UserError, match="weighs models by accuracy"):
        run_rounds(abfa(TRAIN), fleet, rounds=1)


def test_the_default_weighs_by_samples_and_balanced_accuracy_the_published_form_by_clusters_and_accuracy() -> (
    None
):
    ours, papers = cafa(TRAIN).mix, cafa(TRAIN, evaluation="published").mix
    assert (ours.by_samples, ours.by_cluster, ours.balanced, ours.power) == (True, False, True, 2.0)  # type: ignore[union-attr]
    assert (papers.by_samples, papers.by_cluster, papers.balanced) == (False, True, False)  # type: ignore[union-attr]
    both = cafa(TRAIN, weighting="equal", by_cluster=True).mix
    assert (both.by_samples, both.by_cluster) == (False, True)  # type: ignore[union-attr]
