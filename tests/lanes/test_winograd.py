"""Convolutions by Winograd's method: the same sums with fewer multiplications, where that was timed to be faster."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import lanes
from lanes import timing
from lanes.compiled.fast_instructions import Fast, Strip
from lanes.compiled.isa import KNOWN, Isa, host
from lanes.compiled.operations import Operation
from lanes.compiled.tiles import shapes
from lanes.compiled.transforms import FORMS, INPUT, output_matrix, weights_matrix
from lanes.program import write
from lanes.stages import stages
from lanes.timing import Timing, stage_key, timing_of
from lanes.winograd import form_of_stage
from tests.lanes.reference import by_parameter, gradient, row_of

CLOSE = 2e-5  # relative error against float64; the bound that is asked for is 1e-4


@pytest.mark.parametrize("form", FORMS)
def test_the_matrices_make_a_convolution(form: tuple[int, int]) -> None:
    outputs, taps = form
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal(outputs + taps - 1), rng.standard_normal(taps)
    into, weights, out = (np.array(m) for m in (INPUT[len(x)], weights_matrix(*form), output_matrix(*form)))
    by_hand = [sum(w[k] * x[o + k] for k in range(taps)) for o in range(outputs)]
    np.testing.assert_allclose(out @ ((weights @ w) * (into @ x)), by_hand, atol=1e-12)


def planned(
    kernel: int, padding: int, *, relu: bool = False, channels: int = 16
) -> tuple[nn.Module, lanes.Plan]:
    """A model whose second convolution is wide enough, on images of 8 x 8."""
    torch.manual_seed(kernel + padding)
    size = 8 + 2 * padding - kernel + 1
    end = [nn.MaxPool2d(2), nn.ReLU()] if relu else [nn.Tanh()]
    model = nn.Sequential(
        nn.Conv2d(2, channels, 3, padding=1),
        nn.Tanh(),
        nn.Conv2d(channels, 20, kernel, padding=padding),
        *end,
        nn.Flatten(),
        nn.Linear(20 * (size // 2 if relu else size) ** 2, 3),
    )
    plan = lanes.plan(model, (2, 8, 8), "cross-entropy", "sgd")
    assert isinstance(plan, lanes.Plan)
    return model, plan


def fast_stages(plan: lanes.Plan) -> frozenset[int]:
    return frozenset(n for n, stage in enumerate(stages(plan.graph)) if form_of_stage(stage) is not None)


def both_ways(plan: lanes.Plan) -> tuple[lanes.Plan, lanes.Plan]:
    fast = fast_stages(plan)
    assert len(fast) == 1
    return replace(plan, fast=frozenset()), replace(plan, fast=fast)


# (5, 1) and (3, 2): tiles reach over the border; 17 channels fill no whole vectors
@pytest.mark.parametrize("channels", [16, 17])
@pytest.mark.parametrize(("kernel", "padding"), [(5, 2), (5, 1), (5, 0), (3, 2), (3, 1), (3, 0)])
def test_gradients_are_those_of_float64(kernel: int, padding: int, channels: int) -> None:
    model, plan = planned(kernel, padding, channels=channels)
    rng = np.random.default_rng(1)
    samples = host().lanes + 5  # a whole block and a part of one
    x = rng.standard_normal((samples, 2, 8, 8), dtype=np.float32)
    y = rng.integers(0, 3, samples)
    row = row_of(model)
    loss, exact, _ = gradient(model, row, x, y, "cross-entropy")
    trainer = both_ways(plan)[1].trainer()
    for _ in range(2):  # what the first step added up must be gone in the second
        found = np.zeros(plan.parameters, np.float32)
        losses = trainer.fit(row.copy(), x, y, [np.arange(samples)], lr=0.1, momentum=0.9, velocity=found)
        assert losses == pytest.approx([loss], rel=1e-5)
        for name, part in by_parameter(model):
            error = np.linalg.norm(found[part] - exact[part]) / np.linalg.norm(exact[part])
            assert error < CLOSE, name


@pytest.mark.parametrize(("kernel", "padding"), [(5, 2), (5, 1), (3, 1)])
def test_bias_relu_and_maximum_are_those_of_the_direct_kernel(kernel: int, padding: int) -> None:
    model, plan = planned(kernel, padding, relu=True)
    x = np.random.default_rng(2).standard_normal((21, 2, 8, 8), dtype=np.float32)
    direct, fast = (way.trainer().forward(row_of(model), x) for way in both_ways(plan))
    np.testing.assert_allclose(fast, direct, rtol=1e-4, atol=1e-5)
    assert not np.array_equal(fast, direct)  # else nothing was compared


class Residual(nn.Module):
    """A value that two layers use: the second one's gradient is added to the first one's."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        value = torch.tanh(self.first(x))
        return (torch.tanh(self.second(value)) + value).flatten(1)


def test_gradients_of_a_value_with_two_users_are_added() -> None:
    torch.manual_seed(5)
    model = Residual()
    plan = lanes.plan(model, (1, 6, 6), "mse", "sgd")
    assert isinstance(plan, lanes.Plan)
    rng = np.random.default_rng(4)
    x = rng.standard_normal((19, 1, 6, 6), dtype=np.float32)
    y = rng.standard_normal((19, 576), dtype=np.float32)
    _, exact, _ = gradient(model, row_of(model), x, y, "mse")
    found = np.zeros(plan.parameters, np.float32)
    both_ways(plan)[1].trainer().fit(
        row_of(model), x, y, [np.arange(19)], lr=0.1, momentum=0.9, velocity=found
    )
    assert np.linalg.norm(found - exact) < CLOSE * np.linalg.norm(exact)


def test_the_same_bits_from_any_number_of_threads() -> None:
    model, plan = planned(5, 2, relu=True)
    fast, row = both_ways(plan)[1], row_of(model)
    rng = np.random.default_rng(6)
    x, y = rng.standard_normal((64, 2, 8, 8), dtype=np.float32), rng.integers(0, 3, 64)

    def trained(trainer: lanes.Trainer, client: int) -> bytes:
        mine = row.copy()
        order = np.random.default_rng(client).permutation(64)
        trainer.fit(mine, x, y, [order[:23], order[23:64]], lr=0.1)
        return mine.tobytes()

    one = fast.trainer()
    serial = [trained(one, client) for client in range(12)]
    for threads in (2, 3):
        trainers = [fast.trainer() for _ in range(threads)]

        def share(worker: int, trainers: list[lanes.Trainer] = trainers) -> list[bytes]:
            return [trained(trainers[worker], client) for client in range(worker, 12, len(trainers))]

        with ThreadPoolExecutor(threads) as pool:
            parts = list(pool.map(share, range(threads)))
        assert [parts[client % threads][client // threads] for client in range(12)] == serial


def test_the_same_bits_from_any_trainer_whatever_it_did_before() -> None:
    model, plan = planned(5, 2, relu=True)
    fast = both_ways(plan)[1]
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((40, 2, 8, 8), dtype=np.float32), rng.integers(0, 3, 40)
    batches = [np.arange(0, 17), np.arange(17, 40)]

    def trained(trainer: lanes.Trainer) -> np.ndarray:
        row = row_of(model)
        trainer.fit(row, x, y, batches, lr=0.1)
        return row

    used = fast.trainer()
    used.fit(
        row_of(model) * np.float32(1e30), x, y, batches, lr=1e30
    )  # diverges: infinities and NaN stay behind
    assert np.array_equal(trained(used), trained(fast.trainer()))


def test_layers_that_do_not_fit_are_convolved_directly() -> None:
    for model in (
        nn.Conv2d(15, 16, 3, padding=1),  # few channels
        nn.Conv2d(16, 16, 3, stride=2, padding=1),
        nn.Conv2d(16, 16, (3, 5), padding=(1, 2)),
        nn.Conv2d(16, 16, 7, padding=3),
    ):
        whole = nn.Sequential(model, nn.Flatten())
        plan = lanes.plan(whole, (model.in_channels, 8, 8), "mse", "sgd")
        assert isinstance(plan, lanes.Plan)
        assert fast_stages(plan) == frozenset()
        assert plan.info()["winograd"] == {}


@pytest.mark.parametrize("isa", KNOWN.values(), ids=list(KNOWN))
@pytest.mark.parametrize("channels", [16, 23, 64])
def test_only_register_tiles_are_asked_for_that_exist(isa: Isa, channels: int) -> None:
    for kernel, padding in ((5, 2), (5, 1), (3, 1), (3, 2)):
        _, plan = planned(kernel, padding, channels=channels)
        program = write(plan.graph, isa, 2, "cross-entropy", fast=fast_stages(plan))
        names = [*Strip._fields, *Fast._fields]
        rows = [row[1:] for row in program.code if row[0] == Operation.FAST_CONV]
        assert len(rows) == 2  # forward and back
        for fields in (dict(zip(names, row.tolist(), strict=False)) for row in rows):
            first = fields["strips"]
            tiles = program.tables[first : first + 2 * fields["strip_count"]][1::2]
            wanted = {(r, t) for r in range(1, fields["rows"] + 1) for t in tiles.tolist()}
            assert wanted <= set(shapes(isa))


def test_a_layer_is_timed_once_on_a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, plan = planned(5, 2)
    (number,) = fast_stages(plan)
    stage = stages(plan.graph)[number]
    monkeypatch.setattr(timing, "_path", lambda _: tmp_path / "timings.json")
    timed: list[frozenset[int]] = []

    def seconds(_: object, fast: frozenset[int]) -> float:
        timed.append(fast)
        return 1.0 if fast else 2.0

    assert timing_of(stage, plan.isa, seconds) == Timing(direct=2.0, winograd=1.0)
    assert timing_of(stage, plan.isa, seconds).wins
    assert timed == [frozenset(), frozenset([0])]
    assert plan.chosen == {number}
    assert plan.info()["winograd"] == {stage_key(stage): {"direct": 2.0, "winograd": 1.0}}
    (tmp_path / "timings.json").write_text("{ damaged")
    timing_of(stage, plan.isa, seconds)
    assert len(timed) == 4
    assert stage_key(stage) == "16x8x8 to 20, kernel 5, padding 2"


def test_what_is_hardly_faster_is_not_taken() -> None:
    assert not Timing(direct=1.0, winograd=0.96).wins
    assert Timing(direct=1.0, winograd=0.9).wins
