"""What secure aggregation is made of: keys (ECDH on P-384), shares (Shamir), sealed letters (Fernet); all as bytes.

The forms are those of Flower's SecAgg+, so that sites of neighbouring versions understand each other.
"""

import base64

from Crypto.Protocol.SecretSharing import Shamir
from Crypto.Util.Padding import pad, unpad
from cryptography.fernet import Fernet
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

BLOCK = 16  # bytes that are shared at a time
INDEX = 4  # bytes before a share that say which one it is


def key_pair() -> tuple[bytes, bytes]:
    """A private key and its public one, as PEM."""
    key = ec.generate_private_key(ec.SECP384R1())
    form = serialization.PrivateFormat.PKCS8
    secret = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    return secret, public_bytes(key.public_key())


def private_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    """A ValueError where the bytes are no such key."""
    key = serialization.load_pem_private_key(pem, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("it is no key of an elliptic curve")
    return key


def public_key(pem: bytes) -> ec.EllipticCurvePublicKey:
    key = serialization.load_pem_public_key(pem)
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise ValueError("it is no key of an elliptic curve")
    return key


def public_bytes(key: ec.EllipticCurvePublicKey) -> bytes:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return bytes(key.public_bytes(serialization.Encoding.PEM, form))


def shared_key(
    own: ec.EllipticCurvePrivateKey, other: ec.EllipticCurvePublicKey, about: bytes = b""
) -> bytes:
    """What only these two can compute, and only of the same thing: 32 bytes in base 64."""
    found = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=about)
    return base64.urlsafe_b64encode(found.derive(own.exchange(ec.ECDH(), other)))


def sealed(key: bytes, text: bytes) -> bytes:
    return bytes(Fernet(key).encrypt(text))


def unsealed(key: bytes, letter: bytes) -> bytes:
    return bytes(Fernet(key).decrypt(letter))


def letter(source: int, target: int, seed_share: bytes, key_share: bytes) -> bytes:
    """A letter with two shares: from whom, for whom, and how long the first of them is."""
    head = source.to_bytes(8, "little") + target.to_bytes(8, "little") + len(seed_share).to_bytes(4, "little")
    return head + seed_share + key_share


def contents(text: bytes) -> tuple[int, int, bytes, bytes]:
    """What `letter` put together."""
    end = 20 + int.from_bytes(text[16:20], "little")
    source, target = (int.from_bytes(text[at : at + 8], "little") for at in (0, 8))
    return source, target, text[20:end], text[end:]


def shares_of(secret: bytes, threshold: int, count: int) -> list[bytes]:
    """That many shares of a secret, of which `threshold` give it back: each block of it is shared by itself."""
    padded = pad(secret, BLOCK)
    blocks = [padded[at : at + BLOCK] for at in range(0, len(padded), BLOCK)]
    parts = [dict(Shamir.split(threshold, count, block, False)) for block in blocks]
    return [
        place.to_bytes(INDEX, "little") + b"".join(part[place] for part in parts)
        for place in range(1, count + 1)
    ]


def secret_of(shares: list[bytes]) -> bytes:
    """The secret that the shares give; a ValueError where they are not of one."""
    found = b""
    for at in range(INDEX, len(shares[0]), BLOCK):
        some = [(int.from_bytes(share[:INDEX], "little"), share[at : at + BLOCK]) for share in shares]
        found += Shamir.combine(some, False)
    return bytes(unpad(found, BLOCK))
