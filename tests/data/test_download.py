"""Data sets from their official places, here from a server on loopback that has files of the official layout."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import io
import re
import struct
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from covey.cli import main
from covey.data import download
from covey.data.download import get
from covey.data.loading import load
from covey.data.official import EMNIST
from covey.data.sources import SOURCES, Remote
from covey.errors import RunError, UserError


@dataclass
class Server:
    """Files by their names, and how the server behaves."""

    files: dict[str, bytes] = field(default_factory=dict)
    at: str = ""
    asked: list[tuple[str, str]] = field(default_factory=list)
    breaks_after: int | None = None  # bytes of an answer, once
    continues: bool = True
    fails: int = 0  # so many answers are 503


@pytest.fixture
def server() -> Iterator[Server]:
    about = Server()

    class Answers(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name, wanted = self.path.lstrip("/"), self.headers.get("Range", "")
            about.asked.append((name, wanted))
            if about.fails:
                about.fails -= 1
                self.send_error(503)
                return
            if name not in about.files:
                self.send_error(404)
                return
            content = about.files[name]
            first = int(wanted[6:-1]) if wanted and about.continues else 0
            self.send_response(206 if first else 200)
            if first:
                self.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
            self.send_header("Content-Length", str(len(content) - first))
            self.end_headers()
            cut, about.breaks_after = about.breaks_after, None
            self.wfile.write(content[first : None if cut is None else first + cut])

        def log_message(self, *_: object) -> None: ...

    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=running.serve_forever, daemon=True)
    thread.start()
    about.at = f"http://127.0.0.1:{running.server_port}"
    yield about
    running.shutdown()
    running.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def _own_folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.node.get_closest_marker("data"):
        return
    monkeypatch.setenv("COVEY_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def serving(monkeypatch: pytest.MonkeyPatch, server: Server, name: str, files: dict[str, bytes]) -> None:
    """The server has these files, and they are what the data set's official digests belong to."""
    server.files = files
    remote = tuple(
        Remote(name=file, size=len(content), sha256=hashlib.sha256(content).hexdigest())
        for file, content in files.items()
    )
    monkeypatch.setitem(SOURCES, name, replace(SOURCES[name], remote=remote))


def idx(array: np.ndarray) -> bytes:
    head = b"\0\0\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return gzip.compress(head + array.astype(np.uint8).tobytes())


def tar_of(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, content in members.items():
            about = tarfile.TarInfo(name)
            about.size = len(content)
            archive.addfile(about, io.BytesIO(content))
    return out.getvalue()


RNG = np.random.default_rng(0)
PICTURES = RNG.integers(0, 256, (30, 32, 32, 3), dtype=np.uint8)  # N,H,W,C


def records(pictures: np.ndarray, *labels: np.ndarray) -> bytes:
    """CIFAR's binary form: labels, then all red, all green, all blue bytes."""
    planes = pictures.transpose(0, 3, 1, 2).reshape(len(pictures), -1)
    return np.concatenate([*(label[:, None] for label in labels), planes], axis=1).astype(np.uint8).tobytes()


def mnist_files() -> dict[str, bytes]:
    return {
        f"{split}-{kind}-ubyte.gz": idx(array)
        for split, count in (("train", 40), ("t10k", 20))
        for kind, array in (
            ("images-idx3", RNG.integers(0, 256, (count, 28, 28))),
            ("labels-idx1", np.arange(count) % 10),
        )
    }


def test_mnist(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    serving(monkeypatch, server, "mnist", mnist_files())
    told: list[tuple[str, int, int]] = []
    get("mnist", at=server.at, watch=lambda *piece: told.append(piece))
    assert len(load("mnist").train) == 40
    assert told[-1][1] == told[-1][2]
    before = len(server.asked)
    get("mnist", at=server.at)  # what is there is not got again
    assert len(server.asked) == before


def test_cifar10_in_its_binary_form(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    labels = np.arange(30) % 10
    folder = "cifar-10-batches-bin"
    names = "\n".join(f"class {number}" for number in range(10)) + "\n\n"
    batches = {f"{folder}/data_batch_{n}.bin": records(PICTURES[n::6], labels[n::6]) for n in range(1, 6)}
    members = {f"{folder}/batches.meta.txt": names.encode(), **batches}
    members[f"{folder}/test_batch.bin"] = records(PICTURES[::6], labels[::6])
    serving(monkeypatch, server, "cifar10", {"cifar-10-binary.tar.gz": tar_of(members)})
    get("cifar10", at=server.at)
    data = load("cifar10", scaling="unit")
    assert data.classes[3] == "class 3"
    assert np.array_equal(data.x[0].numpy(), PICTURES[1].transpose(2, 0, 1))
    assert data.y.tolist() == [*(labels[n::6][i] for n in range(1, 6) for i in range(5)), *labels[::6]]
    assert sorted(path.name for path in (tmp_path / "data" / "cifar10").iterdir()) == [
        "test.npz",
        "train.npz",
    ]


def test_cifar100_has_the_coarse_label_first(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    coarse, fine = np.arange(30) % 20, np.arange(30) * 3
    members = {
        "cifar-100-binary/fine_label_names.txt": "\n".join(f"fine{n}" for n in range(100)).encode(),
        "cifar-100-binary/coarse_label_names.txt": "\n".join(f"coarse{n}" for n in range(20)).encode(),
        "cifar-100-binary/train.bin": records(PICTURES[:20], coarse[:20], fine[:20]),
        "cifar-100-binary/test.bin": records(PICTURES[20:], coarse[20:], fine[20:]),
    }
    serving(monkeypatch, server, "cifar100", {"cifar-100-binary.tar.gz": tar_of(members)})
    get("cifar100", at=server.at)
    assert load("cifar100").y.tolist() == fine.tolist()
    assert load("cifar100", level="coarse").y.tolist() == coarse.tolist()


def test_svhn_from_its_mat_files(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    files = {}
    for split, part in (("train", slice(0, 20)), ("test", slice(20, 30))):
        labels = (np.arange(30) % 10 + 1)[part, None].astype(np.uint8)  # the digit 0 is 10
        savemat(tmp_path / "one.mat", {"X": PICTURES[part].transpose(1, 2, 3, 0), "y": labels})
        files[f"{split}_32x32.mat"] = (tmp_path / "one.mat").read_bytes()
    serving(monkeypatch, server, "svhn", files)
    get("svhn", at=server.at)
    data = load("svhn")
    assert data.y.tolist() == ((np.arange(30) + 1) % 10).tolist()
    assert np.array_equal(data.x[25].numpy(), PICTURES[25].transpose(2, 0, 1))


def test_emnist_from_the_zip_of_all_splits(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name in EMNIST:
            count = 94 if "train" in name else 47
            array = RNG.integers(0, 256, (count, 28, 28)) if "images" in name else np.arange(count) % 47
            archive.writestr(f"gzip/{name}", idx(array))
        archive.writestr("gzip/../../escape", b"outside")
    serving(monkeypatch, server, "emnist", {"gzip.zip": out.getvalue()})
    place = get("emnist", at=server.at)
    assert {path.name for path in place.iterdir()} == set(EMNIST)
    assert len(load("emnist", split="balanced").classes) == 47


def test_a_download_that_broke_off_is_continued(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    files = mnist_files()
    serving(monkeypatch, server, "mnist", files)
    server.breaks_after = 1000
    get("mnist", at=server.at)
    assert server.asked[:2] == [
        ("train-images-idx3-ubyte.gz", ""),
        ("train-images-idx3-ubyte.gz", "bytes=1000-"),
    ]
    assert (download.SOURCES["mnist"].place() / "train-images-idx3-ubyte.gz").read_bytes() == next(
        iter(files.values())
    )


def test_a_server_that_cannot_continue_sends_all_of_it_again(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    serving(monkeypatch, server, "mnist", mnist_files())
    server.breaks_after, server.continues = 1000, False
    get("mnist", at=server.at)
    assert len(load("mnist").train) == 40


def test_what_a_killed_process_left_is_continued(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    files = mnist_files()
    serving(monkeypatch, server, "mnist", files)
    (tmp_path / "data" / "mnist").mkdir(parents=True)
    first = next(iter(files))
    (tmp_path / "data" / "mnist" / f"{first}.part").write_bytes(files[first][:500])
    get("mnist", at=server.at)
    assert server.asked[0] == (first, "bytes=500-")


def test_a_file_that_is_not_the_official_one_is_refused_and_not_kept(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    serving(monkeypatch, server, "mnist", mnist_files())
    name = "train-labels-idx1-ubyte.gz"
    server.files[name] = server.files[name][:-1] + b"x"
    with pytest.raises(
        RunError, match=r"train-labels.* is not the official file: its SHA-256 is [0-9a-f]{64}"
    ):
        get("mnist", at=server.at)
    assert not list((tmp_path / "data" / "mnist").glob(f"{name}*"))


def test_a_server_that_sends_too_much_is_cut_off(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    serving(monkeypatch, server, "mnist", mnist_files())
    server.files["train-labels-idx1-ubyte.gz"] += b"more"
    with pytest.raises(RunError, match="sends more than the"):
        get("mnist", at=server.at)


@pytest.mark.parametrize(("fails", "works"), [(2, True), (5, False)])
def test_a_busy_server_is_asked_again(
    server: Server, monkeypatch: pytest.MonkeyPatch, fails: int, works: bool
) -> None:
    serving(monkeypatch, server, "mnist", mnist_files())
    server.fails = fails
    if works:
        get("mnist", at=server.at)
        return
    with pytest.raises(RunError, match="cannot be got: it answered 503"):
        get("mnist", at=server.at)


def test_what_is_not_there_is_a_sentence(server: Server) -> None:
    with pytest.raises(RunError, match=r"answered 404 .* by hand, or be got from a mirror \(--from URL\)"):
        get("mnist", at=server.at)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("pacs", "cannot be got by a command: get PACS .*flwrlabs/pacs"),
        ("digits", "digits has no files to get"),
        ("imagenet", "there is no data set 'imagenet' to get; allowed: mnist"),
    ],
)
def test_what_cannot_be_got_says_so(name: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        get(name)


def test_only_web_addresses_are_asked(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--from is"):
        get("mnist", at=f"file://{tmp_path}")


def test_the_command(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    serving(monkeypatch, server, "mnist", mnist_files())
    monkeypatch.setattr("sys.argv", ["covey", "datasets", "get", "mnist", "--from", server.at])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code in (0, None)
    assert "mnist: in" in capsys.readouterr().err.replace("\n", " ")
    assert len(load("mnist").test) == 20


def test_a_run_that_lacks_data_says_the_command(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"mnist is not here; get it with: covey datasets get mnist \(12 MB\)"
    ):
        load("mnist")


@pytest.mark.parametrize("source", [one for one in SOURCES.values() if one.remote], ids=lambda one: one.name)
def test_every_file_has_a_whole_digest_and_an_address(source: object) -> None:
    assert source.at.endswith("/")
    for file in source.remote:
        assert re.fullmatch(r"[0-9a-f]{64}", file.sha256)
        assert file.size > 1000


@pytest.mark.data
@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_the_originals_have_the_digests(name: str, data_folder: Path) -> None:
    folder = data_folder / name.replace("-", "_")
    for file in SOURCES[name].remote:
        assert (folder / file.name).stat().st_size == file.size
        assert download.digest_of(folder / file.name) == file.sha256
