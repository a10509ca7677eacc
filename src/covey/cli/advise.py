"""`covey advise`: which heterogeneity a fleet has, and which method suits it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from covey import terminal as progress
from covey.cli.command import FleetOptions, Port
from covey.cli.serve import PORT
from covey.errors import UserError
from covey.settings.ranges import Count
from covey.terminal import Console

if TYPE_CHECKING:
    from covey.core import Fleet
    from covey.fleet.heterogeneity.measure import Heterogeneity
    from covey.runs.advise import Advice
    from covey.runs.config import Config


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
        check: also run the advised method beside FedAvg and local, and say which was best.
        rounds: rounds of --check; trees take as many as they need.
        out: where --check writes. [default: runs/advise-TIME]
        png: also draw the numbers into this picture.
        sites: ask real sites, which join as for covey serve.
        host: with --sites: where they connect to.
        port: with --sites: the port.
    """
    from covey.cli.run import gathered_tables
    from covey.runs.advise import advise_fleet
    from covey.runs.config import fleet_of, resolve

    if check and sites:
        raise UserError("--check runs in a simulation; with --sites start the file with covey serve")
    if out is not None and not check:
        raise UserError("--out goes with --check: the advice itself writes nothing")
    if epsilon is not None and not epsilon > 0:
        raise UserError(f"--epsilon is {epsilon}; allowed: a number above 0")
    tables = gathered_tables(file, fleet)
    config = resolve(tables)
    here: AbstractContextManager[Fleet] = (
        asked_sites(config, host, port, None if insecure else certs)
        if sites
        else closing(fleet_of(config, progress.say))
    )
    with here as asked:
        advice = advise_fleet(asked, epsilon=epsilon)
    Console().print(str(advice), soft_wrap=True, highlight=False, markup=False)
    if epsilon is not None:
        Console().print(f"Clients reported this with a privacy loss of epsilon {epsilon:g} each.")
    print_file(tables, advice.method, "serve" if sites else "run")
    if png is not None:
        draw(advice.heterogeneity, png)
        Console(stderr=True).print(f"picture: {png}")
    if check:
        checked(tables, advice, rounds, out)


@contextmanager
def asked_sites(config: Config, host: str, port: int, certs: Path | None) -> Iterator[Fleet]:
    """The sites that join; nothing is trained, and no folder is written."""
    import tempfile

    from covey.cli.serve import open_sites, place_of
    from covey.deploy import superlink as links

    links.need_flower()
    with (
        tempfile.TemporaryDirectory() as folder,
        links.superlink(certs or Path(folder), certs=certs) as link,
        open_sites(
            config, link, certs, place_of(host, port, certs is None), config["data"]["clients"]
        ) as fleet,
    ):
        yield fleet


def print_file(tables: dict[str, Any], method: str, command: str) -> None:
    """The file to run, and how."""
    import tomli_w

    from covey.runs.compare import with_method

    Console().print(f"\nRun this file with covey {command} FILE.toml:\n")
    typer.echo(tomli_w.dumps(with_method(tables, method)))


def draw(found: Heterogeneity, path: Path) -> None:
    """Draws each number as a share of a high value."""
    from covey.fleet.heterogeneity.words import HETEROGENEITY_LEVELS, WORDS
    from covey.report.figures import draw_bars

    bars = {
        WORDS[name][0]: round(min(one.value / HETEROGENEITY_LEVELS[name][1], 2.0), 2)
        for name, one in found.measures().items()
        if one.known
    }
    draw_bars(bars, path=path, y_label="1 = high", title="How heterogeneous the clients are")


def checked(tables: dict[str, Any], advice: Advice, rounds: int, out: Path | None) -> None:
    """Runs the advised method, FedAvg and local side by side, and says which of them to use."""
    from covey.cli.run import interruptible
    from covey.cli.run import show as show_runs
    from covey.files import new_run_folder
    from covey.folder.read import read_run
    from covey.report.page import write_report
    from covey.runs.advise import ALONE, REFERENCE
    from covey.runs.compare import with_method
    from covey.runs.config import resolve, rounds_wanted
    from covey.runs.run import run_or_resume
    from covey.terminal import live

    folder = out or new_run_folder("advise")
    wanted = [advice.method, *([advice.other] if advice.other else []), REFERENCE, ALONE]
    finished = {}
    for name in dict.fromkeys(wanted):
        config = resolve(with_method({**tables, "rounds": rounds}, name))
        grown = rounds_wanted(config["method"])
        if grown is not None:  # else a part of a forest would be judged for the whole
            config = resolve(with_method({**tables, "rounds": grown}, name))
        with live(name, config.top.rounds) as watch, interruptible():
            finished[name] = run_or_resume(config, folder / name, watchers=[watch], report=False)
    views = {name: read_run(done.folder) for name, done in finished.items()}
    write_report(list(views.values()), folder / "report.html")
    show_runs(list(finished.values()), folder)
    by_client = {}
    for name, view in views.items():
        found = view.rows.by_client("local-test/accuracy")  # by round: of each client the last one stays
        by_client[name] = dict(zip(found.client.tolist(), found.value.tolist(), strict=True))
    Console().print(verdict(by_client, wanted), soft_wrap=True)


def verdict(scores: Mapping[str, Mapping[int, float]], wanted: Sequence[str]) -> str:
    """The method to use: the best, unless it is not significantly ahead of another (paired over clients)."""
    from covey.report.seeds import paired

    names = list(dict.fromkeys(name for name in wanted if name in scores))
    common = sorted(set.intersection(*(set(scores[name]) for name in names)))
    if not common:
        return "The check says nothing: no client has test data."
    values = {name: [scores[name][client] for client in common] for name in names}
    means = {name: sum(of) / len(of) for name, of in values.items()}
    best = max(names, key=lambda name: means[name])
    tests = {name: paired(values[name], values[best]) for name in names if name != best}
    level = [name for name, test in tests.items() if test is None or not test.distinguishable]
    numbers = ", ".join(f"{name} {value:.1%}" for name, value in means.items())
    shown = f"({numbers}: means over the clients' own test data)"
    if not level:
        return f"The check settles it: use {best} {shown}."
    return (
        f"The check cannot tell {best} from {', '.join(level)} {shown}: take the simplest, or more --rounds."
    )
