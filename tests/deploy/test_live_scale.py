"""Inputs that nobody scaled, at real sites: `covey serve` standardises them by what the sites tell, and they learn."""

from pathlib import Path

import pytest
import torch

pytest.importorskip("flwr")
from tests.deploy.live_deployment import SITE, Deployment

# Sites and server have the digits as they came from the scanner.
RAW = (
    SITE
    + """

from dataclasses import replace

with_a_scale = load


def load(name):
    return tuple(replace(part, dataset=replace(part.dataset, scale=None)) for part in with_a_scale(name))
"""
)
OWN = """
from covey.data import from_tensors, load


def some():
    digits = load("digits")
    x, y = digits.x[:300], digits.y[:300]
    return from_tensors(x, y, test=(x, y), classes=digits.classes, name="mine")
"""


@pytest.mark.slow
def test_sites_tell_noisy_sums_and_learn_as_well_as_where_the_scale_is_known(tmp_path: Path) -> None:
    with Deployment(tmp_path) as here:
        (here.folder / "site.py").write_text(RAW)
        (here.folder / "own.py").write_text(OWN)
        for number in range(4):
            here.join(number)
        exact = here.serve("exact", "--data", "own.py:some")
        local = here.simulate("local")
        assert exact.end() == 0, exact.said()
        difference = (local.models - here.state("exact").models).abs().max()
        assert torch.allclose(local.models, here.state("exact").models, atol=1e-4), f"largest {difference}"
        noisy = here.serve("noisy", "--data", "own.py:some", "--scale-epsilon", "4")
        assert noisy.end() == 0, noisy.said()
        known = here.summary("exact")["last"]["global-test/accuracy"]
        assert here.summary("noisy")["last"]["global-test/accuracy"] > known - 0.1 > 0.3
        assert not torch.equal(here.state("noisy").models, here.state("exact").models)
