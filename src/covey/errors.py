"""Errors that a user can act on."""


class UserError(Exception):
    """A mistake in what the user gave: one sentence with the field, the value and what is allowed."""


class RunError(Exception):
    """A run that cannot go on: one sentence on what happened and where."""
