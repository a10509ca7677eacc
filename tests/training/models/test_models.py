"""Every architecture of the five papers: its size by the facts, the shapes it takes, what it refuses."""

from math import prod

import pytest
import torch
from torch import fx, nn

from covey.errors import UserError
from covey.training.models import MODELS, build

GRAY, COLOUR, LARGE, DIGITS, SERIES = (1, 28, 28), (3, 32, 32), (3, 64, 64), (1, 8, 8), (6, 25)


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("name", "shape", "outputs", "expected"),
    [
        ("softmax", GRAY, 10, 784 * 10 + 10),
        ("mlp", DIGITS, 10, 64 * 64 + 64 + 64 * 10 + 10),
        ("tabular", (30,), 2, (30 * 2 + 2) + (30 * 32 + 32) + (32 * 2 + 2)),
        ("trees", DIGITS, 10, 60 * 10 * 8),  # the leaves; splits are grown
        ("lenet5", GRAY, 10, 61_706),
        ("lenet5", COLOUR, 10, 62_006),
        ("lenet-tanh", GRAY, 10, 85_822),
        ("lenet-tanh", GRAY, 62, 90_242),
        ("cnn-mnist", GRAY, 10, 1_663_370),
        ("cnn-mnist-small", GRAY, 10, 21_840),
        (
            "vit",
            GRAY,
            10,
            (16 * 64 + 64)
            + 49 * 64
            + 4 * (4 * 64 * 65 + 2 * 128 + (64 * 256 + 256) + (256 * 64 + 64))
            + 128
            + 650,
        ),
        ("cnn-series", SERIES, 4, (6 * 16 * 5 + 16) + (16 * 32 * 3 + 32) + (32 * 4 + 4)),
        ("cnn-fashion", GRAY, 10, (25 * 16 + 16) + 32 + (16 * 25 * 32 + 32) + 64 + 1568 * 10 + 10),
        (
            "cnn-cifar",
            COLOUR,
            10,
            (75 * 64 + 64) + (1600 * 64 + 64) + (1600 * 384 + 384) + (384 * 192 + 192) + 1930,
        ),
        (
            "cnn-emnist",
            GRAY,
            62,
            (25 * 32 + 32) + (800 * 32 + 32) + (800 * 64 + 64) + (576 * 256 + 256) + 257 * 62,
        ),
        ("cnn-femnist", GRAY, 62, (25 * 32 + 32) + (800 * 64 + 64) + (1024 * 2048 + 2048) + 2049 * 62),
        ("vgg11", COLOUR, 10, 9_756_426),
        ("vgg19", COLOUR, 10, 20_565_834),
        ("resnet18", COLOUR, 10, 11_181_642),
        ("ae-fc", GRAY, 10, 81_304),
        ("ae-conv", COLOUR, 10, 47_601),
    ],
)
def test_a_model_has_the_papers_number_of_parameters(
    name: str, shape: tuple[int, ...], outputs: int, expected: int
) -> None:
    model = build(name, input_shape=shape, outputs=outputs)
    assert parameters(model) == expected
    model.eval()
    out = model(torch.rand(2, *shape))
    assert out.shape == ((2, *shape) if name.startswith("ae-") else (2, outputs))


def test_the_docstrings_state_the_tested_sizes() -> None:
    for name, size in {"cnn-cifar": "797,962", "cnn-emnist": "241,374", "cnn-femnist": "2,278,334"}.items():
        shape, outputs = (COLOUR, 10) if name == "cnn-cifar" else (GRAY, 62)
        assert f"{parameters(build(name, input_shape=shape, outputs=outputs)):,}" == size
        assert size in (MODELS[name].__doc__ or "")


def test_resnet18_with_the_cifar_stem_keeps_small_pictures_large() -> None:
    model = build("resnet18", input_shape=COLOUR, outputs=10, stem="cifar")
    assert parameters(model) == 11_173_962
    assert model[:3](torch.rand(1, *COLOUR)).shape == (1, 64, 32, 32)


def test_a_narrow_resnet_has_every_layer_narrower() -> None:
    """1/8: channels 8, 16, 32, 64, worked out stage by stage: convolutions, shortcut, norms; then the classifier."""
    stem = 147 * 8 + 2 * 8
    stages = [4 * 72 * 8 + 4 * 16, 72 * 16 + 3 * 144 * 16 + 8 * 16 + 5 * 32]
    stages += [144 * 32 + 3 * 288 * 32 + 16 * 32 + 5 * 64, 288 * 64 + 3 * 576 * 64 + 32 * 64 + 5 * 128]
    model = build("resnet18", input_shape=COLOUR, outputs=10, width=0.125)
    assert parameters(model) == stem + sum(stages) + 65 * 10 == 177_362


def test_a_narrow_vgg_has_every_layer_narrower() -> None:
    """1/8: channels 8, 16, 32, 32, 64, 64, 64, 64 and classifier 64-64-64-10, worked out layer by layer."""
    convolutions = (27 * 8 + 8) + (72 * 16 + 16) + (144 * 32 + 32) + (288 * 32 + 32) + (288 * 64 + 64)
    convolutions += 3 * (576 * 64 + 64)
    norms, classifier = 2 * (8 + 16 + 32 + 32 + 4 * 64), 2 * (64 * 64 + 64) + 65 * 10
    model = build("vgg11", input_shape=COLOUR, outputs=10, width=0.125)
    assert parameters(model) == convolutions + norms + classifier == 154_218
    with pytest.raises(UserError, match=r"model\.width is 0"):
        build("vgg19", input_shape=COLOUR, outputs=10, width=0.0)


@pytest.mark.parametrize(
    "name", sorted({*MODELS} - {"huggingface"})
)  # which needs a folder: test_huggingface.py
def test_an_accelerator_can_trace_every_model(name: str) -> None:
    shape: tuple[int, ...] = (
        COLOUR if name in {"vgg11", "vgg19", "resnet18", "ae-conv", "cnn-cifar"} else GRAY
    )
    shape = SERIES if name in {"cnn-series", "lstm", "tcn", "decoder"} else shape
    traced = fx.symbolic_trace(build(name, input_shape=shape, outputs=10).eval())
    assert traced(torch.rand(1, *shape)).isfinite().all()


@pytest.mark.parametrize(
    ("name", "shape", "code"), [("ae-fc", GRAY, 20), ("ae-conv", COLOUR, 768), ("ae-conv", LARGE, 3072)]
)
def test_an_autoencoder_splits_into_encoder_and_decoder(name: str, shape: tuple[int, ...], code: int) -> None:
    model = build(name, input_shape=shape, outputs=1).eval()
    x = torch.rand(3, *shape)
    codes = model.encoder(x)
    assert prod(codes.shape[1:]) == code
    back = model.decoder(codes)
    assert torch.equal(back, model(x))
    assert back.min() >= 0
    assert back.max() <= 1


def test_the_attack_study_uses_other_autoencoders() -> None:
    assert parameters(build("ae-fc", input_shape=GRAY, outputs=1, widths=[100, 50])) == (
        784 * 100 + 100 + 100 * 50 + 50 + 50 * 100 + 100 + 100 * 784 + 784
    )
    plain = build("ae-conv", input_shape=COLOUR, outputs=1, batch_norm=False)
    assert parameters(plain) == 47_601 - 2 * (12 + 24 + 48 + 24 + 12 + 3)
    assert not any(isinstance(layer, nn.BatchNorm2d) for layer in plain.modules())


def test_the_first_weights_depend_on_the_seed_only() -> None:
    first = build("lenet5", input_shape=GRAY, outputs=10, seed=3)
    torch.rand(7)
    state = torch.get_rng_state()
    again = build("lenet5", input_shape=GRAY, outputs=10, seed=3)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    other = build("lenet5", input_shape=GRAY, outputs=10, seed=4)
    assert not torch.equal(first[0].weight, other[0].weight)


def test_softmax_regression_starts_without_bias() -> None:
    assert not build("softmax", input_shape=GRAY, outputs=10)[1].bias.any()


def test_the_layers_follow_the_picture_size() -> None:
    assert build("lenet5", input_shape=LARGE, outputs=7)(torch.rand(2, *LARGE)).shape == (2, 7)
    assert build("mlp", input_shape=(30,), outputs=2, hidden=[200])(torch.rand(2, 30)).shape == (2, 2)


@pytest.mark.parametrize(
    ("name", "shape", "words"),
    [
        ("lenet5", DIGITS, r"'lenet5' needs pictures .* at least 12 x 12; input shape is 1 x 8 x 8"),
        ("vgg11", GRAY, r"at least 32 x 32"),
        ("resnet18", (64,), r"has 1 dimensions, not 3"),
        ("ae-conv", GRAY, r"sides divisible by 8"),
        ("mlp", (0, 8), r"input_shape is \(0, 8\); allowed: sizes of at least 1"),
        ("lenet", GRAY, r"did you mean lenet5"),
    ],
)
def test_a_wrong_shape_or_name_is_one_clear_sentence(name: str, shape: tuple[int, ...], words: str) -> None:
    with pytest.raises(UserError, match=words):
        build(name, input_shape=shape, outputs=10)


def test_an_unknown_setting_names_those_that_exist() -> None:
    with pytest.raises(UserError, match=r"no setting 'width' \(its settings: hidden\)"):
        build("mlp", input_shape=DIGITS, outputs=10, width=3)
    with pytest.raises(UserError, match=r"model\.stem is 'x'; allowed: imagenet, cifar"):
        build("resnet18", input_shape=COLOUR, outputs=10, stem="x")
    with pytest.raises(UserError, match="outputs is 0"):
        build("mlp", input_shape=DIGITS, outputs=0)
