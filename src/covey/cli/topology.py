"""The command `covey topology`: what a topology costs and how fast it agrees, before any training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast, get_args

from covey.errors import UserError

if TYPE_CHECKING:
    from rich.table import Table

    from covey.parts.mix.estimate import Design, Estimate
    from covey.parts.mix.graphs import GraphSpec, Weights
    from covey.terminal import Console

PAPER_PARAMETERS = 21_840  # the topologies paper's network for MNIST
SHOWN_ROUNDS = (0, 1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 50, 75, 100, 200, 500, 1000)


def topology(
    *,
    graph: str = "full",
    nodes: int = 50,
    clusters: int | None = None,
    edges: Path | None = None,
    cluster_every: int = 1,
    backbone_every: int = 1,
    rounds: int = 100,
    parameters: int = PAPER_PARAMETERS,
    weights: str = "auto",
    seed: int = 0,
    recommend: bool = False,
    budget: int = 10_000,
    draw: Path | None = None,
) -> None:
    """What a topology costs and how fast it agrees, before any training.

    Args:
        graph: its shape: full, ring, wheel, star, torus, exponential, or a networkx generator:
            'random_regular_graph(4, n)', 'grid_2d_graph(5, 10, periodic=True)'; n is the number of nodes.
        nodes: how many clients.
        clusters: how many clusters; without it only the decentralised form is shown.
        edges: a file of links 'sender receiver', one per line, instead of --graph; with --clusters they join clusters.
        cluster_every: rounds between cluster communications (tau 1).
        backbone_every: rounds between backbone communications (tau 2).
        rounds: rounds of the whole run.
        parameters: parameters of the model, 4 bytes each.
        weights: of neighbours: auto, equal or metropolis.
        seed: for random graphs.
        recommend: rank all combinations that fit in --budget.
        budget: messages that the whole run may send (--recommend).
        draw: write the picture to this file too (.png, .svg, .pdf).
    """
    from covey.parts.mix.estimate import KINDS, Design, estimate
    from covey.parts.mix.graphs import Weights
    from covey.terminal import Console

    if weights not in get_args(Weights):
        raise UserError(f"weights is {weights!r}; allowed: {', '.join(get_args(Weights))}")
    rule = cast(Weights, weights)
    console = Console()
    if recommend:
        ranked = _ranked(nodes, clusters, rounds, parameters, budget, graph, rule, seed)
        _print_ranking(console, ranked, rounds, budget)
        return
    shape: GraphSpec = graph if edges is None else read_edges(edges)
    kinds = KINDS[:1] if clusters is None else KINDS if edges is None else KINDS[1:]
    found = [
        estimate(
            Design(
                kind=kind,
                backbone=shape,
                nodes=nodes,
                clusters=clusters or nodes,
                cluster_every=cluster_every,
                backbone_every=backbone_every,
                weights=rule,
                seed=seed,
            ),
            rounds=rounds,
            parameters=parameters,
        )
        for kind in kinds
    ]
    name = graph if edges is None else str(edges)
    _print_costs(console, found, rounds, name)
    _print_deviations(console, found, rounds)
    _draw(
        console,
        next(e.design for e in found if clusters is None or e.design.kind == "hierarchical"),
        name,
        draw,
    )


def read_edges(path: Path) -> list[tuple[int, int]]:
    """Links from a text file, 'sender receiver' a line; empty lines and lines that start with # are skipped."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"edges = {str(path)!r}: cannot be read ({error})") from None
    links = []
    for number, line in enumerate(lines, start=1):
        words = line.replace(",", " ").split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2 or not all(word.isdecimal() for word in words):
            raise UserError(f"edges = {str(path)!r}: line {number} must be two numbers, sender and receiver")
        links.append((int(words[0]), int(words[1])))
    return links


def _ranked(
    nodes: int,
    clusters: int | None,
    rounds: int,
    parameters: int,
    budget: int,
    graph: str,
    weights: Weights,
    seed: int,
) -> list[Estimate]:
    from covey.parts.mix.estimate import recommend
    from covey.parts.mix.graphs import SHAPES

    ranked = recommend(
        nodes=nodes,
        clusters=clusters or max(1, nodes // 5),
        rounds=rounds,
        parameters=parameters,
        budget=budget,
        backbones=list(dict.fromkeys([*SHAPES, graph])),
        weights=weights,
        seed=seed,
    )
    if not ranked:
        raise UserError(f"budget = {budget}: no combination sends so few messages; allow more")
    return ranked


def _print_ranking(console: Console, ranked: Sequence[Estimate], rounds: int, budget: int) -> None:
    design = ranked[0].design
    table = _table(
        f"{design.nodes} nodes, {design.clusters} clusters, {rounds} rounds, at most {budget:,} messages",
        "", "topology", "backbone", "every", "messages", "spread", "gap",
    )  # fmt: skip
    for place, found in enumerate(ranked, start=1):
        table.add_row(
            str(place),
            found.design.kind,
            str(found.design.backbone),
            str(found.design.backbone_every),
            f"{found.messages:,}",
            f"{found.training_spread:.3f}",
            f"{found.gap:.4g}",
        )
    console.print(table)
    console.print(
        "every: rounds between communications, as few as the budget allows; spread: how far the nodes' models "
        "stay apart while every node that trains moves by one unit per round; gap: spectral gap per round (1 = "
        "consensus at once). In the semi-decentralised form only representatives are heard: right when clients "
        "of a cluster are alike."
    )


def _print_costs(console: Console, found: Sequence[Estimate], rounds: int, name: str) -> None:
    design = found[-1].design
    among = "" if design.kind == "decentralized" else f" in {design.clusters} clusters"
    table = _table(f"{design.nodes} nodes{among}, {name}", "", *(each.design.kind for each in found))
    table.add_row("messages per round", *(f"{e.messages / rounds:,.4g}" for e in found))
    table.add_row(f"messages in {rounds} rounds", *(f"{e.messages:,}" for e in found))
    table.add_row("data a round", *(_bytes(e.bytes / rounds) for e in found))
    table.add_row(f"data in {rounds} rounds", *(_bytes(e.bytes) for e in found))
    table.add_row("spectral gap per round", *(f"{e.gap:.4g}" for e in found))
    table.add_row("spread while training", *(f"{e.training_spread:.4f}" for e in found))
    console.print(table)


def _print_deviations(console: Console, found: Sequence[Estimate], rounds: int) -> None:
    table = _table(
        "standard deviation from the mean of all models, and among the nodes",
        "round",
        *(head for each in found for head in (each.design.kind, "among")),
    )
    for number in sorted({r for r in SHOWN_ROUNDS if r <= rounds} | {rounds}):
        cells = [f"{value:.4f}" for e in found for value in (e.deviation[number], e.spread[number])]
        table.add_row(str(number), *cells)
    console.print(table)


def _table(title: str, *heads: str) -> Table:
    """A table that fits in 80 columns: numbers to the right, words to the left."""
    from rich import box
    from rich.table import Table

    table = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for head in heads:
        words = head in ("", "topology", "backbone")
        table.add_column(head, justify="left" if words else "right", no_wrap=True)
    return table


def _draw(console: Console, design: Design, name: str, path: Path | None) -> None:
    from covey.parts.mix.draw import dots, positions
    from covey.parts.mix.topology import representatives, succession
    from covey.report.figures import draw_graph

    everybody = design.trainers | True
    lead = representatives(design.membership, succession([1] * design.nodes), everybody)
    loads = design.loads()
    console.print(dots(positions(design.membership, lead), loads))
    if path is None:
        return
    clustered = design.kind != "decentralized"
    nodes = [
        {
            "id": node,
            "group": int(cluster) if clustered else 0,
            "head": clustered and lead[int(cluster)] == node,
        }
        for node, cluster in enumerate(design.membership)
    ]
    edges = [{"from": a, "to": b, "load": load} for (a, b), load in loads.items()]
    draw_graph(nodes, edges, path=path, title=f"{design.kind}, {name}, {design.nodes} nodes")
    console.print(f"picture: {path}")


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            return f"{count:.4g} {unit}"
        count /= 1000
    raise AssertionError("unreachable")
