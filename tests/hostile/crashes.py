"""A process that dies at every change of its run folder, or while the folder is begun; a broken last checkpoint."""

from __future__ import annotations

import contextlib
import multiprocessing as mp
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np

from covey.errors import UserError
from covey.files import failing_at
from covey.runs.results import Run
from covey.runs.run import resume
from tests.hostile.damaged_folders import Killed
from tests.hostile.frame import Outcome, attempt, broke, held
from tests.runs.test_run import same
from tests.test_failpoints import Count, again, begun, changes, extended


def dying(act: object, folder: Path, straight: Run, what: str) -> Outcome:
    """Dies at each change in turn and continues; compares the result with that of a run that was never stopped."""
    doing = begun if act == "begun" else extended

    def ready(name: str) -> Path:
        if act == "extended":
            shutil.copytree(folder / "straight", folder / name)
        return folder / name

    places = changes(doing, ready("count"))
    for place, change in enumerate(places):
        here = ready(f"{place}")
        with failing_at(Count(place)), contextlib.suppress(Killed):
            doing(here)
        try:
            same(again(here) if act == "begun" else extended(here), straight)
        except (AssertionError, UserError) as error:
            return broke(f"dead before it would {change}: {error}")
        shutil.rmtree(here)
    return held(f"dead at each of {len(places)} changes {what}, resumed: bit-identical every time")


@attempt("a run that dies at every change of its folder, from its first file to its last", seconds=600)
def at_every_change() -> Outcome:
    folder = Path(tempfile.mkdtemp())
    return dying("begun", folder, begun(folder / "straight"), "of a run")


@attempt("a finished run that dies at every change while it is given more rounds", seconds=600)
def while_extended() -> Outcome:
    folder = Path(tempfile.mkdtemp())
    begun(folder / "straight")
    shutil.copytree(folder / "straight", folder / "long")
    return dying("extended", folder, extended(folder / "long"), "of a longer run")


@attempt("20 runs killed with kill -9 while their folder is being begun", seconds=600)
def while_begun() -> Outcome:
    folder, rng, resumed, anew = Path(tempfile.mkdtemp()), np.random.default_rng(0), 0, 0
    straight = begun(folder / "straight")
    for number in range(20):
        here = folder / f"{number}"
        process = mp.get_context("fork").Process(target=begun, args=(here,))
        process.start()
        while not here.exists() and process.is_alive():
            time.sleep(0.0005)
        time.sleep(float(rng.uniform(0, 0.03)))
        process.kill()
        process.join()
        resumed, anew = (
            resumed + (here / "config.toml").exists(),
            anew + (not (here / "config.toml").exists()),
        )
        try:
            same(again(here), straight)
        except (AssertionError, UserError) as error:
            return broke(f"{sorted(path.name for path in here.iterdir())}: {error}")
    return held(f"{resumed} were resumed and {anew} begun anew, bit-identically")


@attempt("the last checkpoint is damaged")
def last_checkpoint() -> Outcome:
    folder = Path(tempfile.mkdtemp())
    straight = begun(folder / "straight")

    def stop(end: object) -> None:
        if end.state.round == 2:  # type: ignore[attr-defined]
            raise Killed

    from covey.runs.config import resolve
    from covey.runs.run import run_config
    from tests.test_failpoints import TABLES

    with contextlib.suppress(Killed):
        run_config(resolve(TABLES), folder / "run", watchers=[stop], report=False)
    last = folder / "run" / "checkpoint" / "000002.safetensors"
    last.write_bytes(last.read_bytes()[:-1])
    try:
        resume(folder / "run")
    except UserError as said:
        if "--from 1" not in str(said):
            return broke(str(said))
    else:
        return broke("it was taken in silence")
    same(resume(folder / "run", from_round=1, report=False), straight)
    return held("the sentence names the checkpoint of round 1; --from 1 continues, bit-identically")
