"""How many runs fit this machine at once: its cores, and its free memory."""

from collections.abc import Iterable

from covey.files import free_memory, usable_cores
from covey.runs.config import Config, bytes_needed, fleet_of, keeps_own_models

PROCESS = 450_000_000  # bytes of Python, PyTorch and covey in one process
KEPT_FREE = 0.15  # share of the free memory that is left for everything else


def side_by_side(configs: Iterable[Config], runs: int, most: int | None = None) -> int:
    """How many of the runs continue at once; 1 where a run uses a Ray cluster or a GPU of its own."""
    different = {fingerprint(config): config for config in configs}
    if any(shares_nothing(config) for config in different.values()):
        return 1
    wanted = min(runs, usable_cores(), most or runs)
    if wanted < 2:
        return 1
    need = max(bytes_of(config) for config in different.values())
    free = free_memory()
    return wanted if free is None else max(1, min(wanted, int((1 - KEPT_FREE) * free / (PROCESS + need))))


def fingerprint(config: Config) -> str:
    """What the memory of a run depends on."""
    data, model = config["data"], config["model"]
    return repr((data, model, config["train"]["batch"], keeps_own_models(config)))


def shares_nothing(config: Config) -> bool:
    engine = config["engine"]
    return engine["mode"] == "ray" or engine["device"] not in ("auto", "cpu")


def bytes_of(config: Config) -> int:
    """The bound on a run's memory, beside Python and PyTorch."""
    fleet = fleet_of(config)
    try:
        return bytes_needed(fleet, config)
    finally:
        fleet.close()
