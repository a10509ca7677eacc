"""covey when clients describe themselves falsely: whoever does not lie stays in its cluster."""

import pytest

from covey.core.round import run_rounds
from covey.runs.config import fleet_of, resolve
from experiments.hostile import Portrayal, attacked

TABLES = {
    "data": {"name": "digits", "clients": 16},
    "partition": {"name": "iid"},
    "shift": {"name": "rotation", "rotations": [0, 1]},
    "method": {"name": "covey"},
    "train": {"epochs": 1},
    "engine": {"lanes": False},
}
LIARS = (2, 5, 9)  # nearly a fifth


@pytest.mark.parametrize("portrait", ["imitate", "own", "between"])
def test_lying_portraits_do_not_part_or_join_the_others(portrait: Portrayal) -> None:
    config = resolve(TABLES)
    fleet = attacked(fleet_of(config), LIARS, "scale", portrait)
    try:
        state = run_rounds(config.method, fleet, rounds=1)
    finally:
        fleet.close()
    clusters: dict[int, set[int]] = {}
    for i, share in enumerate(fleet.data.shares):
        if i not in LIARS:
            clusters.setdefault(share.cluster, set()).add(state.groups[i])
    assert [len(found) for found in clusters.values()] == [1, 1]
    assert clusters[0] != clusters[1]
