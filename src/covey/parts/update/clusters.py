"""CFIC's intra-cluster correction: momentum along the clusters' unit directions (Yang et al., 2025, eq. 3-5).

The paper has one global model. Here every model of the bank is corrected, each on the replies that started from it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from covey.core import KNOWN_GROUPS, MODEL_PER_CLIENT, Facts, Key, Reply, Round, Shows, part
from covey.core.shows import NOTHING, OWN_MODEL, SAME_AS_COVEY
from covey.parts.serving import Per
from covey.settings import DecayRate, NotNegative, PartBelowOne

RATE = 0.1  # how fast the adaptive variant changes beta: at most by 10 % a round
FADING = 0.7  # what a round before counts where agreement is added up: about the last three rounds
STANDSTILL = 1e-12  # a cluster that moved less than this points nowhere

CorrectionScale = Literal["relative", "absolute"]
Among = Literal["auto", "groups", "clients", "everybody"]

HISTORY: Key[Tensor] = Key("cfic.h")  # all models' h, one after the other
BETAS: Key[dict[int, float]] = Key("cfic.beta")
# of each model: sum of c and of c^2 (see `trust_in`)
AGREED: Key[dict[int, list[float]]] = Key("agreement so far")


@dataclass(frozen=True, kw_only=True, eq=False)
class Directions:
    """Where the clusters pull: u = sum of (n_i / n) d_i, with d_i the unit vector from the old model to cluster i's."""

    mean: Tensor  # u, float64
    shares: tuple[float, ...]  # n_i / n of the clusters present; they add up to 1

    @property
    def length(self) -> float:
        """||u||: 1 when all clusters pull the same way, near 0 when they cancel."""
        return float(self.mean.norm())

    @property
    def alone(self) -> float:
        """sum of s_i^2, s_i = n_i / n: what ||u||^2 is when the clusters have nothing in common."""
        return sum(share * share for share in self.shares)

    @property
    def agreement(self) -> float:
        """Weighted mean cosine between two different clusters' directions: 1 all alike, 0 orthogonal, below 0 at odds.

        ||u||^2 = sum s_i^2 + sum over i != j of s_i s_j cos_ij.
        """
        return (self.length**2 - self.alone) / (1 - self.alone) if self.alone < 1 else 1.0


def cluster_directions(old: Tensor, replies: Sequence[Reply], groups: Mapping[int, int]) -> Directions:
    """The clusters' models are averages of their members' replies, weighted by samples (eq. 3).

    `old` holds the trainable part of the old model; n_i counts the samples of the members that replied. A client of
    unknown group is a cluster of its own; a cluster that stood still has no direction, but keeps its share.
    """
    clusters: dict[int | tuple[str, int], list[Reply]] = {}
    for reply in replies:
        clusters.setdefault(groups.get(reply.id, ("alone", reply.id)), []).append(reply)
    sizes = [sum(reply.size for reply in members) for members in clusters.values()]
    total = sum(sizes)
    start = old.double()
    mean = torch.zeros_like(start)
    for members, size in zip(clusters.values(), sizes, strict=True):
        move = -start
        for reply in members:
            assert reply.vector is not None
            move.add_(reply.vector[: len(start)], alpha=reply.size / size)
        length = float(move.norm())
        if length > STANDSTILL:
            mean.add_(move, alpha=size / total / length)
    return Directions(mean=mean, shares=tuple(size / total for size in sizes))


@dataclass(frozen=True, kw_only=True)
class AlongDirections:
    """A correction along directions: what it needs follows from whose they are.

    `among`: the directions are those of the groups, of single clients, or (auto) of the groups where a model has
    replies from several, else of the clients; or there is one, the average update of everybody, which is plain
    momentum at the server (FedAvgM). `per`: each model for itself, or, where every client holds a model and
    groups share theirs, each group.
    """

    alpha: PartBelowOne = 0.9
    beta: NotNegative = 0.5
    among: Among = "auto"
    per: Per = "model"

    @property
    def needs(self) -> Facts:
        together = (MODEL_PER_CLIENT, KNOWN_GROUPS) if self.per == "group" else ()
        return (*together, KNOWN_GROUPS) if self.among == "groups" else together


def by_directions(part: AlongDirections) -> Shows:
    """Directions of clusters, or of the average, can be read out of sums; those of single clients cannot."""
    if part.among in ("clients", "auto"):
        return Shows(
            what="directions of single clients",
            instead=f'with cfic set method.directions = "clusters" or "average", {SAME_AS_COVEY}',
            in_updates=True,
        )
    return NOTHING if part.per == "model" else Shows(what=OWN_MODEL.what, instead='set per = "model"')


@part("update", "cluster-correction")
class ClusterCorrection(AlongDirections):
    """CFIC's correction: momentum of every model along its clusters' directions.

    h <- alpha h - beta u; w <- average - h (eq. 4, 5), on the trainable part of every model that has replies.

    `absolute`: u is taken as it is and beta is a length in parameter space, as printed. `relative`: u is stretched to
    the length of the round's average update, so that beta fits any model and the correction fades as the model settles;
    kept up, it adds beta / (1 - alpha) average updates per round. beta in round t is multiplied by decay^(t-1).
    """

    scale: CorrectionScale = "relative"
    decay: DecayRate = 1.0

    shows = property(by_directions)

    def __call__(self, now: Round, rows: Tensor) -> Tensor:
        correction = Correction(now, rows, models_to_correct(now, rows, self.per))
        beta = self.beta * self.decay ** (now.number - 1)
        for model, directions in correction.directions(self.among):
            stretch = model.stretch(now, rows, directions) if self.scale == "relative" else 1.0
            correction.apply(model, directions, self.alpha, beta * stretch)
        return correction.done()


@part("update", "adaptive-correction")
class AdaptiveCorrection(AlongDirections):
    """The relative correction with alpha and beta set from what the clusters' directions say, for every model.

    alpha_t = alpha (1 - max(0, agreement)): where the clusters pull one way, the present is reliable and needs no
    history; where they cancel, what is left of them is mostly chance, and the history smooths it. beta_t starts at beta
    and is multiplied every round by exp(RATE cos(-h, u)): as long as the clusters still pull where the last corrections
    went, these were too short; once they pull back, too long.

    No correction is longer than the present updates would ever make it: ||h|| <= beta ||average update|| / (1 - alpha).
    Where clients have nothing left to learn, momentum of their past must not carry the model on. `agreed`: beta is
    multiplied by how uncertain it is that the clusters are at odds (see `trust_in`): where they are, each fits its own
    samples, and that should not be sped up.
    """

    agreed: bool = False

    shows = property(by_directions)

    def __call__(self, now: Round, rows: Tensor) -> Tensor:
        betas, trusts = dict(BETAS.get(now.memory, {})), {}
        correction = Correction(now, rows, models_to_correct(now, rows, self.per))
        for model, directions in correction.directions(self.among):
            past = correction.past(model)
            beta = betas.get(model.number, self.beta)
            if past is not None:
                lengths = max(float(past.double().norm()) * directions.length, STANDSTILL)
                beta *= math.exp(-RATE * float(past.double() @ directions.mean) / lengths)
            betas[model.number] = beta
            alpha = self.alpha * (1 - max(0.0, directions.agreement))
            trusts[model.number] = trust_in(now, model, directions) if self.agreed else 1.0
            stretched = trusts[model.number] * beta * model.stretch(now, rows, directions)
            longest = stretched * directions.length / (1 - self.alpha)
            correction.apply(model, directions, alpha, stretched, longest)
        BETAS.keep(now.memory, betas)
        if self.agreed and trusts:
            now.notes["trust"] = {
                "text": "Share of the correction that is made; none where clients pulled at odds in the last rounds: "
                + ", ".join(f"model {number}: {trust:.2f}" for number, trust in trusts.items())
                + "."
            }
        return correction.done()


def trust_in(now: Round, model: Corrected, directions: Directions) -> float:
    """1 where the clusters pulled the same way in the last rounds, 0 where they were at odds, by a standard error.

    min(1, max(0, 1 + sum of c / sqrt(sum of c^2))), c = sum over i != j of s_i s_j cos_ij in a round; each round before
    counts FADING as much. A round with one cluster says nothing.
    """
    kept = AGREED.get(now.memory, {})
    cosines = directions.length**2 - directions.alone
    total, squares = kept.get(model.number, (0.0, 0.0))
    total, squares = FADING * total + cosines, FADING * squares + cosines**2
    AGREED.keep(now.memory, {**kept, model.number: [total, squares]})
    return min(1.0, max(0.0, 1 + total / math.sqrt(squares))) if squares > STANDSTILL**2 else 1.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Corrected:
    """A model to correct: its number, the rows of the bank that hold it, and the replies that started from it."""

    number: int
    rows: Sequence[int]
    replies: Sequence[Reply]
    old: Tensor  # the trainable part that the replies started from

    def directions(self, now: Round, among: Among) -> Directions:
        """Where the clusters pull this model."""
        several = len({now.groups.get(reply.id, -1) for reply in self.replies}) > 1
        if among == "everybody":
            return cluster_directions(self.old, self.replies, dict.fromkeys((r.id for r in self.replies), 0))
        by_group = among == "groups" or (among == "auto" and several)
        return cluster_directions(self.old, self.replies, now.groups if by_group else {})

    def stretch(self, now: Round, rows: Tensor, directions: Directions) -> float:
        """The factor that makes u as long as the round's average update."""
        size = len(self.old)
        update = rows[self.rows, :size].double() - now.models[self.rows, :size].double()
        return float(update.mean(0).norm()) / max(directions.length, STANDSTILL)


def models_to_correct(now: Round, rows: Tensor, per: Per) -> list[Corrected]:
    """Every model with replies: the rows one by one, or the common model of every group whose members met.

    Members that did not exchange their models in this round hold different ones, and nobody could correct those.
    """
    trainable = now.fleet.layout.trainable
    found = []
    if per == "model":
        for slot in sorted({reply.slot for reply in now.replies}):
            replies = [reply for reply in now.replies if reply.slot == slot]
            old = now.models[slot, :trainable]
            found.append(Corrected(number=slot, rows=[slot], replies=replies, old=old))
        return found
    moves = {r.id: replace(r, vector=r.vector - now.start_of(r)) for r in now.replies if r.vector is not None}
    for group in sorted({now.groups[i] for i in moves if i in now.groups}):
        places = [place for place, i in enumerate(now.seen) if i in now.here and now.groups.get(i) == group]
        if all(torch.equal(rows[place, :trainable], rows[places[0], :trainable]) for place in places):
            replies = [move for i, move in moves.items() if now.groups.get(i) == group]
            still = torch.zeros(trainable)  # the replies are moves
            found.append(Corrected(number=group, rows=places, replies=replies, old=still))
    return found


class Correction:
    """The corrections of one round: what was remembered, what is done now, and the note for the report."""

    def __init__(self, now: Round, rows: Tensor, models: Sequence[Corrected]) -> None:
        self.now, self.new, self.models = now, rows.clone(), models
        kept = HISTORY.get(now.memory, torch.zeros(0)).view(-1, now.fleet.layout.trainable)
        self.known = len(kept)
        count = max([self.known, *(model.number + 1 for model in models)])
        self.history = torch.cat([kept, kept.new_zeros(count - self.known, kept.shape[1])])
        self.notes: list[dict[str, Any]] = []

    def directions(self, among: Among) -> Iterator[tuple[Corrected, Directions]]:
        """Every model, and where the clusters pull it."""
        for model in self.models:
            yield model, model.directions(self.now, among)

    def past(self, model: Corrected) -> Tensor | None:
        """The model's h so far; None before its first correction."""
        return self.history[model.number] if model.number < self.known else None

    def apply(
        self,
        model: Corrected,
        directions: Directions,
        alpha: float,
        beta: float,
        longest: float = math.inf,
    ) -> None:
        """h <- alpha h - beta u, cut to the `longest` it may be, and every row of the model takes it."""
        h = -beta * directions.mean
        past = self.past(model)
        if past is not None:
            h.add_(past, alpha=alpha)
            length = float(h.norm())
            if length > longest:
                h.mul_(longest / length)
        self.history[model.number] = h.float()
        self.new[model.rows, : len(h)] -= self.history[model.number]
        note = {"clusters": len(directions.shares), "agreement": directions.agreement}
        note |= {"alpha": alpha, "beta": beta, "length": float(h.norm())}
        self.notes.append({"model": model.number, **note})

    def done(self) -> Tensor:
        """The corrected rows; the corrections are remembered, and what was done is noted."""
        HISTORY.keep(self.now.memory, self.history.flatten())
        if len(self.history) == 1:
            self.now.notes["correction"] = {
                k: v for note in self.notes for k, v in note.items() if k != "model"
            }
        elif self.notes:
            self.now.notes["correction"] = {k: [note[k] for note in self.notes] for k in self.notes[0]}
        return self.new
