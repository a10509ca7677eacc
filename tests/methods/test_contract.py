"""Every method keeps the contract."""

import pytest

from covey.settings.catalogue import METHODS
from covey.testing import check_method

QUICK = {  # settings that only save time
    "embedding": {"pretrain_rounds": 1, "pretrain_epochs": 1},
    "pfedme": {"inner": 1},
    "fedrep": {"head_epochs": 1},
    "boosting": {"depth": 2},
    "boosting-personal": {
        "trees": 1,
        "depth": 1,
        "base": 0.0,
        "own": 2,
    },  # its own trees come within three rounds
}


@pytest.mark.parametrize("name", METHODS)
def test_every_method_keeps_the_contract(name: str) -> None:
    check_method(name, QUICK.get(name))


@pytest.mark.parametrize("name", ["fedavg", "feddyn", "cafa", "hierarchical"])
def test_the_contract_is_kept_with_lanes_too(name: str) -> None:
    check_method(name, lanes=True)


def test_the_contract_is_kept_by_a_forest_per_group() -> None:
    check_method("boosting", {"group": "summary", "depth": 2, "base": 0.0, "shared": 1})
