"""Who sent a request: Flower's fleet requests carry a key and a signed time in their head, before any body."""

from __future__ import annotations

import time
from base64 import b64decode
from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

KEY, TIME, SIGNATURE = "flwr-public-key", "flwr-timestamp", "flwr-signature"
BEHIND, AHEAD = 305.0, 5.0  # seconds that a site's clock may be wrong, as Flower has it
MOST_HEADS = 100_000  # of one key that are remembered: some 300 requests per second
LOG_IN = ("/v1/fleet/register-node", "/v1/fleet/activate-node")


class UsedHeads:
    """The signed times that were shown, for as long as they could be shown again: a head is good for one request.

    Whoever could read inside TLS could otherwise send it again. By key, so that one that sends many forgets its own.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.by_key: dict[str, OrderedDict[str, float]] = {}

    def take(self, key: str, signed: str) -> bool:
        """Uses a head; says whether it was new."""
        now, used = self.clock(), self.by_key.setdefault(key, OrderedDict())
        while used and (len(used) >= MOST_HEADS or next(iter(used.values())) < now - BEHIND - AHEAD):
            used.popitem(last=False)
        if signed in used:
            return False
        used[signed] = now
        return True


class Refusal(Exception):  # noqa: N818
    """Why a request is answered with an error, and by whom it was sent as far as is known."""

    def __init__(self, status: int, why: str, key: str = "") -> None:
        super().__init__(why)
        self.status = status
        self.key = key


def check_signature(headers: Mapping[str, str], path: str, objection: Callable[[str], str]) -> str:
    """The key (PEM) that signed the request's head; a refusal where it is not on the list or the signature is wrong.

    `objection` says why a key may not join, or nothing. It is asked first: whoever has no key cannot make this
    machine compute.
    """
    try:
        shown = b64decode(headers[KEY], validate=True).decode("ascii")
        signature = b64decode(headers[SIGNATURE], validate=True)
        signed = headers[TIME]
        age = (datetime.now(UTC) - datetime.fromisoformat(signed)).total_seconds()
    except (KeyError, ValueError, TypeError) as error:
        raise Refusal(401, "it is not signed") from error
    if why := objection(shown):
        # The site tells a wrong clock from an unknown key by the status, as with Flower itself.
        raise Refusal(412 if path in LOG_IN else 401, why, shown)
    if not -AHEAD < age < BEHIND:
        late = f"{abs(age):.0f} s {'behind' if age > 0 else 'ahead'}"
        raise Refusal(
            401, f"its clock is {late}; at most {BEHIND:.0f} s behind or {AHEAD:.0f} s ahead", shown
        )
    if not is_signed(shown, signed, signature):
        raise Refusal(401, "its signature is not that of its key", shown)
    return shown


def is_signed(key: str, text: str, signature: bytes) -> bool:
    """Whether the text was signed with the private half of the key."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        public = serialization.load_pem_public_key(key.encode())
        public.verify(signature, text.encode("ascii"), ec.ECDSA(hashes.SHA256()))
    except (InvalidSignature, ValueError):
        return False
    return True
