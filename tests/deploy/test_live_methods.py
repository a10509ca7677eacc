"""The papers' methods over four real sites on loopback: the simulation's rows, bit for bit."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch.nn.utils import vector_to_parameters

pytest.importorskip("flwr")
from covey.data import Samples, load
from covey.deploy.site_memory import model_at
from covey.runs.config import resolve
from covey.runs.models import load_models
from covey.settings.toml import read_tables
from covey.training.models import build
from tests.deploy.live_deployment import Deployment

# Real sites draw all noise from a secure source that no seed repeats: these runs have none.
EXACT = {
    "haccs": ["method.epsilon=none"],
    "embedding": ["method.flip=0", "method.pretrain_rounds=2"],
    "covey": ["method.flip=0"],
    "boosting": ["method.depth=2"],  # the margin of all, then both levels of a tree
    "boosting-personal": ["method.trees=1", "method.depth=1", "method.own=2", "method.base=0.0"],
}


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Four sites that stay connected while one server after the other comes and goes."""
    with Deployment(tmp_path_factory.mktemp("live")) as deployment:
        for number in range(4):
            deployment.join(number)
        yield deployment


@pytest.mark.parametrize(
    "name",
    [
        "cafa",
        *(
            pytest.param(n, marks=pytest.mark.slow)
            for n in ("haccs", "cfic", "embedding", "ifca", "covey", "boosting", "boosting-personal")
        ),
    ],
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


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fedavg", "fedrep", "ditto", "ifca", "fine-tuned", "boosting-personal"])
def test_every_site_takes_the_simulations_model_home(name: str, sites: Deployment) -> None:
    """A plain row, parts from home, a row of its own, a choice by loss, a row adapted before use."""
    settings = [f"method.name={name}", *EXACT.get(name, ())]
    server = sites.serve(f"home-{name}", *(word for setting in settings for word in ("--set", setting)))
    sites.simulate(f"local-home-{name}", *settings)
    assert server.end() == 0, server.said()
    local = load_models(sites.folder / f"local-home-{name}")
    for number in range(4):
        _, model = model_at(sites.folder / f"state-{number}")
        assert (model.facts.method, model.facts.client) == (name, f"site-{number}")
        assert torch.equal(model.row, local.served(number).row)


def by_arrivals(sites: Deployment, method: str) -> str:
    """The deployment's file with a method that has no fixed number of clients per round."""
    text = (sites.folder / "digits.toml").read_text()
    (sites.folder / f"{method}.toml").write_text(
        text.replace('"fedavg"', f'"{method}"').replace("per_round = 4", "at_once = 4")
    )
    return f"{method}.toml"


def test_a_buffer_of_all_sites_has_the_bits_of_the_local_engine(sites: Deployment) -> None:
    file = by_arrivals(sites, "fedbuff")
    server = sites.serve("buffer", "--set", "method.buffer=4", file=file)
    local = sites.simulate("local-buffer", "method.buffer=4", file=file)
    assert server.end() == 0, server.said()
    assert torch.equal(local.models, sites.state("buffer").models)


def test_a_server_mixes_what_arrives_while_a_site_still_trains_and_goes_on_after_a_kill(
    sites: Deployment,
) -> None:
    """One site does not end its training: rounds pass without it, and nothing is lost when the server comes back."""
    sites.hold(2)
    settings = ["--set", "rounds=8", "--set", "measure.local_test=false"]  # nobody who trains is waited for
    server = sites.serve("async", *settings, file=by_arrivals(sites, "fedasync"))
    sites.wait_until_held(2)
    server.wait_for("round 3 of 8")
    server.kill()
    sites.release(2)
    assert sites.state("async").round >= 2
    again = sites.serve("async", "--resume", "async")
    assert again.end() == 0, again.said()
    assert sites.state("async").round == 8
    assert sites.summary("async")["lost"]["count"] == 0
    assert sites.summary("async")["refused"]["count"] == 0


# The server's own test set: the first ten digits, so accuracy is a whole number of tenths.
OWN = """
from covey.data import from_tensors, load


def ten():
    digits = load("digits")
    x, y = digits.x[:10], digits.y[:10]
    return from_tensors(x, y, test=(x, y), classes=digits.classes, scale=digits.scale, name="mine")
"""


def test_the_servers_own_data_is_the_global_test_set_and_changes_no_model(sites: Deployment) -> None:
    (sites.folder / "own.py").write_text(OWN)
    server = sites.serve("own", "--data", "own.py:ten")
    local = sites.simulate("local-own")
    assert server.end() == 0, server.said()
    assert torch.equal(local.models, sites.state("own").models)
    # Its accuracy by another route: a plain PyTorch model with the final row, on the ten pictures.
    digits = load("digits")
    settings = resolve(read_tables(sites.folder / "digits.toml"))["model"]
    model = build(settings["name"], input_shape=tuple(digits.x.shape[1:]), outputs=10)
    vector_to_parameters(local.models[0], model.parameters())
    x, y = Samples(digits, np.arange(10)).tensors()
    right = (model(x).argmax(1) == y).sum().item()
    assert sites.summary("own")["last"]["global-test/accuracy"] == pytest.approx(right / 10)


@pytest.mark.slow
def test_a_frozen_part_is_sent_once_and_the_next_run_finds_it(sites: Deployment) -> None:
    words = ["--set", 'model.train=["3"]', "--set", "model.hidden=[2000]"]
    cost, said = {}, {}
    for name in ("frozen", "frozen-again"):
        server = sites.serve(name, *words)
        assert server.end() == 0, server.said()
        cost[name], said[name] = sites.summary(name)["cost"]["by_kind"]["send.frozen"], server.said()
    local = sites.simulate("local-frozen", *words[1::2])
    assert torch.equal(local.models, sites.state("frozen").models)
    file = 4 * (64 * 2000 + 2000)
    assert 4 * file < cost["frozen"]["bytes_down"] < 4 * (file + 5000)
    assert cost["frozen-again"]["bytes_down"] < 4 * 5000
    assert said["frozen"].count("was sent in") == said["frozen-again"].count("was there already") == 4
