"""The data sets as they come: the real files where they are, small made-up ones in the same layouts."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits

from covey.data import Samples, federate, load
from covey.data.loaders.pacs import pacs, smaller
from covey.errors import UserError
from covey.settings.catalogue import DATASETS


def test_digits_are_the_scikit_learn_images_scaled_to_0_1_and_split_by_label():
    digits = load("digits", scaling="unit")
    x, y = Samples(digits, np.arange(1797)).tensors()
    bunch = load_digits()
    np.testing.assert_allclose(x[:, 0].numpy(), bunch.images / 16, atol=0.002)
    assert y.tolist() == bunch.target.tolist()
    assert (len(digits.train), len(digits.test)) == (1438, 359)
    counts = np.bincount(digits.labels()[digits.test])
    assert np.abs(counts - np.bincount(bunch.target) * 0.2).max() <= 1


def test_every_loader_says_in_a_paragraph_what_it_loads():
    for loader in DATASETS.values():
        first, _, rest = loader.__doc__.partition("\n\n")
        assert first.endswith(".")
        assert "\n" not in first
        assert rest.strip()


def write_colour(folder, *, coarse=False):
    rng = np.random.default_rng(0)
    for name, count in (("train", 20), ("test", 8)):
        arrays = {"x": rng.integers(256, size=(count, 32, 32, 3), dtype=np.uint8), "y": np.arange(count) % 4}
        arrays["classes"] = np.array(list("abcd"))
        if coarse:
            arrays |= {"y_coarse": np.arange(count) % 4 // 2, "coarse_classes": np.array(["low", "high"])}
        np.savez_compressed(folder / f"{name}.npz", **arrays)


def test_colour_images_become_channels_first(tmp_path):
    write_colour(tmp_path)
    data = load("cifar10", folder=tmp_path)
    stored = np.load(tmp_path / "test.npz")["x"]
    assert data.x.shape == (28, 3, 32, 32)
    assert data.x.is_contiguous()
    assert data.x[20 + 5, 2, 7, 9] == stored[5, 7, 9, 2]
    assert data.classes == tuple("abcd")


def test_cifar100_has_fine_and_coarse_labels(tmp_path):
    write_colour(tmp_path, coarse=True)
    assert load("cifar100", folder=tmp_path).y[:4].tolist() == [0, 1, 2, 3]
    coarse = load("cifar100", folder=tmp_path, level="coarse")
    assert (coarse.y[:4].tolist(), coarse.classes) == ([0, 0, 1, 1], ("low", "high"))
    with pytest.raises(UserError, match=r"data.level is 'rough'; allowed: fine, coarse"):
        load("cifar100", folder=tmp_path, level="rough")


def test_scaling_is_unit_half_or_by_mean_and_deviation(tmp_path):
    write_colour(tmp_path)
    pixels = np.load(tmp_path / "train.npz")["x"].transpose(0, 3, 1, 2) / 255

    def loaded(name, scaling):
        data = load(name, folder=tmp_path, scaling=scaling)
        return Samples(data, data.train).tensors()[0].numpy()

    np.testing.assert_allclose(loaded("svhn", "unit"), pixels, atol=1e-6)
    np.testing.assert_allclose(loaded("svhn", "half"), pixels * 2 - 1, atol=1e-6)
    standard = loaded("svhn", "standard")
    np.testing.assert_allclose(standard.mean(axis=(0, 2, 3)), 0, atol=1e-5)
    np.testing.assert_allclose(standard.std(axis=(0, 2, 3)), 1, atol=1e-5)
    usual = (pixels[:, 1] - 0.4822) / 0.1994
    np.testing.assert_allclose(loaded("cifar10", "standard")[:, 1], usual, atol=1e-5)
    with pytest.raises(UserError, match=r"data.scaling is 'best'; allowed: unit, half, standard"):
        load("svhn", folder=tmp_path, scaling="best")


def write_leaf(folder):
    """Two writers; the second appears in both splits, each split is two files."""
    users = {
        "train/a": {"f01": [1, 61]},
        "train/b": {"f02": [10]},
        "test/a": {"f02": [36]},
        "test/b": {"f01": [1]},
    }
    for file, data in users.items():
        (folder / file).parent.mkdir(exist_ok=True)
        content = {
            "users": list(data),
            "num_samples": [len(y) for y in data.values()],
            "user_data": {u: {"x": [[label / 255] * 784 for label in y], "y": y} for u, y in data.items()},
        }
        (folder / f"{file}.json").write_text(json.dumps(content))


def test_femnist_is_read_from_leaf_json(tmp_path):
    write_leaf(tmp_path)
    data = load("femnist", folder=tmp_path)
    assert data.x.shape == (5, 1, 28, 28)
    assert data.x[:, 0, 3, 3].tolist() == data.y.tolist() == [1, 61, 10, 36, 1]
    assert data.natural["writer"].tolist() == [0, 0, 1, 1, 0]
    assert (data.train.tolist(), data.test.tolist()) == ([0, 1, 2], [3, 4])
    assert (data.classes[10], data.classes[36], len(data.classes)) == ("A", "a", 62)


def test_femnist_can_keep_the_first_labels_only(tmp_path):
    write_leaf(tmp_path)
    data = load("femnist", folder=tmp_path, first_labels=20)
    assert (data.y.tolist(), len(data.classes)) == ([1, 10, 1], 20)
    assert data.natural["writer"].tolist() == [0, 1, 0]
    with pytest.raises(UserError, match="first_labels is 63; allowed: a whole number from 1 to 62"):
        load("femnist", folder=tmp_path, first_labels=63)


@pytest.mark.parametrize(
    "content",
    ["{", "[]", '{"users": ["a"]}', '{"users": ["a"], "user_data": {"a": {"x": [[1, 2]], "y": [0]}}}'],
)
def test_a_broken_leaf_file_is_refused(tmp_path, content):
    write_leaf(tmp_path)
    (tmp_path / "train" / "b.json").write_text(content)
    with pytest.raises(UserError, match=r"b.json is not a LEAF file of 28x28 images"):
        load("femnist", folder=tmp_path)


def test_stored_pacs_pictures_are_averaged_down_to_the_side_that_is_asked_for():
    picture = torch.zeros(1, 1, 16, 16, dtype=torch.uint8)
    picture[..., :2, :2] = torch.tensor([[100, 50], [30, 20]], dtype=torch.uint8)
    small = smaller(picture, 8)
    assert small.shape == (1, 1, 8, 8)
    assert (int(small[0, 0, 0, 0]), int(small.long().sum())) == (50, 50)
    assert smaller(picture, 64) is picture
    with pytest.raises(UserError, match=r"data\.side is 4; allowed: a whole number from 8 to 512"):
        pacs(side=4)


def write_pacs(folder):
    for domain, red in (("photo", 250), ("art_painting", 180), ("cartoon", 120), ("sketch", 60)):
        for kind in ("dog", "horse"):
            place = folder / domain / kind
            place.mkdir(parents=True)
            for number in range(5):
                Image.new("RGB", (40, 30), (red, 0, 0)).save(place / f"{number}.png")


def test_pacs_is_read_from_a_folder_for_each_domain_and_class(tmp_path):
    write_pacs(tmp_path)
    data = load("pacs", folder=tmp_path, side=16)
    assert data.x.shape == (40, 3, 16, 16)
    assert data.classes == ("dog", "horse")
    red = data.x[:, 0, 0, 0].numpy()
    assert [set(red[data.natural["domain"] == d]) for d in range(4)] == [{250}, {180}, {120}, {60}]
    assert len(data.test) == 8
    assert len({(data.natural["domain"][i], int(data.y[i])) for i in data.test}) == 8
    (tmp_path / "photo" / "dog" / "0.png").write_bytes(b"no picture")
    with pytest.raises(UserError, match=r"0.png is not a readable image"):
        load("pacs", folder=tmp_path)


# ---------------------------------------------------------------------------------------------- the real files


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "folder", "shape", "train", "classes"),
    [
        ("mnist", "mnist", (70000, 1, 28, 28), 60000, 10),
        ("fashion-mnist", "fashion_mnist", (70000, 1, 28, 28), 60000, 10),
        ("cifar10", "cifar10", (24000, 3, 32, 32), 20000, 10),
        ("cifar100", "cifar100", (5500, 3, 32, 32), 4500, 100),
        ("svhn", "svhn", (6000, 3, 32, 32), 5000, 10),
        ("femnist", "femnist", (53887, 1, 28, 28), 48501, 62),
        ("pacs", "pacs", (5002, 3, 64, 64), 4002, 7),
    ],
)
def test_the_real_files_have_their_documented_sizes(data_folder, name, folder, shape, train, classes):
    data = load(name, folder=data_folder / folder)
    assert tuple(data.x.shape) == shape
    assert (len(data.train), len(data.test)) == (train, shape[0] - train)
    assert len(data.classes) == classes
    assert data.x.dtype == torch.uint8
    assert set(np.unique(data.labels())) == set(range(classes))


@pytest.mark.data
def test_mnist_by_writer(data_folder):
    mnist = load("mnist", folder=data_folder / "mnist")
    counts = np.bincount(mnist.labels()[mnist.train])
    assert counts.tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    fleet = federate(mnist, partition="natural", clients=539, seed=0)
    sizes = [len(share.train) + len(share.test) for share in fleet.shares]
    assert (min(sizes), max(sizes), np.median(sizes)) == (19, 131, 116)
    with pytest.raises(UserError, match="there are only 539 natural groups"):
        federate(mnist, partition="natural", clients=540, seed=0)


@pytest.mark.data
def test_femnist_writers_are_tested_on_leafs_own_test_images(data_folder):
    femnist = load("femnist", folder=data_folder / "femnist")
    fleet = federate(femnist, partition="natural", clients=300, seed=0)
    sizes = [len(share.train) + len(share.test) for share in fleet.shares]
    assert (min(sizes), max(sizes), np.median(sizes)) == (149, 364, 171.5)
    assert femnist.x.float().mean() > 200  # white paper


@pytest.mark.data
def test_pacs_domains_have_their_documented_sizes(data_folder):
    pacs = load("pacs", folder=data_folder / "pacs")
    assert np.bincount(pacs.natural["domain"]).tolist() == [836, 1027, 1174, 1965]
    fleet = federate(pacs, partition="domain", clients=40, seed=0)
    assert [share.cluster for share in fleet.shares] == [i // 10 for i in range(40)]
    assert all(len(share.test) >= 1 for share in fleet.shares)
