"""Whose updates point away from the others', round after round: remembered, and refused where it is significant."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey.core.ledger import Conduct, Ledger
from covey.core.messages import Reply, Task
from covey.fleet import guard
from covey.fleet.guard import Lengths
from covey.fleet.work import Call
from covey.streams import stream

ENOUGH = 5  # replies of a model among which a direction says something
UPDATES = 2  # of a client before it is judged
AWAY = -0.05  # its mean cosine to the others' updates ...
APART = 0.15  # ... which lies this much below theirs to each other, and that many
DEVIATIONS = 3.0  # deviations below the other clients' means
# The share of the others' agreement by which it must point backwards: a client with other data goes across, not back.
BACKWARDS = 0.5
COLUMNS = 1 << 15  # of large models this many columns are compared, drawn anew in every round


def note_directions(
    replies: Sequence[Reply], tasks: Mapping[int, Task], lengths: Lengths, ledger: Ledger
) -> list[int]:
    """Remembers each client's median cosine to the others of its model; the places of those that were compared."""
    if max(lengths.asked, len(replies)) < guard.ENOUGH:
        return []
    compared: list[int] = []
    for places, gram in lengths.by_model:
        sent = np.array([not tasks[replies[place].id].keep for place in places])
        if sent.sum() < ENOUGH:
            continue
        cosines = median_cosines(gram[np.ix_(sent, sent)])
        usual = float(np.median(cosines))
        for place, cosine in zip(places[sent].tolist(), cosines.tolist(), strict=True):
            ledger.note_direction(replies[place].id, cosine=cosine, apart=cosine - usual)
        compared += places[sent].tolist()
    return compared


def compared_columns(learned: int, call: Call) -> Tensor | None:
    """The columns on which updates are compared in this round; None: on all of them."""
    if learned <= COLUMNS:
        return None
    rng = stream(call.seed, "guard", "round", call.round)
    return torch.from_numpy(np.sort(rng.choice(learned, COLUMNS, replace=False)))


def median_cosines(gram: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of each vector the median of its cosines to the others, given all inner products; a zero vector has cosine 0."""
    lengths = np.sqrt(np.diag(gram))
    norms = np.outer(lengths, lengths)
    cosines = np.divide(gram, norms, out=np.zeros_like(gram), where=norms > 0)
    count = len(gram)
    others = cosines[~np.eye(count, dtype=bool)].reshape(count, count - 1)
    return np.asarray(np.median(others, axis=1))


def astray(ledger: Ledger, clients: Iterable[int]) -> dict[int, Conduct]:
    """Those of the clients whose updates have pointed away from the others' beyond what merely different data do."""
    judged = ((client, one) for client in clients if (one := ledger.conduct[client]).compared >= UPDATES)
    apart = {c: one for c, one in judged if one.apart / one.compared < -APART and one.cosine < least_of(one)}
    if not apart:  # nearly always: then nobody else is looked at
        return {}
    means = np.array([one.apart / one.compared for one in ledger.conduct.values() if one.compared])
    middle = float(np.median(means))
    spread = 1.4826 * float(np.median(np.abs(means - middle)))  # the deviation, if they are normal
    limit = middle - DEVIATIONS * spread
    return {client: one for client, one in apart.items() if one.apart / one.compared < limit}


def least_of(one: Conduct) -> float:
    """The sum of cosines below which a client points away: of the medians of the same rounds minus a half, or AWAY."""
    return min(AWAY * one.compared, -BACKWARDS * (one.cosine - one.apart))


def refused_for_direction(
    replies: Sequence[Reply], compared: Sequence[int], ledger: Ledger
) -> dict[int, str]:
    """Why the updates of those who point away are not used, by client; always fewer than half of those compared."""
    found = astray(ledger, [replies[place].id for place in compared])
    if 2 * len(found) >= len(compared):
        return {}
    return {
        client: f"its updates point away from the others' (cosine {one.cosine / one.compared:.2f} "
        f"in the mean of {one.compared}; guard.norm = 0 takes them)"
        for client, one in found.items()
    }
