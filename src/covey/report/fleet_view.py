"""The clients of a run for the page: their labels, how often and when they worked, how well they do."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.folder.rows import Rows
from covey.report.thin import MOST_BARS_A_ROUND, MOST_COLUMNS, MOST_DOTS, chunks, evenly, short, short_one


def whole(value: float, instead: int) -> int:
    """A count or a number of a group, as a journal says it: where there is none, a default."""
    return int(value) if math.isfinite(value) else instead


def groups_in_view(rows: Rows) -> dict[int, int]:
    """Each client's latest group; empty when the method does not group, or every client is its own group."""
    changes = rows.by_client("groups/group")
    found = {int(c): whole(g, -1) for c, g in zip(changes.client, changes.value, strict=True)}
    return found if len(set(found.values())) < len(found) else {}


def fleet_view(rows: Rows, group: dict[int, int], classes: Sequence[str] = ()) -> dict[str, Any]:
    """One column per client (or a few neighbours), ordered by group, then true cluster, then id."""
    labels = sorted((n for n in rows.names if n.startswith("data/label:")), key=label_order)
    truth = {
        client: whole(value, -1) for client, value in last_by_client(rows.by_client("data/cluster")).items()
    }
    metric = client_metric(rows)
    measured = rows.by_client(metric) if metric else rows.take(np.zeros(0, dtype=np.intp))
    value = last_by_client(measured)
    worked = rows.by_client("fleet/busy")
    times = rounds_worked(worked)
    counts = {name.removeprefix("data/label:"): last_by_client(rows.by_client(name)) for name in labels}
    ids = sorted({*group, *truth, *value, *times, *(c for held in counts.values() for c in held)})
    order = sorted(ids, key=lambda i: (group.get(i, -1), truth.get(i, -1), i))
    columns = chunks(order, MOST_COLUMNS) if order else []
    return {
        "clients": len(ids),
        "metric": metric,
        "round": int(measured.round[-1]) if len(measured) else None,
        "ids": [column if len(column) == 1 else [column[0], column[-1], len(column)] for column in columns],
        "group": [common(group, column) for column in columns] if len(set(group.values())) > 1 else None,
        "truth": [common(truth, column) for column in columns] if len(set(truth.values())) > 1 else None,
        "labels": [class_name(label, classes) for label in counts],
        "counts": [
            [whole(sum(held.get(i, 0) for i in column), 0) for held in counts.values()] for column in columns
        ],
        "worked": short((float(np.mean([times.get(i, 0) for i in column])) for column in columns), 4),
        "often": short(np.quantile([times.get(i, 0) for i in ids], (0, 0.5, 1)) if ids else [], 4),
        "quiet": sum(i not in times for i in ids),
        "value": short((float(np.mean([value.get(i, np.nan) for i in column])) for column in columns), 4),
        "sizes": sizes_of(group),
        "dots": dots_of(value, group),
    }


def rounds_worked(busy: Rows) -> dict[int, int]:
    """In how many rounds each client worked; one that was asked twice in a round worked in one."""
    rounds = np.unique(np.stack([busy.client, busy.round], axis=1), axis=0)
    clients, counts = np.unique(rounds[:, 0], return_counts=True)
    return dict(zip(clients.tolist(), counts.tolist(), strict=True))


def client_metric(rows: Rows) -> str | None:
    """What was measured on each client: accuracy where there is one, else the first that is not a loss."""
    found = sorted({n for n in rows.names if n.startswith("local-test/") and len(rows.by_client(n))})
    return next((n for n in ("local-test/accuracy", *found) if n in found and not n.endswith("/loss")), None)


def label_order(name: str) -> tuple[int, str]:
    """Numbered labels by number, then the others by name."""
    label = name.removeprefix("data/label:")
    return (int(label), "") if label.isdecimal() else (2**31, label)


def class_name(label: str, classes: Sequence[str]) -> str:
    """What a numbered label is called, where the classes have names."""
    return classes[int(label)] if label.isdecimal() and int(label) < len(classes) else label


def last_by_client(rows: Rows) -> dict[int, float]:
    """Each client's latest value."""
    return dict(zip(rows.client.tolist(), rows.value.tolist(), strict=True))


def common(of: dict[int, int], clients: list[int]) -> int:
    """The value that most of the clients have; -1 for none."""
    values, counts = np.unique([of.get(i, -1) for i in clients], return_counts=True)
    return int(values[counts.argmax()])


def sizes_of(group: dict[int, int]) -> dict[str, int]:
    """How many clients each group has."""
    values, counts = np.unique(np.array(list(group.values()), dtype=np.int64), return_counts=True)
    return {str(g): int(n) for g, n in zip(values, counts, strict=True)}


def dots_of(value: dict[int, float], group: dict[int, int]) -> dict[str, Any]:
    """Clients from the worst served to the best, evenly subsampled when there are many."""
    ranked = sorted((v, i) for i, v in value.items() if np.isfinite(v))
    kept = [ranked[place] for place in evenly(len(ranked), MOST_DOTS)]
    quartiles: NDArray[np.float64] | list[float] = (
        np.quantile([v for v, _ in ranked], (0.1, 0.25, 0.5, 0.75, 0.9)) if ranked else []
    )
    return {
        "client": [i for _, i in kept],
        "value": short((v for v, _ in kept), 4),
        "group": [group.get(i, -1) for _, i in kept],
        "quantiles": short(quartiles, 4),
        "of": len(ranked),
    }


def timeline_view(rows: Rows, group: dict[int, int], most_bars: int) -> dict[str, Any]:
    """When each client worked: all rounds that fit, else an even choice; of a large round the slowest."""
    start, busy = rows.by_client("fleet/start"), rows.by_client("fleet/busy")
    begun = {
        (int(r), int(c)): float(v) for r, c, v in zip(start.round, start.client, start.value, strict=True)
    }
    rounds, firsts, counts = np.unique(busy.round, return_index=True, return_counts=True)
    drawn = np.minimum(counts, MOST_BARS_A_ROUND)
    most = len(rounds) if drawn.sum() <= most_bars else max(2, int(most_bars // max(drawn.mean(), 1)))
    kept = evenly(len(rounds), most)
    shown = [bars_of(busy.take(np.arange(firsts[k], firsts[k] + counts[k])), begun, group) for k in kept]
    ends = {int(r): float(s) for r, s in zip(rows.round, rows.seconds, strict=True) if r >= 0}
    return {"rounds": shown, "of": len(rounds), "strip": strip_of(rows, ends, rounds[kept])}


def bars_of(busy: Rows, begun: dict[tuple[int, int], float], group: dict[int, int]) -> dict[str, Any]:
    """One round: its slowest clients, seconds counted from the first start."""
    number = int(busy.round[0])
    starts = np.array([begun.get((number, int(c)), np.nan) for c in busy.client])
    begin = float(np.nanmin(starts)) if np.isfinite(starts).any() else 0.0
    offsets = np.nan_to_num(starts - begin)
    order = np.argsort(-(offsets + busy.value), kind="stable")[:MOST_BARS_A_ROUND]
    return {
        "round": number,
        "begin": short_one(begin, 7),
        "end": short_one(float(busy.seconds[0]) - begin, 6),
        "client": busy.client[order].tolist(),
        "group": [group.get(int(client), -1) for client in busy.client[order]],
        "start": short(offsets[order]),
        "busy": short(busy.value[order]),
        "of": len(busy),
    }


def strip_of(rows: Rows, ends: dict[int, float], rounds: NDArray[np.int32]) -> dict[str, Any]:
    """How long each kept round took and how many replies it missed."""
    known = sorted(ends)
    before = {r: ends[known[place - 1]] if place else 0.0 for place, r in enumerate(known)}
    counts = {
        name: dict(zip(found.round.tolist(), found.value.tolist(), strict=True))
        for name in ("lost", "refused")
        for found in [rows.overall(f"fleet/{name}")]
    }
    return {
        "seconds": short((ends[int(r)] - before[int(r)] for r in rounds), 4),
        "missed": [whole(sum(count.get(int(r), 0) for count in counts.values()), 0) for r in rounds],
    }
