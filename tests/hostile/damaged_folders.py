"""A broken disk: bytes flipped, cut off, overwritten, swapped or gone, in every file of a run folder.

Whatever is damaged, `--resume` and `covey report` say so in one sentence, or the result is the same as without.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch

from covey.errors import UserError
from covey.folder.read import RunView, read_run
from covey.runs.config import resolve
from covey.runs.results import Run
from covey.runs.run import Interrupted, resume, run_config
from tests.hostile.frame import Outcome, attempt, broke, held

ROUNDS, STOP = 4, 2
FLIPS, CUTS = 12, 5  # of each file
TABLES = {
    "rounds": ROUNDS,
    "checkpoint_seconds": 0.0,
    "data": {"name": "digits", "clients": 4},
    "method": {"name": "cafa", "per_round": 3},
    "engine": {"mode": "serial"},
}


class Killed(BaseException):
    """As `kill -9`: nothing is tidied up."""


def run_until(folder: Path, end: BaseException | None, seed: int = 0) -> Path:
    """A run that ends after some rounds as `end` says, or comes to its own end."""

    def watch(now: Any) -> None:
        if end is not None and now.state.round == STOP:
            raise end

    with contextlib.suppress(Killed, Interrupted):
        run_config(resolve({**TABLES, "seed": seed}), folder, watchers=[watch], report=end is None)
    return folder


ENDS: dict[str, Callable[[], BaseException | None]] = {
    "killed": Killed,
    "interrupted": KeyboardInterrupt,
    "finished": lambda: None,
}


# ---------------------------------------------------------------------------------------------- what is damaged


@dataclass(frozen=True, kw_only=True)
class Damage:
    """What happens to one file of a folder."""

    what: str
    file: str
    do: Callable[[Path], None]


def files_of(folder: Path) -> list[str]:
    """Every file that is read again; the page is only written."""
    found = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    return [name for name in found if name != "report.html"]


def damages(folder: Path, other: Path, rng: np.random.Generator, scale: float = 1.0) -> Iterator[Damage]:
    """All damages of a folder; `other` is another run of the same settings with another seed."""
    names = files_of(folder)
    for name in names:
        size = (folder / name).stat().st_size
        for place in sorted({int(at) for at in rng.integers(0, size, max(1, int(scale * FLIPS)))}):
            yield Damage(what="a flipped byte", file=name, do=flip(name, place, int(rng.integers(1, 256))))
        for length in sorted({0, size // 2, size - 1, *map(int, rng.integers(0, size, int(scale * CUTS)))}):
            yield Damage(what="cut short", file=name, do=cut(name, length))
        yield Damage(what="a block of zeros", file=name, do=zeros(name, int(rng.integers(0, size))))
        yield Damage(what="bytes at its end", file=name, do=lengthen(name))
        yield Damage(what="gone", file=name, do=remove(name))
        if (other / name).exists():
            yield Damage(what="another run's file", file=name, do=replace_by(name, other / name))
        for second in names:
            if name < second:
                yield Damage(what="two files swapped", file=name, do=swap(name, second))


def flip(name: str, place: int, bits: int) -> Callable[[Path], None]:
    def do(folder: Path) -> None:
        content = bytearray((folder / name).read_bytes())
        content[place] ^= bits
        (folder / name).write_bytes(content)

    return do


def cut(name: str, length: int) -> Callable[[Path], None]:
    return lambda folder: _rewrite(folder / name, lambda content: content[:length])


def zeros(name: str, place: int, length: int = 512) -> Callable[[Path], None]:
    def do(folder: Path) -> None:
        content = bytearray((folder / name).read_bytes())
        content[place : place + length] = bytes(len(content[place : place + length]))
        (folder / name).write_bytes(content)

    return do


def lengthen(name: str) -> Callable[[Path], None]:
    return lambda folder: _rewrite(folder / name, lambda content: content + b"\n0")


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def replace_by(name: str, other: Path) -> Callable[[Path], None]:
    return lambda folder: _rewrite(folder / name, lambda _: other.read_bytes())


def swap(first: str, second: str) -> Callable[[Path], None]:
    def do(folder: Path) -> None:
        one, two = (folder / first).read_bytes(), (folder / second).read_bytes()
        (folder / first).write_bytes(two)
        (folder / second).write_bytes(one)

    return do


def _rewrite(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


# ---------------------------------------------------------------------------------------------- what becomes of it


def becomes(use: Callable[[], Any], same: Callable[[Any], bool]) -> str:
    """What a user meets: "said" in a sentence, "the same" as without damage, "taken" in silence, or a "traceback"."""
    try:
        return "the same" if same(use()) else "taken"
    except UserError as mistake:
        return "said" if "\n" not in str(mistake) else "traceback"
    except Exception as error:
        return f"traceback: {type(error).__name__}: {error}"


def same_end(clean: Run, rows: Any) -> Callable[[Run], bool]:
    def same(done: Run) -> bool:
        a, b = (replace(run.summary, wall_seconds=None) for run in (clean, done))
        return (
            torch.equal(clean.state.models, done.state.models)
            and a == b
            and pq.read_table(done.folder / "metrics.parquet").equals(rows)
        )

    return same


def same_view(clean: RunView) -> Callable[[RunView], bool]:
    def same(view: RunView) -> bool:
        columns = ("round", "client", "group", "name", "value")
        return (
            clean.config == view.config
            and clean.summary == view.summary
            and clean.rows.names == view.rows.names
            and all(
                np.array_equal(getattr(clean.rows, c), getattr(view.rows, c), equal_nan=True) for c in columns
            )
        )

    return same


def tried(end: str, place: Path, *, scale: float = 1.0, seed: int = 0) -> Counter[str]:
    """Every damage to a run that ended so: what became of `--resume` and of `covey report`, counted."""
    folder = run_until(place / "run", ENDS[end]())
    other = run_until(place / "other", ENDS[end](), seed=1)
    whole = resume(Path(shutil.copytree(folder, place / "whole")), report=False)
    rows = pq.read_table(whole.folder / "metrics.parquet")
    view = read_run(folder)
    counts: Counter[str] = Counter()
    for number, damage in enumerate(damages(folder, other, np.random.default_rng(seed), scale)):
        copy = Path(shutil.copytree(folder, place / f"try-{number}"))
        damage.do(copy)
        for how, result in (
            ("report", becomes(lambda: read_run(copy), same_view(view))),  # noqa: B023
            ("resume", becomes(lambda: resume(copy, report=False), same_end(whole, rows))),  # noqa: B023
        ):
            counts[result.partition(":")[0]] += 1
            if result.startswith(("taken", "traceback")):
                counts[f"{how}, {damage.file}, {damage.what}: {result}"] += 1
        shutil.rmtree(copy)
    return counts


def outcome(end: str) -> Outcome:
    with tempfile.TemporaryDirectory() as place:
        counts = tried(end, Path(place))
    tries = sum(counts[name] for name in ("said", "the same", "taken", "traceback"))
    words = f"{tries} tries: {counts['said']} said, {counts['the same']} without effect, "
    words += f"{counts['taken']} taken in silence, {counts['traceback']} tracebacks"
    bad = [name for name in counts if ", " in name]
    return held(words) if not bad else broke(f"{words}; {bad[0]}")


@attempt("a run that was killed: every file damaged, then report and resume", seconds=600)
def killed() -> Outcome:
    return outcome("killed")


@attempt("a run after Ctrl-C: every file damaged, then report and resume", seconds=600)
def interrupted() -> Outcome:
    return outcome("interrupted")


@attempt("a finished run: every file damaged, then report and its final model", seconds=600)
def finished() -> Outcome:
    return outcome("finished")
