"""The papers' own methods beside their authors' public code, on random numbers: docs/methods/agreement.md's last table.

python -m benchmarks.agreement FOLDER [--draws 20]

FOLDER holds checkouts of the four repositories that the page names, each under its repository's name. Single functions
and classes are taken out of their files, so that nothing else there runs; none of that code is part of Covey.
"""

import argparse
import ast
import contextlib
import copy
import functools
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from sklearn import cluster, metrics

from covey.methods.cafa.accuracy import accuracy_weights
from covey.methods.cafa.accuracy import cluster_weights as shares_of_clusters
from covey.methods.embedding.ward import Ward
from covey.parts.group.density import Density
from covey.parts.group.distances import conditional, hellinger
from covey.parts.mix.graphs import adjacency, graph, mixing
from covey.parts.mix.topology import messages
from covey.parts.selection.haccs import cluster_means, cluster_weights, draw
from covey.parts.steps.embedding import quantise


def taken(path: Path, *names: str, **around: Any) -> Any:
    """These functions and classes of a file, in a namespace of their own, without the file's imports."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    tree.body = [node for node in tree.body if getattr(node, "name", None) in names]
    space = {"np": np, "torch": torch, "Counter": Counter, "copy": copy, **around}
    exec(compile(tree, str(path), "exec"), space)
    return SimpleNamespace(**{name: space[name] for name in names})


@contextlib.contextmanager
def quiet_on_a_processor() -> Iterator[None]:
    """Without what it prints, and with a GPU's tensors left where they are."""
    moved = torch.Tensor.cuda
    torch.Tensor.cuda = lambda self: self  # type: ignore[method-assign,assignment,misc]
    try:
        with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
            yield
    finally:
        torch.Tensor.cuda = moved  # type: ignore[method-assign]


def same_clusters(a: Any, b: Any) -> bool:
    return bool(metrics.adjusted_rand_score(a, b) == 1)


def alone_numbered(labels: Any) -> Any:
    """-1, which is nobody's cluster, becomes a cluster for each."""
    return np.where(labels < 0, labels.max() + 1 + np.arange(len(labels)), labels)


def cafa(folder: Path, rng: np.random.Generator) -> dict[str, float]:
    """Six models of twenty clients, averaged by cluster size and accuracy on everybody's validation data."""
    names = ("server_aggregate_ligeng_wk", "evaluate_model_on_multiple_loaders")
    theirs = taken(folder / "Non-IID-Robust-Federated-Learning-Algorithms" / "ultils.py", *names)
    torch.manual_seed(int(rng.integers(1 << 30)))
    labels, chosen = rng.integers(4, size=20), rng.choice(20, 6, replace=False)
    models = [torch.nn.Linear(5, 3) for _ in range(6)]
    held = [(torch.randn(n, 5), torch.randint(3, (n,))) for n in rng.integers(5, 60, size=6).tolist()]
    sizes = np.array([float(len(y)) for _, y in held])
    table = np.array([[(m(x).argmax(1) == y).double().mean().item() for x, y in held] for m in models])
    groups = dict(enumerate(labels.tolist()))
    weights = shares_of_clusters(chosen.tolist(), groups) * accuracy_weights(table, sizes)
    rows = torch.stack([torch.cat([p.detach().flatten() for p in m.parameters()]) for m in models]).double()
    ours = (torch.tensor(weights / weights.sum()) @ rows).float()
    common = torch.nn.Linear(5, 3)
    with quiet_on_a_processor():
        loaders = [[one] for one in held]
        theirs.server_aggregate_ligeng_wk(common, models, loaders, sizes.tolist(), labels, chosen, 4)
    found = torch.cat([p.detach().flatten() for p in common.parameters()])
    return {"cafa, the averaged model": (found - ours).abs().max().item()}


def haccs(folder: Path, rng: np.random.Generator) -> dict[str, float]:
    """P(y) and P(X|y) of 50 devices with a majority label each; theta and the ten devices of a round."""
    place = folder / "HACCS"
    told = taken(place / "common/summary/hist.py", "HistSummary", "HistMatSummary")
    parts = ("hdist", "mnorm", "cluster_hist", "cluster_mat")
    density = {"norm": np.linalg.norm, "OPTICS": cluster.OPTICS}
    theirs = taken(place / "common/summary/cluster.py", *parts, **density)
    shares = np.eye(10)[np.arange(50) % 10] * 0.75 + rng.dirichlet(np.ones(10), 50) * 0.25
    counts = np.maximum(
        rng.multinomial(500, shares / shares.sum(1, keepdims=True)) + rng.laplace(0, 10, (50, 10)), 0
    )

    def summary(values: Any) -> Any:
        one = told.HistSummary()
        one.values = Counter({i: float(v) for i, v in enumerate(values)})
        return one

    found = alone_numbered(theirs.cluster_hist([summary(row) for row in counts], range(10)))
    own = Density()(counts / counts.sum(1, keepdims=True))
    bins = rng.multinomial(100, rng.dirichlet(np.ones(8), (20, 10))).astype(float) + 0.5
    has = rng.random((20, 10)) < 0.7
    has[:, 0] = True
    sets = [
        told.HistMatSummary({y: summary(b[y]) for y in range(10) if h[y]})
        for b, h in zip(bins, has, strict=True)
    ]
    tables = [one.toMatrix(range(8), range(10)) for one in sets]
    far = np.array([[theirs.mnorm(a, b) for b in tables] for a in tables])
    parts_of = bins / bins.sum(2, keepdims=True)
    near = conditional(parts_of, parts_of, has, has)
    apart = alone_numbered(theirs.cluster_mat(sets, range(8), range(10)))
    return {
        "haccs, P(y): other clusters": float(not same_clusters(found, own)),
        "haccs, P(X|y): distances, added up": float(abs(far - 10 * near).max()),
        "haccs, P(X|y): other clusters": float(
            not same_clusters(apart, Density(extract="xi")(near, "precomputed"))
        ),
        **scheduled(place, rng),
    }


class Highest:
    """A generator that draws the likeliest; `choices` of the standard library, too, which notes its first weights."""

    def __init__(self) -> None:
        self.first: list[float] = []

    def choice(self, _: int, p: Any) -> int:
        return int(np.argmax(p))

    def choices(self, names: Any, weights: Any) -> list[Any]:
        self.first = self.first or list(weights)
        return [names[int(np.argmax(weights))]]


def scheduled(place: Path, rng: np.random.Generator) -> dict[str, float]:
    """The ten devices of a round, with rho .5 and every further draw that of the likeliest cluster."""
    likeliest = Highest()
    math = SimpleNamespace(pow=pow)
    theirs = taken(place / "server/scheduler/scheduler.py", "Scheduler", math=math, choices=likeliest.choices)
    groups, losses, latency = rng.integers(12, size=50), rng.random(50), rng.random(50)
    names = sorted(set(groups.tolist()))
    members = [np.flatnonzero(groups == name).tolist() for name in names]
    info = {name: {"count": len(own)} for name, own in zip(names, members, strict=True)}
    order = [i for own in members for i in own]  # their clusters are numbered as they come
    devices = {i: {"id": i, "cluster": groups[i], "loss": losses[i], "cpu_usage": latency[i]} for i in order}
    with quiet_on_a_processor():
        found = theirs.Scheduler()._schedule_clusters(info, devices, 10)
    theta = cluster_weights(cluster_means(latency, members), cluster_means(losses**2, members), rho=0.5)
    own = draw(members, theta, latency, 10, likeliest, quasi=True)  # type: ignore[arg-type]
    known = [
        (w, t) for w, t in zip(likeliest.first, theta, strict=False) if w > 0
    ]  # of clusters with devices left
    return {
        "haccs, a round: theta": max((abs(w - t) for w, t in known), default=0.0),
        "haccs, a round: other devices": float(len(set(found) ^ set(own))),
    }


def embedding(folder: Path, rng: np.random.Generator) -> dict[str, float]:
    """The bits of 20 x 10 codes, and the cut of 100 clients with 200 bits each, four clusters, 10 % flips."""
    from bayes_opt import BayesianOptimization

    path = folder / "efficient-fl-clustering/artifacts/utils/clustering_fn.py"
    around = {
        "partial": functools.partial,
        "BayesianOptimization": BayesianOptimization,
        "AgglomerativeClustering": cluster.AgglomerativeClustering,
        "calinski_harabasz_score": metrics.calinski_harabasz_score,
    }
    theirs = taken(path, "binary_quantization", "normalize_tensor", "make_clusters", "AC", **around)
    codes = rng.normal(size=(10, 20))
    bits = np.stack([theirs.binary_quantization(torch.tensor(row)).numpy() for row in codes])
    true = rng.integers(2, size=(4, 200))
    told = (true[np.arange(100) % 4] ^ (rng.random((100, 200)) < 0.1)).astype(float)
    with quiet_on_a_processor():
        labels, _, _ = theirs.make_clusters(told, 4, 100, "agglomerative", 10)
    own = Ward(search="published", min_size=10).cut(told, rng).labels
    return {
        "embedding, other bits": float((bits != quantise(codes)).sum()),
        "embedding, other clusters": float(not same_clusters(labels, own)),
    }


def topologies(folder: Path, rng: np.random.Generator) -> dict[str, float]:
    """Hellinger distances of 50 clients; one exchange of ten models on each graph, and its messages."""
    place = folder / "fedmltopo"
    theirs = taken(place / "Functions.py", "H", "label_distance_matrix_generation_Hellinger")
    shares = rng.dirichlet(np.full(10, 0.5), 50)
    far = theirs.label_distance_matrix_generation_Hellinger(shares)
    found = {"topologies, Hellinger distances": float(abs(far - hellinger(shares, shares)).max())}
    big = taken(place / "client_dsgd.py", "ClientDSGD_Big").ClientDSGD_Big
    for shape in ("ring", "wheel", "full"):
        receives = adjacency(graph(shape, 10))
        data = SimpleNamespace(dataset=range(5))
        matrix, within = receives.toarray() + np.eye(10), np.zeros((10, 10))
        clients = [
            big(i, data, data, matrix, within, torch.nn.Linear(7, 3), i, 1, 0.1, 0.5) for i in range(10)
        ]
        before = np.stack([flat(client.model) for client in clients])
        for client in clients:
            client.send_local_gradient_to_neighbor(clients)
        for client in clients:
            client.update_local_parameters_between()
        mixed = mixing(receives)
        after = np.stack([flat(client.model) for client in clients])
        found[f"topologies, {shape}, the models"] = float(abs(after - mixed @ before).max())
        sent = sum(client.num_between_communication for client in clients)
        found[f"topologies, {shape}, messages"] = float(sent - messages(mixed))
    return found


def flat(model: torch.nn.Module) -> Any:
    return torch.cat([p.detach().flatten() for p in model.parameters()]).double().numpy()


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("folder", type=Path)
    asked.add_argument("--draws", type=int, default=20)
    said = asked.parse_args()
    for compare in (cafa, haccs, embedding, topologies):
        drawn = [compare(said.folder, np.random.default_rng(seed)) for seed in range(said.draws)]
        for what in drawn[0]:
            print(f"{what:40} {max(one[what] for one in drawn):.1e}", flush=True)


if __name__ == "__main__":
    main()
