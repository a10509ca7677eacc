"""Schedules, several batches a step, bfloat16, and an end by the clock; with numbers worked out by hand."""

import time

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from covey.core.round import run_rounds
from covey.errors import UserError
from covey.fleet.devices import Devices
from covey.methods.baselines import fedavg
from covey.parts.steps import Train
from covey.runs.config import resolve
from covey.testing import small_fleet
from covey.training.bench import Recipe
from covey.training.bench.torch_bench import TorchBench
from covey.training.objective import Classification, Regression
from covey.training.rows import read_row


def test_a_cosine_with_warm_up() -> None:
    train = Train(lr=2.0, schedule="cosine", schedule_rounds=6, warmup=2, lr_floor=0.1)
    # rising in rounds 1 and 2; then 0, 1/2 and all of the way down from 1 to 0.1
    rates = [train.lr_in(number) for number in (1, 2, 3, 5, 7, 100)]
    assert rates == pytest.approx([1.0, 2.0, 2.0, 2 * 0.55, 0.2, 0.2])
    decays = Train(lr=1.0, lr_decay=0.5, warmup=4)
    assert [decays.lr_in(number) for number in (1, 2, 5)] == pytest.approx([0.25, 0.25, 0.0625])


def test_several_batches_make_the_step_of_one_large_batch() -> None:
    model = nn.Linear(1, 1, bias=False)
    bench = TorchBench(model, Regression())
    x, y = torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([[1.0], [1.0], [1.0]])
    # loss (w x - 1)^2 at w = 0: slopes -2, -4, -6, mean -4; so w becomes 0.4
    batches = [np.array([0, 1]), np.array([2])]
    fit = bench.fit(torch.zeros(1), x, y, batches, Recipe(lr=0.1, accumulate=2), seed=0)
    assert fit.row.tolist() == pytest.approx([0.4])
    assert fit.losses.tolist() == [1.0, 1.0]  # both before the step
    steps = bench.fit(torch.zeros(1), x, y, batches, Recipe(lr=0.1), seed=0)
    # mean slope of the first two -3: w = 0.3; then 2 (0.9 - 1) 3 = -0.6: w = 0.36
    assert steps.row.tolist() == pytest.approx([0.36])


def test_bfloat16_computes_layers_shorter_and_keeps_weights() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    bench, x, y = TorchBench(model, Classification()), torch.randn(6, 8), torch.arange(6) % 3
    rows = [
        bench.fit(read_row(model), x, y, [np.arange(6)], Recipe(lr=0.1, precision=p), seed=0).row
        for p in ("float32", "bfloat16")
    ]
    assert rows[1].dtype == torch.float32
    assert not torch.equal(*rows)
    assert torch.allclose(*rows, atol=0.01)


class Slow(nn.Module):
    """A network that takes a while."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1)

    def forward(self, x: Tensor) -> Tensor:
        time.sleep(0.05)
        return self.layer(x)


def test_a_real_device_stops_by_its_clock_and_after_one_batch_at_the_least() -> None:
    bench, x = TorchBench(Slow(), Regression()), torch.ones(20, 1)
    batches = [np.array([i]) for i in range(20)]
    fit = bench.fit(torch.zeros(2), x, x, batches, Recipe(), seed=0, seconds=0.12)
    assert 1 <= len(fit.losses) <= 3  # no fourth begins after 0.15 seconds
    assert len(bench.fit(torch.zeros(2), x, x, batches, Recipe(), seed=0, seconds=1e-9).losses) == 1


def test_a_simulated_device_has_time_for_so_many_batches() -> None:
    # 0.01 s a sample: in 0.33 s there are two batches of 16, of which the clients have more
    devices = Devices(pace=0.01)
    fleet = small_fleet(devices=devices)
    told = []
    ask = fleet.ask
    fleet.ask = lambda *args, **more: told.extend(ask(*args, **more)) or told  # type: ignore[method-assign]
    run_rounds(fedavg(Train(epochs=1, seconds=0.33), per_round=8), fleet, rounds=1)
    assert {reply.stats["batches"] for reply in told} == {2}
    assert max(busy.seconds for busy in fleet.ledger.busy) < 0.33 + 0.1  # with transfer and round trip


@pytest.mark.parametrize(
    ("train", "said"),
    [
        (
            {"schedule": "cosine"},
            "train.schedule_rounds is None; allowed with a cosine: more than train.warmup, 0",
        ),
        ({"schedule": "cosine", "schedule_rounds": 5, "warmup": 5}, "train.schedule_rounds is 5"),
        ({"schedule_rounds": 5}, "train.schedule_rounds"),
        ({"schedule": "cosine", "schedule_rounds": 5, "lr_decay": 0.9}, "train.lr_decay"),
        ({"precision": "float16"}, "train.precision"),
    ],
)
def test_what_does_not_go_together_is_one_sentence(train: dict, said: str) -> None:
    with pytest.raises(UserError, match=said):
        _ = resolve({"train": train}).train


def test_methods_of_single_steps_refuse_to_gather_batches() -> None:
    with pytest.raises(UserError, match="takes a step with every batch: train"):
        _ = resolve({"method": {"name": "apfl"}, "train": {"accumulate": 2}}).method
