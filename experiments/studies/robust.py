"""What attackers cost those who do not lie, with every method as it is by default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from covey.core.round import run_rounds
from covey.fleet.odd import odd_clients
from covey.parts.measure import on_local_tests
from covey.runs.config import fleet_of, resolve
from experiments.hostile import Liars, attacked
from experiments.spec import Findings

NAMES = {
    "flip": "sign flipped",
    "scale": "times -9",
    "alie": "ALIE",
    "inner-product": "inner product",
    "labels": "labels flipped",
    "min-max": "min-max",
    "sleeper": "sleepers",
}


def attackers(settings: Mapping[str, Any], seed: int) -> Findings:
    """The mean accuracy of honest clients for each fleet, method, attack and share of attackers.

    Nobody lies in the first column, where the accuracy of everybody's model is that of the same clients as with the
    largest share of attackers.
    """
    rows: dict[str, dict[str, float]] = {}
    for fleet, own in settings["fleets"].items():
        for name, method in settings["methods"].items():
            tables = {**settings["base"], **own, **method, "seed": seed}
            row = rows.setdefault(f"{name}, {fleet}", {})
            row["nobody lies"], _ = outcome(tables, seed, max(settings["shares"]))
            for share in settings["shares"]:
                for attack in settings["attacks"]:
                    column = f"{NAMES[attack]}, {share:.0%}"
                    row[column], _ = outcome(tables, seed, share, attack=attack)
    return Findings(rows=rows)


def honest(settings: Mapping[str, Any], seed: int) -> Findings:
    """Where nobody lies: accuracy with the guard as it is by default and without, and how many updates it shortens."""
    rows: dict[str, dict[str, float]] = {}
    for fleet, own in settings["fleets"].items():
        for name in settings["methods"]:
            row = rows.setdefault(f"{name}, {fleet}", {})
            for column, guard in (("guard off", {"norm": 0}), ("by default", {})):
                tables = {**settings["base"], **own, "method": {"name": name}, "guard": guard, "seed": seed}
                config = resolve(tables)
                method, simulated = config.method, fleet_of(config)
                try:
                    state = run_rounds(method, simulated, rounds=config.top.rounds)
                    found = on_local_tests(method, state, simulated)
                finally:
                    simulated.close()
                row[column] = mean([m.value for m in found if m.metric == "accuracy" and m.client >= 0])
            row["difference"] = row["by default"] - row["guard off"]
            conduct = simulated.ledger.conduct.values()
            row["share of updates shortened"] = sum(c.long for c in conduct) / max(
                1, sum(c.updates for c in conduct)
            )
            row["clients named as odd"] = float(len(odd_clients(simulated.ledger)))
    return Findings(rows=rows)


def portraits(settings: Mapping[str, Any], seed: int) -> Findings:
    """The mean accuracy of honest clients, and how many clusters they are in, when some describe themselves falsely."""
    rows: dict[str, dict[str, float]] = {}
    tables = {**settings["base"], "seed": seed}
    for share in settings["shares"]:
        for row, lie in settings["lies"].items():
            accuracy, clusters = outcome(tables, seed, share, **lie)
            rows.setdefault(row, {})[f"{share:.0%} lie"] = accuracy
            rows[row][f"{share:.0%} lie: clusters of honest clients"] = float(clusters)
    return Findings(rows=rows)


def outcome(tables: Mapping[str, Any], seed: int, share: float, **lie: Any) -> tuple[float, int]:
    """The mean accuracy of those who do not lie on their own test data, and in how many groups they are."""
    config = resolve(tables)
    method, fleet = config.method, fleet_of(config)
    liars = Liars(share=share, seed=seed).among(len(fleet.data.shares))
    if lie:
        fleet = attacked(fleet, liars, lie.get("attack"), lie.get("portrait"))
    try:
        state = run_rounds(method, fleet, rounds=config.top.rounds)
        found = on_local_tests(method, state, fleet)
    finally:
        fleet.close()
    honest = [m.value for m in found if m.metric == "accuracy" and m.client >= 0 and m.client not in liars]
    return mean(honest), len({group for i, group in state.groups.items() if i not in liars})


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
