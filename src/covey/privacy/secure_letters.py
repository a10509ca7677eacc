"""Letters among the clients of a secure sum: what is in them is committed to, so that whoever lies about it is known.

A dealer tells the SHA-256 of every share that it deals. Shares are as long as a key and drawn by chance, so that this
tells nothing of them; and none can be swapped for another that has the same.
"""

import hashlib
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from covey.errors import importing

Which = Literal["seed", "key"]
Pair = tuple[bytes, bytes]  # shares of a seed and of a key
SCALAR = 48  # bytes of a private key on P-384


def commitment(dealer: int, holder: int, which: Which, share: bytes) -> bytes:
    """What the dealer is bound to: its share of that kind for that holder (the dealer's own number: the whole seed)."""
    return hashlib.sha256(f"covey {which} {dealer} {holder} ".encode() + share).digest()


def both_commitments(dealer: int, holder: int, shares: Pair) -> NDArray[np.uint8]:
    """Of the two shares that a holder gets, one row each."""
    rows = [commitment(dealer, holder, "seed", shares[0]), commitment(dealer, holder, "key", shares[1])]
    return np.stack([np.frombuffer(row, np.uint8) for row in rows])


def primitives() -> Any:
    """Keys, shares and sealed letters, or one sentence on how to get them."""
    with importing("private.secure needs cryptography and pycryptodome: install covey[private]"):
        from covey.privacy import secure_keys
    return secure_keys


def opened(key: bytes, letter: bytes, dealer: int, holder: int, committed: Any) -> Pair | None:
    """The shares in a letter under that key; None where it cannot be read, or holds others than were committed to."""
    try:
        source, target, *shares = primitives().contents(primitives().unsealed(key, letter))
    except Exception:  # a stranger wrote it
        return None
    if (source, target) != (dealer, holder) or len(shares) != 2:
        return None
    pair = (bytes(shares[0]), bytes(shares[1]))
    return pair if np.array_equal(both_commitments(dealer, holder, pair), np.asarray(committed)) else None


def scalar_of(private: bytes) -> NDArray[np.uint8]:
    """A private key as a number of fixed length."""
    number = primitives().private_key(private).private_numbers().private_value
    return np.frombuffer(int(number).to_bytes(SCALAR, "big"), np.uint8)


def key_of_scalar(scalar: Sequence[int] | NDArray[np.uint8]) -> Any:
    """The private key again; a ValueError where it is none."""
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.derive_private_key(
        int.from_bytes(np.asarray(scalar, np.uint8).tobytes(), "big"), ec.SECP384R1()
    )
