"""Which parts of a run are the user's own, and whether they have changed since it began."""

from collections.abc import Mapping, Sequence
from typing import Any

from covey.data.usual import declared
from covey.runs.config import Config
from covey.runs.sections import DataSection
from covey.settings.catalogue import (
    DATASETS,
    METHODS,
    METRICS,
    MODELS,
    OBJECTIVES,
    OPTIMISERS,
    PARTITIONS,
    PARTS,
    PROFILES,
    RULES,
    SHIFTS,
    TRACKERS,
)
from covey.settings.choices import own_settings
from covey.settings.own_code import hash_of
from covey.settings.registry import Origin, Registry

CHOICES: Mapping[str, Registry[Any]] = {
    "method": METHODS,
    "data": DATASETS,
    "partition": PARTITIONS,
    "shift": SHIFTS,
    "robust": RULES,
    "model": MODELS,
}


def origins_of(config: Config) -> list[Origin]:
    """Everything that is not built in, and where it came from; also the data files of the user's own."""
    named = [
        (registry, config[table]["name"]) for table, registry in CHOICES.items() if config.tables.get(table)
    ]
    named.append((OBJECTIVES, config.top.objective))
    if config.method_name == "compose":
        named += parts_of(config["method"])
    named += [(METRICS, name) for name in config["measure"]["metrics"]]
    for registry, chosen in (
        (OPTIMISERS, config["train"]["optimiser"]),
        (PROFILES, config["devices"]["profile"]),
    ):
        named.append((registry, chosen if isinstance(chosen, str) else chosen["name"]))
    named += [(TRACKERS, table["name"]) for table in config.tables.get("tracker", ())]
    found = [origin for registry, name in named if (origin := registry.origin(name)) is not None]
    files = declared(DATASETS.find(config["data"]["name"])).files
    for file in files(**own_settings(config["data"], DataSection)) if files else ():
        found.append(Origin(kind="data file", name=file.name, source=str(file), sha256=hash_of([file])))
    return found


def parts_of(method: Mapping[str, Any]) -> list[tuple[Registry[Any], str]]:
    """The parts that a composed method is made of."""
    tables = [
        ("send" if kind == "serve" else kind, table) for kind, table in method.items() if kind != "after"
    ]
    tables += [("after", table) for table in method.get("after", ())]
    return [(PARTS[kind], table["name"]) for kind, table in tables if isinstance(table, Mapping)]


def changed(before: Sequence[Origin], now: Sequence[Origin]) -> str:
    """Which of the user's own things has changed, in one sentence; "" if none has."""
    known = {(origin.kind, origin.name): origin for origin in before}  # the last one counts
    for origin in now:
        was = known.get((origin.kind, origin.name))
        if was is None or was.sha256 != origin.sha256:
            old = f"its SHA-256 was {was.sha256[:12]} and is {origin.sha256[:12]}" if was else "it is new"
            return (
                f"the {origin.kind} {origin.name!r} ({origin.source}) has changed since the run began: {old}"
            )
    return ""
