"""What a site's answer comes to: a reply, or why there is none."""

from __future__ import annotations

from collections.abc import Mapping

from covey.core.codec import named_from_bytes, reply_from_plain
from covey.core.ledger import Ledger
from covey.core.round import Step, Task
from covey.deploy.transport import Response
from covey.fleet.work import Outcome
from covey.terminal import printable
from covey.training.rows import Layout


def outcome_of(client: int, response: Response) -> Outcome:
    """What a site answered; nothing that it says can do more than be left out."""
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
    """What a site was asked for it has told, whether its answer came in time or not."""
    told = [ledger.epsilon[i] for i in heard if i in ledger.epsilon]
    privacy = getattr(step, "privacy", None)
    for client in asked - heard:
        if getattr(step, "counted", False) and told:  # as much as others at most
            ledger.epsilon[client] = max(ledger.epsilon.get(client, 0.0), *told)
        elif privacy is not None and privacy.counted:
            ledger.epsilon[client] = ledger.epsilon.get(client, 0.0) + privacy.epsilon
