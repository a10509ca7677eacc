"""`checkpoint.json`: which files make up a run, each with its SHA-256, so that damage is noticed before it is used."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from covey.errors import UserError, user_error
from covey.files import open_regular, read_json, read_whole, write_atomically
from covey.folder.plain import of_plain

FORMAT = 2
INDEX_FILE = "checkpoint.json"
ABOUT = "about.json"
FROZEN = "frozen.safetensors"  # the frozen part of the models
SERVED_FILE = "served.safetensors"  # the rows that clients use
NOT_THE_SAME = "its SHA-256 is not the one that was written"


@dataclass(frozen=True, kw_only=True)
class Piece:
    """The first `length` bytes of a file, and their SHA-256."""

    length: int
    sha256: str

    def __post_init__(self) -> None:
        if self.length < 0:
            raise ValueError("no file has fewer than 0 bytes")

    @staticmethod
    def of(content: bytes) -> Piece:
        return Piece(length=len(content), sha256=hashlib.sha256(content).hexdigest())

    def read(self, path: Path) -> bytes:
        """The piece of this file; one sentence where it is shorter or not the same."""
        # asks for no more than there is, as the length may be any number
        with user_error(f"{path} is damaged: it cannot be read"), open_regular(path) as file:
            content = file.read(min(self.length, os.fstat(file.fileno()).st_size))
        if len(content) < self.length:
            raise UserError(f"{path} is shorter than the checkpoint says; this run is damaged")
        if hashlib.sha256(content).hexdigest() != self.sha256:
            raise UserError(f"{path} is damaged: {NOT_THE_SAME}")
        return content

    def read_all(self, path: Path) -> bytes:
        """The same, where the piece is the whole file."""
        content = self.read(path)
        if path.stat().st_size != self.length:
            raise UserError(f"{path} is damaged: it is longer than what was written")
        return content


@dataclass(frozen=True, kw_only=True)
class KeptCheckpoint:
    """One checkpoint: its file in `checkpoint/`, and the part of the journal that belongs to it."""

    round: int
    file: str
    content: Piece
    journal: Piece = Piece.of(b"")


@dataclass(frozen=True, kw_only=True)
class Index:
    """What `checkpoint.json` holds: the checkpoints, newest first, and the other files that belong to them.

    `config` is config.toml's SHA-256; there are two while a run is being given more rounds. `files` are those that
    are written once: about.json and the models' frozen part at the beginning, the others at the end.
    """

    kept: tuple[KeptCheckpoint, ...] = ()
    config: tuple[str, ...] = ()
    files: Mapping[str, Piece] = field(default_factory=dict)

    @property
    def lasting(self) -> dict[str, Piece]:
        """The files that stay true when the run is resumed."""
        return {name: piece for name, piece in self.files.items() if name in (ABOUT, FROZEN)}


def write_index(folder: Path, index: Index) -> None:
    """Writes `checkpoint.json`, at once or not at all: with it, all that it names is in force."""
    content = asdict(index)
    whole = {"format": FORMAT, "sha256": _digest(content), **content}
    write_atomically(folder / INDEX_FILE, json.dumps(whole, indent=1))


def read_index(folder: Path) -> Index | None:
    """The index of a run folder, or None; one that was written before there were checksums is empty."""
    path = folder / INDEX_FILE
    try:
        saved = read_json(path)
    except FileNotFoundError:
        return None
    if not isinstance(saved, dict):
        raise UserError(f"{path} is damaged: it is not the index of a run")
    if saved.get("format") == 1 and {"arrays", "data"} <= set(saved):
        return Index()
    if saved.get("format") != FORMAT:
        raise UserError(f"{path} has format {saved.get('format')!r}; this version of covey reads {FORMAT}")
    content = {key: value for key, value in saved.items() if key not in ("format", "sha256")}
    try:
        if saved.get("sha256") != _digest(content):
            raise UserError(f"{path} is damaged: {NOT_THE_SAME}")
        index: Index = of_plain(Index, content)
        return index
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise UserError(f"{path} is damaged: it is not the index of a run") from error


def check_files(folder: Path, index: Index) -> None:
    """All files that the index names are what was written, but models: these are checked when they are read."""
    check_config(folder, index)
    for name, piece in index.files.items():
        if name != SERVED_FILE:
            piece.read_all(folder / name)


def check_config(folder: Path, index: Index) -> None:
    """config.toml is the one that the checkpoint belongs to."""
    path = folder / "config.toml"
    with user_error(f"{path} is damaged: it cannot be read"):
        digest = hashlib.sha256(read_whole(path)).hexdigest()
    if index.config and digest not in index.config:
        raise UserError(
            f"config.toml was changed after the checkpoint was written, or is damaged ({path}); "
            "start a new run with it instead"
        )


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
