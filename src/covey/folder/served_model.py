"""A model as its client uses it, in one file: its numbers, and as plain JSON the whole way from raw input to answer."""

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from covey.errors import UserError
from covey.files import storing, write_atomically
from covey.folder.about import Inputs
from covey.folder.answers import Answers
from covey.folder.plain import of_plain
from covey.folder.served_rows import digest
from covey.parts.steps.at_home import AT_HOME
from covey.settings.catalogue import MODELS
from covey.settings.own_code import bare_name
from covey.settings.registry import only_installed
from covey.terminal import printable
from covey.training.frozen import Frozen, copy_sharing
from covey.training.models import build
from covey.training.rows import Layout, read_row, write_row
from covey.version import __version__

FORMAT = 1
KEY = "covey"  # of the metadata, in safetensors and ONNX files


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """All that is known of a served model besides its numbers; plain values, as the file's JSON has them.

    Args:
        method: the method that trained it.
        round: the round after which it was stored.
        client: whose it is; empty for a model of several clients.
        slot: of which model of the run it was made.
        share: of the client's own training before use in it; -1 where only the client knows it.
        given: in a sentence, what it is.
        measured: every metric of its client at that round by name, such as "local-test/accuracy"; of a model of several
            clients the mean over them.
        dataset: what the data are called.
        classes: the names of the classes in the order of the outputs; empty for values.
        inputs: what a sample looks like, and how it becomes what the network takes.
        objective: what it was trained for.
        model: the network's name; own:NAME is somebody's own.
        settings: of the network.
        digest: SHA-256 of the row.
        frozen: the digest of what nobody trained of it; empty where all was trained.
        covey: the version that wrote it.
    """

    method: str
    round: int
    client: str = ""
    slot: int = 0
    share: float = 0.0
    given: str = ""
    measured: Mapping[str, float] = field(default_factory=dict)
    dataset: str = ""
    classes: tuple[str, ...] = ()
    inputs: Inputs = field(default_factory=Inputs)
    objective: str = "classification"
    model: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    digest: str = ""
    frozen: str = ""
    covey: str = __version__

    def json(self) -> str:
        """As files carry it."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        return json.dumps({"format": FORMAT, **plain, "inputs": self.inputs.plain()}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """What `json` wrote; a ValueError for anything else."""
        plain = json.loads(text)
        if plain.pop("format") != FORMAT:
            raise ValueError("it was written by another version of covey")
        facts: Self = of_plain(cls, plain)
        return facts


@dataclass(frozen=True, kw_only=True, eq=False)
class ServedModel:
    """The model that a client uses, ready to use: `predict` takes inputs as people have them."""

    network: nn.Module
    row: Tensor
    facts: ModelFacts

    def __repr__(self) -> str:
        return f"ServedModel({self.facts.given})"

    def module(self) -> nn.Module:
        """The network with the model's numbers, in evaluation mode."""
        model = copy_sharing(self.network).eval()
        write_row(model, self.row)
        return model

    def outputs(self, x: Any) -> Tensor:
        """What the network puts out (for classes: logits)."""
        with torch.no_grad():
            found: Tensor = self.module()(self.facts.inputs.samples(x))
        return found

    def predict(self, x: Any) -> Answers:
        """Classes by name with their probabilities, or values, for inputs as the data set had them."""
        outputs, schema = self.outputs(x), self.facts.inputs.schema
        if schema is not None and not self.facts.classes:
            outputs = outputs * schema.label_std + schema.label_mean
        return Answers.of(outputs, self.facts.classes, self.facts.given)


def model_bytes(model: ServedModel) -> bytes:
    """A served model as a safetensors file: the state_dict, and the facts as JSON under the metadata's key `covey`."""
    return safetensors.torch.save(state_of(model.module()), {KEY: model.facts.json()})


def state_of(module: nn.Module) -> dict[str, Tensor]:
    """The state_dict for a file that holds every name separately: tied weights once for each of their names."""
    tensors: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in module.state_dict().items():
        place = tensor.untyped_storage().data_ptr() + tensor.storage_offset() * tensor.element_size()
        tensors[name] = tensor.clone() if place in seen else tensor.contiguous()
        seen.add(place)
    return tensors


def write_model(path: Path, model: ServedModel) -> None:
    """Writes a served model into a file, whole or not at all."""
    with storing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, model_bytes(model))


def read_model(path: str | Path, model: nn.Module | None = None) -> ServedModel:
    """The model in a file that `covey.export` wrote.

    Nothing in a file can run code, and numbers that are not those that were written are not used.

    Args:
        path: of the file.
        model: the network where it is not one of covey's or an installed package's.

    Returns:
        The model, with its way from raw input to answer.

    Raises:
        UserError: where the file is damaged, or is no model.

    Examples:
        >>> run = covey.run("fedavg", rounds=1, out="runs/read", progress=False)
        >>> model = covey.read_model(covey.export("runs/read")[0])
        >>> len(model.predict(covey.load("digits").x[:3]))
        3
    """
    path = Path(path)
    if path.suffix in (".onnx", ".pt"):
        raise UserError(
            f"{path} is for other programs; covey takes the .safetensors file (covey export writes it)"
        )
    try:
        content = path.read_bytes()
        length = int.from_bytes(content[:8], "little")
        facts = ModelFacts.from_json(json.loads(content[8 : 8 + length])["__metadata__"][KEY])
        tensors = safetensors.torch.load(content)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, safetensors.SafetensorError) as error:
        raise UserError(f"{path} is not a model that covey wrote, or is damaged") from error
    network = copy.deepcopy(model) if model is not None else network_of(facts, path)
    try:
        network.load_state_dict(tensors)
    except RuntimeError as error:
        raise UserError(f"{path} is not of this network: {printable(str(error))[:300]}") from error
    row = read_row(network)
    if digest(row).hex() != facts.digest or Frozen.of(network).digest != facts.frozen:
        raise UserError(f"{path} is damaged: its numbers are not those that were written")
    return ServedModel(network=network, row=row, facts=facts)


def network_of(facts: ModelFacts, path: Path) -> nn.Module:
    """The network that a file names: one of covey's own or an installed package's, never other code."""
    try:
        with only_installed({}):
            return build(
                facts.model,
                input_shape=facts.inputs.model_shape,
                outputs=len(facts.classes) or 1,
                **dict(facts.settings),
            )
    except UserError as error:
        raise UserError(
            f"{path} is of a network of somebody's own, {printable(facts.model)}; give it: "
            "read_model(path, model=...)"
        ) from error


def network_name(name: str) -> str:
    """A network's name as files tell it: somebody's own is never taken for one of covey's that is called the same."""
    known = name in MODELS.builtin or name in MODELS.installed()
    return name if known else f"own:{bare_name(name)}"


def check_row(network: nn.Module, row: Tensor) -> None:
    """The row is one of this network."""
    if Layout.of(network).size != len(row):
        raise UserError(
            f"the model has {Layout.of(network).size:,} numbers, the run's models have {len(row):,}"
        )


NOT_PRIVATE = " (no privacy guarantee: keep it where these data are)"


def sentence(facts: ModelFacts, *, own: bool) -> str:
    """What a client's model is, in words."""
    whose = f"client {facts.client}" if facts.client else "every client that it serves"
    base = f"model {facts.slot} of {facts.method} after round {facts.round}"
    if own:
        return f"the own model of {whose} beside {base}{NOT_PRIVATE}"
    if facts.share:
        how = "trained" if facts.share == 1 else f"moved by {facts.share:g} of its training"
        how = "trained as far as held-out data said" if facts.share == AT_HOME else how
        return f"{base}, {how} on the data of {whose} before use{NOT_PRIVATE}"
    return f"{base} as {whose} uses it"
