"""Keeps clients from ending or spoiling a round: a part that fails on some replies runs again without them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from numbers import Integral
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from covey.errors import RunError, SilentRoundError, SpoiledRunError, UserError

if TYPE_CHECKING:
    from covey.core import Fleet, Method, Reply, Round, Step, Task

T = TypeVar("T")

HOPELESS = 1000.0  # times the loss of guessing
TRIES = 8  # how often a part may be asked again over bad answers, times the logarithm of how many have told anything
STANDS_OUT = 10.0  # times as long as the others' updates: then it is said who sent it


# ---------------------------------------------------------------------------------------------- one client's answers


@dataclass
class HeardReplies:
    """What a fleet was told while a part of the method was asked, so that the part can be asked again as if some
    clients were silent; every fleet has one, and nothing is kept between two parts."""

    told: dict[tuple[str, tuple[int, ...], int], list[Reply]] = field(default_factory=dict)
    without: frozenset[int] = frozenset()
    asks: dict[tuple[str, tuple[int, ...]], int] = field(default_factory=dict)
    kept: bool = False

    def once(self, step: Step, tasks: Mapping[int, Task], ask: Callable[[], list[Reply]]) -> list[Reply]:
        """The replies to a question: what was told to it before, if the part is asked again, else what `ask` gives."""
        if not self.kept:
            return ask()
        question = (step.kind, tuple(sorted(tasks)))
        number = self.asks[question] = self.asks.get(question, 0) + 1
        key = (*question, number)
        if key not in self.told:
            self.told[key] = ask()
        return [reply for reply in self.told[key] if reply.id not in self.without]

    def again(self, without: frozenset[int]) -> None:
        """The part is asked once more, as if these clients were silent."""
        self.without, self.asks = without, {}

    @property
    def heard(self) -> set[int]:
        """The clients that have replied to anything."""
        return {reply.id for replies in self.told.values() for reply in replies}

    @contextmanager
    def forgetting(self) -> Iterator[None]:
        """Replies in this block are used at once: those of a million clients are not kept for a second try."""
        before, self.kept = self.kept, False
        try:
            yield
        finally:
            self.kept = before

    @contextmanager
    def keeping(self) -> Iterator[HeardReplies]:
        """Keeps replies while one part runs."""
        self.kept = True
        try:
            yield self
        finally:
            self.told, self.asks, self.without, self.kept = {}, {}, frozenset(), False


def without_culprits(now: Round, part: Callable[[Round], T]) -> T:
    """The part's result for the round; where some clients' replies make it fail, its result without them.

    Those replies are then refused, if they come from fewer than half of the clients that replied. A part that fails
    whoever is left out is itself at fault: its error is raised as it is, and so is every error under `engine.debug`.
    """
    before = _changeable(now)
    with now.fleet.answers.keeping() as answers:
        try:
            return part(now)
        except (UserError, RunError):
            raise
        except Exception as error:
            suspects = sorted(i for i in answers.heard | {reply.id for reply in before["replies"]} if i >= 0)
            if not suspects or len(now.here) < 2 or now.fleet.debug:
                raise
            return _made_without(now, part, suspects, before, error)


def _made_without(
    now: Round,
    part: Callable[[Round], T],
    suspects: Sequence[int],
    before: Mapping[str, Any],
    error: Exception,
) -> T:
    """The part's result without the clients that make it fail; `error` where no client in particular does."""
    reason = f"the method fails on its reply: {type(error).__name__}: {error}"

    def made(without: frozenset[int]) -> tuple[T] | None:
        now.fleet.answers.again(without)
        _put_back(now, before)
        now.replies = [reply for reply in now.replies if reply.id not in without]
        try:
            return (part(now),)
        except Exception:
            return None

    culprits = fewest(suspects, lambda without: made(without) is not None)
    result = made(culprits) if 2 * len(culprits) < len(suspects) or len(culprits) == 1 else None
    if result is None and len(suspects) == 1:
        # with no reply at all there is nothing to work on
        _refuse(suspects, now.fleet, part, now.number, reason)
        raise SilentRoundError(f"round {now.number}: {now.fleet.ledger.last_problem()}") from error
    if result is None:
        raise error
    _refuse(sorted(culprits), now.fleet, part, now.number, reason)
    return result[0]


def fewest(suspects: Sequence[int], works: Callable[[frozenset[int]], bool]) -> frozenset[int]:
    """A smallest set of suspects without whom it works (QuickXplain, Junker, 2004).

    Each culprit among n takes about log2 n tries. All suspects are returned where no such set is found within `TRIES`
    times that: then they are hardly to blame.
    """
    left = TRIES * (1 + math.ceil(math.log2(len(suspects))))

    def among(group: Sequence[int], without: frozenset[int]) -> frozenset[int]:
        nonlocal left
        if len(group) == 1:
            return frozenset(group)
        halves = group[: len(group) // 2], group[len(group) // 2 :]
        for half in halves:
            left -= 1
            if left < 0:
                raise _NotFoundError
            if works(without | frozenset(half)):
                return among(half, without)
        second = among(halves[1], without | frozenset(halves[0]))
        return second | among(halves[0], without | second)

    try:
        return among(suspects, frozenset())
    except _NotFoundError:
        return frozenset(suspects)


class _NotFoundError(Exception):
    """Too many tries."""


def _changeable(now: Round) -> dict[str, Any]:
    return {
        "models": now.models,
        "groups": dict(now.groups),
        "memory": dict(now.memory),
        "notes": dict(now.notes),
        "replies": list(now.replies),
    }


def _put_back(now: Round, before: Mapping[str, Any]) -> None:
    for name, value in before.items():
        setattr(now, name, value if isinstance(value, Tensor) else type(value)(value))


def _refuse(clients: Sequence[int], fleet: Fleet, part: Callable[..., Any], round: int, reason: str) -> None:
    part = getattr(part, "func", part)
    kind = f"method.{getattr(part, '__name__', type(part).__name__)}"
    for client in clients:
        fleet.ledger.note_refusal(client, kind=kind, round=round, reason=reason)


# ---------------------------------------------------------------------------------------------- no answer, no number


def check_round(method: Method, now: Round) -> None:
    """Raises at once, with the reason, where no reply of a round counts or where everybody's training diverges.

    A failure that every client would repeat and diverging training end the run; a round without replies may pass.
    """
    ledger, asked = now.fleet.ledger, len(now.tasks)
    if diverging(now):
        raise SpoiledRunError(
            f"round {now.number}: training diverges: {_losses_in_words(now)}; {_remedy(method.local)}"
            f"{culprit_in_words(now.fleet, now.number)}",
            round=now.number,
        )
    check_turnout(now.fleet, now.number)
    if now.replies:
        return
    if asked and ledger.failed_in_round == asked:
        raise RunError(
            f"round {now.number}: {method.local.kind} fails at every client that was asked for it ({asked}). "
            f"{ledger.last_problem()}"
        )
    if not asked:
        raise SilentRoundError(
            f"round {now.number}: method {method.name} chose none of {len(now.here)} clients{ledger.why_in_round()}"
        )
    raise SilentRoundError(f"round {now.number}: none of {asked} clients answered. {ledger.last_problem()}")


def check_turnout(fleet: Fleet, number: int) -> None:
    """Ends a run over real sites where too few of them participate in a round, or all of them refuse."""
    if why := fleet.objection():
        raise RunError(f"round {number}: {why}")


def diverging(now: Round) -> bool:
    """Whether the losses of all who trained have exploded, and they are more than one or two among many.

    Exploded: not a finite number; or, in the first round and where no reply counts, a thousand times the loss of
    guessing. In the first round two such clients are enough, later it takes three: only liars may have replied.
    """
    losses = _losses(now)
    enough = min(len(now.here), 2 if now.number == 1 else 3)
    if not losses or (len(losses) < enough and min(losses) >= 0):  # the server itself is no liar
        return False
    hopeless = math.inf
    if now.fleet.objective.kernel == "cross-entropy" and (now.number == 1 or not now.replies):
        hopeless = HOPELESS * math.log(max(2, now.fleet.known(-1).classes))
    return all(not math.isfinite(loss) or loss > hopeless for loss in losses.values())


def _losses(now: Round) -> dict[int, float]:
    """The training losses of the round by client: of replies that count, and of those that were refused."""
    counted = {reply.id: float(reply.stats.get("loss", 0.0)) for reply in now.replies}
    return {**now.fleet.ledger.losses_refused, **counted}


def _losses_in_words(now: Round) -> str:
    losses = _losses(now)
    finite = [loss for loss in losses.values() if math.isfinite(loss)]
    if not finite:
        return f"the loss or the model of all {len(losses)} clients that answered is not a finite number"
    return f"the loss of all {len(losses)} clients that answered is {min(finite):.3g} or more"


def not_measurable(fleet: Fleet, round: int, where: str = "the global test set") -> RunError:
    """Why no model could be evaluated there; in evaluation on the server's own test data no client is involved."""
    what, problem = fleet.ledger.latest or ("lost", None)
    reason = problem.reason if problem is not None else "for no known reason"
    if what == "lost":
        return RunError(f"round {round}: the models cannot be evaluated on {where}: {reason}")
    return SpoiledRunError(
        f"round {round}: on {where} {reason.replace('its ', 'the ', 1)}: training diverges; lower train.lr "
        f"or set train.clip{culprit_in_words(fleet, round)}",
        round=round,
    )


def as_chosen(method: Method, chosen: Any, here: Sequence[int]) -> list[int]:
    """Whom a method's selection names, as a list: clients that are here, or the server itself (below zero)."""
    there = set(here)
    try:
        found = list(chosen)
    except TypeError:
        found = [chosen]
    for one in found:
        if not isinstance(one, Integral) or (int(one) >= 0 and one not in there):
            raise RunError(
                f"method {method.name}: select names {one!r}; it must give a list of clients that are here (now.here)"
            )
    return [int(one) for one in found]


def check_bank(method: Method, now: Round) -> None:
    """Checks that the new bank is a table of whole rows; one with NaN or infinity is never kept."""
    rows, size = now.models, now.fleet.layout.size
    if not isinstance(rows, Tensor) or rows.dim() != 2 or not len(rows) or rows.shape[1] != size:
        found = f"of shape {tuple(rows.shape)}" if isinstance(rows, Tensor) else f"a {type(rows).__name__}"
        raise RunError(
            f"method {method.name}: the new models are {found}; allowed: a tensor (models, {size})"
        )
    if rows.dtype != torch.float32 or rows.requires_grad:
        found = "attached to a gradient" if rows.requires_grad else f"{rows.dtype}"
        raise RunError(f"method {method.name}: the new models are {found}; allowed: rows.detach().float()")
    if not is_finite(now.models):
        raise SpoiledRunError(
            f"round {now.number}: the new models hold NaN or infinity; {_remedy(method.local)}"
            f"{culprit_in_words(now.fleet, now.number)}",
            round=now.number,
        )


def is_finite(rows: Tensor) -> bool:
    """Whether all values are finite. A finite sum has only finite terms; the long way is for sums that overflow."""
    return math.isfinite(float(rows.sum())) or bool(torch.isfinite(rows).all())


def culprit(fleet: Fleet, since: int = 0) -> tuple[int, int, float] | None:
    """Who sent the longest update of all rounds after `since`: round, client, how many times as long as the others'."""
    found = [one for one in fleet.ledger.longest if one[0] > since and one[2] >= STANDS_OUT]
    return max(found, key=lambda one: one[2], default=None)


def culprit_in_words(fleet: Fleet, round: int) -> str:
    """Whose update stood out, for the end of a sentence; where nobody's did, what helps against several together."""
    found = culprit(fleet)
    if found is not None:
        when, client, times = found
        return f". In round {when} the update of client {client} was {times:.3g} times as long as the others'"
    return '; where clients may collude, robust.name = "median"' if round > 1 else ""


def _remedy(step: Step) -> str:
    train = getattr(step, "train", None) or getattr(step, "local", None) or step
    rate = getattr(train, "lr", None)
    return f"lower train.lr{f' ({rate:g})' if rate is not None else ''} or set train.clip"
