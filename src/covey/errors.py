"""Errors that a user can act on, and warnings that point to the user's own line."""

import contextlib
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

INSIDE = str(Path(__file__).parent), contextlib.__file__


class UserError(Exception):
    """A mistake in what the user gave: one sentence with the field, the value and what is allowed.

    Examples:
        >>> covey.resolve({"rounds": 0})
        Traceback (most recent call last):
        covey.errors.UserError: rounds is 0; allowed: a whole number, at least 1
    """


class RunError(Exception):
    """A run that cannot continue: one sentence on what happened and where.

    Examples:
        >>> try:
        ...     run = covey.run("fedavg", rounds=1, out="runs/fine", progress=False)
        ... except covey.RunError as error:
        ...     print(error)
    """


class SilentRoundError(RunError):
    """A round in which nobody answered, for a reason that need not return in the next."""


class SpoiledRunError(RunError):
    """A run whose models or losses are not finite any more; what came before `round` may be good."""

    def __init__(self, sentence: str, *, round: int) -> None:
        super().__init__(sentence)
        self.round = round


class Refused(Exception):  # noqa: N818
    """A client's own decision not to answer (a spent privacy budget, an unknown step): becomes a refused reply."""


@contextlib.contextmanager
def importing(sentence: str) -> Iterator[None]:
    """Around imports of optional packages: where one is missing, the sentence says what to install."""
    try:
        yield
    except ImportError as error:
        raise UserError(sentence) from error


@contextlib.contextmanager
def user_error(sentence: str, kinds: tuple[type[Exception], ...] = (Exception,)) -> Iterator[None]:
    """Around code that reads what others wrote: any failure is this sentence, with the first line of the reason.

    kinds: the errors that are meant, where somebody's own code runs inside whose other errors say more by themselves.
    """
    try:
        yield
    except (UserError, RunError):
        raise
    except kinds as error:
        raise UserError(f"{sentence}: {first_line(error)}") from error


def first_line(error: Exception) -> str:
    """Why, in one line; of a file in the system's words."""
    lines = str(getattr(error, "strerror", None) or error).splitlines()
    return lines[0] if lines else repr(error)


def warn_caller(text: str) -> None:
    """Warns at the line outside this package that led here, however deep inside it was noticed."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(INSIDE):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, stacklevel=level)
