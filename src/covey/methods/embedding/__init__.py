"""Clustering by embeddings (Prigent et al., HiPC 2024): a few hundred noisy bits per client, one model per cluster."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from covey.core import (
    GROUPS,
    NOTHING,
    Facts,
    Key,
    Method,
    Reply,
    Round,
    Shows,
    Task,
    by_answers,
    method,
    part,
)
from covey.methods.embedding.denoising import denoise
from covey.methods.embedding.pretraining import Pretrain, Way
from covey.methods.embedding.ward import Search, Ward
from covey.methods.grouped import fedavg_per_group
from covey.parts.group.centroids import settled
from covey.parts.group.membership import Vectors, maintained_groups
from covey.parts.mix.average import Weighting
from covey.parts.mix.shared import GroupAverage
from covey.parts.selection.plain import PerRound, drawn_clients
from covey.parts.steps.embedding import BitNoise, Embed, Normalise, bit_epsilon, unpack
from covey.parts.steps.train import Train
from covey.settings import BelowHalf, Count, Natural, inline

ENCODER: Key[Tensor] = Key("encoder")
HOLDERS: Key[list[int]] = Key("clients with the encoder")


@dataclass(frozen=True, kw_only=True)
class ByEmbedding:
    """Algorithms 1 and 2: everybody sends noisy bits once, and the server cuts Ward's tree of them."""

    pretrain: Pretrain
    embed: Embed
    ward: Ward
    denoise: bool = True
    every: int = 0

    gives: ClassVar[Facts] = (GROUPS,)

    @property
    def shows(self) -> Shows:
        if self.pretrain.way != "public" and not self.pretrain.load:
            return Shows(
                what="updates without noise, of which its autoencoder is made",
                instead='set method.pretrain = "public", or give method.encoder',
            )
        return by_answers(self.embed)

    def __call__(self, now: Round) -> dict[int, int]:
        if ENCODER.name not in now.memory:
            ENCODER.keep(now.memory, self.pretrain(now))
        return maintained_groups(
            now,
            lambda ids: self.bits(now, ids),
            lambda ids, vectors: self.found(now, ids, vectors),
            every=self.every,
            min_size=self.ward.min_size,
            title="Clients by their embeddings",
        )

    def bits(self, now: Round, ids: Sequence[int]) -> Vectors:
        """The clients' bits; the encoder travels to a client once."""
        holders = set(HOLDERS.get(now.memory, []))
        row = ENCODER.of(now.memory)[None]
        sent, held = Task(models=row, slots=(0,)), Task(models=row, slots=(0,), held=(0,))
        replies = now.fleet.ask(self.embed, {i: held if i in holders else sent for i in ids}) if ids else []
        if replies:
            HOLDERS.keep(now.memory, sorted(holders | {reply.id for reply in replies}))
            now.notes["privacy"] = {"text": privacy_text(self.embed, replies)}
        return {reply.id: unpack(np.asarray(reply.stats["bits"], np.uint8)) for reply in replies}

    def found(self, now: Round, ids: Sequence[int], vectors: NDArray[np.uint8]) -> NDArray[np.int64]:
        """The cut of the tree; where nothing stands out of the noise, everybody is one cluster."""
        flips = np.array([self.embed.flip_of(client) for client in ids])
        points, noise = denoise(vectors, flips) if self.denoise else (vectors, 0.0)
        ward = self.ward if points.shape[1] else replace(self.ward, min_size=len(ids) + 1)
        cut = ward.cut(points, now.stream("pre-grouping"), noise)
        now.notes["clustering"] = {
            "clients": len(vectors),
            "bits": int(vectors.shape[1]),
            "directions": int(points.shape[1]),
            "clusters": cut.clusters,
            "calinski_harabasz": round(cut.score, 4) if np.isfinite(cut.score) else None,
            "search": self.ward.search,
        }
        return settled(points, cut.labels) if self.denoise and cut.clusters > 1 else cut.labels


def privacy_text(embed: Embed, replies: Sequence[Reply]) -> str:
    """What the bits reveal in the worst case, for the report."""
    flips = ", ".join(f"{p:g}" for p in embed.flip)
    if 0 in embed.flip:
        return (
            f"Bits are flipped with probability {flips}; bits that are never flipped are not private at all."
        )
    bit = bit_epsilon(min(embed.flip)) * (2 if embed.again else 1)
    bits = 8 * max(len(reply.stats["bits"]) for reply in replies)
    sample = max(float(reply.stats["epsilon"]) for reply in replies)
    twice = " (counted twice, because clients report again)" if embed.again else ""
    source = (
        "In a simulation the flips come from the run's seed and are no secret to whoever has it; real devices draw "
        "them from OpenDP."
        if embed.noise == "simulated"
        else "The flips come from OpenDP's secure source."
    )
    return (
        f"Every bit is flipped with probability {flips}: epsilon = ln((1-P)/P) = {bit:.3f} per bit{twice}. In the "
        f"worst case one sample changes all bits of its class, epsilon {sample:.1f}, and a client all its {bits} bits, "
        f"epsilon {bits * bit:.1f}: that hides pictures from the eye, but is not a strong guarantee. {source}"
    )


@part("group", "embedding")
def by_embedding(
    *,
    flip: BelowHalf = 0.1,
    own_flips: tuple[BelowHalf, ...] = (),
    noise: BitNoise = "simulated",
    normalise: Normalise = "class",
    search: Search = "exact",
    denoise: bool = True,
    min_size: Count = 2,
    every: Natural = 0,
    autoencoder: str = "auto",
    pretrain: Way = "federated",
    pretrain_rounds: Count = 10,
    pretrain_per_round: Count = 50,
    pretrain_epochs: Count = 3,
    public: str = "fashion-mnist",
    public_epochs: Count = 20,
    encoder: str = "",
    save_encoder: str = "",
) -> ByEmbedding:
    """Clusters by a few hundred noisy bits of a client's embedded data.

    Args:
        flip: probability with which every bit is flipped.
        own_flips: client i flips with own_flips[i mod n]; empty: all with flip.
        noise: how the flips are drawn: simulated (repeatable) or opendp (secure).
        normalise: codes are normalised within a class, or over all.
        search: for the cut of the tree: exact, the paper's bayes, or published.
        denoise: whether the server takes away what must be noise (not with the published search).
        min_size: the fewest clients of a cluster.
        every: rounds between two reports of all clients; 0: they report once.
        autoencoder: which one: auto, ae-fc or ae-conv.
        pretrain: who trains the autoencoder: federated, public, or hybrid (both).
        pretrain_rounds: of federated pre-training.
        pretrain_per_round: clients in a round of pre-training.
        pretrain_epochs: of a client in a round of pre-training.
        public: the data set of public pre-training.
        public_epochs: of public pre-training.
        encoder: a file with a trained autoencoder; empty: it is trained.
        save_encoder: a file to write the autoencoder to; empty: none.
    """
    return ByEmbedding(
        pretrain=Pretrain(
            way=pretrain,
            autoencoder=autoencoder,
            rounds=pretrain_rounds,
            per_round=pretrain_per_round,
            epochs=pretrain_epochs,
            public=public,
            public_epochs=public_epochs,
            load=encoder,
            save=save_encoder,
        ),
        embed=Embed(
            autoencoder=autoencoder,
            flip=tuple(own_flips) or (flip,),
            normalise=normalise,
            noise=noise,
            again=every > 0,
        ),
        ward=Ward(search=search, min_size=min_size),
        denoise=denoise and search != "published",
        every=every,
    )


@method("embedding", family="clusters", paper="https://hal.science/hal-04779813v1")
def embedding(
    train: Train,
    *,
    per_round: Count = 10,
    per: Literal["fleet", "cluster"] = "fleet",
    n_shared: Natural = 0,
    weighting: Weighting = "samples",
    group: ByEmbedding = inline(by_embedding),
) -> Method:
    """Clients with similar data train one model together; who is similar shows in a few hundred noisy bits.

    An autoencoder is trained first (`pretrain`: by the fleet, on the `public` data set, or both; or loaded from
    `encoder`). Each client encodes its data, averages the codes of each class, keeps one bit per value and flips it
    with probability `flip` (client i with `own_flips[i mod n]`, if given). The server takes away what must be
    noise (`denoise`; not with the published search), builds Ward's tree and takes the cut with the
    best Calinski-Harabasz index (`search`: exact, the paper's "bayes", or "published"). Then every cluster trains
    its own model, `per_round` clients per round in all or per cluster; the first `n_shared` tensors are common to all.
    Unseen clients go to the nearest centroid; with `every` > 0 all clients report again every so many rounds, and those
    that drifted migrate.

    Args:
        per: whether per_round is for the fleet or for each cluster.
    """
    base = fedavg_per_group("embedding", train, group, per_round=per_round)
    select = base.select if per == "fleet" else EachGroup(per_round=per_round)
    return replace(base, select=select, mix=GroupAverage(weighting=weighting, n_shared=n_shared))


@part("select", "each-group", needs=(GROUPS,), shows=NOTHING)
class EachGroup(PerRound):
    """`per_round` of the reachable members of each group (or all of a smaller one), uniformly."""

    def __call__(self, now: Round) -> list[int]:
        chosen: list[int] = []
        for group in sorted(set(now.groups.values())):
            members = [client for client in now.here if now.groups.get(client) == group]
            chosen += drawn_clients(members, self.per_round, now.stream("select", group))
        return sorted(chosen)
