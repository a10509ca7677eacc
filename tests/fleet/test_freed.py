"""A run leaves nothing behind: its data and models are freed as it ends, not when Python's collector comes."""

import gc
from pathlib import Path
from typing import Any

import pytest

import covey
from covey.fleet.local import LocalFleet

PRIVATE = {"private": {"epsilon": 50, "delta": 1e-3}}


def fleets() -> int:
    """How many simulated fleets are in memory."""
    return sum(type(thing) is LocalFleet for thing in gc.get_objects())


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("fedavg", {}),
        ("covey", {}),
        ("covey", PRIVATE),
        ("embedding", {}),
        ("haccs", {}),
        ("fedasync", {}),
        ("fedavg", {"engine": {"mode": "threads", "workers": 2}}),
        ("fedavg", {"engine": {"mode": "processes", "workers": 2}}),
    ],
)
def test_a_fleet_is_freed_when_its_run_ends(method: str, settings: dict[str, Any], tmp_path: Path) -> None:
    gc.collect()
    before = fleets()
    gc.disable()
    try:
        covey.run(method, "digits", clients=8, rounds=1, out=tmp_path / "run", progress=False, **settings)
        assert fleets() == before
    finally:
        gc.enable()
