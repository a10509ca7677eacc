"""Encoders from files on disk: ONNX as it is, timm and torchvision by stand-ins of their interface."""

import hashlib
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from covey.errors import UserError
from covey.training.pretrained import encoder_as_sent, encoder_of


class Small(nn.Module):
    """Six features of a picture of 8 pixels, and a last layer."""

    def __init__(self, classes: int = 4) -> None:
        super().__init__()
        self.body = nn.Linear(3 * 8 * 8, 6)
        self.head = nn.Linear(6, classes) if classes else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(torch.relu(self.body(x.flatten(1))))
        return found


@pytest.fixture
def weights(tmp_path: Path) -> str:
    torch.manual_seed(1)
    path = tmp_path / "small.safetensors"
    safetensors.torch.save_file(Small().state_dict(), path)
    return str(path)


@pytest.mark.parametrize("package", ["timm", "torchvision"])
def test_a_network_by_name_with_weights_from_a_file(
    package: str, weights: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def create_model(name: str, pretrained: bool, num_classes: int) -> Small:
        assert (name, pretrained, num_classes) == ("small", False, 0)
        return Small(0)

    def get_model(name: str, weights: Any) -> Small:
        assert (name, weights) == ("small", None)
        return Small()

    models = SimpleNamespace(get_model=get_model)
    monkeypatch.setitem(sys.modules, "timm", SimpleNamespace(create_model=create_model))  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "torchvision", SimpleNamespace(models=models))  # type: ignore[arg-type]
    setting = {"name": package, "network": "small", "weights": weights, "side": 8}
    encoder = encoder_of(setting)
    x = torch.rand(2, 3, 8, 8)
    stored = safetensors.torch.load_file(weights)
    mean, std = (torch.tensor(n).view(1, 3, 1, 1) for n in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    wanted = torch.relu(((x - mean) / std).flatten(1) @ stored["body.weight"].T + stored["body.bias"])
    assert torch.allclose(encoder(x), wanted, atol=1e-5)
    assert encoder_as_sent(setting) == {"name": package, "network": "small", "side": 8}
    bare = encoder_of(encoder_as_sent(setting), bare=True)
    assert bare.frozen.digest != encoder.frozen.digest
    encoder.frozen.put_into(bare.network)
    assert torch.equal(bare(x), encoder(x))
    with pytest.raises(UserError, match="which is no safetensors file that can be read"):
        encoder_of({**setting, "weights": "nowhere"})


def test_an_onnx_file_of_ones_own_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    monkeypatch.setenv("COVEY_CACHE", str(tmp_path / "cache"))
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("ReduceMean", ["x", "axes"], ["y"], keepdims=0)],
        "means",
        [helper.make_tensor_value_info("x", kind, ["n", 3, 8, 8])],
        [helper.make_tensor_value_info("y", kind, ["n", 3])],
        [helper.make_tensor("axes", onnx.TensorProto.INT64, [2], [2, 3])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 9
    file = tmp_path / "means.onnx"
    file.write_bytes(model.SerializeToString())
    x = torch.rand(2, 3, 8, 8)
    encoder = encoder_of({"name": "onnx", "path": str(file), "side": 8})
    assert torch.allclose(encoder(x), x.mean((2, 3)), atol=1e-6)
    mark = hashlib.sha256(file.read_bytes()).hexdigest()
    assert encoder.digest.startswith(mark[:32])
    sent = encoder_as_sent({"name": "onnx", "path": str(file), "side": 8})
    assert sent == {"name": "onnx", "sha256": mark, "side": 8}
    with pytest.raises(UserError, match="put it there yourself, it is never sent"):
        encoder_of(sent)
    (tmp_path / "cache" / "encoders").mkdir(parents=True)
    (tmp_path / "cache" / "encoders" / "mine.onnx").write_bytes(file.read_bytes())
    assert encoder_of(sent).digest == encoder.digest


def test_what_is_no_onnx_file_is_one_sentence(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    (tmp_path / "no.onnx").write_bytes(b"nothing")
    with pytest.raises(UserError, match="which is no ONNX file that can be run"):
        encoder_of({"name": "onnx", "path": str(tmp_path / "no.onnx")})


def test_a_package_that_does_not_load_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "timm.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    with pytest.raises(UserError, match=r"needs the package timm, which does not load here: operator torchv"):
        encoder_of({"name": "timm", "network": "resnet18"})
