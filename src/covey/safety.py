"""What keeps one client from ending or spoiling a round: a part that fails over its answers is asked again without."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
from torch import Tensor

from covey.errors import RunError, SilentRoundError, SpoiledRunError, UserError

if TYPE_CHECKING:
    from covey.core import Fleet, Method, Reply, Round, Step, Task

T = TypeVar("T")

HOPELESS = 1000.0  # times the loss of guessing
STANDS_OUT = 10.0  # times as long as the others' updates: then it is said who sent it


# ---------------------------------------------------------------------------------------------- one client's answers


@dataclass
class Listening:
    """A fleet that remembers what it was told, so that a part can be asked again as if some clients were silent."""

    fleet: Fleet
    told: dict[tuple[str, tuple[int, ...], int], list[Reply]] = field(default_factory=dict)
    without: frozenset[int] = frozenset()
    asks: dict[tuple[str, tuple[int, ...]], int] = field(default_factory=dict)

    def ask(self, step: Step, tasks: Mapping[int, Task], **options: Any) -> list[Reply]:
        question = (step.kind, tuple(sorted(tasks)))
        number = self.asks[question] = self.asks.get(question, 0) + 1
        key = (*question, number)
        if key not in self.told:
            self.told[key] = self.fleet.ask(step, tasks, **options)
        return [reply for reply in self.told[key] if reply.id not in self.without]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.fleet, name)

    @property
    def heard(self) -> set[int]:
        """Who has told anything."""
        return {reply.id for replies in self.told.values() for reply in replies}


def without_culprit(now: Round, part: Callable[[Round], T]) -> T:
    """What the part makes of the round; where it fails over one client's answers, what it makes of the others'.

    That client's answers are then refused. A part that fails whoever is left out has a fault of its own, which is
    raised as it is; so is everything under `engine.debug`.
    """
    listening = Listening(now.fleet)
    before = _changeable(now)
    now.fleet = cast("Fleet", listening)
    try:
        return part(now)
    except (UserError, RunError):
        raise
    except Exception as error:
        suspects = sorted(listening.heard | {reply.id for reply in before["replies"]})
        if len(suspects) < 2 or getattr(getattr(listening.fleet, "engine", None), "debug", False):
            raise

        def again(without: frozenset[int]) -> tuple[T] | None:
            listening.without, listening.asks = without, {}
            _put_back(now, before)
            now.replies = [reply for reply in now.replies if reply.id not in without]
            try:
                return (part(now),)
            except Exception:
                return None

        while len(suspects) > 1:
            half = suspects[: len(suspects) // 2]
            suspects = half if again(frozenset(half)) else suspects[len(half) :]
        result = again(frozenset(suspects))
        if result is None:
            raise
        reason = f"the method fails over what it says: {type(error).__name__}: {error}"
        listening.fleet.ledger.note_refusal(suspects[0], kind=_name(part), round=now.number, reason=reason)
        return result[0]
    finally:
        now.fleet = listening.fleet


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


def _name(part: Callable[..., Any]) -> str:
    part = getattr(part, "func", part)
    return f"method.{getattr(part, '__name__', type(part).__name__)}"


# ---------------------------------------------------------------------------------------------- no answer, no number


def nobody_answered(method: Method, now: Round) -> RunError:
    """Why a round has no reply: a mistake that every client makes again, numbers that are none, or mere silence."""
    ledger = now.fleet.ledger
    asked = len(now.tasks)
    if asked and ledger.diverged_in_round == asked:
        return SpoiledRunError(
            f"round {now.number}: training diverges: the loss or the model of all {asked} clients is not a finite "
            f"number; {_remedy(method.local)}{culprit_in_words(now.fleet)}",
            round=now.number,
        )
    if asked and ledger.failed_in_round == asked:
        return RunError(
            f"round {now.number}: {method.local.kind} fails at every client it was asked of ({asked}). "
            f"{ledger.last_problem()}"
        )
    return SilentRoundError(f"round {now.number}: none of {asked} clients answered. {ledger.last_problem()}")


def check_losses(method: Method, now: Round) -> None:
    """A first round in which everybody does a thousand times worse than by guessing will not get better."""
    if now.number > 1 or now.fleet.objective.kernel != "cross-entropy":
        return
    losses = [float(reply.stats.get("loss", 0.0)) for reply in now.replies]
    if min(losses) > HOPELESS * math.log(max(2, now.fleet.known(-1).classes)):
        raise SpoiledRunError(
            f"round 1: training diverges: the loss of all {len(losses)} clients that answered is "
            f"{min(losses):.3g} or more; {_remedy(method.local)}",
            round=1,
        )


def not_measurable(fleet: Fleet, round: int) -> RunError:
    """Why the server cannot evaluate its models on its own test data, which no client has to do with."""
    what, problem = fleet.ledger.latest or ("lost", None)
    reason = problem.reason if problem is not None else "for no known reason"
    if what == "lost":
        return RunError(f"round {round}: the models cannot be evaluated on the global test set: {reason}")
    return SpoiledRunError(
        f"round {round}: on the global test set {reason.replace('its ', 'the ', 1)}: training diverges; lower train.lr "
        f"or set train.clip{culprit_in_words(fleet)}",
        round=round,
    )


def check_bank(method: Method, now: Round) -> None:
    """A bank with NaN or infinity is never kept."""
    if not is_finite(now.models):
        raise SpoiledRunError(
            f"round {now.number}: the new models hold NaN or infinity; {_remedy(method.local)}"
            f"{culprit_in_words(now.fleet)}",
            round=now.number,
        )


def is_finite(rows: Tensor) -> bool:
    """Whether all values are finite. A finite sum has only finite terms; the long way is for sums that overflow."""
    return math.isfinite(float(rows.sum())) or bool(torch.isfinite(rows).all())


def culprit(fleet: Fleet, since: int = 0) -> tuple[int, int, float] | None:
    """Who sent the update that stands out most of all rounds after `since`: round, client, times the others'."""
    found = [one for one in fleet.ledger.longest if one[0] > since and one[2] >= STANDS_OUT]
    return max(found, key=lambda one: one[2], default=None)


def culprit_in_words(fleet: Fleet) -> str:
    """Whose update stood out, for the end of a sentence."""
    found = culprit(fleet)
    if found is None:
        return ""
    round, client, times = found
    return f". In round {round} the update of client {client} was {times:.3g} times as long as the others'"


def _remedy(step: Step) -> str:
    train = getattr(step, "train", None) or getattr(step, "local", None) or step
    rate = getattr(train, "lr", None)
    return f"lower train.lr{f' ({rate:g})' if rate is not None else ''} or set train.clip"
