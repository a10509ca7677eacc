"""Text that somebody else wrote."""

from __future__ import annotations

LONGEST = 500  # characters of a foreign text that are shown or kept


def printable(text: str) -> str:
    """The text on one line, without what could steer a terminal or cannot be written as UTF-8."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[:LONGEST])


def uncontrolled(text: str) -> str:
    """The text as it is, lines and all, without what could steer a terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)
