"""Configuration in layers: an experiment's base, its scale, a case, a run, each on top of those before.

A table may name something (a method, a partition). Layers that name something else are left out of it; layers without
a name belong to whatever is named in the end, so that a case can say `method = { per_round = 6 }` for every run.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from covey.runs.sections import ModelSection, settings_in
from covey.settings.catalogue import METHODS, MODELS, PARTITIONS, SHIFTS
from covey.settings.signatures import settings_of

Table = Mapping[str, Any]

# Tables whose name says what the other keys mean; a data set's name does not (clients stay clients).
CHOICES: Mapping[str, Mapping[str, Any]] = {
    "partition": PARTITIONS,
    "shift": SHIFTS,
    "model": MODELS,
    "method": METHODS,
}


def merged(*layers: Table) -> dict[str, Any]:
    """The layers on top of each other: inner tables are merged, everything else is replaced by the last one."""
    result: dict[str, Any] = {}
    for key in dict.fromkeys(key for layer in layers for key in layer):
        values = [layer[key] for layer in layers if key in layer]
        if isinstance(values[-1], Mapping):
            kept, _ = kept_and_replaced(key, values)
            result[key] = merged(*kept)
        else:
            result[key] = copy.deepcopy(values[-1])
    return result


def kept_and_replaced(key: str, values: list[Any]) -> tuple[list[Table], list[Table]]:
    """The tables of one key that count, and those that name something else than the last name given."""
    tables = [value for value in values if isinstance(value, Mapping)]
    names = [table["name"] for table in tables if "name" in table]
    if not names or key == "data":
        return tables, []
    kept = [table for table in tables if table.get("name", names[-1]) == names[-1]]
    return kept, [table for table in tables if table.get("name", names[-1]) != names[-1]]


def forgotten(*layers: Table) -> Iterator[str]:
    """A sentence for every setting that is left out with another name although the new one has it, too.

    `method = { name = "fedavg", per_round = 6 }` in the base and `{ name = "cfic" }` in a run would silently give cfic
    its default of clients per round.
    """
    for key, choices in CHOICES.items():
        kept, replaced = kept_and_replaced(key, [layer[key] for layer in layers if key in layer])
        said = merged(*kept)
        if said.get("name") not in choices:
            continue
        known = set(settings_in(key, choices[said["name"]]))
        known |= set(settings_of(ModelSection)) if key == "model" else set()
        for table in replaced:
            for lost in sorted((set(table) & known) - set(said)):
                yield (
                    f"{key}.{lost} = {table[lost]!r} is said of {table['name']} and lost, because {key}.name becomes "
                    f"{said['name']}; say {key}.{lost} there, too"
                )
