"""Secure aggregation: the server learns the sum bit for bit, whoever leaves; and neither it nor a site can cheat."""

from dataclasses import replace

import numpy as np
import pytest
import torch

pytest.importorskip("flwr")
from covey.core import Client, Task, run_rounds
from covey.core.codec import from_bytes, to_bytes
from covey.deploy.fleet import SiteFleet
from covey.deploy.site import Site
from covey.errors import Refused, UserError
from covey.methods.baselines import fedavg
from covey.methods.covey import covey
from covey.parts.steps import Train
from covey.privacy.apply import made_private
from covey.privacy.secure import masked_sum, plain_sum
from covey.privacy.secure_steps import (
    NUMBER_LEVELS,
    SecureKeys,
    SecureShares,
    SecureUnmask,
    SecureUpdate,
    bits_for,
    from_ring,
    mask,
    quantised,
    to_ring,
)
from covey.privacy.settings import Private
from tests.deploy.sites_by_hand import CLIENTS, Hand, Patient, deployed, shares, simulated, sites

TRAIN = Train(epochs=1, lr=0.1)
SECURE = Private(secure=True, clip=0.5, sampling="method")


def method(settings: Private = SECURE):
    return made_private(fedavg(TRAIN, per_round=CLIENTS), settings, clients=CLIENTS, rounds=2)


def test_sites_and_simulation_give_the_same_bits() -> None:
    """Masked numbers over messages, and plain ones in one process: equal sums, equal models."""
    hand = Hand(sites())
    over_sites = run_rounds(method(), deployed(hand), rounds=2)
    in_one_process = run_rounds(method(), simulated(), rounds=2)
    assert torch.equal(over_sites.models, in_one_process.models)
    kinds = {kind for kind in hand.kinds if "secure" in kind}
    assert kinds == {f"query.secure_{step}" for step in ("keys", "shares", "open", "update", "unmask")}


def test_covey_is_told_nobodys_classes_choice_or_update() -> None:
    """Eight secure sums of the first round, all at real sites: seven of tables, one over the rows of all models."""
    settings = Private(secure=True, noise=1e-5, clip=0.5, noise_from="clients")
    private = made_private(covey(Train(batch=10**6)), settings, clients=CLIENTS, rounds=2)
    hand = Hand(sites())
    over_sites = run_rounds(private, deployed(hand), rounds=2)
    in_one_process = run_rounds(private, simulated(), rounds=2)
    torch.testing.assert_close(over_sites.models, in_one_process.models, rtol=0, atol=1e-4)
    told = {kind for kind in hand.kinds if kind.startswith(("query", "train"))} - {"query.hello"}
    assert told == {f"query.secure_{step}" for step in ("keys", "shares", "open", "update", "unmask")}


class Leaves(Hand):
    """Site 100 + 3 is killed when it is asked for its masked update."""

    def send(self, kind, blocks, seconds):
        if kind == "query.secure_update":
            self.away |= {103}
        return super().send(kind, blocks, seconds)


def tasks(fleet: SiteFleet) -> dict[int, Task]:
    return {i: Task(models=fleet.start()[None], slots=(0,)) for i in fleet.begin(1)}


def test_a_site_that_leaves_in_the_middle_is_unmasked_by_the_others() -> None:
    """The sum is that of the three that stayed, bit for bit the simulation's."""
    fleet, update = deployed(Leaves(sites())), SecureUpdate(step=TRAIN, clip=0.5)
    total, there = masked_sum(fleet, update, tasks(fleet), 3)
    assert there == [0, 1, 2]
    local = simulated()
    asked = {i: task for i, task in tasks(local).items() if i in there}
    expected, _ = plain_sum(local, update, asked, 3)
    assert np.array_equal(total, expected)
    assert np.abs(total).max() > 0
    assert fleet.ledger.total["query.secure-update"].bytes_up > 0


def test_too_few_that_stay_are_never_unmasked() -> None:
    hand = Leaves(sites())
    fleet = deployed(hand)
    assert masked_sum(fleet, SecureUpdate(step=TRAIN, clip=0.5), tasks(fleet), 4) is None
    assert "query.secure_unmask" not in hand.kinds


def test_what_one_site_sends_looks_like_chance() -> None:
    hand = Hand(sites())
    fleet, seen = deployed(hand), {}
    ask = fleet.ask

    def listening(step, tasks, **options):
        replies = ask(step, tasks, **options)
        if isinstance(step, SecureUpdate):
            seen.update({reply.id: np.asarray(reply.stats["numbers"]) for reply in replies})
        return replies

    fleet.ask = listening
    masked_sum(fleet, SecureUpdate(step=TRAIN, clip=0.5), tasks(fleet), 3)
    for numbers in seen.values():
        assert np.abs(numbers.astype(np.float64) / 2**31).mean() == pytest.approx(0.5, abs=0.03)
        assert np.abs(numbers).max() > 100 * NUMBER_LEVELS


# ---------------------------------------------------------------------------------------------- borders


def test_numbers_at_the_border_of_the_clip_range_add_up_right() -> None:
    along = quantised(torch.tensor([3.0, 0.0, -0.0]), 1.0)
    assert along.tolist() == [NUMBER_LEVELS, 0, 0]
    assert quantised(torch.tensor([-1.0, 0.0]), 1.0).tolist() == [-NUMBER_LEVELS, 0]
    most = (2**31 - 1) // NUMBER_LEVELS
    for value in (NUMBER_LEVELS, -NUMBER_LEVELS):
        total = to_ring(np.array([value])) * np.uint32(most)
        assert from_ring(total).tolist() == [value * most]


def test_large_sums_are_coarser_and_never_leave_the_range() -> None:
    """2^20 numbers to a clip length for 2,047 clients; half as many for one more, or where noise needs the room."""
    assert [bits_for(2047, 0.0), bits_for(2048, 0.0), bits_for(2000, 10.0), bits_for(10**6, 0.0)] == [
        20,
        19,
        19,
        11,
    ]
    with pytest.raises(UserError, match="which leaves 7 bits to a clip length; it takes 8"):
        bits_for(10**7, 0.0)


def test_a_mask_is_the_key_stream_of_chacha20() -> None:
    """RFC 8439 with a zero key, nonce and counter: the first block begins with 76 b8 e0 ad a0 f1 3d 90."""
    assert mask(bytes(32), 2).tobytes().hex() == "76b8e0ada0f13d90"


# ---------------------------------------------------------------------------------------------- a server that cheats


def a_client(number: int, state: dict) -> Client:
    share = simulated().data.shares[number]
    bench = simulated()._plan()[0]()
    return Client(
        id=number,
        train=share.train,
        test=share.test,
        state=state,
        rng=np.random.default_rng(0),
        bench=bench,
        seed=0,
        round=1,
        live=True,
    )


def shared(threshold: int = 3) -> tuple[list[Client], dict]:
    clients = [a_client(i, {}) for i in range(4)]
    keys = {str(c.id): list(SecureKeys()(c, Task()).stats.values()) for c in clients}
    for client in clients:
        SecureShares(threshold=threshold)(client, Task(args={"keys": keys}))
    return clients, keys


def test_a_site_never_gives_both_secrets_of_another() -> None:
    clients, _ = shared()
    state = clients[0].state["secure"]
    state |= {"opened": True, "sent": True, "shares": {str(i): ["00" * 20, "00" * 20] for i in range(4)}}
    with pytest.raises(Refused, match="nobody may have"):
        SecureUnmask()(clients[0], Task(args={"there": [0, 1, 2], "gone": [2, 3]}))
    with pytest.raises(Refused, match="fewer than 3 are not unmasked"):
        SecureUnmask()(clients[0], Task(args={"there": [0, 1], "gone": [2, 3]}))
    SecureUnmask()(clients[0], Task(args={"there": [0, 1, 2], "gone": [3]}))
    with pytest.raises(Refused, match="once in a round"):
        SecureUnmask()(clients[0], Task(args={"there": [0, 1, 3], "gone": [2]}))


def test_a_site_shares_with_enough_others_and_under_its_own_keys_only() -> None:
    clients = [a_client(i, {}) for i in range(4)]
    keys = {str(c.id): list(SecureKeys()(c, Task()).stats.values()) for c in clients}
    few = {name: keys[name] for name in ("0", "1")}
    with pytest.raises(Refused, match="too few to hide one"):
        SecureShares(threshold=2)(clients[0], Task(args={"keys": few}))
    with pytest.raises(Refused, match="two halves could unmask"):
        SecureShares(threshold=2)(clients[0], Task(args={"keys": keys}))
    with pytest.raises(Refused, match="own keys"):
        SecureShares(threshold=3)(clients[0], Task(args={"keys": {**keys, "0": keys["1"]}}))
    with pytest.raises(Refused, match="same key twice"):
        SecureShares(threshold=3)(clients[0], Task(args={"keys": {**keys, "2": keys["1"]}}))
    with pytest.raises(Refused, match="no keys for this round"):
        SecureShares(threshold=3)(replace(clients[0], round=2), Task(args={"keys": keys}))


def test_clients_shares_of_the_noise_add_up() -> None:
    """Four clients, three of whom must stay: each adds a third of the variance, so that any three are enough."""
    settings = replace(SECURE, noise=1.0, noise_from="clients")
    noisy, still = (run_rounds(method(s), simulated(), rounds=1).models for s in (settings, SECURE))
    # Both divide by 4; the noise of 4 shares has 4/3 of the variance of z levels.
    wanted = 0.5 / 4 * (4 / 3) ** 0.5
    assert float((noisy - still).std()) == pytest.approx(wanted, rel=0.05)


class NoKeys(Site):
    """Sends bytes for public keys that are none."""

    def answer(self, block: bytes) -> bytes:
        answer = from_bytes(super().answer(block))
        stats = (answer.get("reply") or {}).get("stats", {})
        stats |= {name: np.zeros_like(stats[name]) for name in ("pk1", "pk2") if name in stats}
        return to_bytes(answer)


def test_a_site_without_keys_costs_the_others_nothing() -> None:
    share = shares()[3]
    liar = NoKeys((share.train, share.test), name="site-3", bounds=Patient())
    fleet = deployed(Hand({**sites(), 103: liar}))
    _, there = masked_sum(fleet, SecureUpdate(step=TRAIN, clip=0.5), tasks(fleet), 3)
    assert there == [0, 1, 2]
    assert "its keys cannot be read" in fleet.ledger.last_problem()
