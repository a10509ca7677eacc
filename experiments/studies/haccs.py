"""HACCS: what is not a plain run. Privacy against clusters, who may be missing, and who is left behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.core import RoundEnd, Task, run_rounds, stream
from covey.core.round import empty_state, open_round
from covey.fleet.local import LocalFleet
from covey.parts.group.density import Density
from covey.parts.steps.evaluate import Evaluate
from covey.parts.steps.privacy import Privacy, add_noise, shares
from covey.report.seeds import Number
from covey.runs.config import fleet_of, resolve
from experiments.spec import Findings

Array = NDArray[np.float64]
PAIRS = ((6, 7), (1, 4), (5, 9), (2, 3), (0, 4), (2, 5), (6, 8), (0, 9), (7, 8), (1, 3))  # Table I


# ------------------------------------------------------------------------------------------ Fig. 8a


def epsilon_against_clusters(settings: dict[str, Any], seed: int) -> Findings:
    """Fig. 8a: share of the groups that are found exactly, by epsilon and samples per client.

    Two clients per label with 70/10/10/10 % of their samples; the mean over `repetitions`.
    """
    rows: dict[str, dict[str, float]] = {}
    curves: dict[str, tuple[Sequence[float], Sequence[float]]] = {}
    density = Density(**settings["clustering"])
    for size in settings["sizes"]:
        found = []
        for epsilon in settings["epsilons"]:
            privacy = Privacy(epsilon=epsilon, noise=settings["noise"])
            trials = [
                groups_found(size, privacy, density, stream(seed, "fig8a", size, str(epsilon), trial))
                for trial in range(settings["repetitions"])
            ]
            found.append(float(np.mean(trials)))
            rows[f"{size} samples, epsilon {epsilon:g}"] = {"groups found": found[-1]}
        curves[f"{size} samples per client"] = (list(settings["epsilons"]), found)
    return Findings(rows=rows, curves=curves)


def groups_found(size: int, privacy: Privacy, density: Density, rng: np.random.Generator) -> float:
    """Of ten pairs of clients with the same majority label, the share that is a cluster of just these two."""
    labels = 10
    told = []
    for client in range(2 * labels):
        counts = np.zeros(labels)
        major = client // 2
        others = rng.permutation(np.delete(np.arange(labels), major))[:3]
        counts[[major, *others]] = np.floor(np.array([0.7, 0.1, 0.1, 0.1]) * size + 1e-9)
        told.append(shares(add_noise(counts, sensitivity=1.0, privacy=privacy, rng=rng)))
    clusters = density(np.stack(told))
    pairs = clusters.reshape(labels, 2)
    sizes = np.bincount(clusters)
    return float(np.mean((pairs[:, 0] == pairs[:, 1]) & (sizes[pairs[:, 0]] == 2)))


# ------------------------------------------------------------------------------------------ Fig. 3


def noisy_histogram(settings: dict[str, Any], seed: int) -> Findings:
    """Fig. 3: the histogram of one client as the server sees it, by epsilon, and how far it is from the true one.

    The distance is the total variation between the shares; expected noise in a bin is sqrt(2) / epsilon samples.
    """
    labels, size = settings["labels"], settings["samples"]
    counts = np.full(labels, float(size))
    rows: dict[str, dict[str, float]] = {}
    curves: dict[str, tuple[Sequence[float], Sequence[float]]] = {
        "exact": (list(range(labels)), counts.tolist())
    }
    for epsilon in settings["epsilons"]:
        privacy = Privacy(epsilon=epsilon, noise=settings["noise"])
        noisy = [
            add_noise(counts, sensitivity=1.0, privacy=privacy, rng=stream(seed, "fig3", str(epsilon), trial))
            for trial in range(settings["repetitions"])
        ]
        away = [np.abs(shares(told) - shares(counts)).sum() / 2 for told in noisy]
        rows[f"epsilon {epsilon:g}"] = {
            "fullest bin": float(np.mean([told.max() for told in noisy])),
            "emptiest bin": float(np.mean([told.min() for told in noisy])),
            "away from the truth": float(np.mean(away)),
        }
        curves[f"epsilon {epsilon:g}"] = (list(range(labels)), noisy[0].tolist())
    return Findings(rows=rows, curves=curves)


# ------------------------------------------------------------------------------------------ what summaries see


def what_summaries_see(settings: dict[str, Any], seed: int) -> Findings:
    """How well the groups by each summary agree with what sets the clients apart, for each way they are set apart.

    The truth is the kind of the client where the shift gives one (a turn of the pictures), else its majority label.
    """
    from sklearn.metrics import adjusted_rand_score

    rows: dict[str, dict[str, Number]] = {}
    for case, tables in settings["cases"].items():
        for name, method in settings["methods"].items():
            config = resolve({**settings["run"], **tables, "method": method, "seed": seed})
            fleet, grouping = fleet_of(config, None), config.method.group
            assert grouping is not None
            try:
                groups = grouping(open_round(empty_state(fleet), fleet))
            finally:
                fleet.close()
            kinds = [share.cluster for share in fleet.data.shares]
            truth = kinds if min(kinds) >= 0 else fleet.data.label_counts().argmax(axis=1)
            found = [groups[i] for i in range(len(truth))]
            cells = rows.setdefault(name, {})
            cells[f"{case}: agreement"] = float(adjusted_rand_score(truth, found))
            cells[f"{case}: groups"] = float(len(set(found)))
    return Findings(rows=rows)


# ------------------------------------------------------------------------------------------ Fig. 1


def who_may_be_missing(settings: dict[str, Any], seed: int) -> Findings:
    """Fig. 1: accuracy of each group when 80 % of the devices are gone, at random or as whole groups."""
    tables = {**settings["run"], "seed": seed}
    clients = resolve(tables).tables["data"]["clients"]
    group = np.arange(clients) // (clients // len(PAIRS))
    keep = round(0.2 * clients)
    rng = stream(seed, "fig1")
    kept_groups = sorted(rng.choice(len(PAIRS), size=2, replace=False).tolist())
    # At random: a fifth of every group stays (the paper's Fig. 1a has every group there).
    each = max(1, keep // len(PAIRS))
    spread = [
        rng.choice(np.flatnonzero(group == place), size=each, replace=False) for place in range(len(PAIRS))
    ]
    stays = {
        "nobody gone": list(range(clients)),
        "devices at random": sorted(np.concatenate(spread).tolist()),
        "whole groups": np.flatnonzero(np.isin(group, kept_groups)).tolist(),
    }
    there = {label for g in kept_groups for label in PAIRS[g]}
    rows: dict[str, dict[str, float]] = {}
    for name, members in stays.items():
        accuracy = accuracies(tables, members, clients)
        for place, pair in enumerate(PAIRS):
            row = rows.setdefault(f"group {place} ({pair[0]}, {pair[1]})", {})
            row[name] = float(accuracy[group == place].mean())
            if name == "whole groups":
                row["of its labels there"] = float(len(there & set(pair)))
    kinds = {0: "gone, no label left", 1: "gone, one label left", 2: "gone, both labels left"}
    for place in range(len(PAIRS)):
        pair_row = rows[f"group {place} ({PAIRS[place][0]}, {PAIRS[place][1]})"]
        kind = "kept" if place in kept_groups else kinds[int(pair_row["of its labels there"])]
        row = rows.setdefault(f"mean of groups: {kind}", {})
        for name in stays:
            row[name] = row.get(name, 0.0) + pair_row[name]
        row["groups"] = row.get("groups", 0.0) + 1
    for row in rows.values():
        if "groups" in row:
            row.update({name: row[name] / row["groups"] for name in stays})
    return Findings(rows=rows)


def accuracies(tables: Mapping[str, Any], members: Sequence[int], clients: int) -> Array:
    """Every client's local test accuracy after a run in which only `members` can ever be reached."""
    gone = sorted(set(range(clients)) - set(members))
    devices = {"special": [{"clients": gone, "availability": 0.0}]} if gone else {}
    config = resolve({**tables, "devices": devices})
    fleet = fleet_of(config, None)
    try:
        state = run_rounds(config.method, fleet, rounds=config.top.rounds)
        return local_accuracy(fleet, state.models[:1], clients)
    finally:
        fleet.close()


def local_accuracy(fleet: LocalFleet, models: Any, clients: int) -> Array:
    """Accuracy of one model on every client's test data, whether it can be reached or not."""
    task = Task(models=models, slots=(0,))
    replies = fleet.ask(Evaluate(), dict.fromkeys(range(clients), task), measure=True)
    return np.array([float(reply.stats["accuracy"]) for reply in replies])


# ------------------------------------------------------------------------------------------ Table III, Fig. 11


def left_behind(settings: dict[str, Any], seed: int) -> Findings:
    """Table III and Fig. 11: which share of each cluster ever worked, and fastest against slowest device."""
    rows: dict[str, dict[str, float]] = {}
    curves: dict[str, tuple[Sequence[float], Sequence[float]]] = {}
    for name, method in settings["methods"].items():
        clusters, worked, accuracy, seconds = watched_run({**settings["run"], "method": method, "seed": seed})
        included = [len(worked & set(members)) / len(members) for members in clusters]
        gaps = sorted(accuracy[fastest(m, seconds)] - accuracy[slowest(m, seconds)] for m in clusters)
        rows[name] = {
            "clusters": float(len(clusters)),
            "0-50 %": float(sum(share < 0.5 for share in included)),
            "50-75 %": float(sum(0.5 <= share < 0.75 for share in included)),
            "75-100 %": float(sum(share >= 0.75 for share in included)),
            "devices that worked": len(worked) / len(accuracy),
            "accuracy, fastest - slowest": float(np.mean(gaps)),
            "largest gap": float(np.max(gaps)),
            "accuracy": float(accuracy.mean()),
        }
        curves[name] = (list(range(len(gaps))), gaps)
    return Findings(rows=rows, curves=curves)


def watched_run(
    tables: Mapping[str, Any],
) -> tuple[list[list[int]], set[int], Array, dict[int, float]]:
    """A run's last clusters, who ever worked, every client's accuracy, and how long each takes for a round."""
    config = resolve(tables)
    method, fleet = config.method, fleet_of(config, None)
    worked: set[int] = set()

    def watch(end: RoundEnd) -> None:
        worked.update(busy.client for busy in end.fleet.ledger.busy)

    try:
        state = run_rounds(method, fleet, rounds=config.top.rounds, watchers=[watch])
        clients = len(fleet.client_data)
        accuracy = local_accuracy(fleet, state.models[:1], clients)
        seconds = fleet.seconds(method.local, range(clients))
    finally:
        fleet.close()
    names = sorted(set(state.groups.values()))
    clusters = [[i for i, group in state.groups.items() if group == name] for name in names]
    return clusters, worked, accuracy, seconds


def fastest(members: Sequence[int], seconds: Mapping[int, float]) -> int:
    return min(members, key=lambda i: (seconds[i], i))


def slowest(members: Sequence[int], seconds: Mapping[int, float]) -> int:
    return max(members, key=lambda i: (seconds[i], i))
