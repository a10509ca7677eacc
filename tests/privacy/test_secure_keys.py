"""Keys, shares and letters of secure sums: any `threshold` shares give the secret, fewer do not; forms as Flower's."""

from itertools import combinations

import pytest

pytest.importorskip("Crypto")
pytest.importorskip("cryptography")

from cryptography.fernet import InvalidToken

from covey.privacy import secure_keys as crypto


@pytest.mark.parametrize("secret", [b"x", b"sixteen bytes ok", bytes(range(256))])
def test_as_many_shares_as_the_threshold_give_the_secret_and_fewer_do_not(secret: bytes) -> None:
    shares = crypto.shares_of(secret, 3, 5)
    assert all(crypto.secret_of(list(some)) == secret for some in combinations(shares, 3))
    try:
        found = crypto.secret_of(shares[:2])
    except ValueError:
        found = b""
    assert found != secret


def test_two_clients_share_a_key_and_a_letter_that_a_third_cannot_open() -> None:
    (one, one_public), (other, other_public), (third, _) = (crypto.key_pair() for _ in range(3))
    key = crypto.shared_key(crypto.private_key(one), crypto.public_key(other_public))
    assert key == crypto.shared_key(crypto.private_key(other), crypto.public_key(one_public))
    assert crypto.public_bytes(crypto.private_key(one).public_key()) == one_public
    letter = crypto.sealed(key, crypto.letter(3, 2**40, b"seed", b"key"))
    assert crypto.contents(crypto.unsealed(key, letter)) == (3, 2**40, b"seed", b"key")
    stranger = crypto.shared_key(crypto.private_key(third), crypto.public_key(other_public))
    with pytest.raises(InvalidToken):
        crypto.unsealed(stranger, letter)


def test_the_forms_are_those_that_flowers_secagg_has() -> None:
    pytest.importorskip("flwr")
    from flwr.common.secure_aggregation.crypto import shamir, symmetric_encryption
    from flwr.common.secure_aggregation.secaggplus_utils import share_keys_plaintext_separate

    secret = bytes(range(100))
    assert shamir.combine_shares(crypto.shares_of(secret, 2, 3)[1:]) == secret
    assert crypto.secret_of(shamir.create_shares(secret, 2, 3)[1:]) == secret
    one, other = (crypto.key_pair() for _ in range(2))
    key = crypto.shared_key(crypto.private_key(one[0]), crypto.public_key(other[1]))
    assert key == symmetric_encryption.generate_shared_key(
        crypto.private_key(one[0]), crypto.public_key(other[1])
    )
    assert share_keys_plaintext_separate(crypto.letter(1, 2, b"ab", b"c")) == (1, 2, b"ab", b"c")
