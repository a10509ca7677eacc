"""Data sets from their official places: resumed where a download broke off, checked by SHA-256, then made ready."""

import hashlib
import http.client
import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from covey.data.official import READY
from covey.data.sources import SOURCES, Remote, Source, said_size
from covey.errors import RunError, UserError
from covey.files import folder_lock, open_regular

CHUNK = 1 << 18  # bytes
TRIES = 5  # attempts in a row that bring nothing
SECONDS = 30.0  # seconds without a byte
Watch = Callable[[str, int, int], None]  # file, bytes that are there, bytes in all


def get(name: str, *, at: str | None = None, watch: Watch = lambda *_: None) -> Path:
    """Gets a data set's files into its folder, checked, and ready for its loader; gives the folder.

    Args:
        name: of the data set.
        at: another address that has the same files; they are checked all the same.
        watch: called after every piece.
    """
    source = gettable(name)
    address = source.at if at is None else at.rstrip("/") + "/"
    if urlsplit(address).scheme not in ("http", "https"):
        raise UserError(f"--from is {at!r}; allowed: an address that begins with https:// or http://")
    folder = source.place()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        taken = f"another process is getting {name} into {folder}; wait for it"
        with folder_lock(folder, taken):
            made = READY.get(name)
            if made is not None and all((folder / file).is_file() for file in made.files):
                return folder
            for file in source.remote:
                fetch(file, address + file.name, folder / file.name, watch)
            if made is not None:
                made.make(folder)
    except OSError as error:
        raise RunError(f"{folder} cannot be written: {error.strerror or error}") from error
    return folder


def gettable(name: str) -> Source:
    """What is known of a data set that can be got; a sentence for others."""
    source = SOURCES.get(name)
    if source is not None and source.remote:
        return source
    if source is not None:
        raise UserError(f"{name} cannot be got by a command: get {source.origin}; or {source.otherwise}")
    from covey.settings.catalogue import DATASETS

    there = ", ".join(one for one, source in SOURCES.items() if source.remote)
    if name in DATASETS:
        raise UserError(
            f"{name} has no files to get (covey datasets {name} says what it needs); allowed: {there}"
        )
    raise UserError(f"there is no data set {name!r} to get; allowed: {there}")


def fetch(file: Remote, url: str, place: Path, watch: Watch) -> None:
    """One file, whole and checked; what a broken download left is continued."""
    if place.is_file() and digest_of(place) == file.sha256:
        watch(file.name, file.size, file.size)
        return
    part = place.with_name(place.name + ".part")
    free, wanted = shutil.disk_usage(place.parent).free, file.size - _length(part)
    if wanted > free:
        raise RunError(
            f"{place.parent} has {said_size(free)} free, and {file.name} needs {said_size(wanted)} more; "
            "COVEY_DATA names another folder"
        )
    idle, why = 0, ""
    while _length(part) < file.size and idle < TRIES:
        before = _length(part)
        try:
            _go_on(url, part, file, watch)
        except urllib.error.HTTPError as error:
            if error.code < 500:
                raise RunError(
                    f"{url} answered {error.code} {error.reason}; {_by_hand(file, place)}"
                ) from error
            why = f"it answered {error.code} {error.reason}"
        except (OSError, http.client.HTTPException) as error:
            why = str(getattr(error, "reason", error)) or type(error).__name__
        idle = 0 if _length(part) > before else idle + 1
    if _length(part) < file.size:
        kept = f"{said_size(_length(part))} are kept; the same command continues. " if _length(part) else ""
        raise RunError(
            f"{url} cannot be got: {why or 'the server ended early'}. {kept}{_by_hand(file, place)}"
        )
    found = digest_of(part)
    if found != file.sha256:
        part.unlink()
        raise RunError(
            f"{url} is not the official file: its SHA-256 is {found}, that of the official one {file.sha256}; "
            "nothing was kept"
        )
    os.replace(part, place)


def _by_hand(file: Remote, place: Path) -> str:
    return f"{file.name} can also be put into {place.parent} by hand, or be got from a mirror (--from URL)"


def _go_on(url: str, part: Path, file: Remote, watch: Watch) -> None:
    """Asks for what is missing; a server that does not continue sends all of it again."""
    begin = _length(part)
    request = urllib.request.Request(url, headers={"User-Agent": "covey"})
    if begin:
        request.add_header("Range", f"bytes={begin}-")
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        continued = begin > 0 and _first_byte(answer) == begin
        done = begin if continued else 0
        with open(part, "ab" if continued else "wb") as out:
            while piece := answer.read(min(CHUNK, file.size + 1 - done)):
                done += len(piece)
                if done > file.size:
                    out.truncate(0)
                    raise RunError(f"{url} sends more than the {file.size:,} bytes of the official file")
                out.write(piece)
                watch(file.name, done, file.size)


def _first_byte(answer: Any) -> int | None:
    """With which byte a partial answer begins."""
    told = answer.headers.get("Content-Range", "")  # bytes 100-199/200
    first = told.removeprefix("bytes ").partition("-")[0]
    return int(first) if answer.status == 206 and first.isdecimal() else None


def _length(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def digest_of(path: Path) -> str:
    """The file's SHA-256."""
    digest = hashlib.sha256()
    with open_regular(path) as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()
