"""Data of one's own in one call: tensors, torch data sets, Hugging Face data sets."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import TensorDataset

from covey.data import Samples, federate, from_huggingface, from_tensors, from_torch
from covey.errors import UserError


def test_a_pair_of_tensors_is_split_by_label():
    x, y = torch.rand(100, 3), torch.arange(100) % 4
    own = from_tensors(x, y, test_fraction=0.2)
    assert (len(own.train), len(own.test)) == (80, 20)
    assert np.bincount(own.labels()[own.test]).tolist() == [5, 5, 5, 5]
    assert own.classes == ("0", "1", "2", "3")
    assert sorted([*own.train, *own.test]) == list(range(100))


def test_a_test_pair_is_kept_behind_the_training_samples():
    own = from_tensors(torch.zeros(6, 2), torch.zeros(6), test=(torch.ones(4, 2), torch.ones(4)))
    x, y = Samples(own, own.test).tensors()
    assert (x.unique().tolist(), y.unique().tolist(), own.classes) == ([1], [1], ())


def test_tokens_stay_whole_numbers():
    own = from_tensors(torch.randint(100, (50, 12), dtype=torch.int32), torch.arange(50) % 2)
    x, _ = federate(own, partition="iid", clients=2, seed=0).shares[0].train.tensors()
    assert (x.dtype, tuple(x.shape)) == (torch.int64, (20, 12))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            {"y": torch.arange(9) % 2},
            r"training data need as many inputs as labels, not \(10, 3\) and \(9,\)",
        ),
        ({"y": torch.arange(10) - 1}, "labels run from -1 to 8"),
        ({"classes": ["a"]}, "labels run from 0 to 1, but there are 1 classes"),
        ({"y": torch.zeros(10), "classes": ["a", "b"]}, "labels are torch.float32, but with classes"),
        ({"y": torch.zeros(10, 2, dtype=torch.int64)}, "one whole number per sample"),
        ({"test_fraction": 0.0}, "test_fraction is 0.0"),
        (
            {"test": (torch.rand(3, 4), torch.zeros(3, dtype=torch.int64))},
            "test inputs are torch.float32 of shape",
        ),
        ({"natural": {"writer": np.zeros(9, int)}}, r"natural\['writer'\] must be 10 whole numbers"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(arguments, sentence):
    given = {"x": torch.rand(10, 3), "y": torch.arange(10) % 2} | arguments
    with pytest.raises(UserError, match=sentence):
        from_tensors(**given)


def test_a_torch_dataset_is_read_item_by_item():
    x, y = torch.rand(30, 1, 4, 4), torch.arange(30) % 3
    own = from_torch(TensorDataset(x, y), test=TensorDataset(x[:6], y[:6]), classes=["a", "b", "c"])
    assert torch.equal(own.x, torch.cat([x, x[:6]]))
    assert (len(own.train), len(own.test), own.classes) == (30, 6, ("a", "b", "c"))


def test_pictures_in_a_torch_dataset_become_channels_first_bytes():
    pictures = [(Image.new("RGB", (5, 4), (i, 0, 9)), i % 2) for i in range(10)]
    own = from_torch(pictures)
    assert own.x.shape == (10, 3, 4, 5)
    assert own.x.dtype == torch.uint8
    assert own.x[7, :, 0, 0].tolist() == [7, 0, 9]
    gray = from_torch([(Image.new("L", (5, 4), i), i % 2) for i in range(10)])
    assert gray.x.shape == (10, 1, 4, 5)


def test_a_torch_dataset_of_unlike_shapes_or_items_is_refused():
    with pytest.raises(UserError, match="all samples must have one shape, but input has 2"):
        from_torch([(torch.zeros(2), 0), (torch.zeros(3), 1)])
    with pytest.raises(UserError, match=r"\(input, label\) pairs"):
        from_torch([torch.zeros(2), torch.zeros(2)])


@pytest.fixture
def datasets(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return pytest.importorskip("datasets")


def test_hugging_face_images_with_class_names_and_writers(datasets):
    features = datasets.Features(
        image=datasets.Image(),
        label=datasets.ClassLabel(names=["cat", "dog"]),
        writer=datasets.Value("string"),
    )
    rows = {
        "image": [Image.new("RGB", (4, 4), (i, 1, 2)) for i in range(12)],
        "label": [i % 2 for i in range(12)],
        "writer": ["ann" if i < 6 else "bob" for i in range(12)],
    }
    table = datasets.Dataset.from_dict(rows, features=features)
    own = from_huggingface(table, inputs="image", labels="label", groups="writer", test=table.select([0, 11]))
    assert own.x.shape == (14, 3, 4, 4)
    assert own.x[:12, 0, 0, 0].tolist() == list(range(12))
    assert own.classes == ("cat", "dog")
    assert own.natural["writer"].tolist() == [0] * 6 + [1] * 6 + [0, 1]
    fleet = federate(own, partition="natural", clients=2, seed=0)
    assert [len(share.train) for share in fleet.shares] == [6, 6]


def test_hugging_face_tables_with_several_numeric_columns_and_text_labels(datasets):
    table = datasets.Dataset.from_dict(
        {"age": [1, 2, 3, 4], "height": [0.5] * 4, "sort": ["b", "a", "b", "a"]}
    )
    own = from_huggingface(table, inputs=["age", "height"], labels="sort", test_fraction=0.5)
    assert own.x.tolist() == [[1, 0.5], [2, 0.5], [3, 0.5], [4, 0.5]]
    assert (own.y.tolist(), own.classes) == ([1, 0, 1, 0], ("a", "b"))
    with pytest.raises(
        UserError, match="inputs and labels must be numbers, not 'b'; turn text into tokens first"
    ):
        from_huggingface(table, inputs="sort", labels="age")
    with pytest.raises(UserError, match="no column weight: there are age, height, sort"):
        from_huggingface(table, inputs=["age", "weight"], labels="sort")


def test_a_label_that_would_make_a_thousand_million_classes_is_one_sentence():
    y = torch.tensor([0, 1, 10**9])
    with pytest.raises(
        UserError, match="labels run from 0 to 1000000000; allowed: whole numbers below 100,000"
    ):
        from_tensors(torch.rand(3, 2), y)


def test_no_half_of_a_complex_number_is_dropped():
    with pytest.raises(UserError, match=r"inputs are torch.complex64; give real and imaginary parts"):
        from_tensors(torch.rand(4, 2).to(torch.complex64), torch.arange(4) % 2)
