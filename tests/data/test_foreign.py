"""PFLlib's and FL-bench's folders become files of plain arrays; a pickle that names anything else is refused."""

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from covey.cli import app
from covey.data import read_split
from covey.data.foreign import convert_folder, read_arrays
from covey.errors import UserError


def pfllib(folder: Path, clients: int = 3) -> Path:
    """As its save_file writes it."""
    for split, count in (("train", 6), ("test", 2)):
        (folder / split).mkdir(parents=True)
        for client in range(clients):
            x = np.full((count, 1, 2, 2), client, dtype=np.float32)
            with open(folder / split / f"{client}.npz", "wb") as file:
                np.savez_compressed(file, data={"x": x, "y": np.arange(count) % 2})  # type: ignore[arg-type]
    return folder


def test_pfllibs_folder(tmp_path: Path) -> None:
    out = tmp_path / "mnist.npz"
    assert convert_folder("pfllib", pfllib(tmp_path / "MNIST", 12), out) == {
        "clients": 12,
        "training": 72,
        "test": 24,
    }
    with np.load(out, allow_pickle=False) as stored:
        assert sorted(stored.files) == ["client", "split", "x", "y"]
    data = read_split(out)
    assert data.group_names["client"] == tuple(map(str, range(12)))
    owners = data.natural["client"]
    assert (data.x[:, 0, 0, 0].numpy() == owners).all()
    assert (len(data.train), len(data.test), data.classes) == (72, 24, ("0", "1"))


def fl_bench(folder: Path, partition: Any = None) -> Path:
    folder.mkdir(parents=True)
    np.save(folder / "data.npy", np.arange(40, dtype=np.float32).reshape(20, 2))
    np.save(folder / "targets.npy", np.arange(20) % 2)
    indices = [
        {
            "train": np.arange(10 * i + 2, 10 * i + 10, dtype=np.int32),
            "val": np.array([], dtype=np.int64),
            "test": [10 * i, np.int64(10 * i + 1)],
        }
        for i in range(2)
    ]
    usual = {"separation": {"train": [0, 1], "total": 2}, "data_indices": indices}
    (folder / "partition.pkl").write_bytes(pickle.dumps(usual if partition is None else partition))
    return folder


def test_fl_benchs_folder(tmp_path: Path) -> None:
    out = tmp_path / "two.npz"
    made = convert_folder("fl-bench", fl_bench(tmp_path / "synthetic"), out)
    assert made == {"clients": 2, "training": 16, "test": 4}
    data = read_split(out)
    assert sorted(data.x[data.test, 0].tolist()) == [0, 2, 20, 22]


def test_fl_benchs_folder_with_torchvisions_files(tmp_path: Path) -> None:
    folder = fl_bench(tmp_path / "cifar10")
    for file in ("data.npy", "targets.npy"):
        (folder / file).unlink()
    with pytest.raises(UserError, match="holds no samples that are known"):
        convert_folder("fl-bench", folder, tmp_path / "out.npz")
    (folder / "cifar-10-batches-py").mkdir()
    for place, name in enumerate([*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]):
        batch = {"data": np.full((4, 3072), place, dtype=np.uint8), "labels": [0, 1, 2, 3]}
        (folder / "cifar-10-batches-py" / name).write_bytes(pickle.dumps(batch, protocol=2))
    convert_folder("fl-bench", folder, tmp_path / "out.npz")
    data = read_split(tmp_path / "out.npz")
    assert (tuple(data.x.shape[1:]), str(data.x.dtype)) == ((3, 32, 32), "torch.uint8")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_arrays_of_every_protocol_are_read(protocol: int) -> None:
    plain = {
        "a": np.arange(6.0).reshape(2, 3),
        "b": [1, "two", np.float32(3)],
        "c": np.array([None, {"d": 4}], dtype=object),
    }
    found = read_arrays(pickle.dumps(plain, protocol=protocol), "it")
    assert np.array_equal(found["a"], plain["a"])
    assert (found["b"], found["c"].tolist()) == ([1, "two", 3.0], [None, {"d": 4}])


class Evil:
    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.place),)


def test_a_pickle_that_names_anything_else_is_refused_and_nothing_is_run(tmp_path: Path) -> None:
    made = tmp_path / "made"
    folder = fl_bench(tmp_path / "evil", partition={"data_indices": [Evil(made)]})
    with pytest.raises(UserError, match=r"partition\.pkl is refused: it names posix\.mkdir"):
        convert_folder("fl-bench", folder, tmp_path / "out.npz")
    whole = pfllib(tmp_path / "MNIST", 1)
    with open(whole / "train" / "0.npz", "wb") as file:
        np.savez_compressed(file, data={"x": Evil(made), "y": np.zeros(1)})  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"0\.npz is refused: it names posix\.mkdir"):
        convert_folder("pfllib", whole, tmp_path / "out.npz")
    assert not made.exists()
    assert not list(tmp_path.glob("*.npz*"))


@pytest.mark.parametrize(
    "raw",
    [
        b"cbuiltins\neval\n(S'1'\ntR.",
        b"cnumpy\nndarray\n((I100000000000\ntS'b'\ntR.",  # an array that would fill memory
        b"cnumpy\nload\n(S'x'\ntR.",
        b"cnumpy\ndtype.__class__\n.",
        b"garbage",
        b"",
    ],
)
def test_bad_pickles_are_one_sentence(raw: bytes) -> None:
    with pytest.raises(UserError, match="it is refused"):
        read_arrays(raw, "it")


def test_the_command_says_what_it_wrote_and_what_comes_next(tmp_path: Path) -> None:
    folder, out = pfllib(tmp_path / "MNIST"), tmp_path / "mnist.npz"
    said = CliRunner().invoke(app, ["convert", "pfllib", str(folder), str(out), "--shape", "4"])
    assert said.exit_code == 0
    assert read_split(out).x.shape[1:] == (4,)
    for arguments, sentence in (
        (["pfl", str(folder), str(out)], "kind is 'pfl'; allowed: pfllib, fl-bench"),
        (["pfllib", str(folder), str(tmp_path / "a.txt")], "must end in .npz"),
        (["pfllib", str(tmp_path / "no"), str(out)], "is not a folder"),
        (["pfllib", str(folder), str(out), "--shape", "1,x"], "--shape is '1,x'"),
        (["pfllib", str(folder), str(out), "--shape", "3"], "a sample has 4 values"),
        (["fl-bench", str(folder), str(out)], "partition.pkl cannot be read"),
    ):
        result = CliRunner().invoke(app, ["convert", *arguments])
        assert isinstance(result.exception, UserError)
        assert sentence in str(result.exception)
