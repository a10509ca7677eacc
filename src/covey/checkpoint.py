"""Saving and loading a run: `checkpoint/N.safetensors` and `checkpoint.json`, which is written last and names it."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from covey.codec import put_together, take_apart
from covey.core import State
from covey.errors import UserError

FORMAT = 1


@dataclass(frozen=True, kw_only=True, eq=False)
class Checkpoint:
    """All that is needed to go on: the server's state, what the fleet remembers, and the recorder's place."""

    state: State
    fleet: Mapping[str, Any]
    extra: Mapping[str, Any]


def write_atomically(path: Path, content: bytes | str) -> None:
    """Writes a file so that after a crash there is either the old one or the new one, whole."""
    temporary = path.with_name(path.name + ".tmp")
    data = content.encode() if isinstance(content, str) else content
    with open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    place = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(place)  # the new name, too, must survive a power cut
    finally:
        os.close(place)


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Saves into the run folder; the json file is the commit point, older arrays are removed after it."""
    arrays_folder = folder / "checkpoint"
    arrays_folder.mkdir(exist_ok=True)
    state = checkpoint.state
    data, arrays = take_apart(
        {
            "state": {
                "models": state.models,
                "groups": dict(state.groups),
                "memory": dict(state.memory),
                "seen": state.seen,
                "notes": dict(state.notes),
                "round": state.round,
                "worked": state.worked,
            },
            "fleet": dict(checkpoint.fleet),
            "extra": dict(checkpoint.extra),
        }
    )
    name = f"{state.round:06d}.safetensors"
    write_atomically(arrays_folder / name, safetensors.torch.save(arrays or {"": torch.zeros(0)}))
    write_atomically(folder / "checkpoint.json", json.dumps({"format": FORMAT, "arrays": name, "data": data}))
    for old in arrays_folder.glob("*.safetensors"):
        if old.name != name:
            with contextlib.suppress(OSError):
                old.unlink()


def load_checkpoint(folder: Path) -> Checkpoint | None:
    """The last checkpoint of a run folder; None where there is none yet."""
    path = folder / "checkpoint.json"
    if not path.exists():
        return None
    try:
        saved = json.loads(path.read_text())
        if saved["format"] != FORMAT:
            raise UserError(f"{path} has format {saved['format']!r}; this version of covey reads {FORMAT}")
        arrays = safetensors.torch.load_file(folder / "checkpoint" / Path(saved["arrays"]).name)
        value = put_together(saved["data"], arrays)
        return Checkpoint(state=State(**value["state"]), fleet=value["fleet"], extra=value["extra"])
    except (OSError, ValueError, KeyError, TypeError, safetensors.SafetensorError) as error:
        raise UserError(
            f"{path} is damaged and cannot be resumed: {type(error).__name__}: {error}"
        ) from error
