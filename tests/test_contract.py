"""Every method keeps the contract."""

import pytest

from covey.methods import METHODS
from covey.testing import check_method


@pytest.mark.parametrize("name", METHODS)
def test_every_method_keeps_the_contract(name: str) -> None:
    check_method(name)
