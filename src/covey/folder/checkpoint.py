"""Saving and loading a run: `checkpoint/N.safetensors`, and `checkpoint.json`, which is written last and names it."""

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray

from covey.core.codec import put_together, take_apart
from covey.core.round import State
from covey.errors import UserError
from covey.files import remove, write_atomically
from covey.folder.checksums import INDEX_FILE, Index, KeptCheckpoint, Piece, read_index, write_index
from covey.settings.registry import Origin

PLAIN = "plain"  # the array that holds all that is no array, as JSON


@dataclass(frozen=True, kw_only=True, eq=False)
class Checkpoint:
    """All that is needed to resume: the server's state, what the fleet remembers, and the recorder's place.

    `journal` is the part of `metrics.jsonl` that was written until then.
    """

    state: State
    fleet: Mapping[str, Any]
    extra: Mapping[str, Any]
    journal: Piece = Piece.of(b"")

    @property
    def origins(self) -> list[Origin]:
        """What the run was made of that is not built in."""
        return [Origin(**origin) for origin in self.extra.get("own", ())]


def save_checkpoint(
    folder: Path,
    checkpoint: Checkpoint,
    *,
    config: Sequence[str] = (),
    keep: int = 1,
    files: Mapping[str, Piece] | None = None,
) -> None:
    """Saves into the run folder and keeps the last `keep` checkpoints; `config` is config.toml's SHA-256.

    `files` were written before the first checkpoint, and belong to the run from then on.

    The json file is the commit point: what it does not name is removed after it, or was never there.
    """
    arrays_folder = folder / "checkpoint"
    arrays_folder.mkdir(exist_ok=True)
    content = _to_bytes(checkpoint)
    name = f"{checkpoint.state.round:06d}.safetensors"
    newest = KeptCheckpoint(
        round=checkpoint.state.round, file=name, content=Piece.of(content), journal=checkpoint.journal
    )
    before = read_index(folder) or Index()
    older = [kept for kept in before.kept if kept.round < newest.round]
    index = Index(
        kept=(newest, *older[: keep - 1]), config=tuple(config), files={**before.lasting, **(files or {})}
    )
    write_atomically(arrays_folder / name, content)
    write_index(folder, index)
    named = {kept.file for kept in index.kept}
    for old in arrays_folder.iterdir():
        if old.name not in named:
            with contextlib.suppress(OSError):
                remove(old)


def load_checkpoint(folder: Path) -> Checkpoint | None:
    """The last checkpoint of a run folder, every byte as it was saved; None where there is none yet."""
    index = read_index(folder)
    return None if index is None else read_checkpoint(folder, index)


def read_checkpoint(folder: Path, index: Index) -> Checkpoint:
    """The newest checkpoint that the index names."""
    path = folder / INDEX_FILE
    if not index.kept:
        raise UserError(
            f"{path} was written by an older version of covey, without checksums; start a new run"
        )
    newest = index.kept[0]
    arrays = folder / "checkpoint" / Path(newest.file).name
    try:
        value = _from_bytes(newest.content.read_all(arrays))
        seen = long_ids(value["state"]["seen"])
        return Checkpoint(
            state=State(**{**value["state"], "seen": seen}),
            fleet=value["fleet"],
            extra=value["extra"],
            journal=newest.journal,
        )
    except UserError as damage:
        raise UserError(f"{arrays} or {path} is damaged and cannot be resumed: {damage}") from damage
    except (ValueError, KeyError, TypeError, safetensors.SafetensorError) as error:
        raise UserError(
            f"{path} is damaged and cannot be resumed: {type(error).__name__}: {error}"
        ) from error


def rounds_that_are_whole(folder: Path, index: Index) -> list[int]:
    """The rounds of the checkpoints that can be gone back to, newest first: their arrays and journal are undamaged."""
    return [kept.round for kept in index.kept if _is_whole(folder, kept)]


def _is_whole(folder: Path, kept: KeptCheckpoint) -> bool:
    try:
        kept.content.read_all(folder / "checkpoint" / Path(kept.file).name)
        kept.journal.read(folder / "metrics.jsonl")
    except UserError:
        return False
    return True


def _to_bytes(checkpoint: Checkpoint) -> bytes:
    state = {**vars(checkpoint.state), "seen": short_ids(checkpoint.state.seen)}
    whole = {"state": state, "fleet": checkpoint.fleet, "extra": checkpoint.extra}
    data, arrays = take_apart(whole, alike=True)
    plain = torch.from_numpy(np.frombuffer(json.dumps(data).encode(), dtype=np.uint8).copy())
    return safetensors.torch.save({**arrays, PLAIN: plain})


def short_ids(ids: Sequence[int]) -> int | NDArray[np.int64]:
    """Clients as they are kept: everybody from 0 on as one number, others as an array."""
    return len(ids) if ids == range(len(ids)) else np.array(ids, dtype=np.int64)


def long_ids(kept: int | NDArray[np.int64] | Sequence[int]) -> Sequence[int]:
    """The clients that `short_ids` made short (or that an earlier version listed)."""
    if isinstance(kept, int):
        return range(kept)
    return tuple(kept.tolist()) if isinstance(kept, np.ndarray) else tuple(kept)


def _from_bytes(content: bytes) -> Any:
    arrays = safetensors.torch.load(content)
    return put_together(json.loads(arrays.pop(PLAIN).numpy().tobytes()), arrays, alike=True)
