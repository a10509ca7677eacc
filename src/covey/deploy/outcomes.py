"""What a site's answer comes to, and a round's: a reply or why there is none, who participated, who refused and why."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from covey.core import Step, Task
from covey.core.codec import named_from_bytes, reply_from_plain
from covey.core.ledger import Ledger
from covey.deploy.transport import Response
from covey.fleet.bookkeeping import is_silent
from covey.fleet.work import Outcome
from covey.terminal import printable
from covey.training.rows import Layout

ReplyShape = tuple[Any, ...]


def outcome_of(client: int, response: Response) -> Outcome:
    """What a site answered; whatever it says, the worst that happens is that it is left out."""
    if response.refused:
        return Outcome(id=client, refused=printable(response.refused))
    if response.error:
        return Outcome(id=client, lost=printable(response.error))
    try:
        answer = named_from_bytes(response.answer)
        if "reply" not in answer:
            return Outcome(id=client, refused=printable(str(answer["refused"])) or "it does not say why")
        reply = None if answer["reply"] is None else reply_from_plain(answer["reply"])
        lost, refused = (printable(str(answer[why])) for why in ("lost", "refused"))
        lost = lost or printable(str(answer["mistake"]))
        if reply is None and not lost and not refused:
            raise ValueError("it holds neither a reply nor a reason")
        return Outcome(id=client, reply=reply, lost=lost, refused=refused)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        reason = f"its answer cannot be read: {type(error).__name__}: {error}"
        return Outcome(id=client, refused=printable(reason))


def row_bytes(layout: Layout, tasks: Mapping[int, Task]) -> int:
    """The bytes of one row: of the model, or of what was sent where that is another one."""
    sent = [task.models.shape[1] for task in tasks.values() if task.models.dim() == 2]
    return 4 * max([layout.size, *sent])


def book_unheard(ledger: Ledger, step: Step, heard: set[int], asked: set[int]) -> None:
    """Books a question as told, whether its answer came in time or not."""
    told = [ledger.epsilon[i] for i in heard if i in ledger.epsilon]
    privacy = getattr(step, "privacy", None)
    for client in asked - heard:
        if getattr(step, "counted", False) and told:  # as much as others at most
            ledger.epsilon[client] = max(ledger.epsilon.get(client, 0.0), *told)
        elif privacy is not None and privacy.counted:
            ledger.epsilon[client] = ledger.epsilon.get(client, 0.0) + privacy.epsilon


class ReplySchemas:
    """What most sites gave when they were last asked something; a site that is asked alone is compared with that.

    Methods may so rely on the statistics of the steps they ask for, whatever a single site sends.
    """

    def __init__(self) -> None:
        self.usual: dict[ReplyShape, ReplyShape] = {}

    def checked(self, step: Step, tasks: Mapping[int, Task], outcomes: Sequence[Outcome]) -> list[Outcome]:
        """The outcomes, with those refused whose statistics have another schema than most replies to a similar task."""
        told = {
            o.id: (likeness(step, tasks[o.id]), schema_of(o.reply.stats))
            for o in outcomes
            if o.reply and not is_silent(step, tasks[o.id], o.reply)
        }
        for like in {like for like, _ in told.values()}:
            votes = Counter(said for other, said in told.values() if other == like)
            if votes.total() > 2:  # fewer cannot outvote a wrong one
                self.usual[like] = votes.most_common(1)[0][0]
        wrong = "its statistics are not those that the other sites give"
        return [
            replace(o, reply=None, refused=wrong)
            if o.id in told and told[o.id][1] != self.usual.get(*told[o.id])
            else o
            for o in outcomes
        ]


def likeness(step: Step, task: Task) -> ReplyShape:
    """Equal for questions whose answers have the same schema."""
    sizes = ((name, len(v) if isinstance(v, list | tuple | dict) else 1) for name, v in task.args.items())
    return (repr(step), len(task.models), *sorted(sizes))


def schema_of(stats: Mapping[str, Any]) -> ReplyShape:
    """The names of statistics with the kind of each: all but the numbers."""
    return tuple((name, kind(stats[name])) for name in sorted(stats))


def kind(value: Any) -> ReplyShape:
    """What sort of value it is, and its shape; within a list, what sorts."""
    if isinstance(value, np.ndarray | Tensor):
        return (type(value).__name__, str(value.dtype), tuple(value.shape))
    if isinstance(value, list | tuple):
        return ("list", *("number" if isinstance(v, int | float) else type(v).__name__ for v in value))
    return ("number",) if isinstance(value, int | float) else (type(value).__name__,)


GO_ON = "covey serve --resume continues when that has changed"


class Turnout:
    """What became of the questions of a round."""

    def __init__(self, quorum: int = 0) -> None:
        self.quorum = quorum
        self.said: set[tuple[int, str]] = set()  # refusals that the terminal has shown
        self.there = -1  # sites at the beginning of the last round
        self.open()

    def fewer(self, there: int, least: int) -> str:
        """What is said where a round begins with fewer sites than the run is for, once for each number of them."""
        news, self.there = there != self.there, there
        if there >= least or not news:
            return ""
        return f"continues with {there} of {least} sites; [sites] quorum says how many a round needs"

    def open(self) -> None:
        """A new round begins."""
        self.asked: set[int] = set()  # to train
        self.trained: set[int] = set()
        self.names: dict[int, str] = {}  # of whoever was asked anything
        self.refused: dict[int, str] = {}  # who refused something, and why

    def note(self, client: int, name: str, refused: str) -> bool:
        """A site was asked something, which it may have refused; whether that is news."""
        self.names[client] = name
        if not refused:
            return False
        self.refused[client] = refused
        news = (client, refused) not in self.said
        self.said.add((client, refused))
        return news

    def note_training(self, asked: Collection[int], trained: Collection[int]) -> None:
        """These were asked to train, and these did."""
        self.asked |= {i for i in asked if i >= 0}
        self.trained |= {i for i in trained if i >= 0}

    def objection(self) -> str:
        """Why nothing is made of the round; empty where it counts, or where the next one may be better."""
        asked = self.asked or set(self.names)
        nobody = bool(asked) and not self.trained and asked <= self.refused.keys()
        if not nobody and len(self.trained) >= min(self.quorum, len(asked)):
            return ""
        sites = "1 site that was asked" if len(asked) == 1 else f"{len(asked)} sites that were asked"
        quorum = f", and sites.quorum is {self.quorum}" if self.quorum else ""
        silent = sorted(self.names.get(i, str(i)) for i in asked - self.trained - self.refused.keys())
        reasons = [*self.refusals(asked), *([f"{', '.join(silent)} did not answer"] if silent else [])]
        return f"{len(self.trained)} of {sites} trained{quorum}: {'; '.join(reasons)}; {GO_ON}"

    def refusals(self, asked: Collection[int]) -> list[str]:
        """Who refused, by reason."""
        by_reason: dict[str, list[str]] = {}
        for client, why in sorted(self.refused.items()):
            if client in asked:
                by_reason.setdefault(why.rstrip("."), []).append(self.names[client])
        return [f"{', '.join(names)} refused: {why}" for why, names in by_reason.items()]


def is_training(step: Step) -> bool:
    """Whether a site that answers has trained: also where its update comes in a secure sum."""
    kinds = (step.kind, getattr(getattr(step, "step", None), "kind", ""))
    return any(kind.startswith("train.") for kind in kinds)
