"""`covey privacy`: the noise that an epsilon needs, or the epsilon that a noise costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.table import Table

from covey.cli.command import RunOptions
from covey.cli.run import gathered
from covey.errors import UserError
from covey.settings.ranges import Count
from covey.terminal import Console


def privacy(
    file: Path | None = None,
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
    set_: list[str] | None = None,
) -> None:
    """Say how much noise an epsilon needs, or what a noise costs: what a run with these settings would use.

    Args:
        epsilon: find the noise for this privacy loss.
        noise: find the privacy loss of this noise, in clip lengths.
        delta: the chance that the loss is larger.
        level: who is hidden: client, local or example.
        clients: how many clients there are.
        per_round: how many of them work in a round.
        rounds: how many rounds.
        samples: how many samples a client has (level example).
        set_: any setting: table.key=value. Repeatable.
    """
    from covey.privacy.quote import quote
    from covey.privacy.settings import Private
    from covey.runs.config import resolve

    tables = gathered(file, RunOptions(clients=clients, rounds=rounds, set_=set_), method)
    if per_round is not None:
        tables.setdefault("method", {}).setdefault("name", "fedavg")
        tables["method"]["per_round"] = per_round
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
