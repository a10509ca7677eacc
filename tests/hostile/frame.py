"""What a try is, and how all are run: each in a process of its own, with a bound on its time and on that of all."""

from __future__ import annotations

import importlib
import multiprocessing as mp
import resource
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from pathlib import Path

SECONDS = 120.0  # what a try may take, where it says nothing else
JOBS = 2  # at a time


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

    subject: str
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
    frame = {"__init__", "__main__", "frame", "liar", "test_frame"}
    found = {path.stem for path in Path(__file__).parent.glob("*.py")} - frame
    return sorted(
        found, key=lambda name: (name == "one_stranger", name)
    )  # all methods with every lie take longest


def tries_of(subject: str) -> list[Try]:
    """The tries of a file, in the order in which it has them."""
    module = importlib.import_module(f"tests.hostile.{subject}")
    getattr(module, "prepare", lambda: None)()  # what its tries share, done once before they are forked
    return [value.attempt for value in vars(module).values() if hasattr(value, "attempt")]


@dataclass
class Running:
    """A try at work in a process of its own."""

    subject: str
    one: Try
    process: ForkProcess
    line: Connection
    started: float

    @property
    def until(self) -> float:
        return self.started + self.one.seconds

    def result(self, now: float) -> Result | None:
        """What became of it; nothing while it may still continue."""
        outcome, megabytes = broke(f"it did not end in {self.one.seconds:.0f} s"), 0
        if self.line.poll():
            try:
                outcome, megabytes = self.line.recv()
            except EOFError:
                self.process.join()
                outcome = broke(f"its process died with code {self.process.exitcode}")
        elif now < self.until:
            return None
        self.process.kill()
        self.process.join()
        return Result(
            subject=self.subject,
            what=self.one.what,
            outcome=outcome,
            seconds=now - self.started,
            megabytes=megabytes,
        )


def begun(subject: str, one: Try) -> Running:
    """Starts the try in a forked process."""
    context = mp.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_child, args=(one, theirs))
    process.start()
    theirs.close()
    return Running(subject, one, process, ours, time.monotonic())


def carried_out(
    names: Sequence[str], *, seconds: float, told: Callable[[Result], None], jobs: int = JOBS
) -> list[Result]:
    """All tries of these subjects, some at a time; what has not ended after so many seconds in all counts as harm.

    Each result is told as it comes, so that nothing is lost if the rest never ends.
    """
    end = time.monotonic() + seconds
    running: list[Running] = []
    results: list[Result] = []

    def ended(result: Result) -> None:
        results.append(result)
        told(result)

    def collect(most: int) -> None:
        while len(running) > most:
            now = time.monotonic()
            soonest = min(min(one.until for one in running), end) - now
            wait([one.line for one in running], timeout=max(0.0, soonest))
            now = time.monotonic()
            for one in list(running):
                if now >= end:
                    one.one = replace(one.one, seconds=now - one.started)
                if (result := one.result(now)) is not None:
                    running.remove(one)
                    ended(result)

    for subject in names:
        tries = tries_of(subject)
        for one in tries:
            collect(jobs - 1)
            if time.monotonic() >= end:
                late = broke(f"it was not begun within {seconds:.0f} s")
                ended(Result(subject=subject, what=one.what, outcome=late, seconds=0.0, megabytes=0))
                continue
            running.append(begun(subject, one))
    collect(0)
    order = {name: place for place, name in enumerate(names)}
    return sorted(results, key=lambda result: order[result.subject])


def _child(one: Try, line: Connection) -> None:
    try:
        outcome = one.do()
    except BaseException as error:  # whatever it is, it is the outcome
        place = traceback.extract_tb(error.__traceback__)[-1]
        outcome = broke(f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})")
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    line.send((outcome, megabytes))


HEAD = "| subject | try | held | outcome | seconds | MB |\n| --- | --- | --- | --- | --- | --- |"


def line_of(result: Result) -> str:
    """A result as a line of a Markdown table, which a terminal shows as well."""
    said = " ".join(result.outcome.said.replace("|", "/").split())
    mark = "yes" if result.outcome.held else "**no**"
    return (
        f"| {result.subject} | {result.what} | {mark} | {said} | {result.seconds:.1f} | {result.megabytes} |"
    )


def table(rows: Sequence[Result]) -> str:
    """The results in Markdown."""
    return "\n".join([HEAD, *map(line_of, rows)])
