"""What a try is, and how it is run: in a process of its own, with a bound on its time."""

from __future__ import annotations

import importlib
import multiprocessing as mp
import resource
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

SECONDS = 120.0  # what a try may take, where it says nothing else


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a try: whether the defence held, and in words."""

    held: bool
    said: str


def held(said: str) -> Outcome:
    """Nothing was lost, nothing false, nobody in."""
    return Outcome(held=True, said=said)


def broke(said: str) -> Outcome:
    """The try did harm."""
    return Outcome(held=False, said=said)


@dataclass(frozen=True, kw_only=True)
class Try:
    """One try: what is tried, and the function that does it."""

    what: str
    do: Callable[[], Outcome]
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Result:
    """A try's outcome, its time and the most memory that its process held."""

    what: str
    outcome: Outcome
    seconds: float
    megabytes: int


def attempt(
    what: str, *, seconds: float = SECONDS
) -> Callable[[Callable[[], Outcome]], Callable[[], Outcome]]:
    """Marks a function as a try; `what` is its line in the table."""

    def mark(do: Callable[[], Outcome]) -> Callable[[], Outcome]:
        do.attempt = Try(what=what, do=do, seconds=seconds)  # type: ignore[attr-defined]
        return do

    return mark


def subjects() -> list[str]:
    """The files with tries, by name."""
    frame = {"__init__", "__main__", "frame"}
    return sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem not in frame)


def tries_of(subject: str) -> list[Try]:
    """The tries of a file, in the order in which it has them."""
    module = importlib.import_module(f"tests.hostile.{subject}")
    getattr(module, "prepare", lambda: None)()  # what its tries share, done once before they are forked
    return [value.attempt for value in vars(module).values() if hasattr(value, "attempt")]


def carried_out(one: Try) -> Result:
    """Runs the try in a forked process, which is ended when its time is over."""
    context = mp.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_child, args=(one, theirs))
    started = time.monotonic()
    process.start()
    theirs.close()
    outcome, megabytes = broke(f"it did not end in {one.seconds:.0f} s"), 0
    if ours.poll(one.seconds):
        try:
            outcome, megabytes = ours.recv()
        except EOFError:
            process.join()
            outcome = broke(f"its process died with code {process.exitcode}")
    process.kill()
    process.join()
    return Result(what=one.what, outcome=outcome, seconds=time.monotonic() - started, megabytes=megabytes)


def _child(one: Try, line: Connection) -> None:
    try:
        outcome = one.do()
    except BaseException as error:  # whatever it is, it is the outcome
        place = traceback.extract_tb(error.__traceback__)[-1]
        outcome = broke(f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})")
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    line.send((outcome, megabytes))


def table(rows: Sequence[tuple[str, Result]]) -> str:
    """The results in Markdown, which a terminal shows as well."""
    lines = ["| subject | try | held | outcome | seconds | MB |", "| --- | --- | --- | --- | --- | --- |"]
    for subject, result in rows:
        said = " ".join(result.outcome.said.replace("|", "/").split())
        mark = "yes" if result.outcome.held else "**no**"
        lines.append(
            f"| {subject} | {result.what} | {mark} | {said} | {result.seconds:.1f} | {result.megabytes} |"
        )
    return "\n".join(lines)
