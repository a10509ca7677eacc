"""The trained models of a run folder: what every client uses, what an unseen client is given, and both as files."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor, nn

from covey.data.types import class_name
from covey.errors import UserError, user_error, warn_caller
from covey.files import storing, write_atomically
from covey.folder.about import About, read_about
from covey.folder.answers import Answers
from covey.folder.checkpoint import Checkpoint, read_checkpoint
from covey.folder.checksums import FROZEN, Index
from covey.folder.model_files import Format, as_files
from covey.folder.place import index_in, measured_in, served_in
from covey.folder.read import is_folder, read_config, read_summary
from covey.folder.served_model import ModelFacts, ServedModel, check_row, network_name, sentence
from covey.folder.served_rows import ServedRows, digest
from covey.folder.summary import Summary
from covey.parts.steps.scale import to_scale
from covey.runs.provenance import changed
from covey.runs.remake import Remake
from covey.runs.sections import model_settings
from covey.settings.catalogue import MODELS, OBJECTIVES
from covey.settings.own_code import GIVEN, bare_name
from covey.training.frozen import Frozen, copy_sharing
from covey.training.models import build
from covey.training.objective import Objective, objective_named


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainedModels:
    """The models of a run: `models.of("Berlin")` or `models.of(3)` is what a client uses, as the run measured it.

    It is an `nn.Module` in evaluation mode; `models.served(3)` is the same with its way from raw input to answer.
    `models[2]` is model number 2 of the run (0 alone where there is one for all), before any client fine-tunes it:
    what an unseen client is given.
    """

    network: nn.Module
    rows: Tensor
    stored: ServedRows | None
    serving: Mapping[int, Sequence[int]]
    names: Mapping[int, str]
    about: About
    objective: Objective
    facts: ModelFacts
    remake: Remake
    measured: Callable[[], Mapping[int, Mapping[str, float]]]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.rows)))

    def __repr__(self) -> str:
        return f"TrainedModels({len(self)} of {self.about.dataset or 'a run'}, {len(self.serving)} clients)"

    def __getitem__(self, number: int) -> nn.Module:
        """Model `number` of the run, ready to use."""
        return self.unseen(number).module()

    def of(self, client: int | str) -> nn.Module:
        """The model that a client uses, by its number or its name."""
        return self.served(client).module()

    def served(self, client: int | str) -> ServedModel:
        """The model that a client uses, with all that is known of it."""
        number = self.number(client)
        slot, share, row = self._row(number)
        name = self.names.get(number, str(number))
        facts = replace(
            self.facts, client=name, slot=slot, share=share, measured=dict(self._measured.get(number, {}))
        )
        own = bool(self._how["own"]) and not torch.equal(row, self.rows[slot])
        return self._model(row, replace(facts, given=sentence(facts, own=own)))

    def unseen(self, number: int | None = None, why: str = "") -> ServedModel:
        """What an unseen client is given: model `number` of the run, as the server has it."""
        if number is None and len(self) > 1:
            raise UserError(
                f"there are {len(self)} models: say whose (client), or for an unseen client give labelled rows of its "
                "own "
                "(examples)"
            )
        number = 0 if number is None else number
        if not 0 <= number < len(self.rows):
            raise UserError(f"there is no model {number!r}; there are {len(self.rows)}, numbered from 0")
        base = f"model {number} of {self.facts.method} after round {self.facts.round}"
        given = f"{base}{why}, as an unseen client is given it{self._lacks()}"
        return self._model(self._candidates[number], replace(self.facts, slot=number, given=given))

    def number(self, client: int | str) -> int:
        """A client's number, also from its name."""
        by_name = {name: number for number, name in self.names.items()}
        number = by_name.get(client, client) if isinstance(client, str) else client
        if isinstance(number, str) and number.isdecimal() and not self.names:
            number = int(number)
        if not isinstance(number, int) or number not in self.serving:
            known = ", ".join(sorted(by_name)) or f"0 to {max(self.serving, default=0)}"
            raise UserError(f"client {client!r} was not in the run; allowed: {known}")
        return number

    def best_for(self, x: Any, y: Any) -> int:
        """The number of the model with the lowest loss on somebody's examples: how an unseen client finds its group."""
        inputs, target = self.inputs(x), self.targets(y)
        losses = []
        for number in self:
            with torch.no_grad():
                outputs = self[number](inputs)
                losses.append(float(self.objective.loss(outputs, self.objective.target(inputs, target))))
        return int(np.argmin(losses))

    def model_for(
        self, client: int | str | None = None, examples: tuple[Any, Any] | None = None
    ) -> ServedModel:
        """What a client uses, or what an unseen client is given who has some labelled examples, or none."""
        if client is not None:
            if examples is not None:
                raise UserError(
                    "examples are for an unseen client; a client of the run has its model: give one of them"
                )
            return self.served(client)
        if examples is None:
            return self.unseen()
        fits = f", the best of {len(self)} on its {len(np.asarray(examples[1]))} labelled examples"
        return self.unseen(self.best_for(*examples), why=fits)

    def outputs(
        self, x: Any, *, client: int | str | None = None, examples: tuple[Any, Any] | None = None
    ) -> Tensor:
        """What the model of a client, or of an unseen client with some labelled examples, puts out (for classes:
        logits)."""
        return self.model_for(client, examples).outputs(x)

    def predict(
        self, x: Any, *, client: int | str | None = None, examples: tuple[Any, Any] | None = None
    ) -> Answers:
        """The predicted classes by name, or the predicted values, for inputs as the data set had them.

        `x` is a tensor or an array of samples before scaling; for a run on a table also rows with its columns (a CSV,
        Parquet or Excel file, a data frame, a dict of columns, a list of dicts); for a run on pictures also pictures
        of Pillow, a file or a folder of them. What cannot be treated as in training is a `UserError`.

        The answer's `probabilities` are those of all classes, and `given` says which model it was: an unseen client is
        given one of the run's models as the server has it, with `examples` the one that fits these best, and no model
        is trained on them.
        """
        return self.model_for(client, examples).predict(x)

    def inputs(self, x: Any) -> Tensor:
        """Samples as the model takes them: rows encoded, bytes divided by 255, then scaled."""
        return self.about.inputs.samples(x)

    def targets(self, y: Any) -> Tensor:
        """Labels as numbers, also from the names of their classes."""
        labels = np.asarray(y)
        # Of a table a label is what its cell says: 1 and 2 are names, too.
        if self.about.classes and (labels.dtype.kind in "OUS" or self.about.inputs.schema is not None):
            numbers = {name: number for number, name in enumerate(self.about.classes)}
            words = [class_name(label) for label in labels.tolist()]
            if strange := [word for word in words if word not in numbers]:
                raise UserError(
                    f"the label {strange[0]!r} is none of the run's; allowed: {', '.join(self.about.classes)}"
                )
            return torch.tensor([numbers[word] for word in words])
        if self.about.classes:
            return torch.as_tensor(labels).to(torch.int64)
        schema = self.about.inputs.schema
        values = torch.as_tensor(labels).to(torch.float32)
        return values if schema is None else (values - schema.label_mean) / schema.label_std

    def at_site(self, client: int) -> bool:
        """Whether the client's model lies at its own site and nowhere else."""
        made = self.stored is not None and self.stored.facts["made"]
        return made and self.stored is not None and not self.stored.is_known(client)

    @cached_property
    def _measured(self) -> Mapping[int, Mapping[str, float]]:
        return self.measured()

    @cached_property
    def _candidates(self) -> dict[int, Tensor]:
        """The rows as clients are sent them to use; of a method that serves others than it trains, these."""
        rows = dict(enumerate(self.rows))
        if self.stored is not None and self.stored.facts["as_sent"]:
            for clients in self.stored.distinct.values():
                row = self.stored.row(clients[0], self.rows)
                slot = int(self.stored.slots[self.stored.place(clients[0])])
                if row is not None and slot in rows:
                    rows[slot] = row
        return rows

    def _row(self, client: int) -> tuple[int, float, Tensor]:
        """The slot, the share and the row that the client uses: as it was stored, or made again."""
        if self.stored is not None:
            place = self.stored.place(client)
            slot, share = int(self.stored.slots[place]), float(self.stored.share[place])
            row = self.stored.row(client, self.rows)
            if row is not None:
                return slot, share, row
            if not self.stored.is_known(client) and self.stored.facts["made"]:
                raise UserError(self.remake.nowhere(self.names.get(client, str(client))))
        slot, share, row = self.remake(client)
        known = self.stored is not None and self.stored.is_known(client)
        if self.stored is not None and known and digest(row) != self.stored.digest_of(client):
            warn_caller(
                f"the model of client {client} was made again, on this machine not with the bits that were measured"
            )
        return slot, share, row

    @cached_property
    def _how(self) -> Mapping[str, Any]:
        """How clients get their models."""
        return self.stored.facts if self.stored is not None else self.remake.facts

    def _lacks(self) -> str:
        """What an unseen client's model lacks that clients' models have."""
        if self._how["own"]:
            return "; clients have models of their own beside it"
        if self._how["adapted"]:
            return "; clients train it on their own data before use"
        return (
            ""
            if self._how["as_sent"]
            else "; what every client keeps for itself is here as in the first model"
        )

    def _model(self, row: Tensor, facts: ModelFacts) -> ServedModel:
        return ServedModel(network=self.network, row=row, facts=replace(facts, digest=digest(row).hex()))


def load_models(
    folder: str | Path,
    model: nn.Module | None = None,
    *,
    data: Any = None,
    changed_code: bool = False,
) -> TrainedModels:
    """The trained models of a run folder: `models.of("Berlin")` or `models.of(3)` is what a client uses.

    Args:
        folder: of a run.
        model: the network, where the run was given one by a Python program.
        data: the data set or federation, where the run was given one and models must be made again: those of clients
            that train before use, of a run that has not come to its end or has too many to store them.
        changed_code: whether a model of your own is loaded although its code has changed since the run.

    Returns:
        The models.

    Raises:
        UserError: where the folder holds no run or is damaged.

    Examples:
        >>> run = covey.run("fedavg", rounds=1, out="runs/loaded", progress=False)
        >>> models = covey.load_models("runs/loaded")
        >>> len(models.predict(covey.load("digits").x[:3]))
        3
    """
    folder = Path(folder)
    if not is_folder(folder):
        raise UserError(f"{folder} is not a run folder: there is no such folder.")
    _, tables = read_config(folder / "config.toml")
    index = index_in(folder)
    checkpoint = read_checkpoint(folder, index)
    about, summary = read_about(folder), read_summary(folder / "summary.json")
    told = checkpoint.fleet.get("scale")  # of sites that told it only after the run had begun
    if told is not None:
        scale = to_scale(told, about.inputs.shape[0])
        about = replace(about, inputs=replace(about.inputs, scale=scale))
    if model is None and tables["model"]["name"].startswith(GIVEN):
        raise UserError(
            f"{folder}: the model was an object of a Python program; give it again: load_models(folder, model=...)"
        )
    if not about.inputs.shape:
        raise UserError(f"{folder} does not say what the samples look like; it was written by an older covey")
    rows = checkpoint.state.models
    if not len(rows):
        raise UserError(f"{folder} has no model yet: no round has come to its end")
    same_network(checkpoint, tables, changed_code)
    settings = {name: value for name, value in model_settings(tables["model"]).items() if name != "weights"}
    network = with_frozen(model or network_of(tables, about, settings), folder, index)
    check_row(network, rows[0])
    facts = ModelFacts(
        method=bare_name(tables["method"]["name"]),
        round=checkpoint.state.round,
        dataset=about.dataset,
        classes=about.classes,
        inputs=about.inputs,
        objective=bare_name(tables["objective"]),
        model=network_name(tables["model"]["name"]),
        settings=settings,
        frozen=Frozen.of(network).digest,
    )
    return TrainedModels(
        network=network,
        rows=rows,
        stored=served_in(folder, index),
        serving=serving_in(summary.serving if summary else {}, checkpoint.state.seen),
        names=names_in(summary, about),
        about=about,
        objective=objective_named(tables["objective"]),
        facts=facts,
        remake=Remake(
            folder=folder, checkpoint=checkpoint, network=network, data=data, changed_code=changed_code
        ),
        measured=lambda: measured_in(folder, index, checkpoint.state.round),
    )


def names_in(summary: Summary | None, about: About) -> dict[int, str]:
    """What the clients are called: as the fleet numbered them in the run, else as the data had them."""
    called = summary.engine.get("names") if summary else None
    names = called.items() if isinstance(called, dict) else enumerate(about.clients)
    return {int(number): name for number, name in names if name}


def network_of(tables: Mapping[str, Any], about: About, settings: Mapping[str, Any]) -> nn.Module:
    """The network of the run's table [model]; the folder has what became of the weights that it began with."""
    outputs = len(about.classes) or 1
    return build(tables["model"]["name"], input_shape=about.inputs.model_shape, outputs=outputs, **settings)


def with_frozen(network: nn.Module, folder: Path, index: Index) -> nn.Module:
    """The network with what was frozen in the run, where something was."""
    if FROZEN not in index.files:
        return network
    network = copy_sharing(network)
    with user_error(str(folder / FROZEN)):
        Frozen.from_file(index.files[FROZEN].read_all(folder / FROZEN)).put_into(network)
    return network


def same_network(checkpoint: Checkpoint, tables: Mapping[str, Any], changed_code: bool) -> None:
    """Refuses numbers for another code than the one that was trained, unless that is wanted."""
    named = ((MODELS, tables["model"]["name"]), (OBJECTIVES, tables["objective"]))
    own = [registry.origin(name) for registry, name in named if not name.startswith(GIVEN)]
    what = changed(checkpoint.origins, [origin for origin in own if origin is not None])
    if what and not changed_code:
        raise UserError(
            f"{what}. The trained numbers belong to the code as it was; to use them with it all the same, say "
            "changed_code=True (on the command line --changed-code)"
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
    client: int | str | None = None,
    data: Any = None,
    changed_code: bool = False,
) -> list[Path]:
    """Writes the models of a run folder into files, as clients use them; each carries its way from input to answer.

    `model.safetensors` where all clients use one; `model-0.safetensors`, ... where they use several of the run's; else
    `model-NAME.safetensors` for each client and `unseen.safetensors` for others.

    Args:
        folder: of a run.
        format: safetensors and torch hold the state_dict (the latter for `torch.load(..., weights_only=True)`, with a
            JSON file beside it), onnx the whole network for samples as the network takes them, scaled.
        out: the folder to write; none: the run's own.
        model: the network, where the run was given one by a Python program.
        client: whose model alone is written; none: all.
        data: the data set or federation, as for `load_models`.
        changed_code: whether a model of your own is used although its code has changed since the run.

    Returns:
        The files.

    Raises:
        UserError: where the folder holds no run, is damaged, or the client is unknown.

    Examples:
        >>> run = covey.run("fedavg", rounds=1, out="runs/exported", progress=False)
        >>> [file.name for file in covey.export("runs/exported")]
        ['model.safetensors']
    """
    if format not in get_args(Format):
        raise UserError(f"the format is {format!r}; allowed: {', '.join(get_args(Format))}")
    models = load_models(folder, model, data=data, changed_code=changed_code)
    place = Path(out) if out is not None else Path(folder) / "models"
    made = []
    with storing(place):
        place.mkdir(parents=True, exist_ok=True)
        for name, one in to_export(models, client):
            files = as_files(one, name, format)
            for file, content in files.items():
                write_atomically(place / file, content)
            made.append(place / next(iter(files)))
    return made


def to_export(models: TrainedModels, client: int | str | None) -> Iterator[tuple[str, ServedModel]]:
    """The models that are written, each with the name of its file."""
    if client is not None:
        yield f"model-{file_name(models.served(client).facts.client)}", models.served(client)
        return
    if are_shared(models.stored):
        for number in models:
            yield "model" if len(models) == 1 else f"model-{number}", shared(models, number)
        return
    names: set[str] = set()
    for one in models.serving:
        if models.at_site(one):
            continue
        name = file_name(models.names.get(one, str(one)))
        name = name if name not in names else f"{name}-{one}"
        names.add(name)
        yield f"model-{name}", models.served(one)
    for number in models:
        yield "unseen" if len(models) == 1 else f"unseen-{number}", models.unseen(number)


def are_shared(stored: ServedRows | None) -> bool:
    """Whether all clients use one model, or several of the run's as the server has them."""
    if stored is None or not all(number >= 0 for number in stored.row_of.tolist()):
        return False
    return len(stored.digests) == 1 or bool((stored.bank >= 0).all())


def shared(models: TrainedModels, number: int) -> ServedModel:
    """Model `number` of a run whose clients use its models as they are, with the mean of what was measured of them."""
    model, stored = models.unseen(number), models.stored
    assert stored is not None
    clients = [one for one, slot in zip(stored.clients, stored.slots.tolist(), strict=True) if slot == number]
    found = [models._measured[one] for one in clients if one in models._measured]
    means = {name: float(np.mean([one[name] for one in found if name in one])) for name in (found or [{}])[0]}
    facts = replace(model.facts, measured=means)
    return replace(model, facts=replace(facts, given=sentence(facts, own=False)))


def file_name(client: str) -> str:
    """A client's name as a part of a file's."""
    return re.sub(r"[^\w.-]", "_", client)[:80] or "_"
