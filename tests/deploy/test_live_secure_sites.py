"""Secure aggregation over eight real sites, two of which are killed in the middle of a round."""

from pathlib import Path

import pytest
import torch

pytest.importorskip("flwr")
from covey.core.round import Task
from covey.privacy.secure import plain_sum
from covey.privacy.secure_steps import NUMBER_LEVELS, SecureUpdate
from covey.runs.config import fleet_of, resolve
from covey.settings.toml import read_tables
from tests.deploy.live_deployment import DIGITS, Deployment

SITES, KILLED = 8, (6, 7)
SECURE = '\n[private]\nsecure = true\nclip = 0.5\nsampling = "method"\n[measure]\nlocal_test = false\n'


@pytest.mark.slow
def test_two_of_eight_sites_are_killed_and_the_sum_is_the_simulations(tmp_path: Path) -> None:
    tables = DIGITS.replace("clients = 4", f"clients = {SITES}").replace(
        "per_round = 4", f"per_round = {SITES}"
    )
    tables = tables.replace("rounds = 3", "rounds = 1").replace("deadline = 900", "deadline = 240") + SECURE
    with Deployment(tmp_path, sites=SITES, tables=tables) as here:
        for number in range(SITES):
            here.site(number)
        for number in KILLED:
            here.hold(number)
        server = here.serve("secure", "--clients", str(SITES))
        for number in KILLED:
            here.wait_until_held(number)
            here.sites[number].kill()
        assert server.end() == 0, server.said()
        found = here.state("secure")
        cost = here.summary("secure")["cost"]["by_kind"]
    fleet = fleet_of(
        resolve({**read_tables(tmp_path / "digits.toml"), "engine": {"lanes": False, "mode": "serial"}})
    )
    start = fleet.start()
    fleet.begin(1)
    stayed = [i for i in range(SITES) if i not in KILLED]
    tasks = {i: Task(models=start[None], slots=(0,)) for i in stayed}
    step = fleet_method_step(tmp_path)
    total, there = plain_sum(fleet, step, tasks, len(stayed)) or (None, [])
    assert there == stayed
    expected = (
        start.double() + torch.from_numpy(total).double() * (0.5 / NUMBER_LEVELS) / len(stayed)
    ).float()
    assert torch.equal(found.models[0], expected)
    assert cost["query.secure-update"]["bytes_up"] > 0
    assert cost["query.secure-unmask"]["seconds"] > 0


def fleet_method_step(folder: Path) -> SecureUpdate:
    """What the server asked its sites for."""

    method = resolve(read_tables(folder / "digits.toml")).method
    return SecureUpdate(step=method.local, clip=0.5)
