"""What lies in a run folder, and whether a new run may use it."""

from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from covey.errors import UserError, user_error
from covey.files import arrows_own, remove, write_atomically
from covey.folder.checksums import SERVED_FILE, Index, check_config, check_files, read_index
from covey.folder.read import read_summary
from covey.folder.served_rows import ServedRows
from covey.folder.summary import Summary
from covey.settings.toml import read_tables
from covey.terminal import printable

# What a run writes before its first checkpoint is in force; config.toml comes second, after an empty journal.
BEGUN = {
    "about.json",
    "about.json.tmp",
    "config.toml.tmp",
    "frozen.safetensors",
    "frozen.safetensors.tmp",
    "metrics.jsonl",
    "checkpoint",
    "checkpoint.json",
    "checkpoint.json.tmp",
}
STARTS = "starts"  # the rounds that a server of real sites has continued from, line by line
OF_SERVE = {"superlink", "status.json", "status.json.tmp", "audit.jsonl", STARTS, f"{STARTS}.tmp"}


def tables_in(folder: Path) -> dict[str, Any]:
    """The tables of a run folder's configuration."""
    if not exists(folder / "config.toml"):
        begun = exists(folder / "metrics.jsonl") and is_free(folder)
        raise UserError(
            f"--resume {short(folder)} was stopped before its run had begun: begin it anew in the same folder"
            if begun
            else f"--resume {short(folder)} is not a run folder: it has no config.toml"
        )
    if not (folder / "config.toml").is_file():
        raise UserError(f"{short(folder)} is damaged: config.toml is not a regular file")
    return read_tables(folder / "config.toml")


def index_in(folder: Path) -> Index:
    """The checksums of a run folder, with its configuration checked against them."""
    index = read_index(folder)
    if index is None:
        raise UserError(f"{folder} is damaged: checkpoint.json is missing, so nothing can be resumed")
    check_config(folder, index)
    for name, piece in index.lasting.items():
        piece.read_all(folder / name)
    return index


def served_in(folder: Path, index: Index) -> ServedRows | None:
    """The rows that clients use, as they were stored at the run's end; None where it has not come to one."""
    if SERVED_FILE not in index.files:
        return None
    path = folder / SERVED_FILE
    content = index.files[SERVED_FILE].read_all(path)
    try:
        return ServedRows.from_bytes(content)
    except UserError as damage:
        raise UserError(f"{path} is damaged: {damage}") from damage


def measured_in(folder: Path, index: Index, round: int) -> dict[int, dict[str, float]]:
    """What was measured of each client after a round, on its own test data; nothing before the run's end."""
    name = "metrics.parquet"
    if name not in index.files:
        return {}
    table = pq.read_table(arrows_own([index.files[name].read_all(folder / name)]))
    chosen = table.filter(
        (pc.field("round") == round) & (pc.field("split") == "local-test") & (pc.field("client") >= 0)
    ).to_pydict()
    found: dict[int, dict[str, float]] = {}
    for client, metric, value in zip(chosen["client"], chosen["metric"], chosen["value"], strict=True):
        found.setdefault(client, {})[f"local-test/{metric}"] = value
    return found


def summary_in(folder: Path) -> Summary:
    """What summary.json holds, whether the run has come to its end or was interrupted."""
    if (found := read_summary(folder / "summary.json")) is None:
        raise UserError(f"{short(folder)} has no summary.json: its run has not been stopped yet")
    return found


def finished_summary(folder: Path) -> Summary | None:
    """The summary of a run that has come to its end, with all its files as they were written; None for any other."""
    index = read_index(folder)
    path = folder / "summary.json"
    if index is None or (index.kept and path.name not in index.files) or not path.exists():
        return None
    check_files(folder, index)
    summary = summary_in(folder)
    return summary if summary.finished else None


def check_free(folder: Path) -> None:
    """Refuses a folder that somebody's files are in."""
    if exists(folder) and not folder.is_dir():
        raise UserError(f"folder {folder} is a file; name a new folder")
    if exists(folder) and not is_free(folder):
        raise UserError(f"folder {folder} is not empty; name a new folder, or resume what is in it")


def is_free(folder: Path) -> bool:
    """Whether it is empty, or holds no more than a start that never became a run."""
    return _names(folder) <= BEGUN and _never_trained(folder)


def only_begun(folder: Path) -> bool:
    """Whether its run was stopped before its first checkpoint was in force: then it is resumed from the start."""
    names = _names(folder)
    return (
        {"config.toml", "metrics.jsonl"} <= names <= {"config.toml", *BEGUN} - {"checkpoint.json"}
    ) and _never_trained(folder)


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - OF_SERVE


def _never_trained(folder: Path) -> bool:
    return {path.name.partition(".")[0] for path in (folder / "checkpoint").glob("*")} <= {"000000"}


def clear(folder: Path) -> None:
    """Removes what is left of a start that never became a run, but for the journal, which marks a start."""
    others = [folder / name for name in sorted(BEGUN - {"metrics.jsonl"})]
    for path in [*(folder / "checkpoint").glob("*"), *others]:
        if path.is_dir():
            path.rmdir()
        else:
            remove(path)


def tries(folder: Path, done: int) -> int:
    """Which try of the round after `done` now begins, which is written down before anybody is asked.

    What was told in earlier tries was lost, and is booked all the same. A run that got to `done` has tried, too.
    """
    path = folder / STARTS
    before = path.read_bytes() if path.exists() else b""
    write_atomically(path, before + b"%d\n" % done)
    return before.split().count(b"%d" % done) + 1 + bool(done)


def exists(path: Path) -> bool:
    """Whether it is there; a path that the system does not accept is a `UserError`."""
    with user_error(f"{short(path)} cannot be a folder"):
        return path.exists()


def make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UserError(f"folder {short(folder)} cannot be made: {why}") from error


def short(path: Path) -> str:
    """A path as a sentence shows it."""
    return printable(str(path) if len(str(path)) <= 300 else f"{str(path)[:300]}...")


def taken(folder: Path) -> str:
    return f"{folder} is being written by another run; wait for it, or name another folder"
