"""`covey advise`: which heterogeneity a fleet has, and which method suits it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.table import Table

from covey import terminal as progress
from covey.cli.command import FleetOptions, Port
from covey.cli.serve import PORT
from covey.errors import UserError
from covey.parts.heterogeneity_words import LEVELS, WORDS, level_of, meaning
from covey.settings.ranges import Count
from covey.terminal import Console

if TYPE_CHECKING:
    from covey.core.round import Fleet
    from covey.parts.heterogeneity import Heterogeneity
    from covey.runs.advise import Advice
    from covey.runs.config import Config

BAR = 20  # characters
HELD = 0.01  # by which the advised method may be behind the best, and the advice hold
SIMILAR = 0.2  # the nearness from which another fleet's results say much about this one


def advise(
    file: Path | None = None,
    *,
    fleet: FleetOptions = FleetOptions(),
    epsilon: float | None = None,
    check: bool = False,
    rounds: Count = 15,
    out: Path | None = None,
    png: Path | None = None,
    sites: bool = False,
    host: str = "0.0.0.0",
    port: Port = PORT,
    certs: Path = Path("certs"),
    insecure: bool = False,
) -> None:
    """Say how heterogeneous the clients are, which method to use, what to expect, and the file to run.

    Args:
        epsilon: privacy loss of what each client tells. [default: exact]
        check: also run the advised method, FedAvg and local side by side.
        rounds: rounds of --check.
        out: where --check writes. [default: runs/advise-TIME]
        png: also draw the numbers into this picture.
        sites: ask real sites, which join as for covey serve.
        host: with --sites: where they connect to.
        port: with --sites: the port.
    """
    from covey.cli.run import gathered
    from covey.parts.heterogeneity import measure_heterogeneity
    from covey.parts.steps.privacy import Privacy
    from covey.runs.advise import advise as conclude
    from covey.runs.advise import evidence
    from covey.runs.config import fleet_of, resolve

    if check and sites:
        raise UserError("--check runs in a simulation; with --sites start the file with covey serve")
    if out is not None and not check:
        raise UserError("--out goes with --check: the advice itself writes nothing")
    if epsilon is not None and not epsilon > 0:
        raise UserError(f"--epsilon is {epsilon}; allowed: a number above 0")
    tables = gathered(file, fleet)
    config = resolve(tables)
    here: AbstractContextManager[Fleet] = (
        asked_sites(config, host, port, None if insecure else certs)
        if sites
        else closing(fleet_of(config, progress.say))
    )
    with here as asked:
        found = measure_heterogeneity(asked, privacy=Privacy(epsilon=epsilon))
        row_bytes = 4 * asked.layout.size
    advice = conclude(found, evidence())
    show(found, advice, epsilon)
    per_round = config["method"].get("per_round", config["data"]["clients"])
    usual = 2 * row_bytes * per_round * config.top.rounds
    costs(advice, usual, config.top.rounds)
    print_file(tables, advice.method, "serve" if sites else "run")
    if png is not None:
        draw(found, png)
        Console(stderr=True).print(f"picture: {png}")
    if check:
        checked(tables, advice, rounds, out)


@contextmanager
def asked_sites(config: Config, host: str, port: int, certs: Path | None) -> Iterator[Fleet]:
    """The sites that join; nothing is trained, and no folder is written."""
    import tempfile

    from covey.cli.serve import listening, open_sites
    from covey.deploy import superlink as links

    links.need_flower()
    with (
        tempfile.TemporaryDirectory() as folder,
        links.superlink(certs or Path(folder), certs=certs) as link,
        open_sites(
            config, link, certs, listening(host, port, certs is None), config["data"]["clients"]
        ) as fleet,
    ):
        yield fleet


def numbers(found: Mapping[str, float]) -> Table:
    """The numbers with a bar each, and what they mean."""

    table = Table(title="How heterogeneous these clients are", title_justify="left", box=None, pad_edge=False)
    for column in ("", "", "", "", ""):
        table.add_column(column)
    for name, value in found.items():
        level = level_of(name, value)
        filled = 0 if level == "hidden" else min(BAR, round(BAR * value / (2 * LEVELS[name][1])))
        number = "" if level == "hidden" else f"{value:.2f}"
        bar = "█" * filled + "·" * (BAR - filled)
        table.add_row(WORDS[name][0], bar, number, level, meaning(name, value))
    return table


def show(found: Heterogeneity, advice: Advice, epsilon: float | None) -> None:
    """The five numbers, and what follows from them."""
    say = Console().print
    say(numbers(found.numbers()))
    if epsilon is not None:
        say(f"Clients told it with a privacy loss of epsilon {epsilon:g} each.")
    say()
    say(sentence(advice), soft_wrap=True)
    if advice.avoid:
        say(
            f"Not recommended: {', '.join(advice.avoid)} (expected below FedAvg by more than a point).",
        )
    nearest = [f"{row.fleet} ({weight:.2f})" for row, weight in advice.rows[:3]]
    say(f"Based on the scoreboard's most similar fleets (similarity): {'; '.join(nearest)}.")
    if advice.rows[0][1] < SIMILAR:
        say("None of them is very similar: take this as a guess, and try it with --check.")


def sentence(advice: Advice) -> str:
    """What to use, and what it should bring."""
    from covey.runs.advise import ALONE, REFERENCE

    alone = advice.gains.get(ALONE)
    beside = f" Each client alone: {100 * alone:+.1f} points." if alone is not None else ""
    if advice.method == REFERENCE:
        other = next(name for name in advice.gains if name not in (REFERENCE, ALONE))
        gain = 100 * advice.gains[other]
        return (
            "Use fedavg: these clients are alike, and one plain average is enough. "
            f"{other}, the best of the others, is expected to gain {gain:+.1f} points.{beside}"
        )
    runner_up = next((n for n in advice.gains if n not in (advice.method, ALONE)), None)
    second = f"; next {runner_up}, {100 * advice.gains[runner_up]:+.1f}" if runner_up else ""
    gain = 100 * advice.gains[advice.method]
    return (
        f"Use {advice.method}: expected {gain:+.1f} points of accuracy on the clients' own data over FedAvg{second}."
        f"{beside}"
    )


def costs(advice: Advice, usual: float, rounds: int) -> None:
    """Bytes, seconds and privacy."""
    from covey.report.wording import show_bytes
    from covey.runs.advise import REFERENCE

    beside = f", {advice.bytes:.1f} times FedAvg's, and {advice.seconds:.1f} times its seconds"
    Console().print(
        f"It costs about {show_bytes(usual * advice.bytes)} in {rounds} rounds"
        f"{'' if advice.method == REFERENCE else beside}. Updates leave the clients as in FedAvg (docs/privacy.md).",
        soft_wrap=True,
    )


def print_file(tables: dict[str, Any], method: str, command: str) -> None:
    """The file to run, and how."""
    import tomli_w

    from covey.runs.compare import with_method

    Console().print(f"\nRun this file with covey {command} FILE.toml:\n")
    typer.echo(tomli_w.dumps(with_method(tables, method)))


def draw(found: Heterogeneity, path: Path) -> None:
    """The five numbers as shares of what is high."""
    from covey.report.figures import draw_bars

    bars = {
        WORDS[name][0]: round(min(value / LEVELS[name][1], 2.0), 2)
        for name, value in found.numbers().items()
        if value == value
    }
    draw_bars(bars, path=path, y_label="1 = high", title="How heterogeneous the clients are")


def checked(tables: dict[str, Any], advice: Advice, rounds: int, out: Path | None) -> None:
    """Runs the advised method, FedAvg and local, and says whether the advice held."""
    from covey.cli.run import interruptible
    from covey.cli.run import show as show_runs
    from covey.files import new_run_folder
    from covey.folder.read import read_run
    from covey.report.page import write_report
    from covey.runs.advise import ALONE, REFERENCE
    from covey.runs.compare import with_method
    from covey.runs.config import resolve
    from covey.runs.run import run_or_resume
    from covey.terminal import live

    folder = out or new_run_folder("advise")
    finished = {}
    for name in dict.fromkeys([advice.method, REFERENCE, ALONE]):
        config = resolve(with_method({**tables, "rounds": rounds}, name))
        with live(name, rounds) as watch, interruptible():
            finished[name] = run_or_resume(config, folder / name, watchers=[watch], report=False)
    write_report([read_run(done.folder) for done in finished.values()], folder / "report.html")
    show_runs(list(finished.values()), folder)
    last = {name: done.summary.last for name, done in finished.items()}
    score = {name: float(values["local-test/accuracy-mean"]) for name, values in last.items()}
    spread = {name: float(values.get("local-test/accuracy-std", 0.0)) for name, values in last.items()}
    numbers = ", ".join(f"{name} {value:.1%}" for name, value in score.items())
    said = verdict(advice.method, score, spread, clients=finished[advice.method].summary.clients)
    Console().print(f"{said} after {rounds} rounds ({numbers} on the clients' own test data).")


def verdict(method: str, score: Mapping[str, float], spread: Mapping[str, float], *, clients: int) -> str:
    """Whether the advice held: within a point of the best, or significantly behind it, or hard to say.

    Chance is two standard errors of the difference, of means over clients that differ by `spread`.
    """
    best = max(score, key=lambda name: score[name])
    behind = score[best] - score[method]
    if behind <= HELD:
        return "The advice held"
    if behind <= 2 * math.sqrt((spread[best] ** 2 + spread[method] ** 2) / max(1, clients)):
        return f"Whether the advice held cannot be told: {best} is not significantly ahead"
    return f"The advice did not hold: {best} is better"
