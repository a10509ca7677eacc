"""Encoders by name where their files are on disk: of Hugging Face, timm and torchvision, and ONNX files.

Weights are read from safetensors files, never from pickles, and no code comes with them: a network is built by the
package that is installed here. A site is told the network's name and its settings, and is sent the weights.
"""

import hashlib
import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from textwrap import shorten
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor, nn

from covey.errors import UserError, user_error
from covey.settings.ranges import Range
from covey.settings.registry import register
from covey.training.frozen import stored_tensors
from covey.training.pretrained import BARE, Encoder, weights_folder

Side = Annotated[int, Range(8, 1024)]
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def loaded(package: str, setting: str, install: str) -> Any:
    """An optional package."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise UserError(f"{setting} needs the package {package}: {install}") from error
    except (OSError, RuntimeError) as error:  # such as operators of torchvision for another build of PyTorch
        raise UserError(
            f"{setting} needs the package {package}, which does not load here: {error}"
        ) from error


class PooledFeatures(nn.Module):
    """A transformer or convolutional network of Hugging Face: its pooled output, or the mean over places."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        out = self.network(pixel_values=x)
        pooled = getattr(out, "pooler_output", None)
        found: Tensor = out.last_hidden_state.mean(1) if pooled is None else pooled
        return found


def _configured(path: str = "", config: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """For sites: the configuration in place of the folder that it is in here."""
    if path:
        folder = Path(path)
        config = json.loads((folder / "config.json").read_text())
        told = preprocessing(folder)
        more |= {
            ours: list(told[theirs])
            for ours, theirs in (("mean", "image_mean"), ("std", "image_std"))
            if theirs in told
        }
    return {"config": config, **more}


@register("encoder", "huggingface", told=_configured)
def huggingface(
    *,
    path: str = "",
    config: Mapping[str, Any] | None = None,
    side: Side = 224,
    mean: tuple[float, ...] = (0.5, 0.5, 0.5),
    std: tuple[float, ...] = (0.5, 0.5, 0.5),
) -> Encoder:
    """A vision network of Hugging Face from a folder with config.json and model.safetensors.

    Args:
        path: the folder; nothing is downloaded.
        config: in place of a folder, what its config.json says: a site is told this, and is sent the weights.
        side: pixels to which pictures are resized.
        mean: by which pixels of 0 to 1 are standardised; the folder's preprocessor_config.json goes before.
        std: the same.
    """
    network, told = network_of("AutoModel", path, config, "data.encoder")
    mean, std = tuple(told.get("image_mean", mean)), tuple(told.get("image_std", std))
    return Encoder(network=PooledFeatures(network), side=side, channels=3, mean=mean, std=std)


def network_of(
    kind: str, path: str, config: Mapping[str, Any] | None, where: str, **named: Any
) -> tuple[nn.Module, Mapping[str, Any]]:
    """A network of an `AutoModel` class, and what its folder says of pictures; weights only from safetensors."""
    transformers = loaded("transformers", f'{where}.name = "huggingface"', "pip install transformers")
    transformers.utils.logging.disable_progress_bar()
    auto = getattr(transformers, kind)
    try:
        if path and not BARE.get():
            check_folder(path, where)
            network = auto.from_pretrained(
                path,
                local_files_only=True,
                use_safetensors=True,
                trust_remote_code=False,
                dtype=torch.float32,
                **named,
            )
            return network, preprocessing(Path(path))
        told = dict(config) if config is not None else json.loads((Path(path) / "config.json").read_text())
        told = {key: value for key, value in told.items() if key not in ("dtype", "torch_dtype")}
        made = transformers.AutoConfig.for_model(told.pop("model_type", ""), **{**told, **named})
        return auto.from_config(made, trust_remote_code=False), {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        # transformers names every network that it knows
        reason = shorten(str(error), 200, placeholder=" ...")
        raise UserError(f"{where}.path is {path!r}, of which no network can be made: {reason}") from error


def check_folder(path: str, where: str) -> None:
    """Weights are numbers: a folder with pickles alone is refused."""
    if not any(Path(path).glob("*.safetensors")):
        raise UserError(
            f"{where}.path is {path!r}; allowed: a folder with config.json and a safetensors file"
        )


def preprocessing(folder: Path) -> Mapping[str, Any]:
    """What a folder says of how pictures are prepared."""
    file = folder / "preprocessor_config.json"
    found: Mapping[str, Any] = json.loads(file.read_text()) if file.is_file() else {}
    return found


def _without_file(weights: str = "", **more: Any) -> dict[str, Any]:  # noqa: ARG001
    return more


@register("encoder", "timm", told=_without_file)
def timm(*, network: str, weights: str = "", side: Side = 224) -> Encoder:
    """A network of timm by its name, up to its pooled features.

    Args:
        network: as timm calls it, such as resnet18.
        weights: the safetensors file with its numbers; nothing is downloaded.
        side: pixels to which pictures are resized.
    """
    package = loaded("timm", 'data.encoder.name = "timm"', "pip install timm")
    with user_error(f"data.encoder.network is {network!r}, which timm does not know"):
        made = package.create_model(network, pretrained=False, num_classes=0)
    load_weights(made, weights)
    told = getattr(made, "pretrained_cfg", {})
    mean, std = tuple(told.get("mean", IMAGENET[0])), tuple(told.get("std", IMAGENET[1]))
    return Encoder(network=made, side=side, channels=3, mean=mean, std=std)


@register("encoder", "torchvision", told=_without_file)
def torchvision(*, network: str, weights: str = "", side: Side = 224) -> Encoder:
    """A network of torchvision by its name, without its last linear layer.

    Args:
        network: as torchvision calls it, such as resnet18.
        weights: the safetensors file with its numbers; nothing is downloaded.
        side: pixels to which pictures are resized.
    """
    package = loaded("torchvision", 'data.encoder.name = "torchvision"', "pip install torchvision")
    with user_error(f"data.encoder.network is {network!r}, which torchvision does not know"):
        made = package.models.get_model(network, weights=None)
    last = [name for name, layer in made.named_modules() if isinstance(layer, nn.Linear)][-1]
    made.set_submodule(last, nn.Identity())
    load_weights(made, weights)
    return Encoder(network=made, side=side, channels=3, mean=IMAGENET[0], std=IMAGENET[1])


def load_weights(network: nn.Module, path: str) -> None:
    """The numbers of a safetensors file; those of a last layer that is left out may be there, too."""
    if BARE.get():
        return
    stored = stored_tensors(path, "data.encoder.weights")
    missing = network.load_state_dict(stored, strict=False).missing_keys
    if missing:
        raise UserError(f"data.encoder.weights is {path!r}, which lacks {missing[0]} of the network")


class OnnxNetwork(nn.Module):
    """The first output of onnxruntime for a picture."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        onnxruntime = loaded("onnxruntime", 'data.encoder.name = "onnx"', "install covey[onnx]")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        with user_error(f"data.encoder.path is {str(file)!r}, which is no ONNX file that can be run"):
            self.session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        self.inside = self.session.get_inputs()[0].name

    def forward(self, x: Tensor) -> Tensor:
        found = self.session.run(None, {self.inside: x.numpy()})[0]
        return torch.from_numpy(np.asarray(found, np.float32)).flatten(1)


def _by_digest(path: str = "", sha256: str = "", **more: Any) -> dict[str, Any]:
    return {"sha256": hashlib.sha256(Path(path).read_bytes()).hexdigest() if path else sha256, **more}


@register("encoder", "onnx", told=_by_digest)
def onnx(
    *, path: str = "", sha256: str = "", side: Side = 224, mean: float = 0.0, std: float = 1.0
) -> Encoder:
    """An ONNX file that takes pictures (N, 3, side, side) and gives features.

    A graph is code, so no site is ever sent one: it looks for the file with that SHA-256 among those that it has
    itself in encoders/ of its cache folder.

    Args:
        path: the file.
        sha256: in place of a path, the digest of a file in the cache folder.
        side: pixels to which pictures are resized.
        mean: by which pixels of 0 to 1 are standardised.
        std: the same.
    """
    folder = weights_folder() / "encoders"
    files = [Path(path)] if path else sorted(folder.glob("*.onnx"))
    for file in files:
        if not file.is_file():
            raise UserError(f"data.encoder.path is {path!r}; allowed: an ONNX file")
        mark = hashlib.sha256(file.read_bytes()).hexdigest()
        if path or mark == sha256:
            return Encoder(network=OnnxNetwork(file), side=side, channels=3, mean=mean, std=std, mark=mark)
    raise UserError(
        f"no ONNX file with SHA-256 {sha256[:12]}... is in {folder}: put it there yourself, it is never sent"
    )
