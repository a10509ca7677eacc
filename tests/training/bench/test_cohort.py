"""A cohort gives what one client after another gives, within a bound on memory, without waiting for single clients."""

from collections import Counter
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from covey.errors import UserError
from covey.fleet.engine import Engine
from covey.fleet.local import LocalFleet
from covey.methods.baselines import fedavg
from covey.parts.steps import Train
from covey.training.bench import Fit, Recipe, cohort
from covey.training.bench.cohort import Stacking, at_once
from covey.training.bench.torch_bench import TorchBench
from covey.training.models import build
from covey.training.objective import Classification
from covey.training.rows import read_row
from tests.fleet.test_local import TRAIN, run_rounds, small_federation

FULL = Recipe(lr=0.1, momentum=0.9, weight_decay=0.01, prox=0.1, clip=1.0)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(108, 4))


def bench(stacking: Stacking | None = None) -> TorchBench:
    return TorchBench(network(), Classification(), stacking=stacking)


def clients(count: int) -> tuple[list[Tensor], list[tuple[Tensor, Tensor]], list[list[np.ndarray]]]:
    """Clients with 8, 9, 10 ... samples in batches of 4: their numbers of batches and last batches differ."""
    rng = np.random.default_rng(1)
    sizes = [8 + i % 5 for i in range(count)]
    data = [
        (
            torch.from_numpy(rng.random((n, 1, 8, 8), dtype=np.float32)),
            torch.from_numpy(rng.integers(0, 4, n)),
        )
        for n in sizes
    ]
    batches = [[order[i : i + 4] for i in range(0, n, 4)] for n in sizes for order in [rng.permutation(n)]]
    start = torch.cat([p.detach().reshape(-1) for p in network().parameters()])
    return [start + 0.01 * i for i in range(count)], data, batches


def together(made: TorchBench, recipe: Recipe, count: int) -> list[Fit]:
    fit = made.cohort(recipe)
    assert fit is not None
    return fit(*clients(count))


def alone(recipe: Recipe, count: int) -> list[Fit]:
    made = bench()
    return [made.fit(row, *one, own, recipe, seed=0) for row, one, own in zip(*clients(count), strict=True)]


def assert_alike(one: list[Fit], other: list[Fit], apart: float = 2e-6) -> None:
    for a, b in zip(one, other, strict=True):
        assert torch.allclose(a.row, b.row, atol=apart)
        assert np.allclose(a.losses, b.losses, atol=apart)
        assert len(a.losses) == len(b.losses)


@pytest.mark.parametrize("recipe", [Recipe(lr=0.1), FULL], ids=["sgd", "all"])
@pytest.mark.parametrize("most", [100, 3, 1], ids=["one chunk", "chunks", "one client at once"])
def test_a_cohort_is_what_one_client_after_another_is(
    recipe: Recipe, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cohort, "at_once", lambda *_: most)
    assert_alike(together(bench(), recipe, 7), alone(recipe, 7))


def test_the_momentum_at_the_end_is_told() -> None:
    for a, b in zip(together(bench(), FULL, 3), alone(FULL, 3), strict=True):
        assert a.velocity is not None
        assert b.velocity is not None
        assert torch.allclose(a.velocity, b.velocity, atol=1e-5)


def test_as_many_clients_at_once_as_fit_into_the_memory() -> None:
    # By hand: 8 rows of 466 parameters, 3 times the batch of 4 with 108 + 108 + 108 + 4 activations, 4 bytes each,
    # and the largest client's 12 pictures of 64 pixels with their labels.
    each = 4 * (8 * 466 + 3 * 4 * 328) + 12 * (4 * 64 + 8)
    made = bench(Stacking(megabytes=1))
    assert made.layout.trainable == 466
    assert at_once(made, *clients(5)[1:]) == 1_000_000 // each
    assert at_once(bench(Stacking(megabytes=2)), *clients(5)[1:]) == 2_000_000 // each


def operations(made: TorchBench, count: int) -> Counter[str]:
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        together(made, FULL, count)
    return Counter({event.key: event.count for event in seen.key_averages()})


COMPUTING = ("aten::convolution_backward", "aten::bmm", "aten::where")


def test_what_the_device_is_asked_grows_with_chunks_and_not_with_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few, many = operations(bench(), 5), operations(bench(), 40)
    assert [many[name] for name in COMPUTING] == [few[name] for name in COMPUTING]
    assert min(few[name] for name in COMPUTING) > 0
    monkeypatch.setattr(cohort, "at_once", lambda *_: 20)
    assert [operations(bench(), 40)[name] for name in COMPUTING] == [2 * few[name] for name in COMPUTING]


@pytest.mark.parametrize("adapter", [None, {"name": "lora", "rank": 2}], ids=["whole", "LoRA"])
def test_transformers_are_stacked_attention_and_all(adapter: dict[str, Any] | None) -> None:
    model = build("vit", input_shape=(1, 8, 8), outputs=4, width=8, depth=1, heads=2, adapter=adapter, seed=1)
    made, start = TorchBench(model, Classification()), read_row(model)
    fit = made.cohort(Recipe(lr=0.1))
    assert fit is not None

    def counted(count: int) -> tuple[Counter[str], list[Fit]]:
        _, data, batches = clients(count)
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            found = fit([start] * count, data, batches)
        return Counter({event.key: event.count for event in seen.key_averages()}), found

    (few, _), (many, trained) = counted(5), counted(10)
    assert many["aten::bmm"] == few["aten::bmm"] > 0
    fused = [name for name in many if "flash" in name]  # in the one pass that counts activations
    assert [many[name] for name in fused] == [
        few[name] for name in fused
    ]  # stacked it would run client by client
    _, data, batches = clients(10)
    assert_alike(
        trained, [made.fit(start, *data[i], batches[i], Recipe(lr=0.1), seed=0) for i in range(10)], 1e-5
    )


def test_nobody_waits_for_a_single_client_and_a_chunk_is_sent_in_five_copies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[int] = []

    def counted(tensor: Tensor, device: torch.device) -> Tensor:
        sent.append(tensor.nbytes)
        return tensor.to(device)

    monkeypatch.setattr(cohort, "sent", counted)
    assert operations(bench(), 40)["aten::_local_scalar_dense"] == 0  # .item() and float() of a tensor
    assert len(sent) == 5
    monkeypatch.setattr(cohort, "at_once", lambda *_: 10)
    together(bench(), FULL, 40)
    assert len(sent) == 5 + 4 * 5


def test_mixed_precision_is_near_and_keeps_the_weights_in_full() -> None:
    mixed = together(bench(Stacking(mixed=True)), Recipe(lr=0.1), 5)
    assert_alike(mixed, alone(Recipe(lr=0.1), 5), apart=2e-2)
    assert not torch.equal(mixed[0].row, together(bench(), Recipe(lr=0.1), 5)[0].row)
    assert mixed[0].row.dtype == torch.float32


def test_compiled_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tracing of torch.compile, without the code generation that a processor would need a compiler for."""
    used = []

    def traced(graph: torch.fx.GraphModule, _: list[Tensor]) -> torch.fx.GraphModule:
        used.append(graph)
        return graph

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=traced, fullgraph=True))
    assert_alike(together(bench(Stacking(compiled=True)), FULL, 5), alone(FULL, 5))
    assert len(used) == 1


def test_settings_of_a_cohort_are_refused_elsewhere() -> None:
    with pytest.raises(UserError, match=r"engine.precision .*engine.mode = \"cohort\""):
        Engine(precision="mixed")


def test_mixed_precision_that_cannot_be_had_is_one_sentence() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, 10))
    engine = Engine(mode="cohort", precision="mixed")
    fleet = LocalFleet(small_federation(), model, engine=engine)
    with pytest.raises(UserError, match=r"engine.precision is 'mixed', but train.sgd .* allowed: float32"):
        run_rounds(fedavg(TRAIN, per_round=8), fleet, rounds=1)


def test_a_run_in_chunks_is_a_run_one_after_another() -> None:
    model, rows = nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), []
    for engine in (Engine(mode="serial", lanes=False), Engine(mode="cohort", megabytes=1)):
        fleet = LocalFleet(small_federation(), model, engine=engine)
        rows.append(run_rounds(fedavg(Train(lr=0.05, batch=32), per_round=8), fleet, rounds=2).models)
    assert torch.allclose(*rows, atol=2e-6)
