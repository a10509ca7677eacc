"""What a part of a method shows the server that noise on updates does not cover; each part declares it.

`[private]` reads it in the attribute `shows`, and refuses a part that says nothing. It is said in `@part` or
`@step`, or by a property of the class. Where another class takes over some of a class's code, it says it anew.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Shows:
    """What of the clients the server is shown, and what to set or use instead.

    what: in words; empty: nothing but updates, and answers that have noise of their own. in_updates: it is read out of
    single updates, so that noise on every one of them covers it, and noise on their sum does not.
    """

    what: str = ""
    instead: str = ""
    in_updates: bool = False


NOTHING = Shows()  # it asks clients nothing without noise, and makes the same of sums as of single updates

ANY_GROUPS = 'use embedding with pretrain = "public", or haccs, whose groups come from noisy summaries'
SAME_AS_COVEY = "with covey leave method.over as it is"
A_SERVER = "use a method with a server, such as fedavg or embedding"
AT_THE_SERVER = "use fedavgm or fedadam"
CLIPPED = "bad clients are bounded by the clip length: use fedavg"
ROUNDS_OF_SUMS = "use fedavg, whose rounds make sums"

BEST_MODEL = Shows(what="which model has the lowest loss on a client's data", instead=ANY_GROUPS)
FIT_OF_MODELS = Shows(what="how well each model fits a client's data", instead=ANY_GROUPS)
EXACT_LOSSES = Shows(what="every client's exact loss", instead='use fedavg, or haccs with losses = "none"')
KEPT_OUT = Shows(what="exact losses on data that a client kept out", instead=SAME_AS_COVEY)
OWN_MODEL = Shows(what="every client's own model", instead=A_SERVER, in_updates=True)
SKETCHED = Shows(what="a sketch of every client's update", instead="use cfic with epsilon")
BATCHES = Shows(what="how many batches a client has", instead='set method.weighting = "equal"')


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What a part may tell of single samples: this much of the run's epsilon and delta, for all that it ever asks."""

    epsilon: float
    delta: float


def private_form(part: Any, budget: Budget) -> Any:
    """The part as it is in a run that hides samples: as its method `privately` says, or itself, where it has none."""
    change = getattr(part, "privately", None)
    return part if change is None else change(budget)


def hiding_clients(method: Any, noise: float, secure: Any = None) -> Any:
    """The method as it is in a run that hides whole clients, as the `hiding_clients` of its group says; or itself.

    `noise`: of the one sum, in lengths of what a client adds to it, that is worth all that is told beside updates;
    `secure`: how sums are made where the server may see nobody's part of them.
    """
    change = getattr(method.group, "hiding_clients", None)
    return method if change is None else change(method, noise, secure)


def hiding_samples(method: Any, epsilon: float) -> Any:
    """The method as it is where every gradient has noise, as the `hiding_samples` of its group says; or itself."""
    change = getattr(method.group, "hiding_samples", None)
    return method if change is None else change(method, epsilon)


def shows_of(part: object) -> Shows | None:
    """What the part says of itself; None where it says nothing, or says it of other code than its own."""
    if hasattr(part, "__name__"):  # a function; one around another says it for itself
        found = None if hasattr(part, "__wrapped__") else getattr(part, "shows", None)
    else:
        found = getattr(part, "shows", None) if says(type(part)) else None
    return found if isinstance(found, Shows) else None


def says(cls: type) -> bool:
    """Whether the most derived class with code of the part, or one derived from it, is the one that says it."""
    for each in cls.__mro__:
        if "shows" in vars(each):
            return True
        if any(is_code(name, value) for name, value in vars(each).items()):
            return False
    return False


def is_code(name: str, value: object) -> bool:
    """Whether this is code of the part; what every dataclass has is not."""
    own = name == "__call__" or not (name.startswith("__") and name.endswith("__"))
    return own and (callable(value) or isinstance(value, property | classmethod | staticmethod))


def by_weights(part: Any) -> Shows:
    """Of a part with a `weighting`: a number of batches would be told beside the update."""
    return BATCHES if part.weighting == "batches" else NOTHING


def by_losses(part: Any) -> Shows:
    """Of a part with a setting `losses`, which may be none."""
    return (
        NOTHING
        if part.losses == "none"
        else Shows(what=EXACT_LOSSES.what, instead='set method.losses = "none"')
    )


def by_answers(step: Any) -> Shows:
    """Of a part that asks clients this question: nothing where its answers are counted, because they have noise."""
    privacy = getattr(step, "privacy", None)
    if getattr(step, "counted", getattr(privacy, "counted", False)):
        return NOTHING
    if privacy is not None and hasattr(step, "flip"):
        return Shows(
            what="exact label counts or bits of every client",
            instead="set method.epsilon, and a method.flip above 0",
        )
    return Shows(
        what="exact summaries of every client's data",
        instead="set method.epsilon, or a method.flip above 0",
    )
