"""Reading one number off a finished run, by a short name.

last:SPLIT/METRIC            the value after the last round        best:SPLIT/METRIC   the best one
tail5:SPLIT/METRIC           mean over the last 5 measured rounds  mean:SPLIT/METRIC:30-59   mean over those rounds
mean:SPLIT/METRIC:20%-40%    mean over that part of the run, from after its first 20 % on
spread:SPLIT/METRIC:80%-100% standard deviation over the measured rounds of that part
to:round | to:seconds | to:bytes     what it took to reach the target
to:total                     bytes to the target, with measuring (the same in each round)
after:SPLIT/METRIC:300:5     mean over the last 5 measured rounds that ended within 300 seconds
reach:SPLIT/METRIC:5         seconds until the mean over 5 measured rounds reaches the target
cost:messages | cost:bytes | cost:seconds      in all, without measuring
cost:messages:KIND           of one kind of step, such as mix.peers (models sent from peer to peer)
cost:total                   bytes in all, with measuring
cost:updates                 local updates of all clients together: who trains everybody in every round makes more
best90:seconds:SPLIT/METRIC  seconds (or bytes, round) until 90 % of the best last value of any run of the case and seed
evaluation:bytes             what measuring would have cost
epsilon:most                 the most privacy loss of any client
groups:agreement             adjusted Rand index of the clients' last groups against their true clusters
groups:count                 how many groups there are in the end
clusters:worst:SPLIT/METRIC     the lowest mean over the clients of one true cluster, after the last round
note:NAME.KEY                a number that the method left in its notes
ratio:COLUMN:RUN             another column's number divided by that of the run of this name, seed by seed
difference:COLUMN:RUN        the same, less that of the run of this name
devices:worked               share of the clients that ever worked

What a target costs that was not reached is a `Bound`: over what the whole run cost.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from covey.core.ledger import Cost
from covey.folder.rows import read_parquet
from covey.folder.summary import Summary
from covey.report.seeds import Bound, Number
from covey.runs.study.story import MEASURES, ReadNumber, finite, read_by

OF_SEVERAL_RUNS = ("ratio:", "difference:", "best90:")  # what no run tells by itself


def read_cell(what: str, summary: Summary, folder: Path) -> Number:
    """The number, or None where the run has none; a bound for a target that was not reached."""
    return read_by(READERS, what, summary, folder)


def _to_target(name: str, summary: Summary, folder: Path) -> Number:
    target = summary.targets[0] if summary.targets else None
    if target and name == "total" and target.round and target.bytes is not None:
        return target.bytes + target.round / summary.rounds_done * summary.cost.evaluation_bytes
    if target and name == "total":
        return Bound(float(summary.cost.bytes + summary.cost.evaluation_bytes))
    return MEASURES["to"](name, summary, folder)


def _cost(name: str, summary: Summary, folder: Path) -> Number:
    if name == "updates":
        return float(series(folder, "fleet/replied")[1].sum())
    name, _, step = name.partition(":")
    cost = summary.cost.by_kind.get(step, Cost()) if step else summary.cost
    if name == "total":
        return float(cost.bytes + summary.cost.evaluation_bytes)
    return finite(getattr(cost, name, None))


def _within(name: str, folder: Path) -> np.ndarray:
    """The values of a metric in a part of the run."""
    name, _, span = name.rpartition(":")
    rounds, values = series(folder, name)
    return np.asarray(values[_inside(rounds, span)])


def _mean(name: str, _: Summary, folder: Path) -> Number:
    inside = _within(name, folder)
    return float(inside.mean()) if len(inside) else None


def _spread(name: str, _: Summary, folder: Path) -> Number:
    inside = _within(name, folder)
    return float(inside.std(ddof=1)) if len(inside) > 1 else None


def _reach(name: str, summary: Summary, folder: Path) -> Number:
    name, _, window = name.rpartition(":")
    if not summary.targets:
        return None
    wanted = summary.targets[0].target
    found = reached(*series(folder, name, "seconds"), wanted, int(window))
    return Bound(summary.cost.seconds) if found is None else found


def _after(name: str, _: Summary, folder: Path) -> Number:
    name, limit, window = name.rsplit(":", 2)
    seconds, values = series(folder, name, "seconds")
    in_time = values[seconds <= float(limit)][-int(window) :]
    return float(in_time.mean()) if len(in_time) and seconds[-1] >= float(limit) else None


def _note(name: str, summary: Summary, _: Path) -> Number:
    note, key = name.split(".", 1)
    return finite((summary.notes.get(note) or {}).get(key))


READERS: dict[str, ReadNumber] = {
    **MEASURES,
    "best": lambda name, summary, _: finite(summary.best[name].value) if name in summary.best else None,
    "to": _to_target,
    "cost": _cost,
    "groups": lambda name, _, folder: groups_cell(name, folder),
    "evaluation": lambda _, summary, __: float(summary.cost.evaluation_bytes),
    "epsilon": lambda _, summary, __: max(summary.epsilon.values(), default=None),
    "note": _note,
    "mean": _mean,
    "spread": _spread,
    "reach": _reach,
    "after": _after,
    "devices": lambda _, summary, folder: share_that_worked(folder, summary),
}


def reached(seconds: np.ndarray, values: np.ndarray, target: float, window: int) -> float | None:
    """When the mean of the last `window` values first reaches the target; None if it never does."""
    if len(values) < window:
        return None
    means = np.convolve(values, np.ones(window) / window, mode="valid")
    over = np.flatnonzero(means >= target - 1e-12)
    return float(seconds[window - 1 + over[0]]) if len(over) else None


def first_over(folder: Path, name: str, unit: str, level: float) -> Number:
    """At which `unit` (round, seconds, bytes) a number first reaches the level; a bound where it never does."""
    where, values = series(folder, name, unit)
    over = np.flatnonzero(values >= level - 1e-12)
    if not len(where):
        return None
    return float(where[over[0]]) if len(over) else Bound(float(where[-1]))


def _inside(rounds: np.ndarray, span: str) -> np.ndarray:
    """Which rounds lie in a span: 30-59 with both ends, 20%-40% without its start."""
    first, last = (float(part.rstrip("%")) for part in span.split("-"))
    whole = rounds.max(initial=0)
    if span.endswith("%"):
        return np.asarray((100 * rounds > first * whole) & (100 * rounds <= last * whole))
    return np.asarray((rounds >= first) & (rounds <= last))


def groups_cell(name: str, folder: Path) -> float | None:
    """How many groups the clients are in at the end, or how well these agree with their true clusters."""
    from sklearn.metrics import adjusted_rand_score

    columns = ["round", "client", "split", "metric", "value"]
    table = pq.read_table(folder / "metrics.parquet", columns=columns).to_pylist()
    clusters = {row["client"]: row["value"] for row in table if row["metric"] == "cluster"}
    changes = [row for row in table if row["split"] == "groups"]
    groups = {row["client"]: row["value"] for row in sorted(changes, key=lambda row: row["round"])}
    if name == "count":
        return float(len(set(groups.values()))) if groups else None
    both = sorted(set(clusters) & set(groups))
    if name != "agreement" or not both:
        return None
    return float(adjusted_rand_score([clusters[i] for i in both], [groups[i] for i in both]))


def share_that_worked(folder: Path, summary: Summary) -> float:
    """Of all clients, the share that ever trained."""
    table = pq.read_table(folder / "metrics.parquet", columns=["client", "split", "metric"])
    busy = pc.and_(pc.equal(table["split"], "fleet"), pc.equal(table["metric"], "busy"))
    return len(pc.unique(table.filter(busy)["client"])) / summary.clients


def series(folder: Path, name: str, x: str = "round") -> tuple[np.ndarray, np.ndarray]:
    """x and value of an overall number SPLIT/METRIC by round; x is "round", "seconds", "bytes" or "messages:KIND"."""
    if x.startswith("messages:"):
        rounds, values = series(folder, name)
        when, sent = series(folder, f"fleet/{x}")
        return np.array([sent[when <= number].sum() for number in rounds]), values
    found = read_parquet(folder / "metrics.parquet").overall(name)
    return getattr(found, x), found.value
