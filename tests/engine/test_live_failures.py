"""Sites and servers that are killed, and a site that comes later, over real connections."""

from collections.abc import Iterator

import pytest
import torch

pytest.importorskip("flwr")
from live_deployment import DIGITS, Deployment

from covey.codec import from_bytes

pytestmark = pytest.mark.slow

FIVE = DIGITS.replace("clients = 4", "clients = 5").replace("per_round = 4", "per_round = 5")


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with Deployment(tmp_path_factory.mktemp("live"), sites=5, tables=FIVE) as deployment:
        yield deployment


def settings(*assignments: str) -> list[str]:
    return [word for assignment in assignments for word in ("--set", assignment)]


def test_a_site_that_joins_in_the_middle_is_described_placed_and_served(here: Deployment) -> None:
    for number in range(4):
        here.site(number)
    here.hold(0)
    server = here.serve("newcomer", "--clients", "4", *settings("method.name=haccs", "devices.deadline=120"))
    here.wait_until_held(0)
    fifth = here.site(4)
    fifth.wait_for("connected to")
    here.release(0)
    assert server.end(300) == 0, server.said()
    assert "site site-4 is here as client 4" in server.said()
    assert "query.labels" in fifth.said()  # described
    assert 4 in here.state("newcomer").groups  # placed
    assert "evaluate.local" in fifth.said()  # served
    assert here.state("newcomer").seen == (0, 1, 2, 3, 4)


def test_a_killed_site_costs_one_deadline_and_comes_back_with_its_number_and_state(here: Deployment) -> None:
    sites = [here.site(number) for number in range(5)]
    sites[2].forget()
    server = here.serve("killed", *settings("method.name=feddyn", "rounds=4", "devices.deadline=25"))
    sites[2].wait_for("round 1: train.dyn", 200)
    here.hold(2)
    here.wait_until_held(2)
    sites[2].kill()
    here.release(2)
    kept = max((here.folder / "state-2").glob("run-*"), key=lambda path: path.stat().st_mtime)
    before = from_bytes(kept.read_bytes())
    here.site(2)
    assert server.end(300) == 0, server.said()
    assert "site site-2 is back as client 2" in server.said()
    summary = here.summary("killed")
    assert summary["lost"]["count"] == 1
    assert "no reply in 25.0 s" in str(summary["lost"])
    after = from_bytes(kept.read_bytes())
    assert before["round"] == 1
    assert after["round"] == 4
    assert not torch.equal(after["state"]["dyn"], before["state"]["dyn"])


def test_a_killed_server_goes_on_from_its_last_round_with_the_same_bits(here: Deployment) -> None:
    sites = [here.site(number) for number in range(5)]
    chosen = ("method.name=feddyn", "rounds=4", "devices.deadline=120")
    sites[0].forget()
    server = here.serve("resumed", *settings(*chosen))
    sites[0].wait_for("round 1: evaluate.local", 200)
    here.hold(0)
    here.wait_until_held(0)
    server.kill()
    assert 1 <= here.state("resumed").round < 4
    here.release(0)
    again = here.start(
        "again", "serve", "--resume", "resumed", "--host", "127.0.0.1", "--port", str(here.port)
    )
    assert again.end(300) == 0, again.said()
    straight = here.simulate("straight", *chosen)
    assert here.state("resumed").round == 4
    assert torch.equal(straight.models, here.state("resumed").models)
