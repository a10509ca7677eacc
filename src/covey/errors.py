"""Errors that a user can act on."""


class UserError(Exception):
    """A mistake in what the user gave: one sentence with the field, the value and what is allowed."""


class RunError(Exception):
    """A run that cannot go on: one sentence on what happened and where."""


class Refused(Exception):  # noqa: N818
    """A client's own decision not to answer (a spent privacy budget, an unknown step): becomes a refused reply."""
