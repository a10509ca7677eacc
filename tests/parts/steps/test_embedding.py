"""Algorithm 1 as pure functions: means, bits, flips, bytes, and what they reveal."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from covey.errors import UserError
from covey.parts.steps.embedding import (
    Embed,
    Spending,
    answers,
    class_means,
    opendp_answers,
    packed_means,
    quantise,
    respond,
    unpack,
)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_class_means_by_hand_with_a_missing_class() -> None:
    codes = np.array([[0.0, 4.0], [2.0, 0.0], [5.0, 5.0]], np.float32)
    means = class_means(codes, np.array([2, 2, 0]), 4, rng())
    assert means[2].tolist() == [1.0, 2.0]
    assert means[0].tolist() == [5.0, 5.0]
    for missing in (1, 3):
        assert ((means[missing] >= 0) & (means[missing] < 1)).all()


def test_each_class_is_scaled_by_itself_and_a_half_rounds_to_zero() -> None:
    means = np.array([[0.0, 1.0, 2.0, 1.1], [-30.0, 10.0, -20.0, 0.0]])
    assert quantise(means).tolist() == [[0, 0, 1, 1], [0, 1, 0, 1]]
    # Together, from -30 to 10: 0 is 0.75, 1 is 0.775, -20 is 0.25.
    assert quantise(means, "global").tolist() == [[1, 1, 1, 1], [0, 1, 0, 1]]


def test_a_dead_encoder_gives_zeros_and_no_nan() -> None:
    assert quantise(np.full((2, 3), 7.0)).tolist() == [[0, 0, 0], [0, 0, 0]]


def test_missing_classes_end_as_fair_bits() -> None:
    bits = quantise(class_means(np.zeros((0, 500)), np.zeros(0, np.int64), 40, rng()))
    assert abs(bits.mean() - 0.5) < 4 * 0.5 / math.sqrt(bits.size)


@given(st.sampled_from([0.05, 0.1, 0.3]), st.integers(0, 1))
def test_bits_flip_as_often_as_asked(probability: float, value: int) -> None:
    bits = np.full((10, 400), value, np.uint8)
    said = respond(bits, answers(bits.shape, probability, rng(1)))
    deviation = math.sqrt(probability * (1 - probability) / bits.size)
    assert abs((said != bits).mean() - probability) < 4 * deviation


def test_without_noise_the_truth_is_said() -> None:
    bits = rng().integers(0, 2, (3, 5)).astype(np.uint8)
    assert (respond(bits, answers(bits.shape, 0.0, rng(1))) == bits).all()


def test_a_bit_that_stays_gives_the_same_answer_and_a_changed_one_an_independent_one() -> None:
    table = answers((20_000,), 0.3, rng(2))
    zeros, ones = np.zeros(20_000, np.uint8), np.ones(20_000, np.uint8)
    assert (respond(zeros, table) == respond(zeros, table)).all()
    wrong_as_0, wrong_as_1 = respond(zeros, table) == 1, respond(ones, table) == 0
    assert abs((wrong_as_0 & wrong_as_1).mean() - 0.09) < 0.01


@given(arrays(np.uint8, st.tuples(st.integers(1, 7), st.integers(1, 30)), elements=st.integers(0, 1)))
def test_packing_keeps_every_bit_at_one_eighth_of_the_bytes(bits: np.ndarray) -> None:
    packed = packed_means(bits)
    assert packed.nbytes == math.ceil(bits.size / 8)
    back = unpack(packed)
    assert (back[: bits.size] == bits.reshape(-1)).all()
    assert not back[bits.size :].any()


def test_the_papers_mnist_embedding_is_25_bytes_and_its_privacy_is_weak() -> None:
    assert packed_means(np.zeros((10, 20), np.uint8)).nbytes == 25
    spent = Spending(flip=0.1, bits=200, classes=10)
    assert spent.bit == pytest.approx(2.197, abs=1e-3)  # ln 9, as in the facts
    assert spent.sample == pytest.approx(20 * math.log(9))
    assert spent.client == pytest.approx(200 * math.log(9))
    assert Spending(flip=0.1, bits=200, classes=10, normalise="global").sample == spent.client
    assert Spending(flip=0.1, bits=200, classes=10, again=True).bit == pytest.approx(2 * math.log(9))
    assert Spending(flip=0.0, bits=200, classes=10).bit == math.inf


def test_opendp_draws_the_same_answers_from_a_secure_source() -> None:
    pytest.importorskip("opendp")
    table = opendp_answers((600,), 0.2)
    assert abs(table[0].mean() - 0.2) < 4 * math.sqrt(0.2 * 0.8 / 600)
    assert abs(1 - table[1].mean() - 0.2) < 4 * math.sqrt(0.2 * 0.8 / 600)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"flip": (0.5,)}, "below 0.5"),
        ({"flip": ()}, "flip"),
        ({"normalise": "x"}, "normalise"),
        ({"noise": "x"}, "noise"),
    ],
)
def test_wrong_settings_are_named(wrong: dict, words: str) -> None:
    with pytest.raises(UserError, match=words):
        Embed(**wrong)
