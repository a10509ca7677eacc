"""Clients whose updates stand out, round after round: reported at the end of a run, with what helps."""

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from covey.arrays import Array
from covey.core.ledger import Conduct, Ledger
from covey.core.messages import Reply
from covey.fleet.direction import astray
from covey.fleet.guard import FEWEST_UPDATES, Guard, Lengths

ENOUGH = 5  # updates before anything is said of a client
AWAY = 0.15  # once a model has learned all it can, honest updates point anywhere
ROUNDING = 1e-5  # of float32's sums
NAMED = 10  # clients that are named


def note_conduct(
    replies: Sequence[Reply],
    lengths: Lengths,
    guard: Guard,
    ledger: Ledger,
    refused: Collection[int] = (),
) -> None:
    """Remembers whose update was too long compared with the others', and whose points away from all of them.

    Those whose updates are `refused` do not count among the others: four that push one way would make the rest look
    odd.
    """
    if len(replies) < FEWEST_UPDATES or not guard.norm:
        return
    own, shares = lengths.own[:, 0], lengths.shares(guard.norm)
    usual = lengths.of_same_model(own)
    times = np.divide(own, usual, out=np.ones_like(own), where=usual > 0)
    backwards = np.zeros(len(replies), bool)
    for here, gram in lengths.by_model:
        if len(here) > FEWEST_UPDATES:
            counts = np.array([replies[place].id not in refused for place in here])
            backwards[here] = against(gram, own[here] / np.maximum(1.0, times[here]), counts)
    for place, reply in enumerate(replies):
        ledger.note_conduct(
            reply.id, long=bool(shares[place] < 1), against=bool(backwards[place]), times=float(times[place])
        )


def against(gram: Array, lengths: Array, counts: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whose update points away from the sum of the others' that count: a cosine below -AWAY.

    Given are the inner products of the updates' directions, and how long each is when it counts.
    """
    inner = gram * np.outer(lengths, lengths)
    own, along = np.diag(inner), inner @ counts  # with itself, and with the sum of those that count
    whole = along @ counts
    rest = np.where(counts, whole - 2 * along + own, whole)
    across = np.where(counts, along - own, along)
    some = rest > ROUNDING * (whole + own)  # nothing has no direction
    return np.asarray(some & (across < -AWAY * np.sqrt(own * np.maximum(rest, 0))))


def odd_clients(ledger: Ledger) -> dict[int, Conduct]:
    """Those who keep pointing away, or of whose updates more than half were too long or backwards; the oddest first."""
    away = astray(ledger, ledger.conduct)
    found = {
        client: one
        for client, one in ledger.conduct.items()
        if one.updates >= ENOUGH and (client in away or 2 * max(one.long, one.against) > one.updates)
    }
    return dict(sorted(found.items(), key=lambda item: -(item[1].long + item[1].against) / item[1].updates))


def odd_in_words(ledger: Ledger, names: Sequence[str] = ()) -> str:
    """Who stands out, and what to switch on; nothing where nobody does."""
    odd, everybody = odd_clients(ledger), len(ledger.conduct)
    if not odd:
        return ""
    if 2 * len(odd) >= everybody:
        return (
            f"the updates of {len(odd)} of {everybody} clients were longer than guard.norm allows, or pointed against "
            "the others': clients are too heterogeneous for one of them to stand out. Long updates were shortened; "
            'if some may lie, set robust.name = "clip".'
        )
    away, said = astray(ledger, ledger.conduct), []
    for client, one in list(odd.items())[:NAMED]:
        what = []
        if one.long:
            what.append(f"{one.long} longer than guard.norm allows, up to {one.times:.3g} times the others'")
        if one.against:
            what.append(f"{one.against} against the others'")
        if client in away:
            what.append(f"mean cosine to the others' {one.cosine / one.compared:.2f}")
        who = names[client] if client < len(names) else f"client {client}"
        said.append(f"{who} (of {one.updates} updates {', '.join(what)})")
    more = f"; and {len(odd) - NAMED} more clients" if len(odd) > NAMED else ""
    count = len(odd)
    return (
        f"{count} {'client stands' if count == 1 else 'clients stand'} out: {'; '.join(said)}{more}. That is "
        "other data, a fault, or a lie. Long updates were shortened, and those of clients that kept pointing away "
        f'left out; if somebody may lie: robust.name = "cosine" and robust.hostile = {count}, or robust.name = '
        '"median" where clients are alike.'
    )


def refused_in_words(ledger: Ledger) -> str:
    """How many replies were refused, with the first client and its reason; an empty text where none was."""
    if not (found := ledger.examples("refused")):
        return ""
    count, one = ledger.refused, found[0]
    return (
        f"{count} {'reply was' if count == 1 else 'replies were'} refused, first of all client {one.client}'s to "
        f"{one.kind} in round {one.round}: {one.reason}"
    )
