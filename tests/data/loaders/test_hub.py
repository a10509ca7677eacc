"""Data sets of the Hub by name, here from folders that `datasets` reads in the same way."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import covey
from covey.data.loading import load
from covey.errors import UserError

datasets = pytest.importorskip("datasets")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def stored(folder: Path, columns: dict, features: dict, test: int = 0) -> str:
    whole = datasets.Dataset.from_dict(columns, features=datasets.Features(features))
    count = len(whole)
    parts = {"train": whole.select(range(count - test))}
    if test:
        parts["test"] = whole.select(range(count - test, count))
    datasets.DatasetDict(parts).save_to_disk(str(folder))
    return str(folder)


def pictures(count: int) -> list[np.ndarray]:
    sizes = [(9, 12), (16, 16)]
    return [np.full((*sizes[n % 2], 3), n % 256, dtype=np.uint8) for n in range(count)]


def test_pictures_of_any_size_with_clients(tmp_path: Path) -> None:
    count = 40
    columns = {
        "picture": pictures(count),
        "kind": [n % 2 for n in range(count)],
        "who": [f"writer {n % 4}" for n in range(count)],
    }
    kinds = {
        "picture": datasets.Image(),
        "kind": datasets.ClassLabel(names=["cat", "dog"]),
        "who": datasets.Value("string"),
    }
    path = stored(tmp_path / "animals", columns, kinds, test=8)
    data = load("huggingface", path=path, client="who", side=8, scaling="unit")
    assert data.x.shape == (count, 3, 8, 8)
    assert (data.name, data.classes, len(data.test)) == ("animals", ("cat", "dog"), 8)
    assert data.x[5].unique().tolist() == [5]
    assert data.group_names["who"] == tuple(f"writer {n}" for n in range(4))


def test_texts_become_bags_of_words(tmp_path: Path) -> None:
    texts = [f"the {'good' if n % 2 else 'bad'} film number {n}" for n in range(60)]
    path = stored(
        tmp_path / "films",
        {"text": texts, "label": [n % 2 for n in range(60)]},
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["neg", "pos"])},
    )
    data = load("huggingface", path=path, features=64)
    assert data.x.shape == (60, 64)
    assert data.x.norm(dim=1).numpy() == pytest.approx(1.0, abs=1e-6)


def test_a_table_is_read_as_any_other(tmp_path: Path) -> None:
    rows = range(80)
    path = stored(
        tmp_path / "patients",
        {
            "age": [20 + n for n in rows],
            "sex": ["fm"[n % 2] for n in rows],
            "ill": [["no", "yes"][n % 3 == 0] for n in rows],
            "site": ["abcd"[n % 4] for n in rows],
        },
        {"age": datasets.Value("int64"), **{k: datasets.Value("string") for k in ("sex", "ill", "site")}},
    )
    data = load("huggingface", path=path, label="ill", client="site")
    assert data.schema is not None
    assert data.classes == ("no", "yes")


def test_a_run_by_name_has_the_clients_of_the_column(tmp_path: Path) -> None:
    path = stored(
        tmp_path / "letters",
        {"text": ["a b", "c d"] * 30, "label": [0, 1] * 30, "who": [f"p{n % 3}" for n in range(60)]},
        {
            "text": datasets.Value("string"),
            "label": datasets.ClassLabel(names=["x", "y"]),
            "who": datasets.Value("string"),
        },
    )
    data = {"name": "huggingface", "path": path, "client": "who", "text": "text"}
    done = covey.run("fedavg", data, rounds=2, out=tmp_path / "run", progress=False)
    assert done.config["data"]["clients"] == 3
    assert done.config["partition"]["name"] == "natural"


def test_a_parquet_folder_is_a_data_set_as_on_the_hub(tmp_path: Path) -> None:
    whole = datasets.Dataset.from_dict({"text": ["good", "bad"] * 20, "label": [1, 0] * 20})
    (tmp_path / "hub").mkdir()
    whole.to_parquet(str(tmp_path / "hub" / "train.parquet"))
    data = load("huggingface", path=str(tmp_path / "hub"), label="label")
    assert len(data.x) == 40


def test_what_cannot_be_loaded_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"data.path is 'there/is-none', which datasets cannot load"):
        load("huggingface", path="there/is-none")
