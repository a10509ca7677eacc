"""The frozen part of a model at real sites: sent in pieces, each once, to whoever lacks it, and known by its digest.

A site says how many bytes it has, and is sent the next piece. After a lost connection, a restart of either side or in
another run it continues where it was; what a site has under a digest is never sent again.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from covey.core.codec import named_from_bytes
from covey.core.ledger import Cost, Ledger
from covey.core.messages import is_whole
from covey.deploy.site_bounds import Bounds
from covey.deploy.transport import HELLO, Transport, awaited, greeting
from covey.deploy.wire import ModelSpec, model_from_plain
from covey.errors import Refused, UserError
from covey.files import newest, write_atomically
from covey.fleet.holders import SEND_FROZEN
from covey.terminal import printable
from covey.training.frozen import Frozen
from covey.training.pretrained import Encoder, align, encoder_of

if TYPE_CHECKING:
    from covey.deploy.site_registry import RegisteredSite

KEPT = 8  # frozen parts that stay in a site's folder
LACKS = "lacks the frozen part of the model"
DIGEST = re.compile(r"[0-9a-f]{64}")


class FrozenStore:
    """The frozen parts that a site holds, in its folder or, where it has none, in memory."""

    def __init__(self, folder: Path | None, bounds: Bounds) -> None:
        self.folder = folder / "frozen" if folder is not None else None
        self.bounds = bounds
        self.whole: dict[str, bytes] = {}
        self.part: tuple[str, bytes] = ("", b"")

    def answer(self, told: Mapping[str, Any]) -> dict[str, int]:
        """Takes an offer or a piece; says how many bytes are here."""
        digest = str(told.get("digest"))
        check_digest(digest)
        length = int(told["bytes"]) if is_whole(told.get("bytes")) else 0
        if not 0 < length <= self.bounds.megabytes * 1_000_000:
            raise Refused(f"the frozen part has {length} bytes; this site allows {self.bounds.megabytes} MB")
        if self.has(digest) or ("model" in told and self.built(model_from_plain(told["model"]), digest)):
            return {"have": length}
        if "encoder" in told and self.has_encoder(told["encoder"], digest):
            return {"have": length}
        have = self.begun(digest)
        piece = told.get("piece")
        if piece is not None and told.get("at") == len(have):
            if not isinstance(piece, torch.Tensor) or piece.dtype != torch.uint8 or piece.dim() != 1:
                raise Refused("a piece of the frozen part is not made of bytes")
            have = self.add(digest, have + piece.numpy().tobytes(), length)
        return {"have": len(have)}

    def built(self, spec: ModelSpec, digest: str) -> bool:
        """Whether the network as it is built here has that very frozen part: then nothing needs to be sent."""
        self.bounds.check_model(spec)
        try:
            frozen = Frozen.of(spec.build())
        except UserError as error:
            raise Refused(str(error)) from error
        if frozen.digest != digest:
            return False
        self.keep(digest, frozen.file())
        return True

    def has_encoder(self, told: Mapping[str, Any], digest: str) -> bool:
        """Whether the encoder that is installed here has these numbers; a refusal where its network is not."""
        with contextlib.suppress(UserError):
            frozen = encoder_of(told["setting"]).frozen
            if frozen.digest == digest:
                self.keep(digest, frozen.file())
                return True
        try:
            encoder_of(told["setting"], bare=True)
        except UserError as error:
            raise Refused(str(error)) from error
        return False

    def encoder(self, told: Mapping[str, Any]) -> Encoder:
        """The encoder with the numbers that this site was sent; a refusal where it is not the run's."""
        try:
            if not told["frozen"]:  # a file of this site's own
                made = encoder_of(told["setting"])
            else:
                made = encoder_of(told["setting"], bare=True)
                _ = made.frozen
                self.get(str(told["frozen"])).put_into(made.network)
                align(made.network)
                made = replace(made)
        except (UserError, ValueError) as error:
            raise Refused(str(error)) from error
        if made.digest != told["digest"]:
            raise Refused("the encoder here is another one than the run's: its digest differs")
        return made

    def has(self, digest: str) -> bool:
        return digest in self.whole or (self.folder is not None and self._path(digest).is_file())

    def begun(self, digest: str) -> bytes:
        """The pieces that have come so far."""
        if self.part[0] == digest:
            return self.part[1]
        path = self._path(digest, "part") if self.folder is not None else None
        return path.read_bytes() if path is not None and path.is_file() else b""

    def add(self, digest: str, have: bytes, length: int) -> bytes:
        """Keeps what has come; once it is complete it is checked, and begun anew where it is not what was said."""
        if len(have) > length:
            raise Refused("the frozen part is longer than was said")
        if len(have) < length:
            self.part = (digest, have) if self.folder is None else ("", b"")
            if self.folder is not None:
                self.folder.mkdir(parents=True, exist_ok=True)
                write_atomically(self._path(digest, "part"), have)
            return have
        self.part = ("", b"")
        if self.folder is not None:
            self._path(digest, "part").unlink(missing_ok=True)
        try:
            Frozen.from_file(have, digest)
        except ValueError as error:
            raise Refused(str(error)) from error
        self.keep(digest, have)
        return have

    def keep(self, digest: str, content: bytes) -> None:
        """Holds a whole part; the oldest give way."""
        if self.folder is None:
            self.whole = {**dict(list(self.whole.items())[1 - KEPT :]), digest: content}
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self._path(digest), content)
        for old in newest(self.folder, "*.safetensors")[KEPT:]:
            old.unlink()

    def get(self, digest: str) -> Frozen:
        """A frozen part that is here; a refusal where it is not, or is damaged."""
        check_digest(digest)
        if not self.has(digest):
            raise Refused(f"this site {LACKS}")
        path = self._path(digest) if self.folder is not None else None
        try:
            return Frozen.from_file(self.whole[digest] if path is None else path.read_bytes(), digest)
        except (OSError, ValueError) as error:
            if path is not None:
                path.unlink(missing_ok=True)  # it is sent again
            raise Refused(f"this site {LACKS}: what it had is damaged ({error})") from error

    def _path(self, digest: str, ending: str = "safetensors") -> Path:
        assert self.folder is not None
        return self.folder / f"{digest}.{ending}"


def check_digest(digest: str) -> None:
    """A digest becomes the name of a file."""
    if not DIGEST.fullmatch(digest):
        raise Refused(
            f"the frozen part is called {printable(digest)[:80]!r}; allowed: a SHA-256 in hexadecimal"
        )


PIECE = 4 * 2**20  # bytes
ANSWER_BYTES = 2**16  # of what a site answers to a piece


@dataclass(eq=False)
class FrozenSender:
    """Brings every site of a run the frozen part before it is asked for the first time.

    Args:
        frozen: the numbers.
        offer: whose they are, by which a site may find that it has them: {"model": ...} or {"encoder": ...}.
        transport: to the sites.
        what: they are called in a line of the log.
    """

    frozen: Frozen
    offer: Mapping[str, Any]
    transport: Transport
    what: str = "frozen part of the model"

    def __post_init__(self) -> None:
        self.content = self.frozen.file() if self.frozen.tensors else b""
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
                if why or told == have.get(node):  # asking again now would not help
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
        for node, response in awaited(self.transport, waiting, most=ANSWER_BYTES, until=until):
            cost.messages += 1
            cost.bytes_up += len(response.answer)
            answers[node] = _told(response.answer, response.error or response.refused)
        return answers

    def _block(self, at: int) -> bytes:
        piece = (
            torch.frombuffer(bytearray(self.content[at : at + PIECE]), dtype=torch.uint8) if at >= 0 else None
        )
        more = self.offer if piece is None else {"at": at, "piece": piece}
        told = {"digest": self.frozen.digest, "bytes": len(self.content), **more}
        return greeting(frozen=told)


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
