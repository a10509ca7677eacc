"""Covey: all five papers in one method, for a fleet of which nobody knows how its clients differ.

    question                     part                                whose idea
    who is alike?                flocks by class-wise private bits   embedding clustering (Prigent et al., 2024)
    one model or many?           one per flock, found anew as clients come, leave and drift; flocks whose classes
                                 look different but lie alike share one; if wanted, one for all until data kept out
                                 of training say that flocks need their own (CAFA's judgement)
    who works?                   every flock and label group (CFIC, Yang et al., 2025), in quick rounds that leave
                                 nobody behind (HACCS, Wolfrath et al., 2022, with a fair schedule)
    what does the server add?    momentum of each model, where its   CFIC's correction
                                 clients do not pull at odds
    what does a client use?      its flock's model, moved to its     CAFA's judgement on data that were not
                                 own data as far as that helps       trained on (Zhang et al., 2024)

Every part has its evidence in docs/methods/covey.md, and `without` leaves any of them out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from covey.core.round import Bank, Method, Mix, Select, Send, Step, Update
from covey.methods.covey.grouping import ByPortrait, Together, keep_evidence, one_per_flock
from covey.methods.covey.portrait import DescribeClasses
from covey.methods.covey.selection import WithinFlocks, label_groups
from covey.parts.banks import one_per_client, to_group
from covey.parts.mix.shared import GroupAverage
from covey.parts.selection.fair import FairSchedule
from covey.parts.selection.feedback import remember_losses
from covey.parts.selection.plain import Uniform
from covey.parts.serving import KeepJudgements, Per, ServeAdapted
from covey.parts.steps.embedding import BitNoise
from covey.parts.steps.judged import JudgedTrain
from covey.parts.steps.privacy import Privacy
from covey.parts.steps.train import Train
from covey.parts.update.clusters import AdaptiveCorrection
from covey.settings.ranges import BelowHalf, Count, Epsilon, Natural
from covey.settings.registry import register
from covey.settings.signatures import validated

Over = Literal[
    "server",
    "hierarchical-full",
    "hierarchical-ring",
    "hierarchical-wheel",
    "hierarchical-star",
    "hierarchical-torus",
    "hierarchical-exponential",
]
FULLNESS = 3.0  # of a round: with label groups inside flocks, fuller rounds than HACCS' own 1.25 learn more per second
Start = Literal["apart", "together"]
Part = Literal["flocks", "selection", "correction", "serving"]


@register("method", "covey", family="everything")
@validated
def covey(
    train: Train,
    *,
    per_round: Count = 10,
    every: Natural = 5,
    flip: BelowHalf = 0.1,
    epsilon: Epsilon | None = None,
    noise: BitNoise = "simulated",
    over: Over = "server",
    start: Start = "apart",
    without: tuple[Part, ...] = (),
) -> Method:
    """Finds out by itself how clients differ: flocks with a model each where needed, and each model moved to its user.

    Clients describe their classes in noisy bits (`flip`; label counts under `epsilon`), once and again `every` so many
    rounds; those whose classes look alike, or differ all in the same way (brighter pictures), are a flock. At most
    `per_round` clients work in a round, chosen from flocks and label groups by a fair schedule. Each flock's model is
    averaged and corrected along its clients' directions, unless these are at odds. A tenth of the data, another one in
    each round, is kept out of training and says how far a client should train the model on its own data before use.
    `without` leaves parts out.

    Args:
        per_round: how many clients work in a round.
        every: rounds between two descriptions of the clients' classes.
        flip: probability with which every bit is flipped.
        epsilon: privacy loss of the label counts; none sends them exactly.
        noise: how the noise is drawn: simulated (repeatable) or opendp (secure).
        over: how models travel: from and to a server, or without one: label groups of each flock at representatives,
            which mix on that graph.
        start: flocks have models of their own from the first round, or share one until held-out data part them.
        without: parts that are left out, to see what each is worth.
    """
    # without flocks everybody is one: no cut can have so many clients in each
    least = 10**6 if "flocks" in without else 2
    judged = "serving" not in without
    local = JudgedTrain(train=train) if judged else train
    backbone = over.removeprefix("hierarchical-")
    travel = by_server() if over == "server" else over_topology(backbone)
    flocks = within_flocks(local, travel.send, per_round=per_round)
    chosen: Select = Uniform(per_round=per_round) if "selection" in without else flocks
    judging = (KeepJudgements(per=travel.per),) if judged else ()
    losses = () if "selection" in without else (remember_losses,)
    by_bits = by_flocks(flip=flip, epsilon=epsilon, noise=noise, every=every, min_size=least)
    evidence = (keep_evidence,) if start == "together" else ()
    return Method(
        name="covey",
        group=Together(group=by_bits) if start == "together" else by_bits,
        bank=travel.bank,
        select=chosen,
        send=travel.send,
        local=local,
        mix=travel.mix,
        update=None if "correction" in without else travel.update,
        serve=ServeAdapted(send=travel.send, per=travel.per) if judged else None,
        adapt=train if judged else None,
        after=(*judging, *losses, *evidence),
    )


@dataclass(frozen=True, kw_only=True)
class Travel:
    """Where models are, how they get to clients and back, and what they are judged by: each, or each flock's."""

    bank: Bank
    send: Send
    mix: Mix
    update: Update
    per: Per


def by_server() -> Travel:
    """A server holds one model per flock, and corrects it unless its clients pull at odds."""
    correct = AdaptiveCorrection(among="clients", agreed=True)
    return Travel(bank=one_per_flock, send=to_group, mix=GroupAverage(), update=correct, per="model")


def over_topology(backbone: str) -> Travel:
    """Every client holds its flock's model; label groups meet at representatives, which mix inside their flock."""
    # only here: networkx, which draws the graphs, takes as long to import as some rounds
    from covey.methods.covey.topology import FlockTopology, FromRepresentative

    mix = FlockTopology(backbone=backbone, finer=label_groups)
    correct = AdaptiveCorrection(among="clients", per="group", agreed=True)
    send = FromRepresentative(mix=mix)
    return Travel(bank=one_per_client, send=send, mix=mix, update=correct, per="group")


@register("group part", "flocks")
@validated
def by_flocks(
    *,
    flip: BelowHalf = 0.1,
    epsilon: Epsilon | None = None,
    noise: BitNoise = "simulated",
    every: Natural = 5,
    min_size: Count = 2,
    join: bool = True,
) -> ByPortrait:
    """Flocks of clients whose classes look alike, by noisy bits of each class; with `join` also if they lie alike."""
    describe = DescribeClasses(flip=flip, privacy=Privacy(epsilon=epsilon, noise=noise), noise=noise)
    return ByPortrait(describe=describe, every=every, min_size=min_size, join=join)


@register("select part", "within-flocks")
@validated
def within_flocks(
    step: Step, send: Send, *, per_round: Count = 10, fullness: float = FULLNESS
) -> WithinFlocks:
    """HACCS' fair schedule over all flocks and, inside each, over all label groups."""
    return WithinFlocks(select=FairSchedule(step=step, send=send, per_round=per_round, fullness=fullness))
