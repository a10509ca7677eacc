"""LEAF's JSON of any data set, and npz files that say whose sample each is."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from covey.data import read_leaf, read_split
from covey.data.types import Federation
from covey.errors import UserError
from covey.runs.config import federation_of, resolve


def write(folder: Path, split: str, users: dict[str, tuple[list[Any], list[Any]]]) -> None:
    (folder / split).mkdir(parents=True, exist_ok=True)
    content = {
        "users": list(users),
        "num_samples": [len(y) for _, y in users.values()],
        "user_data": {user: {"x": x, "y": y} for user, (x, y) in users.items()},
    }
    (folder / split / "all_data_0.json").write_text(json.dumps(content))


def federation(name: str, path: Path, **settings: Any) -> Federation:
    return federation_of(resolve({"data": {"name": name, "path": str(path), **settings}}))


def test_numbers_by_user_with_their_own_test_samples(tmp_path: Path) -> None:
    for split, count in (("train", 5), ("test", 2)):
        users = {
            f"u{i}": ([[i, j, 0.0, 1.0] for j in range(count)], [j % 2 for j in range(count)])
            for i in range(3)
        }
        write(tmp_path, split, users)
    found = federation("leaf", tmp_path, shape=[1, 2, 2])
    assert (found.names(), found.sizes().tolist()) == (("u0", "u1", "u2"), [[5, 2]] * 3)
    assert tuple(found.dataset.x.shape[1:]) == (1, 2, 2)
    for user, share in enumerate(found.shares):
        assert share.train.tensors()[0][:, 0, 0, 0].unique().tolist() == [user]
        assert share.test.tensors()[0][:, 0, 0, 0].unique().tolist() == [user]


def test_texts_become_tokens_and_their_labels_classes(tmp_path: Path) -> None:
    write(tmp_path, "train", {"ROMEO": (["abc", "bca"], ["d", "a"]), "JULIET": (["cab", "aaa"], ["b", "a"])})
    data = read_leaf(tmp_path)
    assert data.classes == ("a", "b", "d")
    assert data.x.dtype.is_floating_point is False
    assert data.x[0].tolist() == [0, 1, 2]  # a, b, c
    assert data.group_names["client"] == ("ROMEO", "JULIET")


def test_names_of_pictures_are_read_from_their_folder(tmp_path: Path) -> None:
    for place in range(4):
        Image.new("RGB", (6, 6), (60 * place, 0, 0)).save(tmp_path / f"{place}.png")
    write(tmp_path, "train", {"7": (["0.png", "1.png"], [0, 1]), "9": (["2.png", "3.png"], [1, 0])})
    with pytest.raises(UserError, match=r"names picture files such as 0\.png; say in which folder"):
        read_leaf(tmp_path)
    data = read_leaf(tmp_path, images=tmp_path, side=4)
    assert (tuple(data.x.shape), data.x[:, 0, 0, 0].tolist()) == ((4, 3, 4, 4), [0, 60, 120, 180])


def test_users_who_only_test_are_nobodys_test_data(tmp_path: Path) -> None:
    write(tmp_path, "train", {u: ([[1.0], [2.0], [3.0], [4.0], [5.0]], [0, 1, 0, 1, 0]) for u in "ab"})
    write(tmp_path, "test", {"c": ([[9.0], [9.0]], [0, 1])})
    found = federation("leaf", tmp_path)
    assert (found.names(), len(found.test)) == (("a", "b"), 2)
    assert found.sizes().tolist() == [[4, 1]] * 2


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ('{"users": ["a"]}', "is not of LEAF's form"),
        ("[", "cannot be read as JSON"),
        ('{"users": ["a"], "user_data": {"a": {"x": [[1], [1, 2]], "y": [0, 1]}}}', "no common shape"),
        ('{"users": ["a"], "user_data": {"a": {"x": [[1], [2]], "y": [0]}}}', "has 2 inputs and 1 labels"),
    ],
)
def test_what_is_not_leafs_is_one_sentence(tmp_path: Path, content: str, sentence: str) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "a.json").write_text(content)
    with pytest.raises(UserError, match=sentence):
        read_leaf(tmp_path)


def test_no_files_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"holds no train/\*\.json"):
        read_leaf(tmp_path)


def test_an_npz_file_says_whose_samples_they_are(tmp_path: Path) -> None:
    owner, split = np.repeat([4, 11], 10), np.tile([0, 0, 0, 0, 1], 4)
    x = np.stack([owner, np.arange(20)], axis=1).astype(np.float32)
    np.savez(tmp_path / "mine.npz", x=x, y=np.arange(20) % 2, client=owner, split=split)
    found = federation("clients", tmp_path / "mine.npz")
    assert (found.names(), found.sizes().tolist()) == (("4", "11"), [[8, 2]] * 2)
    assert [set(share.test.tensors()[0][:, 0].tolist()) for share in found.shares] == [{4.0}, {11.0}]
    np.savez(tmp_path / "bad.npz", x=x, y=np.arange(20), client=owner[:3], split=split)
    with pytest.raises(UserError, match="its arrays have the lengths x 20, y 20, client 3"):
        read_split(tmp_path / "bad.npz")
    np.savez(tmp_path / "none.npz", x=x, y=np.arange(20), client=owner, split=np.ones(20))
    with pytest.raises(UserError, match="no training samples"):
        read_split(tmp_path / "none.npz")
