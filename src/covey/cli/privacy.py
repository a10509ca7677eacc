"""`covey privacy`: the noise that an epsilon needs, or the epsilon that a noise costs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from covey.cli.run import FileArgument, MethodOption, RoundsOption, SetOption, gathered
from covey.errors import UserError
from covey.terminal import Console


def register(app: typer.Typer) -> None:
    app.command()(privacy)


def privacy(
    file: FileArgument = None,
    epsilon: Annotated[float | None, typer.Option(help="Find the noise for this privacy loss.")] = None,
    noise: Annotated[
        float | None, typer.Option(help="Find the privacy loss of this noise, in clip lengths.")
    ] = None,
    delta: Annotated[float | None, typer.Option(help="The chance that the loss is larger.")] = None,
    level: Annotated[str | None, typer.Option(help="Who is hidden: client, local or example.")] = None,
    clients: Annotated[int | None, typer.Option(help="How many clients there are.")] = None,
    per_round: Annotated[int | None, typer.Option(help="How many of them work in a round.")] = None,
    rounds: RoundsOption = None,
    samples: Annotated[
        int | None, typer.Option(help="How many samples a client has (level example).", min=1)
    ] = None,
    method: MethodOption = None,
    set_: SetOption = None,
) -> None:
    """Say how much noise an epsilon needs, or what a noise costs: what a run with these settings would use."""
    from covey.privacy.quote import quote
    from covey.privacy.settings import Private
    from covey.runs.config import resolve

    tables = with_options(file, method, set_, rounds, clients=clients, per_round=per_round)
    table = private_table(tables.get("private", {}), epsilon, noise, delta, level)
    # every client would make another epsilon of it
    single = table["level"] == "example" and table.pop("noise", None)
    tables["private"] = table | ({"epsilon": 1.0} if single else {})
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
    Console().print(shown, highlight=False)


def with_options(
    file: Path | None,
    method: str | None,
    assignments: list[str] | None,
    rounds: int | None,
    *,
    clients: int | None,
    per_round: int | None,
) -> dict[str, Any]:
    """The tables of the file with the options on top."""
    tables = gathered(file, method, None, assignments, None, rounds)
    if clients is not None:
        tables.setdefault("data", {})["clients"] = clients
    if per_round is not None:
        tables.setdefault("method", {}).setdefault("name", "fedavg")
        tables["method"]["per_round"] = per_round
    return tables


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
