"""What a site has spent on telling about its data, and the secret that its repeated answers come from.

Both belong to the data: they outlive every round, run and server. A loss is written down before it is told.
"""

import hashlib
import json
import math
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from covey.core.codec import plain_of_file
from covey.core.privacy_loss import Loss, Told, add_loss, losses_of, plain_losses
from covey.errors import Refused, UserError
from covey.files import owners_folder, write_atomically
from covey.privacy.composition import composed

DELTA = 1e-5  # at which a site's budget is kept
Held = TypeVar("Held")
MOST_QUESTIONS = 10_000  # that one site answers from its secret


class PrivacyAccount:
    """A site's privacy account in its folder: `epsilon` is the total, `answers.json` the secret and what it answered.

    The states of runs beside it tell what was spent when they were written: an account that was deleted or set back
    is noticed when the site starts. That the whole folder was deleted is noticed where there is an `anchor`, a second
    folder in another place, which remembers how much was told of the same data.
    """

    def __init__(
        self,
        folder: Path | None,
        *,
        data: Callable[[], str],
        budget: float | None = None,
        anchor: Path | None = None,
    ) -> None:
        self.folder = folder
        self.anchor = anchor
        self.data = data
        self.budget = budget
        self.unsaid: Callable[[str], None] | None = None
        self.epsilon = 0.0
        self.drawn = (
            0  # losses by fresh noise since this process began, each of an answer that no other would repeat
        )
        self.secret = b""
        self.told: Told = {}  # updates with noise
        self.questions: dict[str, float] = {}  # what was answered from the secret, and its loss
        self.lens = ""  # what the server has been making of the data before a step sees them
        if folder is not None:
            owners_folder(folder)
            self.epsilon = kept_in(folder / "epsilon", _spent, 0.0)
            self.told = kept_in(folder / "updates.json", lambda text: losses_of(json.loads(text)), {})
            self.secret, self.questions = kept_in(
                folder / "answers.json", _answers, (b"", dict[str, float]())
            )
            self._compare(folder)
        if anchor is not None:
            owners_folder(anchor)
            self._compare_anchor()

    @property
    def mark(self) -> str:
        """Tells the secret from another one, and nothing about it; empty before there is one."""
        return hashlib.sha256(b"mark" + self.secret).hexdigest()[:16] if self.secret else ""

    def spend(self, epsilon: float, *, budget: float | None = None) -> float:
        """Books a loss by fresh noise and gives the new total; refuses beyond this site's budget or the one given."""
        total = self._book(epsilon, budget)
        self.drawn += 1
        return total

    def _book(self, epsilon: float, budget: float | None = None) -> float:
        if not 0 <= epsilon < math.inf:
            raise Refused(f"a summary of epsilon {epsilon} is refused: a loss gives nothing back")
        most = min((b for b in (self.budget, budget) if b is not None), default=None)
        total = self.epsilon + epsilon
        whole = self.composed(total, self.told) if self.told else total
        if most is not None and whole > most * (1 + 1e-9):
            raise Refused(
                f"a summary of epsilon {epsilon:g} is refused: {self.epsilon:g} of the budget of {most:g} is spent "
                "(epsilon per sample)"
            )
        self._check_alone()
        if self.folder is not None:
            write_kept(self.folder / "epsilon", repr(total))
        self.epsilon = total
        self._keep_anchor()
        return total

    def lose(self, loss: Loss, times: int = 1) -> None:
        """Books an update with noise, on disk before it is sent; everything told so far is composed with it."""
        told = dict(self.told)
        add_loss(told, loss, times)
        total = self.composed(self.epsilon, told)
        if self.budget is not None and total > self.budget * (1 + 1e-9):
            what = "an update" if loss.what == "updates" else "a summary"
            raise Refused(
                f"{what} is refused: with it more than all of the budget of {self.budget:g} would be spent "
                "(epsilon per sample)"
            )
        self._check_alone()
        if self.folder is not None:
            write_kept(self.folder / "updates.json", json.dumps(plain_losses(told)))
        self.told = told
        self.drawn += 1
        self._keep_anchor()

    def check_plan(self, planned: Told, rounds: int) -> None:
        """Refuses a run of which all that is planned would spend more than is left; said before the first round.

        The noise of single steps follows from the number of samples: then the loss would tell it, for nothing.
        """
        if self.budget is None or not planned:
            return
        told, stated = dict(self.told), self.epsilon
        for loss, times in planned.items():
            if loss.mechanism == "stated":  # as it will be booked
                stated += loss.noise * times
            else:
                add_loss(told, loss, times)
        total = self.composed(stated, told)
        if total > self.budget * (1 + 1e-9):
            would = f"{rounds} rounds of this run would make this site's privacy loss"
            if any(loss.mechanism == "steps" and loss.what == "updates" for loss in told):
                raise Refused(f"{would} more than its budget of {self.budget:g} per sample")
            before = self.composed(self.epsilon, self.told)
            raise Refused(
                f"{would} {total:.3g} per sample; its budget is {self.budget:g} per sample, of which {before:.3g} is "
                "spent"
            )

    def composed(self, epsilon: float, told: Told) -> float:
        """What one sample of this site has lost in all: on summaries and the like, and on updates."""
        answers: Told = {Loss(what="summaries", mechanism="stated", noise=epsilon): 1} if epsilon else {}
        return composed({**told, **answers}, DELTA, "sample")

    def total(self) -> float:
        """What one sample of this site has lost so far."""
        return self.composed(self.epsilon, self.told) if self.told else self.epsilon

    def answer_bytes(self, question: str, count: int, cost: float | Loss) -> bytes:
        """Secret random bytes for a question about these data: the same for ever, and paid for once.

        Through another `lens` it is another question, because the difference of two answers with the same noise has
        none.
        """
        number = hashlib.sha256(f"{self.data()}\0{question}\0{self.lens}".encode()).hexdigest()
        if number not in self.questions:
            if len(self.questions) >= MOST_QUESTIONS:
                raise Refused(
                    f"this site has answered {MOST_QUESTIONS} different questions, which is the most"
                )
            if isinstance(cost, Loss):
                self.lose(cost)
            else:
                self._book(cost)
            epsilon = 0.0 if isinstance(cost, Loss) else cost
            self.secret = self.secret or secrets.token_bytes(32)
            kept = {"secret": self.secret.hex(), "questions": {**self.questions, number: epsilon}}
            if self.folder is not None:
                write_kept(self.folder / "answers.json", json.dumps(kept))
            self.questions[number] = epsilon
        return hashlib.shake_256(self.secret + bytes.fromhex(number)).digest(count)

    def _compare(self, folder: Path) -> None:
        """Compares the account with what the states beside it know."""
        known, updates = {"answers.json": (sum(self.questions.values()), self.mark)}, 0
        for file in sorted(folder.glob("run-*.safetensors")):
            try:
                plain = plain_of_file(file)
                known[file.name] = (float(plain["state"].get("epsilon", 0.0)), str(plain.get("mark", "")))
                updates = max(updates, int(plain["state"].get("updates", 0)))
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                raise UserError(f"--state: {file} cannot be read: {type(error).__name__}: {error}") from error
        if updates > (there := sum(self.told.values())):
            raise UserError(
                f"--state: {folder / 'updates.json'} counts {there} updates and steps under noise, a run beside "
                f"it {updates}: the account was deleted or set back; put the old one back"
            )
        name, (epsilon, _) = max(known.items(), key=lambda item: item[1][0])
        if epsilon > self.epsilon * (1 + 1e-9):
            raise UserError(
                f"--state: {folder / 'epsilon'} says that {self.epsilon:g} is spent, {name} beside it says "
                f"{epsilon:g}: the account was deleted or set back; write {epsilon!r} into it to continue"
            )
        for name, (_, mark) in known.items():
            if mark and mark != self.mark:
                raise UserError(
                    f"--state: {folder / 'answers.json'} is not the one that {name} was written with: put the old "
                    "one back, because new noise on old answers would give them away"
                )

    @property
    def _anchored(self) -> Path:
        """The anchor's file of these data, whatever the site or its state folder is called."""
        assert self.anchor is not None
        return self.anchor / f"told-{hashlib.sha256(self.data().encode()).hexdigest()[:16]}.json"

    def _keep_anchor(self) -> None:
        """Written before anything is told."""
        if self.anchor is not None:
            kept = {"epsilon": self.epsilon, "updates": sum(self.told.values())}
            write_kept(self._anchored, json.dumps(kept))

    def _compare_anchor(self) -> None:
        """Refuses to start where more was told of these data than the account knows."""
        if (more := self._told_elsewhere()) is None:
            self._keep_anchor()
        elif more:
            raise UserError(
                f"--anchor: {more}: it was deleted, set back, or is another one; put the old one back"
            )

    def _check_alone(self) -> None:
        """Refuses to tell anything once somebody else told of the same data: two accounts would be two budgets."""
        if self.anchor is not None and self._told_elsewhere():
            raise Refused(
                "more is told of these data than this account knows of: another one tells, too (--anchor)"
            )

    def _told_elsewhere(self) -> str | None:
        """In words what the anchor knows of these data and the account does not; None without an anchor's file."""
        found = kept_in(self._anchored, _anchor, None, "--anchor")
        if found is None:
            return None
        (epsilon, updates), here = found, sum(self.told.values())
        if epsilon <= self.epsilon * (1 + 1e-9) and updates <= here:
            return ""
        return (
            f"of these data epsilon {epsilon:g} in answers and {updates} updates and steps under noise were told "
            f"({self._anchored}), and --state {self.folder} knows of {self.epsilon:g} and {here}"
        )


def write_kept(file: Path, content: str) -> None:
    """What cannot be booked is not told."""
    try:
        write_atomically(file, content, mode=0o600)
    except OSError as error:
        raise unusable(error) from error


def unusable(error: Exception) -> Refused:
    """The refusal of a site that cannot keep its account or its state."""
    return Refused(f"this site's --state folder cannot be used: {getattr(error, 'strerror', None) or error}")


def kept_in(file: Path, read: Callable[[str], Held], nothing: Held, option: str = "--state") -> Held:
    """What a file of a site's folder holds; one that cannot be read is a mistake, and not a new budget."""
    try:
        return read(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return nothing
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{option}: {file} cannot be read: {type(error).__name__}: {error}") from error


def _answers(text: str) -> tuple[bytes, dict[str, float]]:
    kept = json.loads(text)
    questions = {str(number): float(epsilon) for number, epsilon in kept["questions"].items()}
    return bytes.fromhex(kept["secret"]), questions


def _spent(text: str) -> float:
    if not (spent := float(text)) >= 0:
        raise ValueError(f"it says that {spent} of the budget is spent; allowed: at least 0")
    return spent


def _anchor(text: str) -> tuple[float, int] | None:
    kept = json.loads(text)
    return float(kept["epsilon"]), int(kept["updates"])
