"""Sites and servers that are killed, and a site that comes later, over real connections."""

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import torch

pytest.importorskip("flwr")
from covey.core.codec import from_bytes
from covey.deploy.certs import make_certs
from tests.deploy.live_deployment import DIGITS, Deployment


def tables(clients: int) -> str:
    return DIGITS.replace("clients = 4", f"clients = {clients}").replace(
        "per_round = 4", f"per_round = {clients}"
    )


def settings(*assignments: str) -> list[str]:
    return [word for assignment in assignments for word in ("--set", assignment)]


@pytest.fixture
def here(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Deployment]:
    clients = request.param
    with Deployment(tmp_path, sites=min(clients, 4), tables=tables(clients)) as deployment:
        yield deployment


@pytest.mark.parametrize("here", [5], indirect=True)
def test_a_site_that_joins_in_the_middle_is_described_placed_and_served(here: Deployment) -> None:
    for number in range(4):
        here.site(number)
    here.hold(0)
    server = here.serve("unseen", "--clients", "4", *settings("method.name=haccs", "devices.deadline=300"))
    here.wait_until_held(0)
    make_certs(here.folder / "certs", hosts=[], sites=["site-4"])  # its key, too, is made only now
    fifth = here.site(4)
    fifth.wait_for("connected to")
    here.release(0)
    assert server.end() == 0, server.said()
    assert "site site-4 is here as client 4" in server.said()
    assert "query.labels" in fifth.said()  # described
    assert 4 in here.state("unseen").groups  # placed
    assert "evaluate.local" in fifth.said()  # served
    assert here.state("unseen").seen == (0, 1, 2, 3, 4)


@pytest.mark.parametrize("here", [3], indirect=True)
def test_a_killed_site_is_left_out_and_comes_back_with_its_number_and_state(here: Deployment) -> None:
    sites = [here.site(number) for number in range(3)]
    server = here.serve("killed", *settings("method.name=feddyn", "rounds=6", "devices.deadline=900"))
    sites[2].wait_for("round 1: train.dyn")
    here.hold(2)
    here.wait_until_held(2)
    sites[2].kill()
    here.release(2)
    sites[0].wait_for("round 2: train.dyn")
    here.hold(0)
    here.wait_until_held(0)  # in round 3: the second ended without site 2
    kept = max((here.folder / "state-2").glob("run-*"), key=lambda path: path.stat().st_mtime)
    before = from_bytes(kept.read_bytes())
    here.site(2).wait_for("connected to")
    here.release(0)
    assert server.end() == 0, server.said()
    lost = here.summary("killed")["lost"]["examples"]
    mine = [(p["round"], p["kind"], p["reason"]) for p in lost if p["client"] == 2]
    # The SuperLink misses its heartbeat after a minute, or the server gives up at its deadline.
    reasons = ("it is not connected any more", "it did not answer in time", "no reply in 900.0 s")
    assert mine[0] in [(2, "train.dyn", why) for why in reasons]
    assert all(number == 2 for number, _, _ in mine)
    after = from_bytes(kept.read_bytes())
    assert before["round"] == 1
    assert after["round"] == 6
    assert not torch.equal(after["state"]["dyn"], before["state"]["dyn"])


@pytest.mark.parametrize("here", [3], indirect=True)
def test_a_dead_superlink_ends_the_server_in_one_sentence_and_no_site(here: Deployment) -> None:
    sites = [here.site(number) for number in range(3)]
    chosen = ("method.name=fedavg", "rounds=2", "devices.deadline=600")
    server = here.serve("orphan", *settings(*chosen))
    sites[0].wait_for("round 1: evaluate.local")
    here.hold(0)
    here.wait_until_held(0)
    (link,) = [
        child
        for child in psutil.Process(server.process.pid).children()
        if "flower-superlink" in " ".join(child.cmdline())
    ]
    link.kill()
    here.release(0)
    assert server.end(1800) == 1
    assert "covey: the SuperLink has ended; resume with covey serve --resume" in server.said()
    assert "Traceback" not in server.said()
    sites[1].wait_for("is away, trying again every 2 s|the connection broke in the middle of a message", 1200)
    again = here.start(
        "again", "serve", "--resume", "orphan", "--host", "127.0.0.1", "--port", str(here.port)
    )
    assert again.end() == 0, again.said()
    assert all(site.process.is_alive() for site in sites)
    assert torch.equal(here.simulate("straight", *chosen).models, here.state("orphan").models)


@pytest.mark.parametrize("here", [3], indirect=True)
def test_a_killed_server_goes_on_from_its_last_round_with_the_same_bits(here: Deployment) -> None:
    """As a service does that starts the same command again."""
    sites = [here.site(number) for number in range(3)]
    chosen = ("method.name=feddyn", "rounds=3", "devices.deadline=600")
    command = ("resumed", "--or-resume", *settings(*chosen))
    server = here.serve(*command)
    sites[0].wait_for("round 1: evaluate.local")
    here.hold(0)
    here.wait_until_held(0)
    server.kill()
    assert here.state("resumed").round == 1
    here.release(0)
    again = here.serve(*command)
    assert again.end() == 0, again.said()
    straight = here.simulate("straight", *chosen)
    assert here.state("resumed").round == 3
    assert torch.equal(straight.models, here.state("resumed").models)
    finished = here.serve(*command)
    assert finished.end() == 0, finished.said()
    other = here.serve("resumed", "--or-resume", *settings("rounds=2"))
    assert other.end() == 2, other.said()
    assert "holds a run with other settings; name another folder" in other.said()
