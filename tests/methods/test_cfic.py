"""CFIC and its baselines keep the contract of every method."""

from typing import Any

import pytest

from covey.testing import check_method

SETTINGS: list[tuple[str, dict[str, Any]]] = [
    ("cfic", {"per_round": 5}),
    ("cfic", {"per_round": 3, "lazy": True, "quota": "published", "scale": "absolute", "beta": 0.1}),
    ("cfic", {"per_round": 5, "adaptive": True, "sampling": "uniform"}),
    ("cfic", {"per_round": 5, "directions": "average"}),
    ("cfic", {"per_round": 3, "directions": "average", "absent": "always"}),
    ("feddyn", {"per_round": 5}),
    ("fedfa", {"per_round": 5}),
    ("fedmgda", {"per_round": 5}),
    ("clustered-sampling", {"per_round": 5}),
    ("clustered-sampling", {"per_round": 5, "by": "similarity"}),
    ("feddisco", {"per_round": 5}),
    ("cfl", {"still": 10.0, "apart": 0.001, "patience": 0}),
    ("krum", {"per_round": 6}),
    ("trimmed-mean", {"per_round": 6, "trim": 0.2}),
    ("median", {"per_round": 6}),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings"), SETTINGS, ids=[f"{n}-{i}" for i, (n, _) in enumerate(SETTINGS)]
)
def test_contract(name: str, settings: dict[str, Any]) -> None:
    check_method(name, settings)
