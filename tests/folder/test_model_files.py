"""A model file carries the way from raw input to answer, and other programs get the same numbers out of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

from covey.data.types import Scale
from covey.errors import UserError
from covey.folder.about import Inputs
from covey.folder.answers import Answers
from covey.folder.model_files import as_files, onnx_bytes
from covey.folder.served_model import ModelFacts, ServedModel, model_bytes, read_model, write_model
from covey.folder.served_rows import digest
from covey.settings.catalogue import MODELS
from covey.training.models import build
from covey.training.models.tabular import Tabular
from covey.training.rows import read_row
from covey.training.trees.model import Forest
from tests.methods.test_served import KINDS
from tests.methods.test_served import run as run_method

SERIES = dict.fromkeys(("cnn-series", "lstm", "tcn", "decoder"), (3, 32))
SHAPES = {**SERIES, "cnn-cifar": (3, 32, 32), "softmax": (6,), "mlp": (6,), "ae-conv": (1, 8, 8)}
SMALL: dict[str, dict[str, Any]] = {
    "vgg11": {"width": 0.125},
    "vgg19": {"width": 0.125},
    "resnet18": {"width": 0.125},
}
DEEP = dict.fromkeys(SMALL, (3, 32, 32))


def model_named(name: str, **facts: Any) -> ServedModel:
    shape, settings = {**SHAPES, **DEEP}.get(name, (1, 28, 28)), SMALL.get(name, {})
    network = build(name, input_shape=shape, outputs=10, seed=3, **settings)
    moved(network)
    row = read_row(network)
    told = ModelFacts(
        method="fedavg",
        round=7,
        client="Berlin",
        classes=tuple("abcdefghij"),
        inputs=Inputs(shape=shape, **facts),
        model=name,
        settings=settings,
        measured={"local-test/accuracy": 0.75},
        digest=digest(row).hex(),
    )
    return ServedModel(network=network, row=row, facts=told)


def moved(network: torch.nn.Module) -> None:
    """Networks that start with the same output for everybody, as one that has been trained: other weights, splits."""
    torch.manual_seed(1)
    if isinstance(network, Tabular):
        for weights in network.parameters():
            weights.data += torch.randn_like(weights)
    if isinstance(network, Forest):
        network.value.data = torch.randn_like(network.value)
        network.feature.copy_(torch.randint(0, len(network.cuts), network.feature.shape))
        network.threshold.copy_(torch.rand_like(network.threshold))


def check_onnx(content: bytes, model: ServedModel, x: torch.Tensor) -> None:
    """Outputs within 1e-4, and the same class wherever the two best differ by more; the facts are the model's."""
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(content)
    (found,) = session.run(None, {"samples": x.numpy()})
    wanted = model.module()(x).detach().numpy()
    assert np.abs(found - wanted).max() < 1e-4
    best = np.sort(wanted.reshape(len(wanted), -1), axis=1)
    clear = best[:, -1] - best[:, -2] > 1e-4
    assert clear.any()
    flat = [outputs.reshape(len(outputs), -1).argmax(1)[clear] for outputs in (found, wanted)]
    assert (flat[0] == flat[1]).all()
    told = session.get_modelmeta().custom_metadata_map["covey"]
    assert ModelFacts.from_json(told) == model.facts


@pytest.mark.parametrize(
    "name", sorted({*MODELS} - {"huggingface"})
)  # which needs a folder: test_huggingface.py
def test_onnx_puts_out_the_same_for_every_architecture(name: str) -> None:
    pytest.importorskip("onnxscript")
    model = model_named(name)
    torch.manual_seed(0)
    check_onnx(onnx_bytes(model), model, torch.rand(40, *model.facts.inputs.shape))


@pytest.mark.parametrize("kind", KINDS)
def test_onnx_puts_out_the_same_for_every_kind_of_serving(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    model = run_method(kind, tmp_path / "run").models().served(1)
    torch.manual_seed(0)
    check_onnx(onnx_bytes(model), model, torch.randn(40, 1, 8, 8))


def test_a_file_there_and_back_is_the_same_model(tmp_path: Path) -> None:
    model = model_named("mlp", scale=Scale((0.5,) * 6, (2.0,) * 6), features=tuple("uvwxyz"))
    write_model(tmp_path / "of" / "Berlin.safetensors", model)
    again = read_model(tmp_path / "of" / "Berlin.safetensors")
    assert torch.equal(again.row, model.row)
    assert again.facts == model.facts
    x = np.random.default_rng(0).normal(size=(9, 6))
    answers = again.predict(x)
    assert (answers == model.predict(x)).all()
    by_hand = torch.softmax(model.module()((torch.tensor(x).float() - 0.5) / 2), 1).detach().numpy()
    assert answers.probabilities == pytest.approx(by_hand, abs=1e-6)
    assert answers.tolist() == [model.facts.classes[place] for place in by_hand.argmax(1)]


def test_a_changed_file_is_not_used(tmp_path: Path) -> None:
    path, content = tmp_path / "m.safetensors", bytearray(model_bytes(model_named("mlp")))
    for change in (
        lambda c: c[:-5],
        lambda c: c[:-1] + bytes([c[-1] ^ 1]),
        lambda c: b"",
        lambda c: b"\0" * 40,
    ):
        path.write_bytes(change(bytes(content)))
        with pytest.raises(UserError, match="damaged"):
            read_model(path)
    with pytest.raises(UserError, match=r"none\.safetensors cannot be read: No such file"):
        read_model(tmp_path / "none.safetensors")


def test_a_file_runs_nobodys_code(tmp_path: Path) -> None:
    """A file that names a Python file is of a network that must be given; nothing is imported because it says so."""
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\ndef net(outputs): pass\n")
    model = model_named("mlp")
    named = f"{tmp_path / 'evil.py'}:net"
    facts = ModelFacts.from_json(model.facts.json().replace('"model": "mlp"', f'"model": "{named}"'))
    assert facts.model == named
    write_model(tmp_path / "m.safetensors", ServedModel(network=model.network, row=model.row, facts=facts))
    with pytest.raises(UserError, match=r"a network of somebody's own.*read_model\(path, model="):
        read_model(tmp_path / "m.safetensors")
    assert not (tmp_path / "ran").exists()
    assert torch.equal(read_model(tmp_path / "m.safetensors", model=model.network).row, model.row)
    with pytest.raises(UserError, match="is not of this network"):
        read_model(tmp_path / "m.safetensors", model=nn.Linear(6, 10))


def test_torch_files_are_plain_state_dicts_with_json_beside_them(tmp_path: Path) -> None:
    model = model_named("mlp")
    files = as_files(model, "model", "torch")
    assert list(files) == ["model.pt", "model.json"]
    (tmp_path / "model.pt").write_bytes(files["model.pt"])
    tensors = torch.load(tmp_path / "model.pt", weights_only=True)
    wanted = safetensors.torch.load(as_files(model, "model", "safetensors")["model.safetensors"])
    assert all(torch.equal(tensors[name], wanted[name]) for name in wanted)
    assert json.loads(files["model.json"])["measured"] == {"local-test/accuracy": 0.75}


def test_answers_by_hand() -> None:
    found = Answers.of(torch.tensor([[0.0, np.log(3.0)], [2.0, 0.0]]), ("no", "yes"), "model 0")
    assert found.tolist() == ["yes", "no"]
    assert found.probabilities is not None
    assert found.probabilities[0] == pytest.approx([0.25, 0.75])
    assert found.csv().splitlines()[:2] == ["sample,answer,p(no),p(yes)", "1,yes,0.250000,0.750000"]
    assert found.csv(["a.png", "b.png"]).splitlines()[2].startswith("b.png,no,")
    values = Answers.of(torch.tensor([[1.5], [-2.0]]), (), "model 0")
    assert values.probabilities is None
    assert values.csv() == "sample,answer\n1,1.5\n2,-2\n"
