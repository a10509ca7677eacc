"""What becomes of a configuration: accepted, refused in a sentence, or a fault of the program."""

from __future__ import annotations

import tomllib
import traceback
from typing import Any

import torch

from covey.core.round import run_rounds
from covey.errors import RunError, UserError
from covey.runs.config import Config, fleet_of, resolve

LONGEST = 1000  # characters of a sentence that a user reads


def read(tables: dict[str, Any]) -> tuple[str, Config | None]:
    """ "accepted" with the configuration, "refused" in one sentence, or "fault: ..."."""
    try:
        config = resolve(tables)
        again = resolve(tomllib.loads(config.toml()))
    except UserError as mistake:
        return sentence(mistake), None
    except Exception as error:
        return fault(error), None
    if again.toml() != config.toml():
        return "fault: config.toml gives another configuration", None
    return "accepted", config


def carried_out(config: Config) -> str:
    """One small round of an accepted configuration: "ran", "refused" in a sentence, or "fault: ..."."""
    tables = {**config.tables, "train": {**config["train"], "epochs": 1, "batches": 1}}
    try:
        small = resolve(tables)
        fleet = fleet_of(small)
        try:
            state = run_rounds(small.method, fleet, rounds=1)
        finally:
            fleet.close()
    except (UserError, RunError) as mistake:
        return sentence(mistake)
    except Exception as error:
        return fault(error)
    return "ran" if torch.isfinite(state.models).all() else "ran to infinity"


def sentence(mistake: Exception) -> str:
    text = str(mistake)
    if not text or "\n" in text or len(text) > LONGEST:
        return f"fault: not a sentence: {text[:80]!r} ({len(text)} characters)"
    return "refused"


def fault(error: Exception) -> str:
    """The kind of a fault and where it was raised, so that equal ones are counted together."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/covey/" in frame.filename]
    place = ours[-1] if ours else frames[-1]
    file = place.filename.rpartition("/covey/")[2]
    return f"fault: {type(error).__name__} in {file}:{place.lineno}: {str(error)[:90]}"
