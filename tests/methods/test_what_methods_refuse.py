"""Every method takes a model with buffers, a regression and more than ten classes, or says in one sentence why not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from covey.data import Dataset, from_tensors
from covey.errors import UserError
from covey.runs.config import resolve
from covey.runs.run import run_config
from covey.settings.catalogue import METHODS

SMALL = {"rounds": 1, "train": {"epochs": 1}, "measure": {"local_test": False}}
SETTINGS: dict[str, dict[str, Any]] = {
    "a model with buffers": {
        **SMALL,
        "data": {"name": "digits", "clients": 4},
        "model": {"name": "tests.methods.test_what_methods_refuse:with_buffers"},
    },
    "a regression": {
        **SMALL,
        "data": {"name": "diabetes"},
        "model": {"name": "mlp", "hidden": [8]},
        "objective": "regression",
    },
    "twelve classes": {
        **SMALL,
        "data": {"name": "tests.methods.test_what_methods_refuse:twelve", "clients": 4},
        "model": {"name": "mlp", "hidden": [8]},
    },
}


def twelve() -> Dataset:
    """Small pictures of twelve classes, 20 of each: no method may count on ten."""
    y = torch.arange(240) % 12
    x = torch.rand(240, 1, 8, 8, generator=torch.Generator().manual_seed(0)) + y.view(-1, 1, 1, 1) / 12
    return from_tensors(x, y, test_fraction=0.25)


def with_buffers(*, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
    """A small network with BatchNorm, whose statistics are no parameters."""
    size = input_shape[1] - 2
    layers = [nn.Conv2d(input_shape[0], 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(4 * size * size, outputs))


# What cannot be done, and the words that say so.
NO_CLASSES, BY_LABEL, BY_ACCURACY = "no classes", "by label needs data with classes", "accuracy"
TREES = dict.fromkeys(("boosting", "boosting-personal", "bagging"), "grows a model of its own")
REFUSED: dict[str, dict[str, str]] = {
    "a model with buffers": {
        **TREES,
        "krum": "Krum needs 5 clients in a round",
    },  # of the four that there are
    "a regression": {
        **TREES,
        **dict.fromkeys(("hierarchical", "semi-decentralized", "cfic", "feddisco", "fedrc"), NO_CLASSES),
        **dict.fromkeys(("haccs", "flips", "cbcc", "cbcc-select"), BY_LABEL),
        **dict.fromkeys(("fedfa", "cafa", "abfa"), BY_ACCURACY),
        **dict.fromkeys(("fedproto", "fedpac"), "prototypes are of classes"),
        "ladd": "one of pictures",
    },
    "twelve classes": {**TREES, "krum": "Krum needs 5 clients in a round"},
}


def outcome(setting: str, method: str, folder: Path) -> str:
    """The sentence that refuses it, or nothing."""
    try:
        run_config(
            resolve({**SETTINGS[setting], "method": {"name": method}}),
            folder,
            report=False,
            say=lambda _: None,
        )
    except UserError as error:
        return str(error)
    return ""


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("method", METHODS)
def test_it_runs_or_one_sentence_says_why_not(method: str, setting: str, tmp_path: Path) -> None:
    said = outcome(setting, method, tmp_path / "run")
    assert "\n" not in said
    assert bool(said) == (method in REFUSED[setting]), said
    assert REFUSED[setting].get(method, "") in said
