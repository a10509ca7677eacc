"""What carries bytes between the server and its sites, and which form of messages they speak.

The form has a number of its own, so that neighbouring versions work together: it grows when a message changes its
form, and a covey speaks its own and the one before. What is in a message (steps, settings, models) is looked up by name
at the site, which refuses in one sentence what it does not have.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from covey.core.codec import to_bytes
from covey.core.messages import is_whole
from covey.errors import Refused
from covey.version import __version__

HELLO = "query.hello"  # the kind of messages about the run itself
POLL = 0.2  # seconds between two looks at the mailbox
READING = 10.0  # seconds in which answers that have come are read


@dataclass(frozen=True, kw_only=True)
class Response:
    """What came back for a message: the answer's bytes, or why there is none (`refused`: why it is not read)."""

    answer: bytes = b""
    error: str = ""
    refused: str = ""


class Transport(Protocol):
    """Carries bytes to nodes and back. Nodes are numbered by the carrier; what they are called is ours."""

    def nodes(self) -> dict[int, str]:
        """The nodes that are connected now, each with the key it proved to have (or an empty text)."""
        ...

    def expect(self, most: int) -> None:
        """Answers of up to `most` bytes may come from now on."""
        ...

    def send(self, kind: str, blocks: Mapping[int, bytes], seconds: float) -> dict[str, int]:
        """Sends each node its block; gives a number for each message, and which node it went to."""
        ...

    def collect(self, numbers: Sequence[str], *, most: int, until: float) -> dict[str, Response]:
        """The answers that have come for these messages, each of at most that many bytes; each is given once.

        It returns soon after that time of the monotonic clock, whatever is still on its way.
        """
        ...


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


def greeting(**told: Any) -> bytes:
    """A message about the run itself, which says what this covey speaks."""
    return to_bytes({"covey": __version__, "protocol": list(SPOKEN), **told})


def awaited(
    transport: Transport, waiting: dict[str, int], *, most: int, until: float
) -> Iterator[tuple[int, Response]]:
    """The answers to these messages as they come, each with its node; what has not come by then stays in `waiting`."""
    while waiting:
        late = time.monotonic() > until  # before the last look, so that nothing there is missed
        for number, response in transport.collect(list(waiting), most=most, until=until + READING).items():
            yield waiting.pop(number), response
        if late:
            return
        if waiting:
            time.sleep(POLL)
