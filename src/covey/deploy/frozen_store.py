"""The frozen parts of models that a site holds: each came once, in pieces, and is known by its digest."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from covey.core.messages import is_whole
from covey.deploy.site_bounds import Bounds
from covey.deploy.wire import ModelSpec, model_from_plain
from covey.errors import Refused, UserError
from covey.files import write_atomically
from covey.terminal import printable
from covey.training.frozen import Frozen
from covey.training.pretrained import Encoder, align, encoder_of

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
        files = sorted(self.folder.glob("*.safetensors"), key=lambda file: file.stat().st_mtime_ns)
        for old in files[:-KEPT]:
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
