"""The same bits, whoever computes them: any trainer, in any thread, after anything."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from torch import nn

import lanes
from covey.training.models import build
from tests.lanes.reference import row_of

SHAPE = (1, 28, 28)


def client(number: int) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    rng = np.random.default_rng(number)
    count = int(rng.integers(5, 90))
    order = rng.permutation(count)
    size = int(rng.integers(4, 40))
    batches = [order[i : i + size] for i in range(0, count, size)]
    return rng.standard_normal((count, *SHAPE), dtype=np.float32), rng.integers(0, 10, count), batches


def plan_of(model: nn.Module) -> lanes.Plan:
    plan = lanes.plan(model, SHAPE, "cross-entropy", "sgd")
    assert isinstance(plan, lanes.Plan)
    return plan


def train(trainer: lanes.Trainer, row: np.ndarray, number: int) -> np.ndarray:
    x, y, batches = client(number)
    trained = row.copy()
    losses = trainer.fit(trained, x, y, batches, lr=0.05, momentum=0.5, dropout_seed=number)
    return np.concatenate([trained, losses.astype(np.float32), trainer.forward(trained, x).ravel()])


def test_serial_and_threads_give_the_same_bits() -> None:
    model = build("cnn-mnist-small", input_shape=SHAPE, outputs=10)
    plan, row = plan_of(model), row_of(model)
    one = plan.trainer()
    serial = [train(one, row, number) for number in range(24)]
    trainers = [plan.trainer() for _ in range(3)]

    def share(worker: int) -> list[tuple[int, np.ndarray]]:
        mine = list(range(worker, 24, 3))[::-1]
        return [(number, train(trainers[worker], row, number)) for number in mine]

    with ThreadPoolExecutor(3) as pool:
        for results in pool.map(share, range(3)):
            for number, result in results:
                np.testing.assert_array_equal(result, serial[number])


def test_what_a_work_buffer_held_does_not_matter() -> None:
    """A diverged client leaves infinities and NaN behind; the next one must not notice."""
    model = build("lenet5", input_shape=SHAPE, outputs=10)
    plan, row = plan_of(model), row_of(model)
    clean = train(plan.trainer(), row, 3)
    used = plan.trainer()
    x, y, batches = client(4)
    with np.errstate(all="ignore"):
        losses = used.fit(row.copy(), x * np.float32(1e30), y, batches * 3, lr=1e10)
    assert not np.isfinite(losses).all()
    np.testing.assert_array_equal(train(used, row, 3), clean)


def test_the_place_of_a_sample_in_its_batch_does_not_matter_forward() -> None:
    model = build("lenet-tanh", input_shape=SHAPE, outputs=10)
    plan, row = plan_of(model), row_of(model)
    x, _, _ = client(1)
    trainer = plan.trainer()
    whole = trainer.forward(row, x)
    for i in range(len(x)):
        np.testing.assert_array_equal(trainer.forward(row, x[i : i + 1])[0], whole[i])


def test_a_sample_has_the_same_bits_in_a_block_that_is_less_than_half_full() -> None:
    """Two places of its pictures share a vector there."""
    model = build("lenet5", input_shape=SHAPE, outputs=10)
    trainer, row = plan_of(model).trainer(), row_of(model)
    x = np.random.default_rng(0).standard_normal((64, *SHAPE), dtype=np.float32)
    full = trainer.forward(row, x)
    for count in (1, 3, 7, 8, 9, 17, 20, 24, 25):
        np.testing.assert_array_equal(trainer.forward(row, x[:count]), full[:count])


def test_the_gradient_of_a_short_batch_is_the_sum_of_its_samples_gradients() -> None:
    model = build("lenet5", input_shape=SHAPE, outputs=10)
    trainer, row = plan_of(model).trainer(), row_of(model)
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((24, *SHAPE), dtype=np.float32), rng.integers(0, 10, 24)

    def gradient(batch: np.ndarray) -> np.ndarray:
        found = np.zeros_like(row)
        trainer.fit(row.copy(), x, y, [batch], lr=0.0, momentum=0.9, velocity=found)
        return found

    single = np.stack([gradient(np.array([i])) for i in range(24)]).astype(np.float64)
    for count in (2, 3, 4, 5, 8, 9, 16, 20, 24):
        np.testing.assert_allclose(gradient(np.arange(count)), single[:count].mean(axis=0), atol=1e-6)


def test_several_works_in_one_call_have_the_bits_of_each_alone() -> None:
    """Small ones first: the work buffers grow before any of them has its places."""
    model = build("lenet5", input_shape=SHAPE, outputs=10)
    plan, row = plan_of(model), row_of(model)
    numbers = sorted(range(6), key=lambda number: len(client(number)[2][0]))
    alone, together = plan.trainer(), plan.trainer()
    rows = [row.copy() for _ in numbers]
    works = [
        together.ready(mine, *client(number), lr=0.05) for mine, number in zip(rows, numbers, strict=True)
    ]
    together.do(works)
    for mine, work, number in zip(rows, works, numbers, strict=True):
        expected = row.copy()
        np.testing.assert_array_equal(alone.fit(expected, *client(number), lr=0.05), work.losses)
        np.testing.assert_array_equal(mine, expected)
