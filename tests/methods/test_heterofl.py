"""HeteroFL and FedRolex with numbers worked out by hand, and bytes as they travel."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from covey.core.round import Round, Task, run_rounds
from covey.errors import UserError
from covey.methods.heterofl import fedrolex, heterofl
from covey.parts.mix.apply import apply_mixings
from covey.parts.steps import Train
from covey.parts.widths import AverageCovered, ToWidths
from covey.runs.config import resolve
from covey.testing import small_fleet
from tests.made_up_rounds import make_round

# the perceptron of the small fleet, 64-64-10; half of it is 64-32-10, a quarter 64-16-10
WHOLE, HALF, QUARTER = 4810, 64 * 32 + 32 + 32 * 10 + 10, 64 * 16 + 16 + 16 * 10 + 10


def of_widths(now: Round, columns: dict[int, list[int] | None]) -> Round:
    now.tasks = {
        i: Task(models=now.models, slots=(0,), columns=None if c is None else torch.tensor(c))
        for i, c in columns.items()
    }
    return now


def test_a_number_is_averaged_over_those_who_have_it() -> None:
    replies = {0: ([4.0, 4.0, 4.0, 9.0], 1), 1: ([2.0, 2.0, 0.0, 0.0], 3), 2: ([6.0, 0.0, 0.0, 0.0], 1)}
    now = of_widths(make_round([7.0] * 4, replies=replies), {0: [0, 1, 2], 1: [0, 1], 2: [0]})
    rows = [reply.vector for reply in now.replies]
    equal = apply_mixings(AverageCovered(weighting="equal")(now), now.models, rows)
    assert equal.tolist() == [[4.0, 3.0, 4.0, 7.0]]  # (4 + 2 + 6) / 3, (4 + 2) / 2, 4, nobody's
    samples = apply_mixings(AverageCovered(weighting="samples")(now), now.models, rows)
    assert samples[0].tolist() == pytest.approx([(4 + 3 * 2 + 6) / 5, (4 + 3 * 2) / 4, 4.0, 7.0])


def test_three_widths_in_one_run_and_what_travels() -> None:
    fleet = small_fleet(every=4)
    state = run_rounds(heterofl(Train(lr=0.1, epochs=1), per_round=8), fleet, rounds=1)
    cost = fleet.ledger.total["train.narrow"]
    numbers = 3 * WHOLE + 3 * HALF + 2 * QUARTER  # clients 0 to 7 are of classes 0, 1, 2, 0, 1, 2, 0, 1
    assert cost.bytes_down == 4 * numbers + 8 * 16  # width and first unit
    assert cost.bytes_up == 4 * numbers + 8 * 16  # loss and batches
    assert torch.isfinite(state.models).all()


def test_a_narrow_client_takes_the_step_of_its_own_small_network() -> None:
    fleet = small_fleet(every=4)
    method = heterofl(Train(lr=0.1, epochs=1, batch=1000), per_round=8, widths=(0.5,))
    replies = []
    ask = fleet.ask
    fleet.ask = lambda *args, **more: replies.extend(ask(*args, **more)) or replies  # type: ignore[method-assign]
    run_rounds(method, fleet, rounds=1)
    start = fleet.start()
    first, bias, last, out = (
        start[a:b].view(shape)[cut].clone().requires_grad_()
        for a, b, shape, cut in (
            (0, 4096, (64, 64), np.s_[:32]),
            (4096, 4160, (64,), np.s_[:32]),
            (4160, 4800, (10, 64), np.s_[:, :32]),
            (4800, 4810, (10,), np.s_[:]),
        )
    )
    x, y = fleet.data.shares[0].train.tensors()
    hidden = torch.relu(2**0.5 * F.linear(x.flatten(1), first, bias))  # half of the units are there
    F.cross_entropy(F.linear(hidden, last, out), y).backward()
    stepped = [t.detach() - 0.1 * t.grad for t in (first, bias, last, out)]
    row = replies[0].vector
    assert torch.allclose(row[:4096].view(64, 64)[:32], stepped[0], atol=1e-6)
    assert torch.allclose(row[4160:4800].view(10, 64)[:, :32], stepped[2], atol=1e-6)
    assert not row[:4096].view(64, 64)[32:].any()


def test_fedrolex_begins_one_unit_further_in_every_round() -> None:
    fleet = small_fleet(every=4)
    now = Round(
        number=4, fleet=fleet, here=[0], models=fleet.start()[None], groups={}, memory={}, seen=[0], notes={}
    )
    task = ToWidths(widths=(0.25,), rolling=True)(now, [0])[0]
    assert task.args == {"width": 0.25, "first": 3}
    assert task.columns is not None
    assert task.columns[: 64 * 16 : 64].tolist() == [64 * unit for unit in range(3, 19)]
    assert task.nbytes == 4 * QUARTER + 16
    assert not task.models[0, : 3 * 64].any()
    assert torch.equal(task.models[0, task.columns], fleet.start()[task.columns])


def test_all_units_are_trained_by_rolling_and_not_otherwise() -> None:
    moved = {}
    for method in (heterofl, fedrolex):
        fleet = small_fleet(every=4)
        made = method(Train(lr=0.1, epochs=1), per_round=8, widths=(0.5,))
        state = run_rounds(made, fleet, rounds=40)
        change = (state.models[0] - fleet.start())[4160:4800].view(10, 64)
        moved[made.name] = int(change.any(0).sum())
    assert moved == {"heterofl": 32, "fedrolex": 64}


def test_with_full_width_it_is_fedavg() -> None:
    runs = []
    for tables in ({"name": "fedavg", "weighting": "equal"}, {"name": "heterofl", "widths": [1.0]}):
        train = {"epochs": 1, "batch": 1000}  # one batch: its order does not matter
        method = resolve({"method": {**tables, "per_round": 8}, "train": train}).method
        runs.append(run_rounds(method, small_fleet(every=4), rounds=2).models)
    assert torch.allclose(*runs, atol=1e-6)


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"compress": {"name": "8-bit"}}, "clients of heterofl send parts of the model"),
        ({"train": {"momentum": 0.9, "keep_momentum": True}}, "train.keep_momentum is true"),
        ({"method": {"name": "heterofl", "widths": [1.5]}}, r"method.widths"),
    ],
)
def test_what_does_not_go_together_is_one_sentence(tables: dict, said: str) -> None:
    with pytest.raises(UserError, match=said):
        _ = resolve({"method": {"name": "heterofl"}, **tables}).method
