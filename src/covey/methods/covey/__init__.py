"""Covey: all five papers in one method, for a fleet of which nobody knows how its clients differ.

    question                     part                                whose idea
    who is alike?                clusters by class-wise private bits   embedding clustering (Prigent et al., 2024)
    one model or many?           one per cluster, found anew as clients come, leave and drift; clusters whose classes
                                 look different but lie alike share one
    who works?                   every cluster and label group (CFIC, Yang et al., 2025), in quick rounds that leave
                                 nobody behind (HACCS, Wolfrath et al., 2022, with a fair schedule)
    what does the server add?    momentum of each model, where its   CFIC's correction
                                 clients do not pull at odds
    what does a client use?      its cluster's model, an average of   CAFA's judgement on data that were not
                                 the last rounds', moved to its own  trained on (Zhang et al., 2024)
                                 data as far as that helps

Every part has its evidence in docs/evidence/covey.md, and `without` leaves any of them out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from covey.core import (
    GROUPS,
    Bank,
    Budget,
    Facts,
    Method,
    Mix,
    Round,
    Select,
    Send,
    Shows,
    Step,
    Update,
    each_reply,
    method,
    needs_of,
    part,
    private_form,
    shows_of,
)
from covey.core.shows import NOTHING, SAME_AS_COVEY
from covey.methods.covey.grouping import (
    NOBODY,
    PORTRAITS,
    ByPortrait,
    one_per_cluster,
    outstanding_label,
)
from covey.methods.covey.many import OUTSTANDING
from covey.parts.averaged import KeepAverages, SendAverages
from covey.parts.banks import one_per_client, to_group
from covey.parts.mix.shared import GroupAverage
from covey.parts.portraits.portrait import DescribeClasses
from covey.parts.selection.fair import LAST_CHOSEN, FairSchedule, pool
from covey.parts.selection.feedback import remember_losses
from covey.parts.selection.plain import Uniform
from covey.parts.serving import KeepJudgements, Per, ServeAdapted, UnlessInDoubt
from covey.parts.steps.embedding import BitNoise
from covey.parts.steps.judged import JudgedTrain
from covey.parts.steps.privacy import Privacy
from covey.parts.steps.train import Train
from covey.parts.update.clusters import AdaptiveCorrection
from covey.settings import BelowHalf, Count, Epsilon, Natural

Over = Literal[
    "server",
    "hierarchical-full",
    "hierarchical-ring",
    "hierarchical-wheel",
    "hierarchical-star",
    "hierarchical-torus",
    "hierarchical-exponential",
]
# of a round: with label groups inside clusters, fuller rounds than HACCS' own 1.25 learn more per second
FULLNESS = 3.0
# the first round's learning rate is so many times what is set, and falls by 5 % a round to it
FIRST_RATE, RATE_FALLS = 2.0, 0.95
CoveyPart = Literal["clusters", "selection", "correction", "serving", "decay", "rate", "average"]


@method("covey", family="everything")
def covey(
    train: Train,
    *,
    per_round: Count = 10,
    every: Natural = 5,
    flip: BelowHalf = 0.1,
    epsilon: Epsilon | None = None,
    noise: BitNoise = "simulated",
    over: Over = "server",
    without: tuple[CoveyPart, ...] = (),
) -> Method:
    """Finds out by itself how clients differ: one model per cluster where needed, fine-tuned for each client.

    Clients describe their classes in noisy bits (`flip`; label counts under `epsilon`), in the first round and every
    `every` rounds after it. Those whose classes look alike, or differ all in the same way (brighter pictures), are a
    cluster. At most `per_round` clients work in a round, chosen from clusters and label groups by a fair schedule. Each
    cluster's model is averaged and corrected along its clients' directions, unless these are at odds. A tenth of the
    data, another one in each round, is kept out of training and says how far a client should train the model on its own
    data before use; that training starts from an average of the last rounds' models. Where `train.weight_decay` is 0 it
    is 1 / samples, at most .005. Where `train.lr_decay` is 1 the learning rate is twice `train.lr` in the first round
    and falls to it by 5 % per round; a first round that did not surely help is made again at `train.lr`, which then
    stays. `without` leaves parts out.

    Args:
        every: rounds between two descriptions of the clients' classes.
        flip: probability with which every bit is flipped.
        epsilon: privacy loss of the label counts; none sends them exactly.
        noise: how the noise is drawn: simulated (repeatable) or opendp (secure).
        over: how models travel: from and to a server, or without one: label groups of each cluster at representatives,
            which mix on that graph.
        without: parts that are left out, to see what each is worth.
    """
    # without clusters everybody is one: no cut can have so many clients in each
    least = NOBODY if "clusters" in without else 2
    train = suited(train, without)
    judged = "serving" not in without
    local = JudgedTrain(train=train) if judged else train
    backbone = over.removeprefix("hierarchical-")
    travel = by_server() if over == "server" else over_topology(backbone)
    clusters = within_clusters(local, travel.send, per_round=per_round)
    chosen: Select = Uniform(per_round=per_round) if "selection" in without else clusters
    judging = (KeepJudgements(per=travel.per),) if judged else ()
    losses = () if "selection" in without else (remember_losses,)
    by_bits = by_clusters(flip=flip, epsilon=epsilon, noise=noise, every=every, min_size=least)
    # without a server everybody holds a model, and nobody an average of all
    averaged = judged and over == "server" and "average" not in without
    averages = (KeepAverages(),) if averaged else ()
    use = SendAverages(send=travel.send) if averaged else travel.send
    slower = as_set(local)
    return Method(
        name="covey",
        group=by_bits,
        bank=travel.bank,
        select=chosen,
        send=travel.send,
        local=local,
        gather=each_reply if slower is local or not judged else UnlessInDoubt(slower=slower),
        mix=travel.mix,
        update=None if "correction" in without else travel.update,
        serve=ServeAdapted(send=use, per=travel.per) if judged else None,
        adapt=train if judged else None,
        after=(*averages, *judging, *losses),
    )


def suited(train: Train, without: tuple[CoveyPart, ...]) -> Train:
    """The local training with a weight decay and a falling learning rate, where none are set."""
    if not train.weight_decay and "decay" not in without:
        train = replace(train, weight_decay="samples")
    if train.lr_decay == 1 and "rate" not in without:
        train = replace(train, lr=FIRST_RATE * train.lr, lr_decay=RATE_FALLS, lr_floor=1 / FIRST_RATE)
    return train


def as_set(local: Step) -> Step:
    """The local training at the learning rate that was set, where `suited` made it larger and had it fall."""
    train = local.train if isinstance(local, JudgedTrain) else local
    if not isinstance(train, Train) or (train.lr_decay, train.lr_floor) != (RATE_FALLS, 1 / FIRST_RATE):
        return local
    return replace(local, train=train.settled()) if isinstance(local, JudgedTrain) else train.settled()


@dataclass(frozen=True, kw_only=True)
class Travel:
    """Where models are, how they get to clients and back, and what they are judged by: each, or each cluster's."""

    bank: Bank
    send: Send
    mix: Mix
    update: Update
    per: Per


def by_server() -> Travel:
    """A server holds one model per cluster, and corrects it unless its clients pull at odds."""
    correct = AdaptiveCorrection(among="clients", agreed=True)
    return Travel(bank=one_per_cluster, send=to_group, mix=GroupAverage(), update=correct, per="model")


def over_topology(backbone: str) -> Travel:
    """Every client holds its cluster's model; label groups meet at representatives, which mix inside their cluster."""
    # only here: networkx, which draws the graphs, takes as long to import as some rounds
    from covey.methods.covey.topology import ClusterTopology, FromRepresentative

    mix = ClusterTopology(backbone=backbone, finer=label_groups)
    correct = AdaptiveCorrection(among="clients", per="group", agreed=True)
    send = FromRepresentative(mix=mix)
    return Travel(bank=one_per_client, send=send, mix=mix, update=correct, per="group")


@part("group", "portraits")
def by_clusters(
    *,
    flip: BelowHalf = 0.1,
    epsilon: Epsilon | None = None,
    noise: BitNoise = "simulated",
    every: Natural = 5,
    min_size: Count = 2,
    join: bool = True,
) -> ByPortrait:
    """Clusters of clients whose classes look alike, by noisy bits of each class; with `join` also if they lie alike."""
    describe = DescribeClasses(flip=flip, privacy=Privacy(epsilon=epsilon, noise=noise), noise=noise)
    return ByPortrait(describe=describe, every=every, min_size=min_size, join=join)


@part("select", "within-clusters")
def within_clusters(
    step: Step, send: Send, *, per_round: Count = 10, fullness: float = FULLNESS
) -> WithinClusters:
    """HACCS' fair schedule over all clusters and, inside each, over all label groups."""
    return WithinClusters(
        select=FairSchedule(step=step, send=send, per_round=per_round, fullness=fullness, hurry="timed")
    )


@dataclass(frozen=True, kw_only=True)
class WithinClusters:
    """Lets `select` choose among finer groups: every cluster is cut by its members' label features.

    The label feature (CFIC, eq. 2) is read off the label counts of the clients' portraits, so nobody is asked again.
    """

    select: Select

    @property
    def shows(self) -> Shows:
        shown = shows_of(self.select)
        return NOTHING if shown == NOTHING else Shows(what="every client's exact loss", instead=SAME_AS_COVEY)

    def privately(self, budget: Budget) -> WithinClusters:
        """The same, by a selection that knows no losses."""
        return replace(self, select=private_form(self.select, budget))

    @property
    def needs(self) -> Facts:
        return (GROUPS, PORTRAITS, *needs_of(self.select))

    def __call__(self, now: Round) -> list[int]:
        here = pool(now)
        finer = label_groups(now, None if here is now.here else {*here, *LAST_CHOSEN.get(now.memory, {})})
        chosen = self.select(replace(now, here=here, groups=finer))
        now.notes["who was chosen"] = {"text": told_in_words(now, here, finer, chosen)}
        return chosen


def told_in_words(now: Round, pool: Sequence[int], finer: Mapping[int, int], chosen: Sequence[int]) -> str:
    """Who was chosen, in words for the report."""
    last = LAST_CHOSEN.get(now.memory, {})
    waits = max((now.number - last.get(i, 0) for i in pool), default=0)
    among = "" if pool is now.here else f" (chosen among {len(pool):,} of them, drawn at random)"
    return (
        f"Round {now.number}: {len(set(chosen))} of {len(now.here)} clients work{among}, from "
        f"{kinds(now.groups, chosen)} of {kinds(now.groups, pool)} clusters and {kinds(finer, chosen)} of "
        f"{kinds(finer, pool)} groups (clients of one cluster whose most outstanding label is the same). A round is "
        "chosen as a whole, for what it is worth in its time: large groups, groups with a high loss and those who "
        f"waited long are worth more. The longest wait is {waits} {'round' if waits == 1 else 'rounds'}."
    )


def kinds(groups: Mapping[int, int], ids: Sequence[int]) -> int:
    """How many groups these clients are in."""
    return len({groups[i] for i in ids if i in groups})


def label_groups(now: Round, ids: Collection[int] | None = None) -> dict[int, int]:
    """The label group of every client, or of these: clients of a cluster whose most outstanding label is the same."""
    told, known = PORTRAITS.of(now.memory), OUTSTANDING.get(now.memory, {})
    wanted = [*told, *known] if ids is None else ids
    labels = {
        i: outstanding_label(told[i]) if i in told else known[i] for i in wanted if i in told or i in known
    }
    groups = now.groups if ids is None else {i: now.groups[i] for i in labels if i in now.groups}
    return cut_by_label(groups, labels)


def cut_by_label(groups: Mapping[int, int], labels: Mapping[int, int]) -> dict[int, int]:
    """One number for every pair of group and label, the same in every round."""
    base = 1 + max(labels.values(), default=0)
    return {i: group * base + labels[i] for i, group in groups.items() if i in labels}
