"""Algorithm 1 of the embedding paper: a client's data as a few hundred noisy bits.

    z_c = mean of encoder(x) over the client's samples of class c     (a missing class: uniform noise)
    b_c = round((z_c - min z_c) / (max z_c - min z_c))                 (0.5 rounds to 0)
    every bit of b_1 ... b_C is flipped with probability P             (randomised response)

One bit so treated is ln((1 - P) / P)-differentially private; `Spending` says what that adds up to.
"""

import hashlib
import math
import secrets
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from covey.arrays import Floats
from covey.core import Account, Client, Known, Reply, Stat, Step, Task, step
from covey.parts.steps.evaluate import FORWARD_SHARE
from covey.parts.steps.gaussian_noise import opendp_library
from covey.settings import BelowHalf, NotEmpty
from covey.training.models.encoders import code_length, encoded_rows

Bits = NDArray[np.uint8]
Normalise = Literal["class", "global"]
BitNoise = Literal["simulated", "opendp"]

# An autoencoder of 81,000 parameters beside a network of convolutions: a quarter of a forward pass (paper, Fig. 6).
ENCODER_SHARE = 0.25


def class_means(
    codes: Floats, labels: NDArray[np.integer[Any]], classes: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """The mean code of every class, [classes, d]; a class without samples gets d uniform numbers in [0, 1)."""
    flat = np.asarray(codes, np.float64)
    means = rng.random((classes, flat.shape[1]))
    for label in np.unique(labels):
        means[label] = flat[labels == label].mean(axis=0)
    return means


def quantise(means: Floats, normalise: Normalise = "class") -> Bits:
    """Min-max to [0, 1], each class by itself or all together, and round to one bit; a constant vector is 0."""
    axis = 1 if normalise == "class" else None
    low, high = means.min(axis=axis, keepdims=True), means.max(axis=axis, keepdims=True)
    span = np.where(high > low, high - low, 1.0)
    return np.asarray(np.round((means - low) / span), np.uint8)


def answers(shape: tuple[int, ...], probability: float, rng: np.random.Generator) -> Bits:
    """What each bit says if it is 0 and if it is 1, [2, *shape]: the truth, or with `probability` the contrary."""
    return _said(rng.random((2, *shape)) < probability)


def _said(flips: NDArray[np.bool_]) -> Bits:
    """What a bit that is 0 says, and one that is 1, given which of these answers are lies; in the same memory."""
    np.logical_not(flips[1], out=flips[1])
    return flips.view(np.uint8)


def respond(bits: Bits, table: Bits) -> Bits:
    """The answers of a table: a bit that stays says the same again, so that asking twice averages nothing away."""
    return np.asarray(
        table[0] ^ (bits & (table[0] ^ table[1])), np.uint8
    )  # 0 or 1: ten times as fast as a choice


def packed_means(bits: Bits) -> Bits:
    """Eight bits per byte, zeros at the end."""
    return np.packbits(bits.reshape(-1))


def unpack(packed: Bits) -> Bits:
    """The bits of one vector, or of each row of several; the zeros of the last byte stay, equal for all."""
    return np.unpackbits(packed, axis=-1)


def bit_epsilon(flip: float) -> float:
    """ln((1 - P) / P): how much one answer reveals at most; infinite without noise."""
    return math.log((1 - flip) / flip) if flip else math.inf


@dataclass(frozen=True, kw_only=True)
class Spending:
    """Epsilon of `bits` answers in `classes` classes, each flipped with probability `flip`, in the worst case.

    bit: of one answer. sample: of all answers that one sample can change when it is added or removed, which are
    those of its class ("class" normalisation) or all ("global"). client: of the whole vector. Answers are
    memoised, so that a client that is asked again and again (`again`) gives at most two different answers per bit, one
    for each value: twice as much, however often.
    """

    flip: float
    bits: int
    classes: int
    normalise: Normalise = "class"
    again: bool = False

    @property
    def bit(self) -> float:
        return bit_epsilon(self.flip) * (2 if self.again else 1)

    @property
    def sample(self) -> float:
        return self.bit * (self.bits // self.classes if self.normalise == "class" else self.bits)

    @property
    def client(self) -> float:
        return self.bit * self.bits


@step(kind="query.embedding", passes=ENCODER_SHARE * FORWARD_SHARE)
class Embed(Step):
    """Asks for the noisy bits; the task's row is the encoder.

    Client i flips with probability `flip[i mod len(flip)]`: each client may have its own. A client draws its table
    of answers, and what stands for missing classes, once. `noise`: "simulated" draws them from the client's
    seeded stream (repeatable, hence no secret to whoever has the seed), "opendp" from OpenDP's secure source,
    which a real device always does.
    """

    autoencoder: str = "auto"
    flip: Annotated[tuple[BelowHalf, ...], NotEmpty()] = (0.1,)
    normalise: Normalise = "class"
    noise: BitNoise = "simulated"
    again: bool = False

    def __call__(self, client: Client, task: Task) -> Reply:
        x, y = client.train.tensors()
        dataset = client.train.dataset
        classes = max(1, len(dataset.classes))
        labels = y.numpy() if dataset.classes else np.zeros(len(y), np.int64)
        codes = encoded_rows(task.models[0], x, self.autoencoder, dataset.scale).numpy()
        bits = quantise(class_means(codes, labels, classes, self.fillers(client)), self.normalise)
        spent = Spending(
            flip=self.flip_of(client.id),
            bits=bits.size,
            classes=classes,
            normalise=self.normalise,
            again=self.again and client.account is None,  # a real device draws a table for these data only
        )
        if client.account is not None and spent.flip:
            said = respond(bits, self.kept_table(client.account, task, bits.shape, spent))
            epsilon = client.account.epsilon
        else:
            said = respond(bits, self.table(client, bits.shape, spent.flip))
            epsilon = spent.sample
        size = 1 if self.counted else len(y)
        return Reply(id=client.id, size=size, stats={"bits": packed_means(said), "epsilon": epsilon})

    @property
    def counted(self) -> bool:
        """Whether the answer has a privacy loss that can be counted: every bit may be a lie."""
        return min(self.flip) > 0

    def expects(self, known: Known) -> dict[str, Stat]:
        """Bits, eight to a byte, as many as the encoder gives for samples of the server's shape."""
        if not known.shape:
            return {"bits": Stat(low=0, high=255, shape=(None,))}
        bits = max(1, known.classes) * code_length(self.autoencoder, known.shape, known.scale)
        return {"bits": Stat(low=0, high=255, shape=(-(-bits // 8),))}

    def flip_of(self, client: int) -> float:
        """The client's own probability."""
        return self.flip[client % len(self.flip)]

    def is_secret(self, client: Client) -> bool:
        """Whether what protects the client must come from a secure source: the server knows the run's seed."""
        return self.noise == "opendp" or client.live

    def fillers(self, client: Client) -> np.random.Generator:
        """Where the random representation of missing classes comes from; the same each time."""
        if client.account is not None:
            return np.random.default_rng(list(client.account.answer_bytes("missing classes", 32, 0.0)))
        if not self.is_secret(client):
            return client.stream("missing classes")
        secret = client.state.setdefault("missing classes", str(secrets.randbits(128)))
        return np.random.default_rng(int(secret))

    def kept_table(self, account: Account, task: Task, shape: tuple[int, ...], spent: Spending) -> Bits:
        """A real device's answers to this very question: the same in every round, run and session, and paid for once.

        Another encoder is another question with a table of its own: with one table for all, a server that knows the
        bits of an encoder it made up could read the table, and with it the bits of all others.
        """
        encoder = hashlib.sha256(task.models[0].numpy().tobytes()).hexdigest()
        question = f"embedding {self.autoencoder} {self.normalise} {spent.flip!r} {shape} {encoder}"
        return answers_of_bytes(
            shape, spent.flip, account.answer_bytes(question, 16 * math.prod(shape), spent.sample)
        )

    def table(self, client: Client, shape: tuple[int, ...], probability: float) -> Bits:
        """The client's answers, drawn once."""
        if not self.is_secret(client):
            return answers(shape, probability, client.stream("answers"))
        if "answers" not in client.state:
            client.state["answers"] = opendp_answers(shape, probability)
        kept: Bits = client.state["answers"]
        return kept


def answers_of_bytes(shape: tuple[int, ...], probability: float, random: bytes) -> Bits:
    """The same as `answers` from 16 random bytes per bit: a number of 64 bits below probability 2^64 is a flip."""
    return _said(np.frombuffer(random, "<u8").reshape(2, *shape) < np.uint64(int(probability * 2**64)))


def opendp_answers(shape: tuple[int, ...], probability: float) -> Bits:
    """The same as `answers` from OpenDP's randomised response, 0.2 ms per bit."""
    respond_to = opendp_library().m.make_randomized_response_bool(prob=1 - probability)
    said = [[respond_to(truth) for _ in range(math.prod(shape))] for truth in (False, True)]
    return np.array(said, np.uint8).reshape(2, *shape)
