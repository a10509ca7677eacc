"""What a client uses: its cluster's model, moved to its own data as far as that helped the cluster or itself."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from covey.arrays import Array
from covey.core import (
    KEPT_OUT,
    Budget,
    Facts,
    Key,
    Reply,
    Round,
    Send,
    Shows,
    Step,
    Task,
    each_reply,
    needs_of,
    part,
    shows_of,
)
from covey.parts.steps.at_home import HELD_OUT, TRIED
from covey.parts.steps.judged import FOLDS, JUDGEMENTS

NOT_SAID = Shows(what="what its send part does not say", instead="let that part say what it shows")
RECENT = 2  # a model's k-th of n judgements counts (k / n)^2: as the last third, whatever the scale of the first losses
UNJUDGED = 1.0  # nobody has trained such a model yet: whoever must use it trains it first
HALF = TRIED.index(0.5)  # in doubt going half the way costs least, whichever extreme is right
FEWEST = 3  # judgements that a client needs to decide for itself
PRIOR = 3  # weight, in judgements, of the prior that it is like the others
# of each model: rounds in which it was judged, and each client's last judgements, one line each: number of the
# round, samples, score of each share, loss of each share
JUDGED: Key[dict[int, dict[str, Any]]] = Key("judged serving", 'add "judged" to after')


# whether clients train by the slower step, since the first round was made again
SLOWER: Key[bool] = Key("slower")
TAKEN_BACK = "The first learning rate, which left in doubt whether training helps, was taken back in round 1."

# what is judged: each model, or where clients hold one each, that of a whole group
Per = Literal["model", "group"]


@dataclass(frozen=True, kw_only=True)
class UnlessInDoubt:
    """Every client's reply; a first round that did not surely help is made again by a slower step, and later ones too.

    A model that knows nothing yet gains by almost any training. If it does not, the learning rate is too high, and what
    comes of such a round cannot be mended later.
    """

    slower: Step

    shows_each: ClassVar[bool] = True  # as in a round that is made once

    def __call__(self, now: Round, step: Step) -> list[Reply]:
        if not SLOWER.get(now.memory, False):
            replies = each_reply(now, step)
            if JUDGED.get(now.memory, {}) or helped(replies):
                return replies
            SLOWER.keep(now.memory, True)
        return each_reply(now, self.slower)


def helped(replies: Sequence[Reply]) -> bool:
    """Whether own training lowered the loss on data kept out of it by more than the standard error over clients.

    No answer at all is no help. Clients with too few samples to judge do not count.
    """
    judged = [reply.stats for reply in replies if "losses" in reply.stats]
    if not judged:
        return bool(replies)
    table = np.array([[stats["judged"], *stats["scores"], *stats["losses"]] for stats in judged], float)
    gain, error = gained(table, 0, -1)
    return gain > error


@part("after", "judged", needs=(JUDGEMENTS,), gives=(JUDGED,), shows=KEPT_OUT)
class KeepJudgements:
    """Keeps, for every model and client, how good each share of own training was on data kept out of it."""

    per: Per = "model"

    def __call__(self, now: Round) -> None:
        kept = dict(JUDGED.get(now.memory, {}))
        slots = {r.id: r.slot if self.per == "model" else now.groups.get(r.id, -1) for r in now.replies}
        for slot in set(slots.values()):
            before = kept.get(slot, {"rounds": 0, "lines": {}})
            number, lines = before["rounds"] + 1, dict(before["lines"])
            for reply in now.replies:
                if slots[reply.id] == slot and "scores" in reply.stats:
                    line = [number, reply.stats["judged"], *reply.stats["scores"], *reply.stats["losses"]]
                    lines[reply.id] = [*lines.get(reply.id, ()), [float(v) for v in line]][-FOLDS:]
            kept[slot] = {"rounds": number, "lines": lines}
        JUDGED.keep(now.memory, kept)
        up = now.fleet.objective.higher_is_better
        shares = {slot: shares_of(judged, up) for slot, judged in sorted(kept.items())}
        now.notes["serving"] = {
            "text": "Share of a client's own training in the model it uses, as judged on data kept out of it: "
            + ", ".join(f"cluster {slot}: {in_words(*share)}" for slot, share in shares.items())
            + (f". {TAKEN_BACK}" if SLOWER.get(now.memory, False) else ".")
        }


def shares_of(judged: Mapping[str, Any], higher_is_better: bool) -> tuple[float, dict[int, float]]:
    """The share for a model's clients, and that of the clients who do better with another one.

    For all: the one with the lowest loss, of equal ones the one with the best score, if its gain over one half exceeds
    the standard error; else one half; `UNJUDGED` where nothing is known. A client that was judged k times leaves it for
    another one whose gain d is sure for that client alone: d k / (k + PRIOR) above the standard error of d.
    """
    clients = {i: weighed(lines, judged["rounds"]) for i, lines in judged["lines"].items()}
    if not clients:
        return UNJUDGED, {}
    table = np.concatenate(list(clients.values()))
    score, loss = np.split(table[:, :1].T @ table[:, 1:], 2, axis=1)
    used = int(np.lexsort((score[0] * (-1 if higher_is_better else 1), loss[0]))[0])
    gain, error = gained(table, HALF, used)
    used = used if gain >= error else HALF
    apart = {}
    for i, lines in clients.items():
        times, most = len(lines), 0.0
        for other in set(range(len(TRIED))) - {used} if times >= FEWEST else ():
            gain, error = gained(lines, used, other)
            sure = gain * times / (times + PRIOR) - error * math.sqrt(times / (times - 1))
            if sure > most:
                apart[i], most = TRIED[other], sure
    return TRIED[used], apart


def weighed(lines: Sequence[Sequence[float]], rounds: int) -> Array:
    """Judgements, one per line: its weight, the scores, the losses; many samples and late rounds count most."""
    table = np.array(lines)
    return np.column_stack((table[:, 1] * (table[:, 0] / rounds) ** RECENT, table[:, 2:]))


def gained(table: Array, used: int, other: int) -> tuple[float, float]:
    """What another share gains in loss, d = sum of w d_i over lines with weights of sum 1, and its standard error.

    Its square is the sum of w^2 (d_i - d)^2.
    """
    weight, losses = table[:, 0] / table[:, 0].sum(), table[:, 1 + len(TRIED) :]
    gains = losses[:, used] - losses[:, other]
    mean = float(weight @ gains)
    return mean, float(np.linalg.norm(weight * (gains - mean)))


def in_words(share: float, apart: Mapping[int, float]) -> str:
    """What the clients of a model use."""
    others = sorted(Counter(apart.values()).items())
    told = ", ".join(f"{count} of its clients {other:g}" for other, count in others)
    return f"{share:g}" + (f" ({told})" if told else "")


@part("send", "adapted", needs=(JUDGED,), shows=KEPT_OUT)
class ServeAdapted:
    """The rows that `send` sends, and how far a client should make them its own."""

    send: Send
    per: Per = "model"

    def privately(self, budget: Budget) -> Send:  # noqa: ARG002
        """The rows alone: a client chooses at home what to make of them, and tells nobody."""
        return ServeHeldOut(send=self.send)

    def __call__(self, now: Round, ids: Sequence[int]) -> dict[int, Task]:
        kept = JUDGED.get(now.memory, {})
        up = now.fleet.objective.higher_is_better
        shares = {slot: shares_of(judged, up) for slot, judged in kept.items()}
        slower = {"settled": True} if SLOWER.get(now.memory, False) else {}
        served = {}
        for i, task in self.send(now, ids).items():
            slot = task.slots[0] if self.per == "model" else now.groups.get(i, -1)
            share, apart = shares.get(slot, (UNJUDGED, {}))
            served[i] = replace(task, args={"own": apart.get(i, share), **slower})
        return served


@part("send", "held-out")
class ServeHeldOut:
    """The rows that `send` sends; each client finds out on its own held-out data how far to make them its own."""

    send: Send

    @property
    def needs(self) -> Facts:
        return needs_of(self.send)

    @property
    def shows(self) -> Shows:
        return shows_of(self.send) or NOT_SAID

    def __call__(self, now: Round, ids: Sequence[int]) -> dict[int, Task]:
        return {i: replace(t, args={**t.args, "own": HELD_OUT}) for i, t in self.send(now, ids).items()}
