"""The trained models of a run folder: ready to use for a client or a newcomer, and as files for other programs."""

from __future__ import annotations

import copy
import io
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from covey.about import About, read_about
from covey.checkpoint import read_checkpoint
from covey.errors import UserError
from covey.model import Layout, write_row
from covey.models import build
from covey.objective import Objective, objective_named
from covey.own_code import GIVEN
from covey.report.folder import is_folder, read_config, read_summary
from covey.run_folder import index_in
from covey.sections import ModelSection, own_settings
from covey.writing import storing, write_atomically

Format = Literal["safetensors", "torch", "onnx"]
ENDINGS: Mapping[str, str] = {"safetensors": ".safetensors", "torch": ".pt", "onnx": ".onnx"}


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainedModels:
    """The models of a run by number (0 alone where there is one for all), and which of them serves whom.

    `models[2]` is an `nn.Module` in evaluation mode, `models.of("Berlin")` or `models.of(3)` the one of a client.
    """

    network: nn.Module
    rows: Tensor
    serving: Mapping[int, Sequence[int]]
    buffers: Mapping[int, Tensor]  # BatchNorm statistics that stayed with the clients
    about: About
    objective: Objective

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.rows)))

    def __repr__(self) -> str:
        return f"TrainedModels({len(self)} of {self.about.dataset or 'a run'}, {len(self.serving)} clients)"

    def __getitem__(self, group: int) -> nn.Module:
        """The model of a group, ready to use."""
        if not 0 <= group < len(self.rows):
            raise UserError(f"there is no model {group!r}; there are {len(self.rows)}, numbered from 0")
        return self._with(self.rows[group])

    def of(self, client: int | str) -> nn.Module:
        """The model that serves a client, by its number or its name."""
        number = self.number(client)
        groups = self.serving[number]
        if len(groups) > 1:
            raise UserError(
                f"client {client!r} chooses among the models {list(groups)} by its own data: give predict its examples"
            )
        row = self.rows[groups[0]]
        if number in self.buffers:
            row = torch.cat([row[: -len(self.buffers[number])], self.buffers[number]])
        return self._with(row)

    def number(self, client: int | str) -> int:
        """A client's number, also from its name."""
        names = list(self.about.clients)
        number = names.index(client) if isinstance(client, str) and client in names else client
        if not isinstance(number, int) or number not in self.serving:
            known = ", ".join(names) or f"0 to {max(self.serving, default=0)}"
            raise UserError(f"client {client!r} was not in the run; allowed: {known}")
        return number

    def best_for(self, x: Any, y: Any) -> int:
        """The number of the model with the lowest loss on somebody's examples: how a newcomer finds its group."""
        inputs, target = self.inputs(x), self.targets(y)
        losses = []
        for group in self:
            with torch.no_grad():
                outputs = self[group](inputs)
                losses.append(float(self.objective.loss(outputs, self.objective.target(inputs, target))))
        return int(np.argmin(losses))

    def outputs(
        self, x: Any, *, client: int | str | None = None, examples: tuple[Any, Any] | None = None
    ) -> Tensor:
        """What the model of a client, or of a newcomer with some labelled examples, puts out (for classes: logits)."""
        if client is not None and examples is None:
            model = self.of(client)
        elif examples is not None:
            model = self[self.best_for(*examples)]
        elif len(self) == 1:
            model = self[0]
        else:
            raise UserError(
                f"there are {len(self)} models: say client=..., or for a newcomer examples=(x, y) of its own data"
            )
        with torch.no_grad():
            found: Tensor = model(self.inputs(x))
        return found

    def predict(
        self, x: Any, *, client: int | str | None = None, examples: tuple[Any, Any] | None = None
    ) -> Any:
        """The predicted classes by name, or the predicted values, for inputs as the data set had them.

        `x` is a tensor or an array of samples before scaling; for a run on a table also rows with its columns (a CSV,
        Parquet or Excel file, a data frame, a dict of columns, a list of dicts); for a run on pictures also pictures
        of Pillow, a file or a folder of them. What cannot be treated as in training is a `UserError`.
        """
        found = self.outputs(x, client=client, examples=examples)
        if not self.about.classes:
            return found.squeeze(-1).numpy()
        return np.array(self.about.classes)[found.argmax(1).numpy()]

    def inputs(self, x: Any) -> Tensor:
        """Samples as the model takes them: rows encoded, bytes divided by 255, then scaled."""
        return self.about.inputs.samples(x)

    def targets(self, y: Any) -> Tensor:
        """Labels as numbers, also from the names of their classes."""
        labels = np.asarray(y)
        if self.about.classes and labels.dtype.kind in "OUS":
            numbers = {name: number for number, name in enumerate(self.about.classes)}
            return torch.tensor([numbers[str(label)] for label in labels])
        return torch.as_tensor(labels).to(torch.int64 if self.about.classes else torch.float32)

    def _with(self, row: Tensor) -> nn.Module:
        model = copy.deepcopy(self.network).eval()
        write_row(model, row)
        return model


def load_models(folder: str | Path, model: nn.Module | None = None) -> TrainedModels:
    """The trained models of a run folder; `model` is the network where the run was given one by a Python program."""
    folder = Path(folder)
    if not is_folder(folder):
        raise UserError(f"{folder} is not a run folder: there is no such folder.")
    _, tables = read_config(folder / "config.toml")
    checkpoint = read_checkpoint(folder, index_in(folder))
    about, summary = read_about(folder), read_summary(folder / "summary.json")
    named = tables["model"]["name"]
    if model is None and named.startswith(GIVEN):
        raise UserError(
            f"{folder}: the model was an object of a Python program; give it again: load_models(folder, model=...)"
        )
    if not about.inputs.shape:
        raise UserError(f"{folder} does not say what the samples look like; it was written by an older covey")
    network = model or build(
        named,
        input_shape=about.inputs.shape,
        outputs=len(about.classes) or 1,
        **own_settings(tables["model"], ModelSection),
    )
    rows = checkpoint.state.models
    if Layout.of(network).size != rows.shape[1]:
        raise UserError(
            f"the model has {Layout.of(network).size:,} numbers, the run's models have {rows.shape[1]:,}"
        )
    states = checkpoint.fleet.get("states", {})
    return TrainedModels(
        network=network,
        rows=rows,
        serving=serving_in(summary.serving if summary else {}, checkpoint.state.seen),
        buffers={int(i): state["buffers"] for i, state in states.items() if "buffers" in state},
        about=about,
        objective=objective_named(tables["objective"]),
    )


def serving_in(told: Mapping[str, Sequence[int]], seen: Sequence[int]) -> dict[int, list[int]]:
    """Which models serve each client, from the summary: `all` is for everybody who is not named."""
    return {client: list(told.get(str(client), told.get("all", [0]))) for client in seen}


# ---------------------------------------------------------------------------------------------- files


def export(
    folder: str | Path,
    *,
    format: Format = "safetensors",
    out: str | Path | None = None,
    model: nn.Module | None = None,
) -> list[Path]:
    """Writes each model of a run folder into a file: `model.safetensors`, or `model-0.safetensors`, ... of several.

    safetensors and torch hold the state_dict (the latter for `torch.load(..., weights_only=True)`), onnx the whole
    network for samples as the model takes them, scaled.
    """
    if format not in get_args(Format):
        raise UserError(f"the format is {format!r}; allowed: {', '.join(get_args(Format))}")
    models = load_models(folder, model)
    place = Path(out) if out is not None else Path(folder) / "models"
    made = []
    with storing(place):
        place.mkdir(parents=True, exist_ok=True)
        for group in models:
            name = "model" if len(models) == 1 else f"model-{group}"
            path = place / f"{name}{ENDINGS[format]}"
            write_atomically(path, as_bytes(models[group], models.about, format))
            made.append(path)
    return made


def as_bytes(model: nn.Module, about: About, format: Format) -> bytes:
    """A model as the file of a format."""
    if format == "safetensors":
        import safetensors.torch

        tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
        return safetensors.torch.save(tensors, metadata={"classes": "\t".join(about.classes)})
    buffer = io.BytesIO()
    if format == "torch":
        torch.save(model.state_dict(), buffer)
        return buffer.getvalue()
    return _onnx(model, about)


def _onnx(model: nn.Module, about: About) -> bytes:
    try:
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise UserError(
            "the format onnx needs the packages onnx and onnxscript: install covey[onnx]"
        ) from error
    dtype = torch.int64 if about.inputs.dtype == "int64" else torch.float32
    sample = torch.zeros((2, *about.inputs.shape), dtype=dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own insides
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        program: Any = torch.onnx.export(
            model,
            (sample,),
            dynamo=True,
            input_names=["samples"],
            output_names=["outputs"],
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            verbose=False,
        )
    content: bytes = program.model_proto.SerializeToString()
    return content
