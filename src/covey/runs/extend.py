"""More rounds for a run: a finished one, too, continues as if it had been planned so."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from covey.errors import UserError
from covey.files import arrows_own, read_whole, storing, write_atomically
from covey.folder.checkpoint import Checkpoint
from covey.folder.checksums import Index, Piece, check_files, write_index
from covey.folder.journal import lines_of
from covey.folder.recorder import config_digest
from covey.privacy.longer import LongerBudget, longer_private
from covey.privacy.settings import Private
from covey.runs.config import Config, resolve


def extended(
    folder: Path,
    config: Config,
    index: Index,
    checkpoint: Checkpoint,
    rounds: int,
    epsilon: LongerBudget | None = None,
    say: Callable[[str], None] | None = None,
) -> tuple[Config, Checkpoint]:
    """The folder's run with that many rounds in all; `epsilon` says what they may cost, where they are private.

    Killed at any moment, the folder is the run of before or the longer one: config.toml changes while both are
    in force.
    """
    done = checkpoint.state.round
    if rounds < done:
        raise UserError(f"rounds is {rounds}, but {done} rounds are done; allowed: at least that")
    longer = resolve(
        {**config.tables, **private_table(config, checkpoint, rounds, epsilon, say), "rounds": rounds}
    )
    check_files(folder, index)
    newest = index.kept[0]
    with storing(folder):
        if not (folder / "metrics.jsonl").exists():  # the journal of a finished run has become a table
            lines = lines_of(pq.read_table(arrows_own([read_whole(folder / "metrics.parquet", 2**40)])))
            write_atomically(folder / "metrics.jsonl", lines)
            newest = replace(newest, journal=Piece.of(lines))
        both = (config_digest(config), config_digest(longer))
        write_index(folder, Index(kept=(newest,), config=both, files=index.lasting))
        write_atomically(folder / "config.toml", longer.toml())
    return longer, replace(checkpoint, journal=newest.journal)


def private_table(
    config: Config,
    checkpoint: Checkpoint,
    rounds: int,
    epsilon: LongerBudget | None,
    say: Callable[[str], None] | None,
) -> dict[str, Any]:
    """The table [private] of the longer run, where it has one."""
    table = config.tables.get("private")
    if table is None:
        if epsilon is not None:
            raise UserError(f"--epsilon is {epsilon}, but the run has no [private]")
        return {}
    changes, words = longer_private(
        Private(**table),
        checkpoint.state.memory,
        planned=config.top.rounds,
        done=checkpoint.state.round,
        rounds=rounds,
        budget=epsilon,
    )
    if words and say is not None:
        say(words)
    return {"private": {**table, **changes}}
