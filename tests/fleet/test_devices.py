"""Devices: what a client's time is made of, the paper's categories, and who is there."""

import math
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from covey.errors import UserError
from covey.fleet.devices import Devices
from covey.fleet.profiles import Device


def stream(*names: object) -> np.random.Generator:
    return np.random.default_rng([sum(map(ord, str(name))) for name in names])


def test_time_is_transfer_both_ways_plus_round_trip_plus_compute() -> None:
    device = Device(compute=2.0, up=8.0, down=16.0, latency=0.1)
    # 1 MB down at 16 Mbit/s = 0.5 s, 2 MB up at 8 Mbit/s = 2 s, 300 samples * 0.01 s * 2 = 6 s.
    seconds = device.seconds(bytes_down=1_000_000, bytes_up=2_000_000, work=300, pace=0.01)
    assert seconds == pytest.approx(0.5 + 2.0 + 0.1 + 6.0)


def test_an_ideal_device_only_computes() -> None:
    assert Device().seconds(bytes_down=10**9, bytes_up=10**9, work=100, pace=0.5) == 50.0


def category(value: float, edges: list[float]) -> int:
    return int(np.searchsorted(edges, value, side="right"))


def test_the_papers_categories_are_drawn_separately_with_60_20_15_5_percent() -> None:
    devices = Devices(profile="haccs").build(20_000, np.random.default_rng(0))
    compute = Counter(category(d.compute, [1.25, 2.0, 2.5]) for d in devices)
    links = Counter(3 - category(d.up, [25.0, 50.0, 75.0]) for d in devices)
    for counts in (compute, links):
        assert [counts[i] / 20_000 for i in range(4)] == pytest.approx([0.6, 0.2, 0.15, 0.05], abs=0.012)
    both_fast = sum(d.compute == 1.0 and d.up >= 75 for d in devices) / 20_000
    assert both_fast == pytest.approx(0.36, abs=0.012)
    assert all(1.0 <= d.up <= 100.0 and d.up == d.down and 0.02 <= d.latency <= 0.2 for d in devices)
    assert all(d.compute == 1.0 or 1.5 <= d.compute <= 3.0 for d in devices)


def test_the_authors_code_adds_delays_whatever_the_model() -> None:
    devices = Devices(profile="published").build(20_000, np.random.default_rng(0))
    assert all(d.compute == 1.0 and d.up == math.inf for d in devices)
    # At least 10 MiB at 100 Mbit/s; at most 20 s + 10 MiB at 1 Mbit/s.
    assert all(83.886 / 100 <= d.delay <= 20 + 83.887 for d in devices)


def test_a_clients_device_does_not_depend_on_how_many_follow() -> None:
    few, many = (Devices(profile="haccs").build(n, np.random.default_rng(3)) for n in (4, 40))
    assert few == many[:4]


def test_special_devices_replace_the_profiles_values() -> None:
    built = Devices(special=[{"clients": [1, 2], "compute": 3.0}]).build(3, np.random.default_rng(0))
    assert [d.compute for d in built] == [1.0, 3.0, 3.0]


def test_dropout_takes_its_share_without_replacement_and_by_its_own_stream() -> None:
    devices = Devices(dropout=0.1)
    first = devices.away(range(50), 7, stream)
    assert len(first) == 5
    assert first == devices.away(reversed(range(50)), 7, stream)
    assert first != devices.away(range(50), 8, stream)
    assert Devices().away(range(50), 7, stream) == set()


def test_availability_is_each_devices_own_chance() -> None:
    devices = Devices(special=[{"clients": 0, "availability": 0.25}])
    built = devices.build(3, np.random.default_rng(0))
    own = partial(lambda *names: np.random.default_rng([len(str(names[0])), int(names[1])]))
    away = [devices.away(range(3), number, own, built) for number in range(2_000)]
    assert set().union(*away) == {0}
    assert sum(map(len, away)) / 2_000 == pytest.approx(0.75, abs=0.04)


def test_lost_replies_have_the_given_chance_and_do_not_depend_on_who_else_is_asked() -> None:
    devices = Devices(loss=0.2)
    everybody = devices.lost(range(5_000), (1, "train.sgd"), stream)
    assert len(everybody) / 5_000 == pytest.approx(0.2, abs=0.03)
    assert devices.lost(range(10), (1, "train.sgd"), stream) == {i for i in everybody if i < 10}


def test_joins_and_leaves_hold_from_their_round_on() -> None:
    devices = Devices(
        joins=[{"clients": [3], "round": 5}, {"clients": 0, "round": 8}],
        leaves=[{"clients": [0, 1], "round": 2}],
    )
    assert devices.members(4, 0) == [0, 1, 2]
    assert devices.members(4, 2) == [2]
    assert devices.members(4, 5) == [2, 3]
    assert devices.members(4, 8) == [0, 2, 3]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"profile": "fast"}, "devices.profile = 'fast' is not known"),
        ({"pace": -1.0}, "devices.pace is -1.0"),
        ({"dropout": 1.0}, "devices.dropout is 1.0"),
        ({"loss": "half"}, "devices.loss is 'half'"),
        ({"deadline": 0.0}, "devices.deadline is 0.0"),
        ({"joins": [{"clients": [1]}]}, "devices.joins[0].round is missing"),
        ({"joins": [{"clients": [], "round": 1}]}, "devices.joins[0].clients is []"),
        (
            {"leaves": [{"client": [1], "round": 1}]},
            "devices.leaves[0].client is not known; did you mean clients?",
        ),
        ({"drifts": [{"clients": [1], "round": 1, "rotations": 0.5}]}, "devices.drifts[0].rotations is 0.5"),
        ({"special": [{"clients": [1], "up": 0}]}, "devices.special[0].up is 0; allowed: a number above 0"),
        ({"special": [3]}, "devices.special is [3]; allowed: a list of tables"),
    ],
)
def test_a_wrong_setting_is_one_clear_sentence(settings: dict[str, object], words: str) -> None:
    with pytest.raises(UserError) as error:
        Devices(**settings)  # type: ignore[arg-type]
    assert words in str(error.value)
    assert str(error.value).count("\n") == 0


def test_a_client_that_is_not_there_is_named() -> None:
    with pytest.raises(UserError, match=r"devices.joins.clients is 9; allowed: from 0 to 4"):
        Devices(joins=[{"clients": [9], "round": 1}]).members(5, 0)


def test_a_profile_of_ones_own_with_settings(tmp_path: Path) -> None:
    code = """
from covey.fleet.profiles import Device

def phones(draws, *, slowest: float = 4.0):
    return Device(compute=1 + (slowest - 1) * float(draws[0]), up=5.0, down=20.0)
"""
    (tmp_path / "mine.py").write_text(code)
    own = {"name": f"{tmp_path / 'mine.py'}:phones", "slowest": 9.0}
    built = Devices(profile=own).build(200, np.random.default_rng(0))
    assert 8 < max(device.compute for device in built) < 9
    assert {device.up for device in built} == {5.0}
    with pytest.raises(UserError, match=r"devices.profile.slow is not known; did you mean slowest"):
        Devices(profile={**own, "slow": 1.0})
