"""Which form of messages server and site speak: a number of its own, so that neighbouring versions work together.

The number grows when a message changes its form; a covey speaks its own form and the one before. What is in a message
(steps, settings, models) is looked up by name at the site, which refuses in one sentence what it does not have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from covey.core.messages import is_whole
from covey.errors import Refused
from covey.version import __version__

Span = tuple[int, int]  # the oldest and the newest form that somebody speaks
SPOKEN: Span = (1, 1)  # 1: with pieces of 1 MB and heads apart


def agreed(theirs: Mapping[str, Any], who: str, ours: Span = SPOKEN, version: str = __version__) -> int:
    """The newest form that both sides speak, of what a message of the other side says; a refusal if there is none.

    The same covey always fits. A message without a number is from before there was one.
    """
    if theirs.get("covey") == version and "protocol" not in theirs:
        return ours[1]
    span = theirs.get("protocol")
    if span is None:
        raise Refused(f"{who} has covey {theirs.get('covey')}, {_other(who)} has {version}; install the same")
    if not isinstance(span, list | tuple) or len(span) != 2 or not all(map(is_whole, span)):
        raise Refused(f"{who} does not say which protocol it speaks")
    newest = min(ours[1], span[1])
    if newest < max(ours[0], span[0]):
        raise Refused(
            f"{who} has covey {theirs.get('covey')} with protocol {_words(span)}, {_other(who)} has {version} with "
            f"protocol {_words(ours)}; install neighbouring versions"
        )
    return int(newest)


def _other(who: str) -> str:
    return "this site" if who == "the server" else "this server"


def _words(span: Any) -> str:
    return str(span[0]) if span[0] == span[1] else f"{span[0]} to {span[1]}"
