"""What trains is the same, but for rounding, whether the frozen part of a model lies in the row or beside it."""

import pytest
import torch
from torch import Tensor, nn

from covey.core.needs import own_model_of
from covey.core.round import run_rounds
from covey.fleet.engine import Engine
from covey.fleet.local import LocalFleet
from covey.settings.catalogue import METHODS
from covey.testing import CONTRACT, check_toml, small_federation
from tests.methods.test_contract import QUICK

ROUNDING = (
    1e-6  # a matrix product may be rounded otherwise where rows are longer, by the machine's instructions
)


class Fixed(nn.Module):
    """A layer that nobody trains: its numbers are frozen parameters, or buffers, which rows hold."""

    def __init__(self, layer: nn.Linear, *, in_the_row: bool) -> None:
        super().__init__()
        for name, tensor in layer.named_parameters():
            if in_the_row:
                self.register_buffer(name, tensor.detach())
            else:
                setattr(self, name, nn.Parameter(tensor.detach(), requires_grad=False))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.weight, self.bias)  # type: ignore[arg-type]


def head_after(name: str, *, in_the_row: bool) -> Tensor:
    """What trains of every row after two rounds."""
    torch.manual_seed(1)
    fixed, head = Fixed(nn.Linear(64, 20), in_the_row=in_the_row), nn.Linear(20, 10)
    model = nn.Sequential(nn.Flatten(), fixed, nn.ReLU(), head)
    fleet = LocalFleet(small_federation(CONTRACT), model, seed=5, engine=Engine(mode="serial", lanes=False))
    assert fleet.layout.size == (210 + 1300 if in_the_row else 210)
    rows = run_rounds(check_toml(name, QUICK.get(name, {})), fleet, rounds=2).models
    fleet.close()
    return rows[:, :210]


ANY_MODEL = [name for name in METHODS if own_model_of(METHODS.find(name)) is None]


@pytest.mark.parametrize("name", ANY_MODEL)
def test_no_method_looks_at_what_is_frozen(name: str) -> None:
    beside, within = head_after(name, in_the_row=False), head_after(name, in_the_row=True)
    assert torch.allclose(beside, within, rtol=0, atol=ROUNDING)
