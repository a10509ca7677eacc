"""How an encoder comes to be: trained by the fleet, on a public data set at the server, or both; or from a file."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from covey.core import Fleet, Round, RoundEnd, run_rounds, server_client, step, stream
from covey.data import Dataset, Samples, Scale, load
from covey.errors import UserError
from covey.methods.baselines import fedavg
from covey.parts.measure import Measuring
from covey.parts.steps.train import Train
from covey.settings import Count, validated
from covey.training.bench import Recipe
from covey.training.bench.torch_bench import TorchBench
from covey.training.models.encoders import (
    Pictures,
    autoencoder,
    encoder,
    is_picture,
    load_encoder,
    save_encoder,
    suited,
)
from covey.training.objective import Reconstruction
from covey.training.rows import Layout, read_row, write_row

Way = Literal["federated", "public", "hybrid"]


@step(kind="train.autoencoder")
class TrainAutoencoder(Train):
    """Local training of an autoencoder, booked under its own name."""


@validated
class Pretrain:
    """Adam at 1e-3 on the squared error, batches of 32.

    "federated": FedAvg of the autoencoder over the same fleet, `rounds` x `per_round` clients x `epochs`, in the
    same ledger. "public": `public_epochs` on the data set `public` at the server; nothing travels. "hybrid":
    first public, then federated. `load`: a saved encoder instead of all that. `save`: where to keep it.
    """

    way: Way = "federated"
    autoencoder: str = "auto"
    rounds: Count = 10
    per_round: Count = 50
    epochs: Count = 3
    public: str = "fashion-mnist"
    public_epochs: Count = 20
    load: str = ""
    save: str = ""

    def __call__(self, now: Round) -> Tensor:
        """The encoder's row."""
        if self.save and not Path(self.save).parent.is_dir():  # said before the training, not after it
            raise UserError(f"save_encoder is {self.save!r}; its folder must exist")
        if self.load:
            row, name, _ = load_encoder(Path(self.load))
            if self.autoencoder not in ("auto", name):
                raise UserError(f"encoder {self.load!r} is of an {name}; autoencoder is {self.autoencoder!r}")
            return row
        shape, scale = look(now)
        if not is_picture(shape):
            return torch.zeros(0)
        model = autoencoder(self.autoencoder, shape, scale, seed=seed_of(now.fleet, "weights"))
        if self.way in ("public", "hybrid"):
            data = replace(load(self.public), scale=None)  # the encoder sees pictures in [0, 1]
            row = on_public_data(self.autoencoder, data, self.public_epochs, now.fleet.seed)
            put(model, row, data.name, shape)
        if self.way in ("federated", "hybrid"):
            write_row(model, self.by_the_fleet(now, model, Pictures(scale)))
        row = read_row(encoder(model))
        if self.save:
            name = suited(shape) if self.autoencoder == "auto" else self.autoencoder
            save_encoder(Path(self.save), row, name=name, shape=shape)
        return row

    def by_the_fleet(self, now: Round, model: nn.Module, objective: Reconstruction) -> Tensor:
        """FedAvg of the autoencoder; the fleet that does it has the same clients and the same ledger."""
        train = TrainAutoencoder(epochs=self.epochs, batch=32, optimiser="adam", lr=1e-3)
        child = now.fleet.child("autoencoder", model, objective)
        errors: list[float] = []

        def note(end: RoundEnd) -> None:
            errors.append(end.value("local-test", "mse-mean") or float("nan"))

        method = fedavg(train, per_round=self.per_round)
        measure = Measuring(global_test=False, whom="trained")
        try:
            state = run_rounds(method, child, rounds=self.rounds, measure=measure, watchers=[note])
        finally:
            child.close()
        now.notes["autoencoder"] = {"round": list(range(1, self.rounds + 1)), "mse, local test": errors}
        return state.models[0]


def seed_of(fleet: Fleet, name: str) -> int:
    return int(stream(fleet.seed, "autoencoder", name).integers(2**62))


def look(now: Round) -> tuple[tuple[int, ...], Scale | None]:
    """What one sample looks like, by the server's own data: a client could name any shape."""
    known = now.fleet.known(server_client(0))
    return known.shape, known.scale


def put(model: nn.Sequential, row: Tensor, public: str, shape: tuple[int, ...]) -> None:
    """Weights of an autoencoder that was trained on other pictures; they must fit."""
    size = Layout.of(model).size
    if row.numel() != size:
        raise UserError(
            f"public data set {public!r} has samples of another shape than the clients' {shape}: its autoencoder has "
            f"{row.numel()} values, this one {size}"
        )
    write_row(model, row)


def on_public_data(name: str, data: Dataset, epochs: int, seed: int) -> Tensor:
    """An autoencoder's row after training at the server; depends on the data, the epochs and the seed only."""
    shape = tuple(int(size) for size in data.x.shape[1:])
    model = autoencoder(
        name, shape, data.scale, seed=int(stream(seed, "autoencoder", "weights").integers(2**62))
    )
    x, y = Samples(data, data.train).tensors()
    rng = stream(seed, "autoencoder", data.name)
    batches = [
        order[start : start + 32]
        for order in (rng.permutation(len(x)) for _ in range(epochs))
        for start in range(0, len(x), 32)
    ]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # sums in the same order on every machine
    try:
        bench = TorchBench(model, Pictures(data.scale))
        return bench.fit(read_row(model), x, y, batches, Recipe(optimiser="adam", lr=1e-3), seed=seed).row
    finally:
        torch.set_num_threads(threads)
