"""Messages that come in pieces: bounded before they are put together, and never waited for."""

import json
import time
from typing import Any

import pytest
import torch

pytest.importorskip("flwr")
from flwr.proto.message_pb2 import ObjectTree

from covey.deploy.flower.grid import from_record
from covey.deploy.pieces import Incoming, TooLarge
from tests.deploy.flower_pieces import sent


def test_a_message_is_put_together_from_its_pieces() -> None:
    block = bytes(range(256)) * 50_000  # three pieces of 5 MB
    tree, pieces = sent(block)
    incoming = Incoming(tree, 2**24)
    assert incoming.take(pieces.get)
    assert from_record(incoming.message().content) == block


def test_what_many_sites_get_is_the_same_pieces_whoever_they_are_for() -> None:
    from covey.core.codec import to_bytes

    row = torch.arange(10**6, dtype=torch.float32)
    one, other = (sent(to_bytes({"client": client, "models": row}))[1] for client in (1, 12345))
    new = sum(len(piece) for number, piece in other.items() if number not in one)
    assert new < 10_000 < 4_000_000 < sum(map(len, other.values()))


def test_a_piece_that_has_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    tree, pieces = sent(b"an answer")
    late = next(iter(pieces))
    here = {number: piece for number, piece in pieces.items() if number != late}
    incoming = Incoming(tree, 2**20)
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("Flower would sleep here, for hours in all"))
    assert [incoming.take(here.get) for _ in range(100)] == [False] * 100
    assert incoming.take(pieces.get)
    assert from_record(incoming.message().content) == b"an answer"


def test_what_is_too_large_is_refused_before_all_of_it_is_here() -> None:
    tree, pieces = sent(bytes(range(256)) * 2**18)  # 64 MB
    asked: list[str] = []

    def fetch(number: str) -> bytes:
        asked.append(number)
        return pieces[number]

    incoming = Incoming(tree, 2**23)
    with pytest.raises(TooLarge, match="it is larger than 8388608 bytes"):
        incoming.take(fetch)
    assert len(asked) < len(pieces)


def test_a_message_of_many_small_pieces_is_refused() -> None:
    tree = ObjectTree(object_id="0", children=[ObjectTree(object_id=str(n)) for n in range(1, 1000)])
    with pytest.raises(TooLarge, match="more pieces than 1048576 bytes need"):
        Incoming(tree, 2**20)


def multiplied() -> tuple[ObjectTree, dict[str, bytes]]:
    """A message whose arrays name their first piece a million times."""
    tree, pieces = sent(bytes(2**22 + 1))
    for array in [number for number, piece in pieces.items() if piece.startswith(b"Array ")]:
        head, _, body = pieces[array].partition(b"\x00")
        kind, children, _ = head.decode().split(" ")
        grown = json.dumps({**json.loads(body), "arraychunk_ids": [0] * 10**6}).encode()
        pieces[array] = f"{kind} {children} {len(grown)}".encode() + b"\x00" + grown
    return tree, pieces


def test_one_piece_that_stands_in_an_array_a_million_times_is_not_multiplied() -> None:
    tree, pieces = multiplied()
    incoming = Incoming(tree, 2**24)
    assert incoming.take(pieces.get)
    with pytest.raises(TooLarge):
        incoming.message()


@pytest.mark.parametrize("damage", [lambda p: b"", lambda p: p[:-1], lambda p: b"Other" + p])
def test_a_damaged_piece_is_a_value_error(damage: Any) -> None:
    tree, pieces = sent(b"an answer")
    for number in pieces:
        incoming = Incoming(tree, 2**20)
        assert incoming.take({**pieces, number: damage(pieces[number])}.get)
        with pytest.raises(ValueError, match="not covey's"):
            from_record(incoming.message().content)
