"""What a client uses: its cluster's model, moved towards its own data as far as that helped the cluster's clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from covey.core import KEPT_OUT, Budget, Facts, Key, Round, Send, Shows, Task, needs_of, part, shows_of
from covey.parts.steps.at_home import HELD_OUT, TRIED
from covey.parts.steps.judged import JUDGEMENTS

NOT_SAID = Shows(what="what its send part does not say", instead="let that part say what it shows")
RECENT = 2  # a model's k-th of n judgements counts (k / n)^2: as the last third, whatever the scale of the first losses
UNJUDGED = 1.0  # nobody has trained such a model yet: whoever must use it trains it first
JUDGED: Key[dict[int, list[list[float]]]] = Key("judged serving", 'add "judged" to after')
# of each model: rounds in which it was judged
JUDGEMENTS_SO_FAR: Key[dict[int, int]] = Key("judgements so far")


# what is judged: each model, or where clients hold one each, that of a whole group
Per = Literal["model", "group"]


@part("after", "judged", needs=(JUDGEMENTS,), gives=(JUDGED,), shows=KEPT_OUT)
class KeepJudgements:
    """Adds up, for every model, how good each share of the clients' own training was on data kept out of it."""

    per: Per = "model"

    def __call__(self, now: Round) -> None:
        kept = dict(JUDGED.get(now.memory, {}))
        before = JUDGEMENTS_SO_FAR.get(now.memory, {})
        model_of = {
            reply.id: reply.slot if self.per == "model" else now.groups.get(reply.id, -1)
            for reply in now.replies
        }
        judged = {slot: before.get(slot, 0) + 1 for slot in set(model_of.values())}
        for slot, number in sorted(judged.items()):
            # one row for each share that was tried: samples, score and loss, summed up over samples
            sums = np.array(kept.get(slot, np.zeros((len(TRIED), 3)))) * ((number - 1) / number) ** RECENT
            for reply in now.replies:
                if model_of[reply.id] == slot and "scores" in reply.stats:
                    count = float(reply.stats["judged"])
                    columns = (np.ones(len(TRIED)), reply.stats["scores"], reply.stats["losses"])
                    sums += count * np.column_stack(columns)
            kept[slot] = sums.tolist()
        JUDGED.keep(now.memory, kept)
        JUDGEMENTS_SO_FAR.keep(now.memory, {**before, **judged})
        up = now.fleet.objective.higher_is_better
        shares = {slot: best_share(sums, up) for slot, sums in kept.items()}
        now.notes["serving"] = {
            "text": "Share of a client's own training in the model it uses, as judged on data kept out of it: "
            + ", ".join(f"cluster {slot}: {share:g}" for slot, share in sorted(shares.items()))
            + "."
        }


def best_share(sums: Sequence[Sequence[float]], higher_is_better: bool) -> float:
    """The share with the lowest loss, of equal ones that with the best score; `UNJUDGED` where there is none."""
    table = np.array(sums)
    if table[0, 0] == 0:
        return UNJUDGED
    score = table[:, 1] * (1 if higher_is_better else -1)
    return TRIED[int(np.lexsort((-score, table[:, 2]))[0])]


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
        shares = {slot: best_share(sums, up) for slot, sums in kept.items()}
        tasks = self.send(now, ids)
        model_of = {i: t.slots[0] if self.per == "model" else now.groups.get(i, -1) for i, t in tasks.items()}
        return {i: replace(t, args={"own": shares.get(model_of[i], UNJUDGED)}) for i, t in tasks.items()}


@part("send", "held-out")
class ServeHeldOut:
    """The rows that `send` sends; how far to make them its own each client finds out by held-out data of its own."""

    send: Send

    @property
    def needs(self) -> Facts:
        return needs_of(self.send)

    @property
    def shows(self) -> Shows:
        return shows_of(self.send) or NOT_SAID

    def __call__(self, now: Round, ids: Sequence[int]) -> dict[int, Task]:
        return {i: replace(t, args={**t.args, "own": HELD_OUT}) for i, t in self.send(now, ids).items()}
