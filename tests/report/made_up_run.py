"""A made-up run folder that follows the documented schema, so that reports can be tested on their own."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

COLUMNS = {
    "round": pa.int32(),
    "seconds": pa.float64(),
    "bytes": pa.int64(),
    "client": pa.int32(),
    "group": pa.int32(),
    "split": pa.string(),
    "metric": pa.string(),
    "value": pa.float64(),
}
MODEL_BYTES = 4 * 61_706


@dataclass(frozen=True, kw_only=True)
class MadeUp:
    """How the run looks; `groups=0` is a method that does not group, `rows` a bank of that many models."""

    method: str = "fedavg"
    clients: int = 40
    rounds: int = 60
    labels: int = 10
    kinds: int = 4
    groups: int = 0
    per_round: int = 8
    top: float = 0.9
    pace: float = 12.0
    seed: int = 1
    name: str = ""
    target: float = 0.8
    lost: float = 0.05
    finished: bool = True
    notes: dict[str, Any] = field(default_factory=dict)
    epsilon: float | None = None


def records_of(made: MadeUp) -> list[list[Any]]:
    """Every measurement of the run, in the order of the columns."""
    rng = np.random.default_rng(made.seed)
    rows: list[list[Any]] = []
    kind = np.arange(made.clients) * made.kinds // made.clients
    group = (
        np.arange(made.clients) * made.groups // made.clients if made.groups else np.full(made.clients, -1)
    )
    slowness = rng.lognormal(0, 0.6, made.clients)
    skill = np.clip(rng.normal(0, 0.05, made.clients) - 0.03 * kind, -0.2, 0.1)
    shares = rng.dirichlet(np.full(made.labels, 0.4), made.kinds)
    for i in range(made.clients):
        counts = rng.multinomial(int(rng.integers(80, 600)), shares[kind[i]])
        rows += [[-1, 0.0, 0, i, -1, "data", f"label:{label}", float(n)] for label, n in enumerate(counts)]
        rows.append([-1, 0.0, 0, i, -1, "data", "kind", float(kind[i])])
        if made.groups:
            rows.append([1, 0.0, 0, i, int(group[i]), "groups", "group", float(group[i])])
    clock, traffic = 0.0, 0
    for r in range(made.rounds + 1):
        if r:
            chosen = rng.choice(made.clients, min(made.per_round, made.clients), replace=False)
            lost = rng.random(len(chosen)) < made.lost
            begin, busy = clock, slowness[chosen] * rng.uniform(0.8, 1.2, len(chosen)) * 3
            clock, n, ok = clock + float(busy.max()), len(chosen), int((~lost).sum())
            up, down = ok * MODEL_BYTES, n * MODEL_BYTES
            traffic += up + down
            fleet = {"selected": n, "replied": ok, "lost": n - ok, "refused": int(r == 7)}
            costs = {
                "messages": n + ok,
                "bytes_up": up,
                "bytes_down": down,
                "bytes_peer": 0,
                "seconds": clock - begin,
            }
            fleet |= {f"{cost}:train.sgd": value for cost, value in costs.items()}
            rows += [[r, clock, traffic, -1, -1, "fleet", metric, float(v)] for metric, v in fleet.items()]
            for i, spent in zip(chosen.tolist(), busy.tolist(), strict=True):
                rows.append([r, clock, traffic, i, -1, "fleet", "start", begin])
                rows.append([r, clock, traffic, i, -1, "fleet", "busy", spent])
        level = 0.1 + (made.top - 0.1) * (1 - np.exp(-r / made.pace)) + float(rng.normal(0, 0.006))
        accuracy = np.clip(level + skill * (r > 0) + rng.normal(0, 0.015, made.clients), 0, 1)
        rows += measured(made, r, clock, traffic, group, accuracy, level)
    return rows


def measured(
    made: MadeUp, r: int, clock: float, traffic: int, group: np.ndarray, accuracy: np.ndarray, level: float
) -> list[list[Any]]:
    """The evaluation of one round."""
    at = [r, clock, traffic]
    loss = -np.log(np.clip(accuracy, 0.01, 1))
    rows: list[list[Any]] = [
        [*at, -1, -1, "global-test", "accuracy", float(np.clip(level + 0.01, 0, 1))],
        [*at, -1, -1, "global-test", "loss", float(-np.log(np.clip(level, 0.01, 1)))],
    ]
    for metric, values in (("accuracy", accuracy), ("loss", loss)):
        bad = np.sort(values if metric == "accuracy" else -values)[: max(1, made.clients // 10)]
        overall = {
            "mean": values.mean(),
            "weighted": values.mean() + 0.004,
            "std": values.std(),
            "worst10": abs(bad.mean()),
        }
        rows += [[*at, -1, -1, "local-test", f"{metric}-{k}", float(v)] for k, v in overall.items()]
        rows += [[*at, i, int(group[i]), "local-test", metric, float(v)] for i, v in enumerate(values)]
        for g in range(made.groups):
            inside = float(values[group == g].mean())
            rows += [[*at, -1, g, "local-test", f"{metric}-{k}", inside] for k in ("mean", "weighted")]
    return rows


def summary_of(made: MadeUp, rows: list[list[Any]]) -> dict[str, Any]:
    """`summary.json`, counted here by plain loops over the records."""
    last: dict[str, float] = {}
    best: dict[str, dict[str, float]] = {}
    reached: dict[str, Any] = {"round": None, "seconds": None, "bytes": None}
    kinds: dict[str, dict[str, float]] = {}
    for r, seconds, sent, client, group, split, metric, value in rows:
        name = f"{split}/{metric}"
        if split in ("global-test", "local-test") and client == -1 and group == -1:
            last[name] = value
            sign = -1 if "loss" in metric else 1
            if metric.endswith("std"):
                continue
            if name not in best or sign * value > sign * best[name]["value"]:
                best[name] = {"value": value, "round": r}
            if name == "local-test/accuracy-mean" and reached["round"] is None and value >= made.target:
                reached = {"round": r, "seconds": seconds, "bytes": sent}
        if split == "fleet" and ":" in metric:
            cost, _, kind = metric.partition(":")
            kinds.setdefault(kind, {})[cost] = kinds.get(kind, {}).get(cost, 0) + value
    train = kinds.get("train.sgd", {})
    measuring = (made.rounds + 1) * made.clients
    kinds["evaluate.loss (measuring)"] = {
        "messages": measuring,
        "bytes_up": 0,
        "bytes_down": measuring * MODEL_BYTES,
        "bytes_peer": 0,
        "seconds": 0.0,
    }
    losses = [rec for rec in rows if rec[5] == "fleet" and rec[6] == "lost" and rec[7] > 0]
    reason = "the device dropped out of the round"
    examples = [{"client": 3, "kind": "train.sgd", "round": rec[0], "reason": reason} for rec in losses[:4]]
    refusal = {
        "client": 11,
        "kind": "train.sgd",
        "round": 7,
        "reason": "the reply holds a value that is not finite",
    }
    return {
        "schema": 1,
        "covey": "0.1.0",
        "name": made.name or made.method,
        "method": made.method,
        "dataset": "digits",
        "model": "mlp",
        "parameters": 61_706,
        "clients": made.clients,
        "seed": made.seed,
        "rounds": made.rounds,
        "rounds_done": made.rounds,
        "finished": made.finished,
        "last": last,
        "best": best,
        "targets": [{"metric": "local-test/accuracy-mean", "target": made.target, **reached}],
        "cost": {**train, "evaluation_bytes": measuring * MODEL_BYTES, "by_kind": kinds},
        "lost": {"count": int(sum(rec[7] for rec in losses)), "examples": examples},
        "refused": {"count": 1, "examples": [refusal]},
        "epsilon": {str(i): made.epsilon * (1 + i % 3) for i in range(made.clients)} if made.epsilon else {},
        "engine": {"name": "local", "mode": "processes", "workers": 2, "trainer": "torch", "why": "2 cores"},
        "wall_seconds": 41.7,
        "notes": made.notes,
    }


def config_of(made: MadeUp) -> str:
    """`config.toml`."""
    return f"""name = "{made.name or made.method}"
seed = {made.seed}
rounds = {made.rounds}
target = {made.target}
target_on = "local-test"

[method]
name = "{made.method}"
per_round = {made.per_round}

[data]
name = "digits"
clients = {made.clients}

[partition]
name = "dir-class"
alpha = 0.4
"""


def write_run(folder: Path, made: MadeUp) -> Path:
    """The whole folder; an unfinished one has the journal and no parquet."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = records_of(made)
    (folder / "config.toml").write_text(config_of(made), encoding="utf-8")
    if not made.finished:
        lines = [json.dumps(record) for record in rows]
        (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return folder
    columns = zip(*rows, strict=True)
    table = pa.table(
        [pa.array(c, type=t) for c, t in zip(columns, COLUMNS.values(), strict=True)], names=list(COLUMNS)
    )
    pq.write_table(table, folder / "metrics.parquet")
    (folder / "summary.json").write_text(json.dumps(summary_of(made, rows)), encoding="utf-8")
    return folder


def known_notes(clients: int, groups: int, labels: int = 10, seed: int = 5) -> dict[str, Any]:
    """One of every note that the page draws, and one that it can only list."""
    rng = np.random.default_rng(seed)
    group = np.arange(clients) * groups // clients
    centre = rng.normal(0, 2, (groups, 2))[group] + rng.normal(0, 0.4, (clients, 2))
    shares = rng.dirichlet(np.full(labels, 0.4), groups)[group] + rng.uniform(0, 0.05, (clients, labels))
    ring = [{"from": i, "to": (i + 1) % clients, "load": 60 * MODEL_BYTES} for i in range(clients)]
    heads = [int(np.flatnonzero(group == g)[0]) for g in range(groups)]
    between = [{"from": a, "to": b, "load": 600 * MODEL_BYTES} for a in heads for b in heads if a < b]
    return {
        "silhouette": {
            "k": list(range(2, 10)),
            "score": [0.41, 0.55, 0.71, 0.6, 0.52, 0.4, 0.33, 0.3],
            "chosen": 4,
        },
        "scatter": {
            "x": centre[:, 0].tolist(),
            "y": centre[:, 1].tolist(),
            "group": group.tolist(),
            "client": list(range(clients)),
            "title": "Label shares, first two principal components",
        },
        "labels": {
            "client": list(range(clients)),
            "shares": (shares / shares.sum(1, keepdims=True)).tolist(),
            "group": group.tolist(),
        },
        "graph": {
            "nodes": [{"id": i, "group": int(group[i]), "head": i in heads} for i in range(clients)],
            "edges": ring + between,
        },
        "spread": {"round": list(range(61)), "value": (np.exp(-np.arange(61) / 9) * 2).tolist()},
        "privacy": {
            "text": "Every client adds Laplace noise to its label counts before they leave the device."
        },
        "weights by round": [
            {"round": 1, "largest": 0.31, "smallest": 0.02},
            {"round": 2, "largest": 0.29, "smallest": 0.03},
        ],
    }
