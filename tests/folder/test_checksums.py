"""Nothing false on disk: every byte that is read again has a checksum, and damage is one sentence."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from covey.errors import UserError
from covey.folder.checksums import INDEX_FILE, Index, KeptCheckpoint, Piece, read_index, write_index
from covey.runs.run import resume
from tests.hostile.damaged_folders import ENDS, TABLES, files_of, run_until, tried

ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-2, appendix B.1


def test_a_piece_is_the_sha256_of_what_was_written(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abcdef")
    assert Piece.of(b"abc") == Piece(length=3, sha256=ABC)
    assert Piece(length=3, sha256=ABC).read(tmp_path / "f") == b"abc"
    with pytest.raises(UserError, match="longer than what was written"):
        Piece(length=3, sha256=ABC).read_all(tmp_path / "f")
    with pytest.raises(UserError, match="SHA-256 is not the one"):
        Piece(length=4, sha256=ABC).read(tmp_path / "f")
    with pytest.raises(UserError, match="shorter than the checkpoint says"):
        Piece(length=7, sha256=ABC).read(tmp_path / "f")


def test_an_index_comes_back_whole(tmp_path: Path) -> None:
    kept = KeptCheckpoint(
        round=3, file="000003.safetensors", content=Piece.of(b"abc"), journal=Piece.of(b"d")
    )
    index = Index(kept=(kept,), config=("one", "two"), files={"summary.json": Piece.of(b"e")})
    write_index(tmp_path, index)
    assert read_index(tmp_path) == index


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", "3", 5000 * "[", '{"format": 2}', '{"format": 2, "sha256": "", "kept": []}']
)
def test_an_index_that_is_none_is_said(tmp_path: Path, content: str) -> None:
    (tmp_path / INDEX_FILE).write_text(content)
    with pytest.raises(UserError, match=r"is damaged|has format None"):
        read_index(tmp_path)


PIECE = {"length": 3, "sha256": "x"}
KEPT = {"round": 1, "file": "000001.safetensors", "content": PIECE, "journal": PIECE}


@pytest.mark.parametrize(
    "changes",
    [
        {"kept": [KEPT | {"content": PIECE | {"length": -1}}]},
        {"kept": [KEPT | {"content": PIECE | {"length": 10**400}}]},
        {"kept": [KEPT | {"journal": PIECE | {"length": "three"}}]},
        {"kept": [KEPT | {"file": 3}]},
        {"kept": [KEPT | {"round": [1]}]},
        {"kept": [{}]},
        {"kept": 3},
        {"files": [1]},
        {"files": {"summary.json": {"length": 3}}},
        {"config": 3},
        {"config": [[1]]},
    ],
)
def test_an_index_with_its_own_checksum_and_other_types_is_said(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    content = {"kept": [KEPT], "config": ["x"], "files": {}, **changes}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    (tmp_path / INDEX_FILE).write_text(json.dumps({"format": 2, "sha256": digest, **content}))
    with pytest.raises(UserError, match="it is not the index of a run"):
        read_index(tmp_path)


def test_a_piece_of_an_absurd_length_takes_no_memory(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("abc")
    for length in (10**12, 2**63 - 1):
        with pytest.raises(UserError, match="is shorter than the checkpoint says"):
            Piece(length=length, sha256="").read(tmp_path / "a")


def test_a_pipe_in_place_of_a_file_is_said_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / INDEX_FILE)
    with pytest.raises(UserError, match="it is not a regular file"):
        read_index(tmp_path)
    with pytest.raises(UserError, match="it is not a regular file"):
        Piece(length=3, sha256="").read(tmp_path / INDEX_FILE)


def test_a_run_from_before_there_were_checksums_is_reported_but_not_resumed(tmp_path: Path) -> None:
    folder = run_until(tmp_path / "run", ENDS["killed"]())
    (folder / INDEX_FILE).write_text(json.dumps({"format": 1, "arrays": "000002.safetensors", "data": {}}))
    assert read_index(folder) == Index()
    with pytest.raises(UserError, match="older version of covey"):
        resume(folder)


@pytest.mark.parametrize("end", ENDS)
def test_no_damage_to_a_run_folder_is_taken_in_silence(tmp_path: Path, end: str) -> None:
    """A few damages of every kind to every file; `make hostile` tries hundreds."""
    counts = tried(end, tmp_path, scale=0.1, seed=1)
    assert set(counts) == {"said", "the same"}
    assert counts["said"] > counts["the same"], "where an earlier checkpoint is whole, the run ends the same"


def test_every_file_of_a_finished_run_has_a_checksum(tmp_path: Path) -> None:
    folder = run_until(tmp_path / "run", None)
    index = read_index(folder)
    assert index is not None
    named = {INDEX_FILE, "config.toml", *index.files, *(f"checkpoint/{kept.file}" for kept in index.kept)}
    assert named == set(files_of(folder))
    assert index.kept[0].round == TABLES["rounds"]
