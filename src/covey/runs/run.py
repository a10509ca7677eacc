"""From a configuration to a finished run folder, with resume."""

import gc
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from covey.core import Fleet, State, run_rounds
from covey.core.round import Watcher
from covey.errors import SpoiledRunError, UserError
from covey.files import folder_lock, storing
from covey.fleet.odd import refused_in_words
from covey.folder.checkpoint import Checkpoint, load_checkpoint, read_checkpoint, rounds_that_are_whole
from covey.folder.checksums import Index
from covey.folder.place import (
    check_free,
    clear,
    exists,
    finished_summary,
    index_in,
    make,
    only_begun,
    taken,
)
from covey.folder.recorder import Recorder, same_version
from covey.folder.recovery import gone_back
from covey.parts.measure import SparseWatch, UndefinedWatch, check_private_measure
from covey.parts.steps.take_home import sent_home
from covey.privacy.longer import LongerBudget
from covey.runs.config import Config, bytes_needed, config_in, fleet_of, resolve, too_few_rounds
from covey.runs.extend import extended
from covey.runs.learning import LearningWatch
from covey.runs.provenance import changed, origins_of
from covey.runs.results import Run
from covey.runs.tracking import Tracking, tracked, trackers_of
from covey.settings.toml import read_tables
from covey.training.rows import Layout


class Interrupted(Exception):  # noqa: N818
    """Ctrl-C, or a watcher that ended the run: the run is saved in `folder` and can be resumed.

    Args:
        folder: where the run is saved.
        rounds_done: how many rounds it has.
        command: the command that resumes it.
        summary: what summary.json holds.

    Examples:
        >>> try:
        ...     run = covey.run("fedavg", rounds=1, out="runs/long", progress=False)
        ... except covey.Interrupted as stopped:
        ...     run = covey.resume(stopped.folder)
    """

    pruned = False  # whether it was a watcher

    def __init__(
        self, folder: Path, rounds_done: int, command: str = "run", summary: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(
            f"interrupted after round {rounds_done}; resume with: covey {command} --resume {folder}"
        )
        self.folder = folder
        self.summary = summary or {"finished": False}


class Pruned(KeyboardInterrupt):
    """What a watcher raises to end a run that is not worth continuing with; it is saved as by Ctrl-C."""


def run_config(
    config: Config,
    folder: Path,
    *,
    watchers: Sequence[Watcher] = (),
    say: Callable[[str], None] | None = None,
    report: bool = True,
    fleet: Fleet | None = None,
) -> Run:
    """Runs the configuration into a new or empty folder, on its own fleet or on the real sites of `fleet`."""
    check_told(fleet)
    check_free(folder)
    fleet = fleet or fleet_of(config, say)
    try:
        make(folder)  # only now: a mistake found on the way here leaves nothing behind
        with folder_lock(folder, taken(folder)):
            check_free(folder)  # another run may have come first
            with storing(folder):
                clear(folder)
            return _go(config, folder, fleet, None, watchers, say, report)
    finally:
        fleet.close()


def resume(
    folder: Path,
    *,
    rounds: int | None = None,
    epsilon: LongerBudget | None = None,
    watchers: Sequence[Watcher] = (),
    say: Callable[[str], None] | None = None,
    report: bool = True,
    fleet: Fleet | None = None,
    changed_code: bool = False,
    from_round: int | None = None,
) -> Run:
    """Resumes from the folder's last checkpoint, bit-identical to an uninterrupted run.

    With `rounds`, up to that many in all: a finished run, too, continues as if it had been planned so. A private run
    needs to be told what more rounds may cost: `epsilon` is a number, "same-noise" or "kept". With `changed_code`,
    even if the user's own code or data file has changed since the run began. With `from_round`, from an earlier
    checkpoint that is still kept: where the last one is damaged, the error names it.
    """
    check_told(fleet)
    config_in(folder)
    try:
        with folder_lock(folder, taken(folder)):
            config = config_in(folder)
            if only_begun(folder):
                config = config if rounds is None else resolve({**config.tables, "rounds": rounds})
                with storing(folder):
                    clear(folder)
                fleet = fleet or fleet_of(config, say)
                return _go(config, folder, fleet, None, watchers, say, report)
            index = index_in(folder)
            checkpoint, index = checkpoint_in(folder, index, from_round, sites=fleet is not None)
            same_version(checkpoint.extra)
            same_code(folder, config, checkpoint, changed_code, "run" if fleet is None else "serve")
            if epsilon is not None or (rounds is not None and rounds != config.top.rounds):
                total = config.top.rounds if rounds is None else rounds
                config, checkpoint = extended(folder, config, index, checkpoint, total, epsilon, say)
            elif from_round is None and (summary := finished_summary(folder)):
                if report and not (folder / "report.html").exists():
                    write_page(folder)
                return Run(folder, state=checkpoint.state, summary=summary)
            fleet = fleet or fleet_of(config, say)
            return _go(config, folder, fleet, checkpoint, watchers, say, report)
    finally:
        if fleet is not None:
            fleet.close()


NO_WAY_BACK = "the run has ended, and of its journal, now a table, no round is taken back; begin a new run"


def checkpoint_in(
    folder: Path, index: Index, from_round: int | None, *, sites: bool = False
) -> tuple[Checkpoint, Index]:
    """The checkpoint to resume from, and the index that ends with it; a damaged one is said with one that is whole."""
    kept = [one for one in index.kept if from_round is None or one.round == from_round]
    if from_round is not None and not kept:
        there = ", ".join(str(one.round) for one in index.kept) or "none"
        raise UserError(f"--from is {from_round}; allowed: the round of a checkpoint that is kept: {there}")
    index = replace(index, kept=tuple(one for one in index.kept if not kept or one.round <= kept[0].round))
    journal = folder / "metrics.jsonl"
    ended = not journal.exists() and (folder / "metrics.parquet").exists()
    if from_round is not None and ended:
        raise UserError(f"--from is {from_round}, but {NO_WAY_BACK}")
    try:
        checkpoint = read_checkpoint(folder, index)
        if from_round is not None or journal.exists():
            checkpoint.journal.read(journal)
    except UserError as damage:
        if ended:
            raise UserError(f"{damage}. An earlier checkpoint is of no use: {NO_WAY_BACK}") from damage
        whole = rounds_that_are_whole(folder, index)
        if not whole:
            raise
        # Sites keep a state of their own, and rounds that are made twice under fresh noise would have to be booked.
        if sites:
            raise UserError(
                f"{damage}. The checkpoint of round {whole[0]} is whole, but real sites have gone on since and cannot "
                "go back with the server: begin a new run"
            ) from damage
        raise UserError(
            f"{damage}. The checkpoint of round {whole[0]} is whole: resume from there, to the same result, with "
            f"--resume {folder} --from {whole[0]}"
        ) from damage
    return checkpoint, index


def run_or_resume(
    config: Config,
    folder: Path,
    *,
    watchers: Sequence[Watcher] = (),
    say: Callable[[str], None] | None = None,
    report: bool = True,
    fleet: Fleet | None = None,
    longer: bool = False,
) -> Run:
    """Runs into the folder, or continues with what lies there if it is the same configuration.

    With `longer`, its number of rounds may be another one: the run continues to as many as are asked for now, and so
    may private.epsilon with it.
    """
    there = folder / "config.toml"
    if not exists(there):
        return run_config(config, folder, watchers=watchers, say=say, report=report, fleet=fleet)
    rounds, epsilon = None, None
    if there.read_text(encoding="utf-8") != config.toml():
        if not (longer and same_but_for_rounds(config, there)):
            raise UserError(f"{folder} holds a run with other settings; name another folder")
        rounds = config.top.rounds
        if (now := epsilon_in(config.tables)) != epsilon_in(read_tables(there)):
            epsilon = now
    return resume(
        folder, watchers=watchers, say=say, report=report, fleet=fleet, rounds=rounds, epsilon=epsilon
    )


def same_but_for_rounds(config: Config, there: Path) -> bool:
    """Whether the file is that of this configuration with its own number of rounds, and private.epsilon."""
    try:
        before = read_tables(there)
        tables = {**config.tables, "rounds": before["rounds"]}
        if epsilon_in(tables) and epsilon_in(before):
            tables["private"] = {**tables["private"], "epsilon": epsilon_in(before)}
        return there.read_text(encoding="utf-8") == resolve(tables).toml()
    except (UserError, KeyError):  # a file that is no configuration does not match
        return False


def epsilon_in(tables: Mapping[str, Any]) -> float | None:
    """What the rounds of a private run may cost, where that is said."""
    found = tables.get("private", {}).get("epsilon")
    return float(found) if isinstance(found, int | float) else None


def same_code(
    folder: Path, config: Config, checkpoint: Checkpoint, changed_code: bool, command: str = "run"
) -> None:
    """Refuses to continue with other code or data than the run began with, unless that is wanted."""
    what = changed(checkpoint.origins, origins_of(config))
    if what and not changed_code:
        raise UserError(
            f"{what}. The result would be neither's: start a new run, or continue all the same with: "
            f"covey {command} --resume {folder} --changed-code"
        )


def check_told(fleet: Fleet | None) -> None:
    """A folder's config.toml must say what ran: it cannot of a simulated fleet that it did not build."""
    if fleet is not None and fleet.simulated:
        raise UserError(
            "fleet is a LocalFleet of your own, and the folder's config.toml would describe another; "
            "leave fleet out, or call covey.run_rounds, which writes no folder"
        )


# ---------------------------------------------------------------------------------------------- the run


@contextmanager
def seldom_collecting() -> Iterator[None]:
    """Python's collector looks for circles as seldom as it does at the command line (`covey.cli`).

    The tasks and replies of 40,000 clients are none; to go through them all the time took a quarter of a round.
    """
    before = gc.get_threshold()
    gc.set_threshold(20_000, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@seldom_collecting()
def _go(
    config: Config,
    folder: Path,
    fleet: Fleet,
    checkpoint: Checkpoint | None,
    watchers: Sequence[Watcher],
    say: Callable[[str], None] | None,
    report: bool,
) -> Run:
    check_private_measure(config.measure, config.method, fleet)  # before a round costs sites anything
    if say is not None:
        say(f"{parameters(fleet.layout)}; {needs(fleet, config)}")
        if words := too_few_rounds(config):
            say(words)
        measuring = config.measure
        sparse = SparseWatch(measuring=measuring, say=say, rounds=config.top.rounds)
        undefined = UndefinedWatch(measuring=measuring, say=say)
        watchers = [*watchers, LearningWatch(config=config, say=say), sparse, undefined]
    if checkpoint is not None and checkpoint.state.round:
        _load(fleet, checkpoint, folder)
    state = checkpoint.state if checkpoint else None
    trackers = trackers_of(config)
    recorder = Recorder(folder, config, fleet, origins_of(config), resumed=checkpoint)
    tracking = Tracking(trackers, tracked(config, folder, state.round if state else 0), say)
    try:
        state = _run(config, fleet, recorder, state, [*watchers, tracking], say)
    except Interrupted as interrupted:
        tracking.end(interrupted.summary)
        raise
    if not fleet.simulated:
        there = sent_home(config.method, state, fleet)
        if say is not None:
            say(f"{len(there)} sites have taken their models home: covey model STATE")
    summary = recorder.finish(state, finished=True)
    odd = summary.notes.get("odd clients", {"text": ""})["text"]
    if say is not None:
        for words in filter(None, (refused_in_words(fleet.ledger), odd if report else "")):
            say(words)  # who stands out in several runs is said by their common report
    tracking.end(summary.plain())
    if report:
        with storing(folder):
            write_page(folder)
    return Run(folder, state=state, summary=summary)


def _load(fleet: Fleet, checkpoint: Checkpoint, folder: Path) -> None:
    try:
        fleet.load(checkpoint.fleet)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{folder / 'checkpoint.json'} is damaged and cannot be resumed: {error!r}"
        ) from error


def parameters(layout: Layout) -> str:
    """How large the model is, in words."""
    if not layout.frozen:
        return f"{layout.trainable:,} parameters"
    return f"{layout.trainable:,} parameters train and travel; {layout.frozen:,} are frozen and travel once"


def needs(fleet: Fleet, config: Config) -> str:
    """The bound on memory, in words."""
    megabytes = math.ceil(bytes_needed(fleet, config) / 1e6)
    return f"estimated peak memory: {megabytes:,} MB plus Python and PyTorch"


def _run(
    config: Config,
    fleet: Fleet,
    recorder: Recorder,
    state: State | None,
    watchers: Sequence[Watcher],
    say: Callable[[str], None] | None,
) -> State:
    stopping = config.stop

    def is_over(round: int) -> bool:
        return recorder.at_target or (stopping is not None and stopping.is_over(round, recorder.best))

    if state is not None and state.round and is_over(state.round):
        return state  # a run that was to stop there has stopped, however many rounds are planned
    try:
        while True:
            try:
                last = run_rounds(
                    config.method,
                    fleet,
                    rounds=config.top.rounds,
                    state=state,
                    measure=partial(config.measure, rounds=config.top.rounds),
                    watchers=[recorder, *watchers],
                    stop=lambda end: is_over(end.state.round),
                    patience=config.top.patience,
                )
                if say is not None and last.round < config.top.rounds:
                    why = "the target is reached" if recorder.at_target else f"no better {stopping}"
                    say(f"ended after round {last.round} of {config.top.rounds}: {why}")
                return last
            except SpoiledRunError as spoiled:
                # under [private] rounds whose results were seen would be made again, and booked once
                if "private" in config.tables:
                    raise
                with storing(recorder.folder):
                    state = gone_back(spoiled, fleet, recorder, say)
    except KeyboardInterrupt as stopped:
        with storing(folder := recorder.folder):
            recorder.save()
            checkpoint = load_checkpoint(folder)
            done, summary = checkpoint.state.round if checkpoint else 0, None
            if checkpoint and done:
                fleet.load(checkpoint.fleet)
                recorder.go_back(checkpoint)
                pruned = isinstance(stopped, Pruned)
                summary = recorder.finish(checkpoint.state, finished=False, pruned=pruned).plain()
        command = "run" if fleet.simulated else "serve"
        interrupted = Interrupted(folder, done, command, summary)
        interrupted.pruned = isinstance(stopped, Pruned)
        raise interrupted from None


def write_page(folder: Path) -> None:
    """Writes report.html into a run folder."""
    from covey.folder.read import read_run
    from covey.report.page import write_report

    write_report([read_run(folder)], folder / "report.html")
