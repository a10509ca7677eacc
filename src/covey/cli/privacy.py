"""`covey privacy`: the noise that an epsilon needs, or the epsilon that a noise costs."""

from pathlib import Path
from typing import Any

from rich.table import Table

from covey.cli.command import RunOptions
from covey.cli.run import gathered_tables
from covey.errors import UserError
from covey.settings.ranges import Count
from covey.terminal import Console, say


def privacy(
    file: Path | None = None,
    folder: Path | None = None,
    *,
    epsilon: float | None = None,
    noise: float | None = None,
    delta: float | None = None,
    level: str | None = None,
    clients: int | None = None,
    per_round: int | None = None,
    rounds: int | None = None,
    samples: Count | None = None,
    method: str | None = None,
    table: Path | None = None,
    person: str | None = None,
    out: Path | None = None,
    set_: list[str] | None = None,
) -> None:
    """Say how much noise an epsilon needs, or what a noise costs; or write the data-protection officer's page.

    `covey privacy report FOLDER` writes one page on a run folder, or at a site on its --state folder: who learns what,
    from whom, by which mechanism, at which epsilon, on which assumptions, with text for an impact assessment.

    Args:
        file: the run's settings, as for covey run; or the word report.
        folder: with report: a run folder, or a site's --state folder.
        epsilon: find the noise for this privacy loss.
        noise: find the privacy loss of this noise, in clip lengths.
        delta: the chance that the loss is larger.
        level: who is hidden: client, local or example.
        clients: how many clients there are.
        per_round: how many of them work in a round.
        rounds: how many rounds.
        samples: how many samples a client has (level example).
        table: with report: the site's table, to count the rows of each person.
        person: with report and --table: the column that says whose row it is.
        out: with report: the page to write. [default: privacy.html in the folder]
        set_: any setting: table.key=value. Repeatable.
    """
    if file is not None and str(file) == "report":
        officers_page(folder, table, person, out)
        return
    if folder is not None or table or person or out:
        raise UserError(
            f"FOLDER, --table, --person and --out go with report: covey privacy report {folder or 'FOLDER'}"
        )
    from covey.privacy.quote import quote
    from covey.privacy.settings import Private
    from covey.runs.config import resolve

    tables = gathered_tables(file, RunOptions(clients=clients, rounds=rounds, set_=set_), method)
    if per_round is not None:
        tables.setdefault("method", {}).setdefault("name", "fedavg")
        tables["method"]["per_round"] = per_round
    given = private_table(tables.get("private", {}), epsilon, noise, delta, level)
    # the epsilon would differ from client to client
    single = given["level"] == "example" and given.pop("noise", None)
    tables["private"] = given | ({"epsilon": 1.0} if single else {})
    config = resolve(tables)
    found = quote(
        config.method,
        Private(**config.tables["private"]),
        clients=config["data"]["clients"],
        rounds=config.top.rounds,
        samples=samples,
        noise=single or None,
    )
    shown = Table(box=None, show_header=False, pad_edge=False)
    for name, value in {
        "noise": f"{found.noise:.6g} clip lengths",
        "epsilon": f"{found.epsilon:.6g} at delta {found.delta:g}",
        "sums": f"{found.sums:,} with that noise",
        "sampling": found.sampling,
        "neighbours": found.neighbours,
    }.items():
        shown.add_row(name, value)
    Console().print(shown)


def private_table(
    given: dict[str, Any], epsilon: float | None, noise: float | None, delta: float | None, level: str | None
) -> dict[str, Any]:
    """[private] with the options on top: epsilon in place of noise, or the other way round."""
    if epsilon is not None and noise is not None:
        raise UserError(
            f"--epsilon is {epsilon:g} and --noise {noise:g}; give one of them: it says the other"
        )
    options = {"epsilon": epsilon, "noise": noise, "delta": delta, "level": level}
    kept = {"level": "client", **given}
    if epsilon is not None or noise is not None:
        kept = {name: value for name, value in kept.items() if name not in ("epsilon", "noise")}
    table = {**kept, **{name: value for name, value in options.items() if value is not None}}
    if "epsilon" not in table and "noise" not in table:
        raise UserError("--epsilon and --noise are missing; give one of them: it says the other")
    if table["level"] != "client":
        table.setdefault("clip", 1.0)  # noise is told in clip lengths, so that any will do
    return table


def officers_page(folder: Path | None, table: Path | None, person: str | None, out: Path | None) -> None:
    """The page of a run folder or of a site's state."""
    from covey.folder.read import read_run
    from covey.report.officer import of_run, write_statement

    if folder is None:
        raise UserError("covey privacy report needs a folder: that of a run, or a site's --state")
    if not folder.is_dir():
        raise UserError(f"{folder} is no folder; give that of a run, or a site's --state")
    if (table is None) != (person is None):
        raise UserError(
            f"--table is {table} and --person {person}; they go together: the column says whose row it is"
        )
    rows = most_rows(table, person) if table is not None and person is not None else None
    if (folder / "config.toml").is_file():
        statement = of_run(read_run(folder), rows)
    else:
        from covey.deploy.officer import of_site

        statement = of_site(folder, rows)
    path = out or folder / "privacy.html"
    write_statement(statement, path)
    say(f"privacy statement: {path}")


def most_rows(table: Path, person: str) -> int:
    """The most rows that one person has."""
    import numpy as np

    from covey.data.table_files import open_table
    from covey.data.table_rows import groups_of, no_gap

    found = open_table(table).table
    if person not in found.column_names:
        raise UserError(
            f"--person is {person!r}, which is no column of {table}; it has {', '.join(found.column_names)}"
        )
    no_gap(found[person], person, "person")
    whose, _ = groups_of(found[person], person)
    return int(np.bincount(whose).max())
