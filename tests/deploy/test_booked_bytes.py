"""What a run over sites is booked with: the bytes of requests and answers as they were sent."""

from collections.abc import Sequence

from covey.core.round import run_rounds
from covey.deploy.transport import Response
from covey.methods.baselines import fedavg
from covey.parts.steps import Train
from covey.parts.steps.compress import Compression, with_compression
from covey.testing import check_toml
from tests.deploy.sites_by_hand import CLIENTS, Hand, deployed, sites


def test_real_bytes_and_seconds_are_booked() -> None:
    fleet = deployed(Hand(sites()))
    run_rounds(check_toml("fedavg", {"per_round": 2}), fleet, rounds=1)
    cost = fleet.ledger.total["train.sgd"]
    assert cost.messages == 4
    assert 2 * 4 * 4810 < cost.bytes_down < 2 * 4 * 4810 + 2 * 3000
    assert 2 * 4 * 4810 < cost.bytes_up < 2 * 4 * 4810 + 2 * 1500
    assert 0 < cost.seconds == fleet.ledger.clock


class Weighing(Hand):
    """Weighs the answers that it carries."""

    up: int = 0

    def collect(self, numbers: Sequence[str], *, most: int, until: float) -> dict[str, Response]:
        came = super().collect(numbers, most=most, until=until)
        self.up += sum(len(response.answer) for response in came.values())
        return came


def bytes_up(compression: Compression) -> int:
    """What a round of FedAvg is booked with, which must be what was sent."""
    transport = Weighing(sites())
    fleet = deployed(transport)
    fleet.begin(1)
    before = transport.up  # who is there
    run_rounds(with_compression(fedavg(Train(lr=0.1), per_round=CLIENTS), compression), fleet, rounds=1)
    booked = sum(cost.bytes_up for cost in fleet.ledger.total.values())
    assert booked == transport.up - before
    return booked


def test_a_compressed_update_is_booked_as_it_was_sent() -> None:
    whole = bytes_up(Compression())
    assert bytes_up(Compression(name="8-bit")) < 0.35 * whole  # a quarter, and what is said beside the update
    assert bytes_up(Compression(name="top-k", share=0.01)) < 0.15 * whole
