"""What a topology will cost and how fast it agrees, before any training."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from covey.arrays import Array
from covey.errors import UserError
from covey.parts.mix.graphs import GraphSpec, Weights, adjacency, graph
from covey.parts.mix.topology import TopologyKind, events, messages, round_factors, succession
from covey.settings import Count, validated

Schedule = Sequence[Sequence[csr_array]]

EXACT_NODES = 2000
"""Up to here deviations are exact; above, they are estimated from PROBES random directions."""

SMALL_NODES = 300
"""Up to here eigenvalues are computed densely at once."""

PROBES = 256


@validated
class Design:
    """A topology on paper: nodes in equal clusters, all present, as many samples each."""

    kind: TopologyKind
    backbone: GraphSpec
    nodes: Count
    clusters: Count
    cluster_every: Count = 1
    backbone_every: Count = 1
    weights: Weights = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.clusters > self.nodes:
            raise UserError(
                f"clusters is {self.clusters}; allowed: at most the number of nodes, {self.nodes}"
            )

    @property
    def membership(self) -> NDArray[np.intp]:
        if self.kind == "decentralized":
            return np.arange(self.nodes)
        return np.arange(self.nodes) * self.clusters // self.nodes

    @property
    def trainers(self) -> NDArray[np.bool_]:
        """Who trains: everybody, or only the representatives where members do not train."""
        first = np.diff(self.membership, prepend=-1) > 0
        return first if self.kind == "semi-decentralized" else np.ones(self.nodes, dtype=np.bool_)

    @property
    def period(self) -> int:
        return int(np.lcm(self.cluster_every, self.backbone_every))

    @cached_property
    def links(self) -> csr_array:
        """The backbone: ``links[i, j]`` is 1 where place i receives from place j."""
        return adjacency(graph(self.backbone, int(self.membership.max()) + 1, seed=self.seed))

    def events(self, round: int) -> tuple[bool, bool]:
        return events(
            round, kind=self.kind, cluster_every=self.cluster_every, backbone_every=self.backbone_every
        )

    def factors(self, cluster_event: bool, backbone_event: bool) -> list[csr_array]:
        return round_factors(
            clusters=self.membership,
            samples=[1] * self.nodes,
            order=succession([1] * self.nodes),
            present=np.ones(self.nodes, dtype=np.bool_),
            backbone=self.links,
            place=np.arange(self.links.shape[0]),
            weights=self.weights,
            cluster_event=cluster_event,
            backbone_event=backbone_event,
        )

    def schedule(self, rounds: int) -> Schedule:
        """The factors of each round; every pattern of events is built once."""
        patterns = [self.events(number) for number in range(rounds)]
        built = {pattern: self.factors(*pattern) for pattern in set(patterns)}
        return [built[pattern] for pattern in patterns]

    def loads(self) -> dict[tuple[int, int], float]:
        """(sender, receiver) -> messages per round, over one period."""
        found: dict[tuple[int, int], float] = {}
        for factors in self.schedule(self.period):
            for factor in factors:
                entries = factor.tocoo()
                for receiver, sender in zip(entries.row.tolist(), entries.col.tolist(), strict=True):
                    if sender != receiver:
                        found[sender, receiver] = found.get((sender, receiver), 0.0) + 1 / self.period
        return found


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Costs and agreement of a design over a number of rounds."""

    design: Design
    messages: int
    """Models sent over links in all rounds."""
    bytes: int
    """The same in bytes: 4 for each parameter and message."""
    deviation: tuple[float, ...]
    """Fig. 2, rounds 0, 1, ...: a node's deviation from the mean of all n initial models, by the root mean
    square over nodes; initial models are independent with unit variance and nobody trains."""
    spread: tuple[float, ...]
    """The same from the mean of the *current* models: how far the nodes disagree. Both are equal where the
    mean is preserved; where only representatives are heard, the deviation ends above 0, the spread at 0."""
    training_spread: float
    """The spread averaged over the rounds when every node that trains moves by an independent step of unit
    variance per round: what remains of disagreement while training continues."""
    gap: float
    """Spectral gap per round, 1 - |lambda_2| of one period's product to the power 1 / period."""


@validated
def estimate(design: Design, *, rounds: Count, parameters: int) -> Estimate:
    """Count messages and follow the matrices for `rounds` rounds of a model with `parameters` parameters."""
    schedule = design.schedule(rounds)
    count = sum(messages(factor) for factors in schedule for factor in factors)
    deviation, spread = _agreement(design, schedule)
    return Estimate(
        design=design,
        messages=count,
        bytes=4 * parameters * count,
        deviation=deviation,
        spread=spread,
        training_spread=_training_spread(design, schedule),
        gap=spectral_gap(design.schedule(design.period)),
    )


def _agreement(design: Design, schedule: Schedule) -> tuple[tuple[float, ...], tuple[float, ...]]:
    state = _directions(design.nodes, design.nodes <= EXACT_NODES)
    goal = state.mean(axis=0)
    deviation, spread = [_rms(state - goal)], [_rms(state - state.mean(axis=0))]
    for factors in schedule:
        state = _apply(factors, state)
        deviation.append(_rms(state - goal))
        spread.append(_rms(state - state.mean(axis=0)))
    return tuple(deviation), tuple(spread)


def _training_spread(design: Design, schedule: Schedule) -> float:
    """Simulated with the same steps for every design, so that equal designs tie exactly."""
    rng = np.random.default_rng(design.seed)
    moves = design.trainers[:, None] / np.sqrt(PROBES)
    state = np.zeros((design.nodes, PROBES))
    total = 0.0
    for factors in schedule:
        state = _apply(factors, state + moves * rng.choice([-1.0, 1.0], size=state.shape))
        total += _rms(state - state.mean(axis=0))
    return total / len(schedule)


def _directions(nodes: int, exact: bool) -> Array:
    if exact:
        return np.eye(nodes, dtype=np.float64)
    signs: Array = np.random.default_rng(0).choice([-1.0, 1.0], size=(nodes, PROBES))
    return np.asarray(signs / PROBES**0.5)


def _apply(factors: Sequence[csr_array], state: Array) -> Array:
    for factor in factors:
        state = np.asarray(factor @ state)
    return state


def _rms(rows: Array) -> float:
    return float(np.sqrt((rows**2).sum() / len(rows)))


def spectral_gap(schedule: Schedule) -> float:
    """1 - |lambda_2|^(1/T) of the product of T rounds' factors: 1 is consensus at once, 0 never.

    Not a number where a graph is too large for a dense solution and the sparse one does not converge.
    """
    flat = [factor for factors in schedule for factor in factors]
    if not flat:
        return 0.0
    nodes = flat[0].shape[0]
    if nodes < 2:
        return 1.0
    second = _second_by_arnoldi(flat, nodes) if nodes > SMALL_NODES else None
    if second is None:
        if nodes > EXACT_NODES:
            return float("nan")
        second = float(np.sort(np.abs(np.linalg.eigvals(_apply(flat, np.eye(nodes)))))[-2])
    # Below rounding it is 0, which its root would hide.
    second = 0.0 if second < 1e-12 else min(1.0, second)
    return float(1.0 - second ** (1 / len(schedule)))


def _second_by_arnoldi(flat: Sequence[csr_array], nodes: int) -> float | None:
    """|lambda_2| from sparse products alone; None where they do not converge soon (one-way rims do not)."""
    from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigs

    def product(vector: Array) -> Array:
        return _apply(flat, vector.reshape(nodes, -1))

    operator = LinearOperator((nodes, nodes), matvec=product, dtype=np.float64)
    start = np.random.default_rng(0).random(nodes)
    try:
        values = eigs(operator, k=6, v0=start, maxiter=500, return_eigenvectors=False)
    except ArpackNoConvergence:
        return None
    return float(np.sort(np.abs(values))[-2])


KINDS: tuple[TopologyKind, ...] = ("decentralized", "hierarchical", "semi-decentralized")


def recommend(
    *,
    nodes: int,
    clusters: int,
    rounds: int,
    parameters: int,
    budget: int,
    backbones: Sequence[str],
    weights: Weights = "auto",
    seed: int = 0,
) -> list[Estimate]:
    """All combinations that fit in `budget` messages, best first.

    Each communicates as often as the budget allows (backbone and clusters with one period). Ranked by the
    spread that remains while training continues, then by messages.
    """
    found = []
    for kind in KINDS:
        for backbone in backbones:
            design = Design(
                kind=kind, backbone=backbone, nodes=nodes, clusters=clusters, weights=weights, seed=seed
            )
            every = _shortest_period(design, rounds, budget)
            if every is not None:
                fitted = replace(design, cluster_every=every, backbone_every=every)
                found.append(estimate(fitted, rounds=rounds, parameters=parameters))
    return sorted(found, key=lambda e: (round(e.training_spread, 9), e.messages))


def _shortest_period(design: Design, rounds: int, budget: int) -> int | None:
    """The shortest period whose messages fit; they fall as the period grows."""
    price = {
        pattern: sum(messages(factor) for factor in design.factors(*pattern))
        for pattern in ((False, True), (True, False), (True, True))
    }
    for every in range(1, rounds + 1):
        trial = replace(design, cluster_every=every, backbone_every=every)
        if sum(price.get(trial.events(number), 0) for number in range(rounds)) <= budget:
            return every
    return None
