"""Adapters, narrow networks and an encoder over four real sites: what is frozen travels once, rows as simulated."""

import os
import re
from collections.abc import Iterator

import pytest
import torch

pytest.importorskip("flwr")
from covey.data.loaders.hands import found_in
from covey.data.loaders.texts import SHAKESPEARE
from covey.errors import UserError
from tests.deploy.live_deployment import DIGITS, Deployment

ADAPTED = """
[model]
name = "vit"
patch = 4
width = 16
depth = 2
heads = 2
adapter = { name = "lora", rank = 3, targets = ["*.query", "*.value"] }
train = ["head"]
"""

# four roles of Shakespeare; MILTON, where it is set, is the exported model of examples/milton.toml
ROLES = """
rounds = 3
seed = 7
[data]
name = "shakespeare"
units = "letters"
context = 32
roles = 4
most = 250
[method]
name = "fedavg"
per_round = 4
[train]
optimiser = "adam"
lr = 0.003
batch = 16
clip = 1.0
[measure]
every = 3
global_test = false
metrics = ["perplexity"]
[engine]
lanes = false
[devices]
deadline = 900
"""
LANGUAGE = """
[model]
name = "decoder"
weights = "{weights}"
adapter = {{ name = "lora", rank = 4, targets = ["*.query", "*.value"] }}
train = ["head"]
"""

# an encoder of one's own: the server has its weights in a file beside, sites have the network alone
ENCODER = """
from pathlib import Path

import safetensors.torch
import torch
from torch import nn


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(64, 12)

    def forward(self, x):
        return torch.relu(self.mix(x.flatten(1)))


def small():
    network, weights = Small(), Path(__file__).with_name("small.safetensors")
    if weights.exists():
        network.load_state_dict(safetensors.torch.load_file(weights))
    return network
"""


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with Deployment(tmp_path_factory.mktemp("live"), tables=DIGITS) as deployment:
        folder = deployment.folder
        (folder / "lora.toml").write_text(DIGITS + ADAPTED)
        for place in ("here", "there"):
            (folder / place).mkdir()
            (folder / place / "enc.py").write_text(ENCODER)
        torch.manual_seed(0)
        weights = {"mix.weight": torch.randn(12, 64), "mix.bias": torch.randn(12)}
        import safetensors.torch

        safetensors.torch.save_file(weights, folder / "here" / "small.safetensors")
        encoder = 'clients = 4\nencoder = "here/enc.py:small"'
        (folder / "encoded.toml").write_text(DIGITS.replace("clients = 4", encoder))
        for number in range(4):
            deployment.join(number, "--allow", "there/enc.py:small")
        yield deployment


def sent_to(server: str, what: str) -> list[int]:
    """The bytes that each site was sent."""
    found = re.findall(rf"the {what} \([0-9a-f]+\) (?:was sent in ([\d,]+) bytes|was there already)", server)
    return [int(each.replace(",", "") or 0) for each in found]


def adapt(there: Deployment, method: str, *, first: bool) -> None:
    """One run of adapters over the sites: rows as simulated, and the frozen part sent to each where it is the first."""
    settings = [f"method.name={method}"]
    server = there.serve(f"lora-{method}", "--set", *settings, file="lora.toml")
    local = there.simulate(f"local-lora-{method}", *settings, file="lora.toml")
    assert server.end() == 0, server.said()
    assert torch.equal(local.models, there.state(f"lora-{method}").models)
    frozen, told = sent_to(server.said(), "frozen part of the model"), there.summary(f"lora-{method}")
    assert len(frozen) == 4
    assert all(frozen) if first else not any(frozen)
    print(method, frozen, told["last"], told["cost"]["by_kind"])


@pytest.mark.slow
def test_of_adapters_the_frozen_part_is_sent_once(sites: Deployment) -> None:
    for method in ("fedavg", "ifca", "ditto"):
        adapt(sites, method, first=method == "fedavg")


@pytest.mark.slow
def test_a_language_model_is_adapted_globally_in_clusters_and_personally(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    try:
        found_in(SHAKESPEARE, "shakespeare.npz", None)
    except UserError as error:
        pytest.skip(str(error))
    with Deployment(tmp_path_factory.mktemp("texts"), tables=ROLES) as there:
        (there.folder / "lora.toml").write_text(ROLES + LANGUAGE.format(weights=os.environ.get("MILTON", "")))
        for number in range(4):
            there.join(number)
        for method in ("fedavg", "ifca", "covey", "ditto"):
            adapt(there, method, first=method == "fedavg")


@pytest.mark.slow
@pytest.mark.parametrize("method", ["heterofl", "fedrolex", "fedproto", "fedpac"])
def test_networks_of_three_widths(method: str, sites: Deployment) -> None:
    server = sites.serve(f"wide-{method}", "--set", f"method.name={method}")
    local = sites.simulate(f"local-wide-{method}", f"method.name={method}")
    assert server.end() == 0, server.said()
    assert torch.equal(local.models, sites.state(f"wide-{method}").models)


@pytest.mark.slow
def test_an_encoder_is_sent_once_and_runs_at_the_sites(sites: Deployment) -> None:
    for name in ("encoded", "again"):
        server = sites.serve(name, file="encoded.toml")
        if name == "encoded":
            local = sites.simulate("local-encoded", file="encoded.toml")
        assert server.end() == 0, server.said()
        assert torch.equal(local.models, sites.state(name).models)
        sent = sent_to(server.said(), "encoder")
        assert len(sent) == 4
        assert all(sent) if name == "encoded" else not any(sent)
        print(name, sent)
