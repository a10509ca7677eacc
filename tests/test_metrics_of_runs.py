"""One rule for recorder, target, best and report: what a metric says of itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from covey.core.round import run_rounds
from covey.deploy.wire import step_from_plain, step_to_plain
from covey.errors import Refused, UserError
from covey.folder.read import read_run
from covey.methods.baselines import fedavg
from covey.parts.measure import Measuring, scores
from covey.parts.steps import Evaluate, Train
from covey.report.table import summary_columns
from covey.runs.config import resolve
from covey.runs.run import run_config
from covey.testing import small_fleet
from covey.training import metrics
from covey.training.metrics import Metric
from covey.training.objective import Classification
from tests.report.made_up_run import MadeUp, write_run

OWN = """
import covey

@covey.metric(higher_is_better=True, share=True)
def hits_of_zero(outputs, target):
    there = target == 0
    return float((outputs.argmax(1) == 0)[there].float().mean()) if there.any() else None
"""
TABLES: Mapping[str, Any] = {
    "rounds": 3,
    "data": {"clients": 6, "scaling": "unit"},
    "engine": {"mode": "serial"},
    "train": {"lr": 0.1, "epochs": 1},
}


def summary_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return found


def test_a_run_measures_whole_predictions_and_a_metric_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    names = ["macro-f1", "auc", "perplexity", f"{tmp_path}/mine.py:hits_of_zero"]
    config = resolve({**TABLES, "measure": {"metrics": names}, "target": 0.0, "target_metric": "macro-f1"})
    run_config(config, tmp_path / "run", report=False)
    summary = summary_of(tmp_path / "run")
    for name in ("macro-f1", "auc", "perplexity", "hits-of-zero"):
        assert f"global-test/{name}" in summary["last"]
        assert f"local-test/{name}-worst10" in summary["last"]
    assert summary["targets"][0]["metric"] == "global-test/macro-f1"
    assert summary["targets"][0]["round"] == 1
    assert (
        summary["last"]["local-test/hits-of-zero-worst10"] <= summary["last"]["local-test/hits-of-zero-mean"]
    )
    view = read_run(tmp_path / "run")
    assert view.metrics["hits-of-zero"].higher_is_better  # known without the file
    curve = view.rows.overall("global-test/hits-of-zero").value
    assert summary["best"]["global-test/hits-of-zero"]["value"] == curve.max()
    lowest = view.rows.overall("global-test/perplexity").value.min()
    assert summary["best"]["global-test/perplexity"]["value"] == lowest


@dataclass(frozen=True)
class Counting(Classification):
    """An objective with a score that nobody said the direction of."""

    main: ClassVar[str] = "rank"
    higher_is_better: ClassVar[bool] = False

    def scores(self, outputs: Tensor, target: Tensor) -> dict[str, Tensor]:
        rank = (outputs > outputs.gather(1, target[:, None])).sum(1).float()
        return {**super().scores(outputs, target), "rank": rank, "sureness": outputs.softmax(1).amax(1)}


def test_scores_of_an_objective_of_ones_own_keep_their_directions() -> None:
    fleet, method = small_fleet(), fedavg(Train(lr=0.1))
    fleet.objective = Counting()
    state = run_rounds(method, fleet, rounds=1)
    found = scores(method, state, fleet)
    assert found["local-test/rank-worst10"] >= found["local-test/rank-mean"]
    assert (
        found["local-test/accuracy-worst10"] <= found["local-test/accuracy-mean"]
    )  # though it is not the main one
    assert "local-test/sureness-mean" in found
    assert "local-test/sureness-worst10" not in found
    told = Measuring(metrics=(Metric(name="sureness", higher_is_better=True),))
    named = {m.metric for m in told(method, state, fleet, True)}
    assert "sureness-worst10" in named


def test_a_client_whose_data_do_not_define_a_metric_is_left_out() -> None:
    fleet, method = small_fleet(), fedavg(Train(lr=0.1))
    state = run_rounds(method, fleet, rounds=1)
    nobody_but_two = replace(
        metrics.auc, name="some", of=lambda outputs, _: 0.5 if len(outputs) > 40 else None
    )
    found = Measuring(metrics=(nobody_but_two,), global_test=False)(method, state, fleet, True)
    sizes = {i: len(share.test) for i, share in enumerate(fleet.data.shares)}
    measured = {m.client for m in found if m.metric == "some"}
    assert measured == {i for i, size in sizes.items() if size > 40}
    assert 0 < len(measured) < len(sizes)
    assert {m.value for m in found if m.metric == "some-mean" and m.group == -1} == {0.5}


@pytest.mark.parametrize(
    ("tables", "sentence"),
    [
        ({"measure": {"metrics": ["macrof1"]}}, "did you mean macro-f1"),
        ({"target": 0.5, "target_metric": "auc"}, "target_metric is 'auc', which is not measured"),
        ({"measure": {"metrics": ["math:pi"]}}, "make it a metric with @covey.metric"),
    ],
)
def test_a_metric_that_is_not_one_is_one_sentence(tables: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        resolve({**TABLES, **tables})


def test_a_site_measures_only_what_it_knows() -> None:
    step = Evaluate(metrics=(metrics.macro_f1,))
    assert step_from_plain(step_to_plain(step)) == step
    with pytest.raises(Refused, match="the metric 'of-the-server' is not known"):
        step_from_plain(step_to_plain(Evaluate(metrics=(replace(metrics.auc, name="of-the-server"),))))


def test_an_unfinished_run_wins_nothing_by_being_cheap(tmp_path: Path) -> None:
    made = [
        MadeUp(method=name, clients=4, rounds=rounds) for name, rounds in (("a", 10), ("b", 2), ("c", 12))
    ]
    for one in made:
        write_run(tmp_path / one.method, one)
    path = tmp_path / "b" / "summary.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "finished": False}))
    columns = {c.head: c for c in summary_columns([read_run(tmp_path / one.method) for one in made])}
    assert columns["all\ntime"].best == {0}
    assert columns["all\nbytes"].best == {0}


def test_bits_of_a_run_do_not_depend_on_what_is_measured() -> None:
    plain, more = small_fleet(), small_fleet()
    method = fedavg(Train(lr=0.1))
    first = run_rounds(method, plain, rounds=2, measure=Measuring())
    second = run_rounds(method, more, rounds=2, measure=Measuring(metrics=("macro-f1",)))
    assert torch.equal(first.models, second.models)
