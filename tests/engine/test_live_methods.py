"""The papers' methods over four real sites on loopback: the simulation's rows, bit for bit."""

from collections.abc import Iterator

import pytest
import torch

pytest.importorskip("flwr")
from live_deployment import Deployment

# Real sites draw all noise from a secure source that no seed repeats: these runs have none.
EXACT = {"haccs": ["method.epsilon=none"], "embedding": ["method.flip=0", "method.pretrain_rounds=2"]}


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Four sites that stay connected while one server after the other comes and goes."""
    with Deployment(tmp_path_factory.mktemp("live")) as deployment:
        for number in range(4):
            deployment.join(number)
        yield deployment


@pytest.mark.parametrize(
    "name",
    ["cafa", *(pytest.param(n, marks=pytest.mark.slow) for n in ("haccs", "cfic", "embedding", "ifca"))],
)
def test_the_rows_are_those_of_the_local_engine(name: str, sites: Deployment) -> None:
    settings = [f"method.name={name}", *EXACT.get(name, ())]
    server = sites.serve(name, *(word for setting in settings for word in ("--set", setting)))
    local = sites.simulate(f"local-{name}", *settings)
    assert server.end() == 0, server.said()
    live = sites.state(name)
    assert live.round == 3
    assert torch.equal(local.models, live.models), (
        f"largest difference {(local.models - live.models).abs().max()}"
    )
    assert dict(local.groups) == dict(live.groups)
    assert sites.summary(name)["lost"]["count"] == 0
    assert sites.summary(name)["refused"]["count"] == 0
