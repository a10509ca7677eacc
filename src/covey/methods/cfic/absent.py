"""CFIC, with clusters that could not work in a round: they count with what they last did."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from covey.core import KNOWN_GROUPS, ONE_MODEL, Facts, Key, Reply, Round, Shows, Update, needs_of, shows_of

# cluster -> who worked for it last, on how many samples, and how far its mean lay from the model that was sent
LAST_MOVES: Key[dict[int, tuple[int, int, Tensor]]] = Key("clusters.last_moves")


@dataclass(frozen=True, kw_only=True)
class AbsentRemembered:
    """Lets every cluster that is missing among the replies stand in with its last move, then updates as `update` says.

    With more clusters than places a round sees some of the labels only; momentum then runs after those, and forgets the
    others. A stand-in is (old model + the cluster's last mean move), with the samples of that time: it counts in the
    average and in the directions as a reply would. Where no cluster is missing nothing changes, to the bit, and nothing
    is kept. (Jhunjhunwala et al., 2022, keep one move per cluster for the average alone: ClusterFedVARP.)

    Args:
        update: what is done with the average, e.g. CFIC's correction.
    """

    update: Update

    @property
    def shows(self) -> Shows | None:
        return shows_of(self.update)

    @property
    def needs(self) -> Facts:
        return (ONE_MODEL, KNOWN_GROUPS, *needs_of(self.update))

    def __call__(self, now: Round, rows: Tensor) -> Tensor:
        clusters: dict[int, list[Reply]] = {}
        for reply in now.replies:
            if reply.id in now.groups:
                clusters.setdefault(now.groups[reply.id], []).append(reply)
        kept = LAST_MOVES.get(now.memory, {})
        if not kept and set(now.groups.values()) <= set(clusters):
            return self.update(now, rows)
        width = now.fleet.layout.trainable
        old = now.models[0, :width].double()
        absent = {cluster: last for cluster, last in kept.items() if cluster not in clusters}
        moves = {cluster: (who, size, move) for cluster, (who, size, move) in absent.items()}
        for cluster, members in clusters.items():
            size = sum(reply.size for reply in members)
            mean = sum(
                (r.vector[:width].double() * (r.size / size) for r in members if r.vector is not None), -old
            )
            moves[cluster] = (members[-1].id, size, mean.float())
        LAST_MOVES.keep(now.memory, dict(sorted(moves.items())))
        stand_ins = [stand_in(now, who, size, old + move.double()) for who, size, move in absent.values()]
        everybody = replace(now, replies=[*now.replies, *stand_ins])
        return self.update(everybody, with_stand_ins(now, rows, stand_ins, width))


def stand_in(now: Round, who: int, size: int, vector: Tensor) -> Reply:
    """What a cluster would reply if it did again what it last did; its buffers are those of the old model."""
    rest = now.models[0, len(vector) :]
    return Reply(id=who, vector=torch.cat([vector.float(), rest]), slot=0, size=size)


def with_stand_ins(now: Round, rows: Tensor, stand_ins: list[Reply], width: int) -> Tensor:
    """The average of the replies and the stand-ins by samples, on the trainable part."""
    present = sum(reply.size for reply in now.replies)
    total = present + sum(reply.size for reply in stand_ins)
    mean = rows[0, :width].double() * (present / total)
    for reply in stand_ins:
        assert reply.vector is not None
        mean += reply.vector[:width].double() * (reply.size / total)
    new = rows.clone()
    new[0, :width] = mean.float()
    return new
