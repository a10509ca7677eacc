"""Errors that a user can act on."""


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
    """A round in which nobody answered, for no reason that will be there again in the next."""


class SpoiledRunError(RunError):
    """A run whose models or losses are not finite any more; what came before `round` may be good."""

    def __init__(self, sentence: str, *, round: int) -> None:
        super().__init__(sentence)
        self.round = round


class Refused(Exception):  # noqa: N818
    """A client's own decision not to answer (a spent privacy budget, an unknown step): becomes a refused reply."""
