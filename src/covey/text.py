"""Text that somebody else wrote."""

from __future__ import annotations

LONGEST = 500  # characters of a foreign text that are shown or kept


def printable(text: str) -> str:
    """The text on one line, without what could steer a terminal or cannot be written as UTF-8."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[:LONGEST])


def is_text(text: str) -> bool:
    """Whether it can be written as UTF-8: bytes of another encoding in a command become characters that cannot."""
    return text.isascii() or not any("\ud800" <= c <= "\udfff" for c in text)


def uncontrolled(text: str) -> str:
    """The text as it is, lines and all, without what could steer a terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


# Characters that turn the direction of what follows: with them a name can make others read as something else.
TURNS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


def in_order(text: str) -> str:
    """The text with nothing in it that turns the direction of what stands around it."""
    return text.translate(dict.fromkeys(map(ord, TURNS), "\N{REPLACEMENT CHARACTER}"))
