"""Data as people have them go straight into a run: frames, torch and Hugging Face data sets, one per client or not."""

from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

import covey
from covey.data.clients import as_dataset
from covey.data.types import Federation
from covey.errors import UserError
from covey.runs.config import federation_of, resolve
from covey.runs.objects import data_tables, given_data

NAMES = ("Bonn", "Kiel", "Ulm")


def federation(data: Any, **columns: Any) -> Federation:
    """What a run of the data would have."""
    config = resolve({**data_tables(given_data(data, **columns))})
    return federation_of(config)


def pair(place: int, count: int = 20) -> tuple[np.ndarray, np.ndarray]:
    """Inputs whose first value says whose they are."""
    x = np.random.default_rng(place).random((count, 4), dtype=np.float32)
    x[:, 0] = place
    return x, np.arange(count) % 2


def frame(place: int, count: int = 20) -> pd.DataFrame:
    x, y = pair(place, count)
    words = np.where(y == 1, "yes", "no")
    return pd.DataFrame({"owner": x[:, 0] + x[:, 1] / 100, "b": x[:, 1], "c": x[:, 2], "ill": words})


def owners(found: Federation) -> list[set[int]]:
    """Whose samples each client has, training and test."""
    parts = [(share.train, share.test) for share in found.shares]
    x = found.dataset.x.numpy()
    return [{int(v) for part in both for v in x[part.index, 0]} for both in parts]


def kinds() -> dict[str, list[Any]]:
    pairs = [pair(i) for i in range(3)]
    tensors = [(torch.from_numpy(x), torch.from_numpy(y)) for x, y in pairs]
    return {
        "pairs": pairs,
        "tensors": tensors,
        "datasets": [TensorDataset(*one) for one in tensors],
        "loaders": [DataLoader(TensorDataset(*one), batch_size=7) for one in tensors],
    }


@pytest.mark.parametrize("kind", list(kinds()))
def test_a_list_or_dict_of_what_each_client_has(kind: str) -> None:
    parts = kinds()[kind]
    listed, named = federation(parts), federation(dict(zip(NAMES, parts, strict=True)))
    assert owners(listed) == owners(named) == [{0}, {1}, {2}]
    assert (listed.names(), named.names()) == (("0", "1", "2"), NAMES)
    assert named.sizes().tolist() == [[16, 4]] * 3  # a fifth of everybody's samples, by label
    assert all(np.bincount(share.test.labels()).tolist() == [2, 2] for share in named.shares)


class Wrong(Dataset[Any]):
    """A data set whose author made a mistake."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, place: int) -> tuple[Any, int]:
        return self.pictures[place], 0  # type: ignore[attr-defined]


def test_a_mistake_in_somebodys_own_data_set_is_not_said_to_be_of_its_items() -> None:
    with pytest.raises(AttributeError, match="pictures"):
        covey.from_clients([Wrong(), Wrong()])


def test_frames_one_per_client() -> None:
    found = federation([frame(i) for i in range(12)], label="ill")
    assert found.names() == tuple(map(str, range(12)))  # in their order, not "0", "1", "10"
    assert owners(found) == [{i} for i in range(12)]
    assert (found.dataset.classes, found.dataset.features) == (("no", "yes"), ("owner", "b", "c"))


def test_test_data_of_every_client_stay_its_own() -> None:
    parts = {name: {"train": pair(i), "test": pair(i, 6)} for i, name in enumerate(NAMES)}
    found = federation(parts)
    assert owners(found) == [{0}, {1}, {2}]
    assert found.sizes().tolist() == [[20, 6]] * 3
    frames = {name: {"train": frame(i), "test": frame(i, 6)} for i, name in enumerate(NAMES)}
    assert federation(frames, label="ill").sizes().tolist() == [[20, 6]] * 3


def test_test_data_that_are_nobodys_are_the_global_test_set() -> None:
    data = covey.from_clients([pair(i) for i in range(3)], test=pair(9, 10))
    found = federation(data)
    assert len(found.shares) == 3
    assert found.dataset.x[found.test.index, 0].unique().tolist() == [9]
    assert owners(found) == [{0}, {1}, {2}]


def test_a_frame_goes_straight_into_a_run(tmp_path: Any) -> None:
    whole = pd.concat([frame(i).assign(hospital=name) for i, name in enumerate(NAMES)])
    run = covey.run(
        "fedavg", whole, rounds=1, label="ill", client="hospital", out=tmp_path, progress=False, report=False
    )
    assert (run.summary.clients, run.summary.dataset) == (3, "table")


def test_a_torch_dataset_a_loader_and_a_pair_go_straight_into_a_run() -> None:
    x, y = torch.rand(400, 4), torch.arange(400) % 2
    data = TensorDataset(x, y)
    data.classes = ["cat", "dog"]  # type: ignore[attr-defined]  (as torchvision has it)
    for given in (data, DataLoader(data, batch_size=64)):
        assert given_data(given).classes == ("cat", "dog")
    assert len(federation((x, y)).shares) == 20
    assert len(federation((pd.DataFrame(x.numpy()), pd.Series(y.numpy()))).shares) == 20


@pytest.mark.parametrize(
    ("data", "columns", "sentence"),
    [
        (
            frame(0),
            {},
            "nothing says which column is to be predicted .label.; the columns are owner, b, c, ill",
        ),
        (frame(0), {"label": "sick"}, "label is 'sick'; the columns are owner"),
        (
            [pair(0), frame(1)],
            {"label": "ill"},
            "label is 'ill'; the columns|has a tuple|is a tuple|nothing says",
        ),
        (
            [pair(0), (np.zeros((3, 5), np.float32), np.zeros(3, int))],
            {},
            "clients must have inputs of one shape",
        ),
        (
            [pair(0), (np.zeros((3, 4), np.float32), np.zeros(2, int))],
            {},
            "client '1' has 3 inputs and 2 labels",
        ),
        ([], {}, "clients is empty"),
        ([pair(0), 7], {}, "client '1' is a int; allowed: a .x, y. pair"),
        (7, {}, "data is a int; allowed"),
        ({"a": {"test": pair(0)}}, {}, "client 'a' has 'test'; allowed: 'train' and 'test'"),
        ([pair(0)], {"client": "site"}, "split by client already"),
        (pair(0), {"label": "ill"}, "has no columns"),
        ("digits", {"label": "ill"}, "label is 'ill', which is for data that have columns"),
        (
            [frame(0), frame(1).drop(columns="c")],
            {"label": "ill"},
            "client '1': only some clients have the columns c",
        ),
    ],
)
def test_what_is_no_data_is_one_sentence(data: Any, columns: Any, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        federation(data, **columns)


# ------------------------------------------------------------------------------------- Hugging Face and flwr_datasets


def hugging_face(place: int, count: int = 20) -> Any:
    datasets = pytest.importorskip("datasets")
    x, y = pair(place, count)
    features = datasets.Features(
        {"input": datasets.List(datasets.Value("float32")), "label": datasets.ClassLabel(names=["no", "yes"])}
    )
    return datasets.Dataset.from_dict({"input": x.tolist(), "label": y.tolist()}, features=features)


def test_a_hugging_face_dataset_goes_straight_into_a_run() -> None:
    assert len(federation(hugging_face(0, 400)).shares) == 20
    data = given_data(hugging_face(0))
    assert (data.classes, tuple(data.x.shape)) == (("no", "yes"), (20, 4))


def test_a_dataset_dict_is_splits_or_clients() -> None:
    datasets = pytest.importorskip("datasets")
    split = given_data(datasets.DatasetDict(train=hugging_face(0), test=hugging_face(1, 6)))
    assert (len(split.train), len(split.test)) == (20, 6)
    found = federation(datasets.DatasetDict({name: hugging_face(i) for i, name in enumerate(NAMES)}))
    assert (found.names(), owners(found)) == (NAMES, [{0}, {1}, {2}])
    with pytest.warns(UserWarning, match="the splits validation are not used"):
        given_data(datasets.DatasetDict({s: hugging_face(0) for s in ("train", "test", "validation")}))


class Partitioner:
    """As those of flwr_datasets are used."""

    partition_id_to_natural_id: ClassVar[dict[int, str]] = dict(enumerate(NAMES))
    num_partitions = 3

    def load_partition(self, partition_id: int) -> Any:
        return hugging_face(partition_id)


class Federated:
    """As the FederatedDataset of flwr_datasets is used."""

    def __init__(self, splits: dict[str, Any]) -> None:
        self.partitioners = {"train": Partitioner()}
        self.splits = splits

    def load_partition(self, partition_id: int, split: str) -> Any:
        return self.partitioners[split].load_partition(partition_id)

    def load_split(self, split: str) -> Any:
        if split not in self.splits:
            raise ValueError(f"The given split: '{split}' is not present")
        return self.splits[split]


def test_a_federated_dataset_and_its_partitioners() -> None:
    for data in (Partitioner(), Federated({})):
        found = federation(data)
        assert (found.names(), owners(found)) == (NAMES, [{0}, {1}, {2}])
    found = federation(Federated({"test": hugging_face(9, 10)}))
    assert len(found.test) == 10
    assert owners(found) == [{0}, {1}, {2}]


def test_the_real_partitioners_of_flwr_datasets() -> None:
    real = pytest.importorskip("flwr_datasets.partitioner")
    whole = hugging_face(0, 60)
    for partitioner in (
        real.IidPartitioner(num_partitions=4),
        real.DirichletPartitioner(num_partitions=4, partition_by="label", alpha=5.0, min_partition_size=2),
    ):
        partitioner.dataset = whole
        found = federation(partitioner)
        assert len(found.shares) == 4
        assert found.sizes().sum() == 60


def test_what_only_looks_like_it_is_refused() -> None:
    with pytest.raises(UserError, match="data is a SimpleNamespace"):
        federation(SimpleNamespace(a=1))


def test_batches_may_have_names_as_hugging_faces_have() -> None:
    x, y = torch.rand(10, 3), torch.arange(10) % 2
    rows = [{"img": a, "label": b} for a, b in zip(x, y, strict=True)]
    found = as_dataset(DataLoader(rows, batch_size=4))  # type: ignore[arg-type]
    assert torch.equal(found.x, x)
    assert torch.equal(found.y, y)
    three = [{"a": a, "b": a, "label": b} for a, b in zip(x, y, strict=True)]
    with pytest.raises(UserError, match="batches have a, b, label"):
        as_dataset(DataLoader(three, batch_size=4))  # type: ignore[arg-type]
