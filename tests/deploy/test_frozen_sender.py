"""The frozen part of a model reaches every site once, in pieces, and is never taken for what it is not."""

from pathlib import Path
from typing import Any

import pytest
import torch

from covey.core.codec import named_from_bytes, to_bytes
from covey.core.round import run_rounds
from covey.deploy import frozen_parts as sending
from covey.deploy.fleet import SiteFleet
from covey.deploy.frozen_parts import FrozenStore
from covey.deploy.site_bounds import Bounds
from covey.deploy.site_registry import ClientNumbers
from covey.deploy.wire import ModelSpec
from covey.errors import Refused
from covey.fleet.engine import Engine
from covey.fleet.local import LocalFleet
from covey.folder.served_model import read_model
from covey.methods.baselines import fedavg
from covey.parts.steps import Train
from covey.parts.steps.take_home import sent_home
from covey.training.frozen import Frozen
from tests.deploy.sites_by_hand import CLIENTS, DATA, Hand, sites

SPEC = ModelSpec(
    name="mlp",
    settings={"hidden": (64,), "train": ["3"]},
    shape=(1, 8, 8),
    outputs=10,
    objective="classification",
)
ROW = 64 * 10 + 10
FROZEN = 64 * 64 + 64
METHOD = fedavg(Train(lr=0.1), per_round=CLIENTS)


def fleet(transport: Hand, spec: ModelSpec = SPEC, **settings: Any) -> SiteFleet:
    usual: dict[str, Any] = {"names": ClientNumbers({}), "seed": 5, "deadline": 30.0, "least": CLIENTS}
    return SiteFleet(transport, spec, server_data=DATA, **{**usual, **settings})


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "PIECE", 5000)


def sent_bytes(there: SiteFleet) -> int:
    return there.ledger.total["send.frozen"].bytes_down


def test_sites_and_simulation_have_the_same_bits_and_rows_hold_what_trains(tmp_path: Path) -> None:
    there = fleet(Hand(sites(tmp_path)))
    state = run_rounds(METHOD, there, rounds=2)
    local = LocalFleet(DATA, there.model, seed=5, engine=Engine(mode="serial", lanes=False))
    assert torch.equal(state.models, run_rounds(METHOD, local, rounds=2).models)
    assert state.models.shape == (1, ROW)
    assert there.layout.frozen == FROZEN


def test_it_is_sent_once_in_pieces_and_booked(tmp_path: Path) -> None:
    said: list[str] = []
    hand = Hand(sites(tmp_path))
    there = fleet(hand, say=said.append)
    run_rounds(METHOD, there, rounds=1)
    file = len(there.frozen.file())
    first = sent_bytes(there)
    assert CLIENTS * file < first < CLIENTS * (file + 4 * 2000)  # four pieces with their heads, and the offer
    assert sum("was sent in" in line for line in said) == CLIENTS
    run_rounds(METHOD, there, rounds=3, state=None)
    assert sent_bytes(there) == first
    # in another run with the same sites nothing travels but the offer
    again = fleet(Hand(sites(tmp_path)), say=said.append)
    run_rounds(METHOD, again, rounds=1)
    assert sent_bytes(again) < CLIENTS * 2000
    assert sum("was there already" in line for line in said) == CLIENTS


def test_a_site_that_builds_the_same_needs_nothing_sent(tmp_path: Path) -> None:
    there = fleet(
        Hand(sites(tmp_path)), seed=0
    )  # sites build with seed 0: as a pretrained network has no seed
    run_rounds(METHOD, there, rounds=1)
    assert sent_bytes(there) < CLIENTS * 2000


def test_a_broken_line_goes_on_where_it_was(tmp_path: Path) -> None:
    store = FrozenStore(tmp_path, Bounds())
    frozen = Frozen.of(SPEC.build(seed=7))
    file = frozen.file()

    def piece(at: int, length: int) -> dict[str, Any]:
        content = torch.frombuffer(bytearray(file[at : at + length]), dtype=torch.uint8)
        return {"digest": frozen.digest, "bytes": len(file), "at": at, "piece": content}

    assert store.answer(piece(0, 6000)) == {"have": 6000}
    again = FrozenStore(tmp_path, Bounds())  # the site was started anew
    assert again.answer({"digest": frozen.digest, "bytes": len(file), "model": SPEC.plain()}) == {
        "have": 6000
    }
    assert again.answer(piece(0, 6000)) == {"have": 6000}  # sent twice: not taken twice
    assert again.answer(piece(6000, len(file))) == {"have": len(file)}
    assert again.get(frozen.digest).digest == frozen.digest
    assert [file.suffix for file in (tmp_path / "frozen").iterdir()] == [".safetensors"]


def test_what_is_not_what_its_digest_says_is_refused_and_begun_anew(tmp_path: Path) -> None:
    store = FrozenStore(tmp_path, Bounds())
    frozen = Frozen.of(SPEC.build(seed=7))
    file = bytearray(frozen.file())
    file[-1] ^= 1
    told = {"digest": frozen.digest, "bytes": len(file), "at": 0}
    with pytest.raises(Refused, match="not the one that its digest says"):
        store.answer({**told, "piece": torch.frombuffer(file, dtype=torch.uint8)})
    assert store.answer(told) == {"have": 0}
    with pytest.raises(Refused, match="lacks the frozen part"):
        store.get(frozen.digest)
    for wrong, why in (
        ({"digest": "../../etc/passwd"}, "a SHA-256"),
        ({"bytes": 10**12}, "this site allows"),
        ({"bytes": "many"}, "this site allows"),
        ({"piece": torch.zeros(3)}, "not made of bytes"),
        ({"piece": torch.zeros(len(file) + 1, dtype=torch.uint8)}, "longer than was said"),
    ):
        with pytest.raises(Refused, match=why):
            store.answer({**told, **wrong})


def test_a_damaged_file_at_a_site_is_sent_again(tmp_path: Path) -> None:
    hand = Hand(sites(tmp_path))
    there = fleet(hand)
    run_rounds(METHOD, there, rounds=1)
    path = next((tmp_path / "2" / "frozen").iterdir())
    path.write_bytes(path.read_bytes()[:-4] + b"0000")
    hand.sites[102].benches.clear()  # as after a restart
    state = run_rounds(METHOD, there, rounds=3)
    assert there.ledger.problems[0][1].client == 2
    assert "lacks the frozen part" in there.ledger.problems[0][1].reason
    assert len(there.ledger.problems) == 1, "only once: then it had it again"
    assert torch.isfinite(state.models).all()


def test_a_site_takes_home_a_whole_model(tmp_path: Path) -> None:
    there = fleet(Hand(sites(tmp_path)), method="fedavg")
    state = run_rounds(METHOD, there, rounds=1)
    sent_home(METHOD, state, there)
    model = read_model(next((tmp_path / "0" / "models").iterdir()))
    assert model.facts.frozen == there.frozen.digest
    x, _ = DATA.shares[0].test.tensors()
    assert torch.equal(model.module()[1].weight, there.model[1].weight)  # type: ignore[index,union-attr,operator]
    assert torch.equal(model.row, state.models[0])
    assert len(x)


def test_an_offer_of_an_unknown_network_is_refused() -> None:
    site = next(iter(sites().values()))
    offer = {"digest": "0" * 64, "bytes": 100, "model": {**SPEC.plain(), "name": "nobody-knows"}}
    answer = named_from_bytes(
        site.answer(to_bytes({"covey": site.version, "protocol": [1, 1], "frozen": offer}))
    )
    assert "nobody-knows" in answer["refused"]
