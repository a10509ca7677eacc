"""Whoever says who the clients are gets these clients."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import covey
from covey.data.types import Dataset
from covey.errors import UserError
from covey.runs.config import federation_of, fleet_of, resolve
from covey.runs.objects import data_tables


def clients_of(data: Any, **tables: Any) -> tuple[str, int, tuple[str, ...]]:
    """The partition, the number of clients and their names of a run on the data."""
    config = resolve({**data_tables(data), **tables})
    return config["partition"]["name"], config["data"]["clients"], federation_of(config).names()


def six_sites(**settings: Any) -> Dataset:
    sites = [f"site {number % 6}" for number in range(120)]
    x, y = torch.rand(120, 3, generator=torch.Generator().manual_seed(0)), torch.arange(120) % 2
    return covey.from_tensors(x, y, natural={"site": sites}, **settings)


SITES = tuple(f"site {number}" for number in range(6))


def test_a_grouping_of_tensors_is_the_clients() -> None:
    assert clients_of(six_sites()) == ("natural", 6, SITES)
    assert clients_of(six_sites(), partition={"name": "natural"}) == ("natural", 6, SITES)


def test_another_partition_may_still_be_asked_for() -> None:
    name, _, names = clients_of(six_sites(), partition={"name": "iid"})
    assert (name, names) == ("iid", ())


def test_a_groups_column_of_hugging_face_is_the_clients() -> None:
    datasets = pytest.importorskip("datasets")
    rows = {
        "a": np.arange(60.0),
        "label": [i % 2 for i in range(60)],
        "site": [f"site {i % 6}" for i in range(60)],
    }
    data = covey.from_huggingface(
        datasets.Dataset.from_dict(rows), inputs=["a"], labels="label", groups="site"
    )
    assert clients_of(data) == ("natural", 6, SITES)


def test_folders_of_images_by_client_are_the_clients(tmp_path: Path) -> None:
    for owner in ("Ann", "Ben", "Cleo"):
        for label in ("cat", "dog"):
            (tmp_path / owner / label).mkdir(parents=True)
            for place in range(3):
                Image.new("RGB", (4, 4), (place, 0, 0)).save(tmp_path / owner / label / f"{place}.png")
    data = covey.read_images(tmp_path, clients=True, side=4)
    assert clients_of(data) == ("natural", 3, ("Ann", "Ben", "Cleo"))


def test_a_loader_of_ones_own_says_it_too(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import covey, torch\n"
        "def load(*, sites: int = 4):\n"
        "    ids = [f'ward {i % sites}' for i in range(80)]\n"
        "    return covey.from_tensors(torch.rand(80, 2), torch.arange(80) % 2, natural={'ward': ids})\n"
    )
    config = resolve({"data": {"name": f"{tmp_path}/mine.py:load", "sites": 5}})
    assert (config["partition"]["name"], config["data"]["clients"]) == ("natural", 5)


def test_of_several_groupings_one_must_be_named() -> None:
    ids = {"writer": np.arange(40) % 4, "room": np.arange(40) % 2}
    pair = torch.rand(40, 2), torch.arange(40) % 2
    with pytest.raises(UserError, match="has the groupings room, writer, and nothing says which"):
        clients_of(covey.from_tensors(*pair, natural=ids))
    assert clients_of(covey.from_tensors(*pair, natural=ids, client="room"))[1] == 2
    assert clients_of(covey.from_tensors(*pair, natural=ids), partition={"name": "iid"})[1] == 20
    with pytest.raises(UserError, match="client is 'ward'; the groupings"):
        covey.from_tensors(*pair, natural=ids, client="ward")


def test_a_client_whose_samples_all_became_test_samples_keeps_them() -> None:
    ids = [*["big"] * 38, "small", "tiny"]
    data = covey.from_tensors(
        torch.rand(40, 2), torch.arange(40) % 2, natural={"site": ids}, test_fraction=0.9
    )
    assert clients_of(data)[2] == ("big", "small", "tiny")


def test_data_without_a_grouping_are_shared_out_as_ever() -> None:
    x, y = torch.rand(400, 3), torch.arange(400) % 2
    assert clients_of(covey.from_tensors(x, y))[:2] == ("dir-class", 20)
    assert clients_of(covey.from_tensors(x, torch.rand(400)), objective="regression")[:2] == ("iid", 20)


def table_of(tmp_path: Path) -> Path:
    """Three hospitals with 40, 20 and 5 rows."""
    owners = ["Bonn"] * 40 + ["Kiel"] * 20 + ["Ulm"] * 5
    rows = [f"{place % 30},{place % 2},{owner}" for place, owner in enumerate(owners)]
    path = tmp_path / "patients.csv"
    path.write_text("\n".join(["age,ill,hospital", *rows]) + "\n")
    return path


@pytest.mark.parametrize("as_object", [False, True])
def test_a_minimum_takes_those_who_have_enough_and_says_who_has_not(tmp_path: Path, as_object: bool) -> None:
    path = table_of(tmp_path)
    data: Any = {"name": "table", "path": str(path), "label": "ill", "client": "hospital"}
    if as_object:
        data = covey.read_table(path, label="ill", client="hospital")
    assert clients_of(data, partition={"minimum": 10}) == ("natural", 2, ("Bonn", "Kiel"))
    told: list[str] = []
    fleet_of(resolve({**data_tables(data), "partition": {"minimum": 10}}), told.append).close()
    assert told == ["partition.minimum is 10: left out, with fewer training samples: Ulm"]


def test_a_minimum_that_nobody_has_is_one_sentence(tmp_path: Path) -> None:
    data = covey.read_table(table_of(tmp_path), label="ill", client="hospital")
    with pytest.raises(UserError, match="only 0 natural groups with 50 samples or more"):
        clients_of(data, partition={"minimum": 50})


def test_what_a_run_wrote_is_not_loaded_to_be_read_again(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def load():\n    raise RuntimeError('loaded')\n")
    tables = {"data": {"name": f"{tmp_path}/mine.py:load", "clients": 3}, "partition": {"name": "iid"}}
    assert resolve(tables)["data"]["clients"] == 3
