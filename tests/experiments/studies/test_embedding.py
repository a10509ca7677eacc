"""The studies of the embedding paper: quantiser, attacks, agreement of groups, sizes that fit the ledger."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from covey.folder.summary import Costs, Summary, Target
from covey.report.seeds import Bound
from experiments.cells import read_cell
from experiments.spec import read_experiment
from experiments.studies.embedding import agreement, attack, rand_index, study_bits
from experiments.studies.scaling import embeddings


def test_the_studys_quantiser_by_hand() -> None:
    code = np.array([[0.2, 3.4, -1.6, 1.0]])  # rounded 0, 3, -2, 1: mean 0.5
    assert study_bits(code, 0.0, np.random.default_rng(0)).tolist() == [[-2, 3, -2, 3]]
    at_means = study_bits(code, 0.0, np.random.default_rng(0), at="means")  # (0 - 2) / 2 and (3 + 1) / 2
    assert at_means.tolist() == [[-1, 2, -1, 2]]
    alike = study_bits(np.full((1, 3), 4.0), 0.0, np.random.default_rng(0), at="means")
    assert alike.tolist() == [[4, 4, 4]]
    flipped = study_bits(np.repeat(code, 5000, axis=0), 0.2, np.random.default_rng(0))
    assert (flipped != [-2, 3, -2, 3]).mean() == pytest.approx(0.2, abs=0.01)


def test_bits_of_a_class_that_is_there_agree_with_the_others() -> None:
    rng = np.random.default_rng(1)
    held = rng.random((60, 5)) < 0.5
    pattern = rng.integers(0, 2, (5, 40))
    said = np.where(held[:, :, None], pattern, rng.integers(0, 2, (60, 5, 40))).astype(np.uint8)
    accuracy, area = attack(agreement(said), held, rng)
    assert accuracy > 0.97
    assert area > 0.99
    nothing = rng.integers(0, 2, said.shape).astype(np.uint8)
    accuracy, area = attack(agreement(nothing), held, rng)
    assert 0.3 < accuracy < 0.7
    assert 0.35 < area < 0.65


def test_every_way_to_cut_finds_what_cannot_be_missed() -> None:
    rng = np.random.default_rng(0)
    truth = np.arange(60) % 4
    said = ((rng.random((4, 200)) < 0.5)[truth] ^ (rng.random((60, 200)) < 0.1)).astype(np.uint8)
    assert rand_index(truth.tolist(), said, 0.1, "ours", 2) == 1
    assert rand_index(truth.tolist(), said, 0.1, "plain", 2) == 1


def test_synthetic_embeddings_flip_a_tenth_of_the_bits() -> None:
    points, truth = embeddings(4000)
    patterns = np.stack([points[truth == g].mean(axis=0).round() for g in range(20)])
    assert (points != patterns[truth]).mean() == pytest.approx(0.1, abs=0.005)
    sizes = np.bincount(truth)
    assert 2 < sizes.max() / sizes.min() < 5


def test_groups_are_compared_with_the_truth_after_their_last_change(tmp_path: Path) -> None:
    rows = [(-1, i, -1, "data", "cluster", i % 2) for i in range(4)]
    rows += [(1, i, -1, "groups", "group", 0) for i in range(4)]
    rows += [(3, i, -1, "groups", "group", 1) for i in (1, 3)]
    names = ("round", "client", "group", "split", "metric", "value")
    table = pa.table({name: [row[at] for row in rows] for at, name in enumerate(names)})
    pq.write_table(table, tmp_path / "metrics.parquet")
    assert read_cell("groups:agreement", Summary(), tmp_path) == 1
    assert read_cell("groups:count", Summary(), tmp_path) == 2


def test_bytes_with_measuring() -> None:
    target = Target(metric="global-test/accuracy", target=0.9, round=2, bytes=15)
    cost = Costs(bytes_up=10, bytes_down=20, evaluation_bytes=12)
    summary = Summary(cost=cost, targets=(target,), rounds_done=4)
    assert read_cell("cost:total", summary, Path()) == 42
    assert read_cell("to:total", summary, Path()) == 15 + 6
    summary = replace(summary, targets=(replace(target, round=None, bytes=None),))
    assert read_cell("to:total", summary, Path()) == Bound(42.0, "over"), (
        "missed: more than all that was sent"
    )


def test_a_case_can_say_what_a_scale_puts_on_top() -> None:
    small, full = (read_experiment("embedding/table3", scale) for scale in ("small", "full"))
    models = [
        {
            case.name: experiment.tables(experiment.rows[0], case, 0)["model"]["name"]
            for case in experiment.cases
        }
        for experiment in (small, full)
    ]
    assert models[0]["PACS"] == "lenet5"
    assert models[1]["PACS"] == "resnet18"
    assert models[0]["MNIST"] == models[1]["MNIST"] == "lenet-tanh"
