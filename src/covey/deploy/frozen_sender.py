"""The frozen part of a model on its way to real sites: in pieces, each once, to whoever lacks it.

A site says how many bytes it has, and is sent the next piece. After a break of the line, a restart of either side or in
another run it continues where it was; what a site has under a digest is never sent again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from covey.core.codec import named_from_bytes, to_bytes
from covey.core.ledger import Cost, Ledger
from covey.core.messages import is_whole
from covey.deploy.frozen_store import LACKS
from covey.deploy.protocol import SPOKEN
from covey.deploy.site import HELLO
from covey.deploy.site_registry import RegisteredSite
from covey.deploy.transport import POLL, Transport
from covey.deploy.underway import READING
from covey.fleet.holders import SEND_FROZEN
from covey.terminal import printable
from covey.training.frozen import Frozen
from covey.version import __version__

PIECE = 4 * 2**20  # bytes
ANSWER_BYTES = 2**16  # of what a site answers to a piece


class FrozenSender:
    """Brings every site of a run the frozen part before it is asked for the first time.

    Args:
        frozen: the numbers.
        offer: whose they are, by which a site may find that it has them: {"model": ...} or {"encoder": ...}.
        transport: to the sites.
        what: they are called in a line of the log.
    """

    def __init__(
        self,
        frozen: Frozen,
        offer: Mapping[str, Any],
        transport: Transport,
        what: str = "frozen part of the model",
    ) -> None:
        self.frozen = frozen
        self.offer, self.what = offer, what
        self.transport = transport
        self.content = frozen.file() if frozen.tensors else b""
        self.holders: set[int] = set()  # nodes

    def send(
        self,
        sites: Mapping[int, RegisteredSite],
        ledger: Ledger,
        limit: float,
        say: Callable[[str], None] = lambda _: None,
    ) -> list[int]:
        """The clients that have it in the end; `limit` is how many seconds a site has to answer to a piece."""
        lacking = {site.node: site for site in sites.values() if site.node not in self.holders}
        if not self.content or not lacking:
            return list(sites)
        begun, cost, sent = time.monotonic(), Cost(), dict.fromkeys(lacking, 0)
        have: dict[int, int] = {}
        offered = dict.fromkeys(lacking, -1)
        while offered:
            answers = self._ask(offered, limit, cost, sent)
            for node in offered:
                told, why = answers.get(node, (-1, f"no answer in {limit:.1f} s"))
                if why or told == have.get(node):  # nothing is gained by asking again now
                    lacking[node].quiet = lacking[node].quiet or not why.startswith("refused")
                    say(f"site {lacking[node].name} {LACKS}: {why or 'no progress'}")
                    have[node] = -1
                else:
                    have[node] = told
            offered = {node: have[node] for node in offered if 0 <= have[node] < len(self.content)}
        cost.seconds = time.monotonic() - begun
        ledger.charge(SEND_FROZEN, cost)
        for node, site in lacking.items():
            if have[node] == len(self.content):
                self.holders.add(node)
                how = f"was sent in {sent[node]:,} bytes" if sent[node] else "was there already"
                say(f"site {site.name}: the {self.what} ({self.frozen.digest[:12]}) {how}")
        return [client for client, site in sites.items() if site.node in self.holders]

    def forget(self, node: int) -> None:
        """It is offered again to a site that says it lacks it: somebody may have emptied its folder."""
        self.holders.discard(node)

    def _ask(
        self, offered: Mapping[int, int], limit: float, cost: Cost, sent: dict[int, int]
    ) -> dict[int, tuple[int, str]]:
        """Sends each node its next piece (at -1 only the offer); how many bytes each has then, or why it has none."""
        blocks = {node: self._block(at) for node, at in offered.items()}
        until = time.monotonic() + limit
        waiting = self.transport.send(HELLO, blocks, limit)
        answers: dict[int, tuple[int, str]] = {}
        for node, at in offered.items():
            cost.messages += 1
            cost.bytes_down += len(blocks[node])
            sent[node] += len(self.content[at : at + PIECE]) if at >= 0 else 0
        while waiting:
            late = time.monotonic() > until  # before the last look, so that nothing there is missed
            for number, response in self.transport.collect(
                list(waiting), most=ANSWER_BYTES, until=until + READING
            ).items():
                cost.messages += 1
                cost.bytes_up += len(response.answer)
                answers[waiting.pop(number)] = _told(response.answer, response.error or response.refused)
            if late:
                break
            if waiting:
                time.sleep(POLL)
        return answers

    def _block(self, at: int) -> bytes:
        told: dict[str, Any] = {"digest": self.frozen.digest, "bytes": len(self.content)}
        if at >= 0:
            piece = torch.frombuffer(bytearray(self.content[at : at + PIECE]), dtype=torch.uint8)
            told |= {"at": at, "piece": piece}
        else:
            told |= self.offer
        return to_bytes({"covey": __version__, "protocol": list(SPOKEN), "frozen": told})


def _told(answer: bytes, error: str) -> tuple[int, str]:
    """What a site answered: how many bytes it has, or why it takes none."""
    if error:
        return -1, printable(error)
    try:
        told = named_from_bytes(answer)
        if "refused" in told:
            return -1, f"refused: {printable(str(told['refused']))}"
        if not is_whole(told["have"]) or told["have"] < 0:
            raise ValueError("it does not say how many bytes it has")
        return int(told["have"]), ""
    except (KeyError, TypeError, ValueError) as error_there:
        return -1, printable(f"its answer cannot be read: {error_there}")
