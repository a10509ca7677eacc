"""Reading files: what is missing or broken is one clear sentence; slow archives are unpacked once."""

import gzip
import os
import struct
import zipfile
from io import BytesIO

import numpy as np
import pytest

from covey.data import load
from covey.data.files import read_idx, read_npz
from covey.errors import UserError


def idx(array, **changes):
    head = {
        "magic": b"\0\0\x08" + bytes([array.ndim]),
        "shape": struct.pack(f">{array.ndim}I", *array.shape),
    } | changes
    return head["magic"] + head["shape"] + array.astype(np.uint8).tobytes()


def write_mnist(folder, *, zipped=True, train=30, test=10, labels=None):
    rng = np.random.default_rng(0)
    for split, count in (("train", train), ("t10k", test)):
        y = rng.integers(10, size=count) if labels is None else np.full(count, labels)
        for kind, array in (("images-idx3", rng.integers(256, size=(count, 28, 28))), ("labels-idx1", y)):
            raw = idx(array)
            path = folder / f"{split}-{kind}-ubyte"
            if zipped:
                path = path.with_name(path.name + ".gz")
            path.write_bytes(gzip.compress(raw) if zipped else raw)


def write_lzma_npz(path, **arrays):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        for name, array in arrays.items():
            stream = BytesIO()
            np.save(stream, array)
            archive.writestr(f"{name}.npy", stream.getvalue())


def test_idx_files_are_read_gzipped_or_not(tmp_path):
    array = np.arange(24).reshape(2, 3, 4)
    (tmp_path / "a").write_bytes(idx(array))
    (tmp_path / "b.gz").write_bytes(gzip.compress(idx(array)))
    assert read_idx(tmp_path / "a").tolist() == read_idx(tmp_path / "b.gz").tolist() == array.tolist()


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        (b"", "is not an idx file of bytes: it begins with nothing"),
        (b"\x89PNG....", "is not an idx file of bytes: it begins with 89504e47"),
        (idx(np.zeros((2, 2)))[:-1], "is cut short or too long: shape \\(2, 2\\), but 3 bytes"),
        (idx(np.zeros((2, 2))) + b"x", "is cut short or too long"),
        (b"\0\0\x08\x03\0\0", "is cut short"),
    ],
)
def test_a_broken_idx_file_is_refused(tmp_path, raw, sentence):
    (tmp_path / "broken").write_bytes(raw)
    with pytest.raises(UserError, match=sentence):
        read_idx(tmp_path / "broken")


def test_a_truncated_gzip_file_is_refused(tmp_path):
    (tmp_path / "cut.gz").write_bytes(gzip.compress(idx(np.zeros((20, 20))))[:-12])
    with pytest.raises(UserError, match="cannot be read"):
        read_idx(tmp_path / "cut.gz")


@pytest.mark.parametrize("zipped", [True, False])
def test_mnist_is_read_from_its_four_files(tmp_path, zipped):
    write_mnist(tmp_path, zipped=zipped)
    mnist = load("mnist", folder=tmp_path)
    assert mnist.x.shape == (40, 1, 28, 28)
    assert (mnist.train.tolist(), mnist.test.tolist()) == (list(range(30)), list(range(30, 40)))
    assert mnist.natural == {}
    assert load("fashion-mnist", folder=tmp_path).classes[9] == "Ankle boot"


def test_emnist_stands_upright_and_has_its_letters(tmp_path):
    pictures = np.random.default_rng(1).integers(256, size=(4, 28, 28))
    for part in ("train", "test"):
        (tmp_path / f"emnist-byclass-{part}-images-idx3-ubyte").write_bytes(idx(pictures))
        (tmp_path / f"emnist-byclass-{part}-labels-idx1-ubyte").write_bytes(idx(np.array([0, 10, 36, 61])))
    data = load("emnist", folder=tmp_path)
    assert np.array_equal(data.x[1, 0].numpy(), pictures[1].T)
    assert [data.classes[y] for y in data.y[:4].tolist()] == ["0", "A", "a", "z"]
    assert (len(data.train), len(data.test), len(data.classes)) == (4, 4, 62)
    with pytest.raises(
        UserError, match=r"get emnist \(562 MB\).*missing emnist-balanced-train-images-idx3-ubyte.gz"
    ):
        load("emnist", folder=tmp_path, split="balanced")


def test_missing_files_are_named_with_where_it_looked_and_where_to_get_them(tmp_path, monkeypatch):
    write_mnist(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(
        UserError, match=rf"datasets get mnist .*missing t10k-labels-idx1-ubyte.gz in {tmp_path}; COVEY_DATA"
    ):
        load("mnist", folder=tmp_path)
    monkeypatch.setenv("COVEY_DATA", str(tmp_path))
    with pytest.raises(UserError, match=rf"missing train.npz, test.npz in {tmp_path}/svhn;"):
        load("svhn")
    for name in ("cifar10", "cifar100", "femnist", "pacs", "fashion-mnist"):
        with pytest.raises(UserError, match=r"missing .* in "):
            load(name)
    monkeypatch.delenv("COVEY_DATA")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "mine"))
    with pytest.raises(UserError, match=rf"in {tmp_path}/mine/covey/data/pacs: get PACS"):
        load("pacs")


def test_files_that_do_not_fit_each_other_are_refused(tmp_path):
    write_mnist(tmp_path, labels=11)
    with pytest.raises(UserError, match="labels run from 11 to 11, but there are 10 classes"):
        load("mnist", folder=tmp_path)
    write_mnist(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(np.zeros(9))))
    with pytest.raises(UserError, match="10 images need as many whole labels"):
        load("mnist", folder=tmp_path)
    write_mnist(tmp_path)
    np.savez(tmp_path / "qmnist_writers.npz", writer_train=np.arange(30), writer_test=np.arange(9))
    with pytest.raises(UserError, match=r"must name 30 \+ 10 writers"):
        load("mnist", folder=tmp_path)


def test_pickled_arrays_are_never_loaded(tmp_path):
    np.savez(tmp_path / "train.npz", x=np.array([{}], dtype=object), y=np.zeros(1), classes=np.array(["a"]))
    np.savez(tmp_path / "test.npz", x=np.zeros(1))
    with pytest.raises(UserError, match="not a readable npz file of plain arrays"):
        load("svhn", folder=tmp_path)


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"x": np.zeros((2, 4, 4, 3), np.uint8), "y": np.zeros(2, int)}, "has no array classes"),
        (
            {"x": np.zeros((2, 4), np.uint8), "y": np.zeros(2, int), "classes": ["a"]},
            "x must be uint8 of shape",
        ),
        ({"x": np.zeros((2, 4, 4, 3)), "y": np.zeros(2, int), "classes": ["a"]}, "x must be uint8 of shape"),
        ({"x": np.zeros((2, 4, 4, 3), np.uint8), "y": np.zeros(2), "classes": ["a"]}, "as many whole labels"),
        (
            {"x": np.zeros((2, 4, 4, 3), np.uint8), "y": np.ones(2, int), "classes": ["a"]},
            "labels run from 1 to 1",
        ),
    ],
)
def test_an_npz_file_of_another_layout_is_refused(tmp_path, arrays, sentence):
    for name in ("train", "test"):
        np.savez(tmp_path / f"{name}.npz", **arrays)
    with pytest.raises(UserError, match=sentence):
        load("cifar10", folder=tmp_path)


def npy(shape: tuple[int, ...], content: bytes = b"") -> bytes:
    """An array file whose head promises a shape."""
    file = BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
    return file.getvalue() + content


@pytest.mark.parametrize("shape", [(10**12, 4, 4, 3), (2**62, 2**62), (10**400,)])
def test_an_npz_file_that_promises_more_than_it_holds_is_refused(tmp_path, shape):
    with zipfile.ZipFile(tmp_path / "train.npz", "w") as archive:
        archive.writestr("x.npy", npy(shape, bytes(100)))
    with pytest.raises(
        UserError, match=r"train\.npz is (damaged: its array x is said to have shape|not a readable)"
    ):
        read_npz(tmp_path / "train.npz", ["x"])


def test_what_unpacks_to_more_than_there_is_memory_for_is_said_before_it_is_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr("covey.data.files.free_memory", lambda: 2_000_000)
    np.savez_compressed(tmp_path / "train.npz", x=np.zeros(3_000_000, np.uint8))
    with pytest.raises(UserError, match=r"train\.npz unpacks to 0\.0 GB, and 0\.0 GB of memory are free"):
        read_npz(tmp_path / "train.npz", ["x"])
    (tmp_path / "a.gz").write_bytes(gzip.compress(idx(np.zeros((3000, 1000)))))
    with pytest.raises(UserError, match=r"a\.gz unpacks to"):
        read_idx(tmp_path / "a.gz")


def test_an_idx_file_that_goes_on_without_end_is_read_no_further_than_it_promised(tmp_path):
    (tmp_path / "a.gz").write_bytes(gzip.compress(idx(np.zeros(5)) + bytes(10**7)))
    with pytest.raises(UserError, match=r"is cut short or too long: shape \(5,\), but more bytes"):
        read_idx(tmp_path / "a.gz")


def test_bytes_that_are_no_npz_are_refused(tmp_path):
    (tmp_path / "all.npz").write_bytes(b"PK\3\4 not really")
    with pytest.raises(UserError, match="is not a readable npz file"):
        load("pacs", folder=tmp_path)


def test_lzma_archives_are_unpacked_once_and_again_when_the_file_changes(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "all.npz"
    first, second = np.full((2, 2), 1, np.uint8), np.full((2, 3), 2, np.uint8)
    write_lzma_npz(path, x=first)
    assert read_npz(path, ["x"])["x"].tolist() == first.tolist()
    (kept,) = (tmp_path / "cache" / "covey").iterdir()
    assert kept.suffix == ".npy"
    np.save(kept, first + 6)  # so that we see where the next read comes from
    assert read_npz(path, ["x"])["x"].tolist() == (first + 6).tolist()
    kept.write_bytes(b"broken")
    assert read_npz(path, ["x"])["x"].tolist() == first.tolist()
    assert np.load(kept).tolist() == first.tolist()
    write_lzma_npz(path, x=second)
    assert read_npz(path, ["x"])["x"].tolist() == second.tolist()
    assert not list((tmp_path / "cache" / "covey").glob("*.tmp"))


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("a file where the cache folder should be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    write_lzma_npz(tmp_path / "all.npz", x=np.arange(4, dtype=np.uint8))
    assert read_npz(tmp_path / "all.npz", ["x"])["x"].tolist() == [0, 1, 2, 3]


def test_archives_that_unpack_fast_are_not_cached(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    np.savez_compressed(tmp_path / "all.npz", x=np.arange(4))
    read_npz(tmp_path / "all.npz", ["x"])
    assert os.listdir(tmp_path) == ["all.npz"]
