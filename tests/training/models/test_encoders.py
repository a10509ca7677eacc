"""Encoders: cut out, run with any weights, saved and loaded, whatever standardisation the data have."""

from pathlib import Path

import pytest
import torch

from covey.data.types import Scale
from covey.errors import UserError
from covey.training.models.encoders import (
    Pictures,
    as_numbers,
    autoencoder,
    encoded_rows,
    encoder,
    load_encoder,
    save_encoder,
    suited,
    token_vectors,
)
from covey.training.models.sequences import PAD
from covey.training.rows import read_row


@pytest.mark.parametrize(
    ("shape", "name"),
    [((1, 28, 28), "ae-fc"), ((3, 32, 32), "ae-conv"), ((3, 30, 30), "ae-fc"), ((64,), "ae-fc")],
)
def test_colour_pictures_get_convolutions(shape: tuple[int, ...], name: str) -> None:
    assert suited(shape) == name


@pytest.mark.parametrize(("shape", "name"), [((1, 28, 28), "ae-fc"), ((3, 32, 32), "ae-conv")])
def test_a_row_of_weights_encodes_as_its_module_does(shape: tuple[int, ...], name: str) -> None:
    model = autoencoder("auto", shape, seed=3).eval()
    x = torch.rand(7, *shape)
    codes = encoded_rows(read_row(encoder(model)), x, name, None)
    assert torch.equal(codes, model.encoder(x).flatten(1))


def test_the_same_pictures_have_the_same_codes_under_any_standardisation() -> None:
    scale = Scale((0.4, 0.5, 0.6), (0.2, 0.3, 0.25))
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in scale)
    x = torch.rand(4, 3, 32, 32)
    row = read_row(encoder(autoencoder("ae-conv", (3, 32, 32))))
    standard = encoded_rows(row, (x - mean) / std, "ae-conv", scale)
    torch.testing.assert_close(standard, encoded_rows(row, x, "ae-conv", None), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(Pictures(scale).target((x - mean) / std, x), x)


def test_a_saved_encoder_says_what_it_is(tmp_path: Path) -> None:
    row = read_row(encoder(autoencoder("ae-fc", (1, 8, 8), seed=1)))
    save_encoder(tmp_path / "e.safetensors", row, name="ae-fc", shape=(1, 8, 8))
    again, name, shape = load_encoder(tmp_path / "e.safetensors")
    assert torch.equal(again, row)
    assert (name, shape) == ("ae-fc", (1, 8, 8))
    assert [file.name for file in tmp_path.iterdir()] == ["e.safetensors"]


def test_a_place_that_cannot_be_written_is_one_clear_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "e.safetensors").mkdir()
    with pytest.raises(UserError, match="cannot be written"):
        save_encoder(tmp_path / "e.safetensors", torch.zeros(3), name="ae-fc", shape=(1, 8, 8))
    assert [path.name for path in tmp_path.iterdir()] == ["e.safetensors"]


def test_what_does_not_fit_is_one_clear_sentence(tmp_path: Path) -> None:
    row = read_row(encoder(autoencoder("ae-fc", (1, 8, 8))))
    with pytest.raises(UserError, match="encoder has 4270 values; 'ae-fc' on inputs of shape"):
        encoded_rows(row, torch.rand(2, 1, 28, 28), "ae-fc", None)
    with pytest.raises(UserError, match="'mlp' has no encoder"):
        autoencoder("mlp", (1, 8, 8))
    with pytest.raises(UserError, match="cannot be read"):
        load_encoder(tmp_path / "nowhere.safetensors")
    from safetensors.torch import save_file

    save_file({"row": row}, tmp_path / "other.safetensors")
    with pytest.raises(UserError, match="not an encoder that covey saved"):
        load_encoder(tmp_path / "other.safetensors")


def test_tokens_are_compared_by_what_they_are_and_not_by_their_numbers() -> None:
    a, b = token_vectors(3)[5], token_vectors(3)[4]
    text = torch.tensor([[5, 5, 4], [5, 4, PAD], [PAD, PAD, PAD], [4101, 5, 4]])
    assert torch.allclose(
        as_numbers(text), torch.stack([(2 * a + b) / 3**0.5, (a + b) / 2**0.5, 0 * a, (2 * a + b) / 3**0.5])
    )
    numbers = torch.rand(2, 3)
    assert as_numbers(numbers) is numbers
