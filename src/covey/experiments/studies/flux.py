"""FLUX's set-up: the mean over its four shifts at a level of heterogeneity, method by method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from covey.config import fleet_of, method_of, resolve
from covey.core import run
from covey.experiments.spec import Findings
from covey.measure import Measuring

Table = Mapping[str, Any]


def levels(settings: dict[str, Any], seed: int) -> Findings:
    """For each method and level of heterogeneity the clients' mean accuracy, averaged over the shifts, and for each
    shift by itself."""
    rows: dict[str, dict[str, float]] = {}
    methods = settings["methods"]
    for name, method in {name: methods[name] for name in settings.get("only", methods)}.items():
        row = rows.setdefault(name, {})
        for level in settings["at"]:
            found = {
                shift: last_accuracy({**settings["run"], **table, "method": method, "seed": seed})
                for shift, table in shifts(level).items()
            }
            row[f"level {level}"] = float(np.mean(list(found.values())))
            row |= {f"level {level}: {shift}": value for shift, value in found.items()}
    return Findings(rows=rows)


def shifts(level: int) -> dict[str, Table]:
    """The four shifts at a level from 1 to 8.

    P(x): 2 to 5 angles, from level 5 on the same with other colours; P(y): 11 - level of the ten classes; P(y|x):
    level of ten labels trade their names; P(x|y): level of ten classes are turned.
    """
    iid = {"name": "iid"}
    pictures = ["turn"] if level <= 4 else ["turn", "colour"]
    classes = 11 - level
    return {
        "P(x)": {
            "partition": iid,
            "shift": {"name": "unlike", "kinds": 2 + (level - 1) % 4, "pictures": pictures},
        },
        "P(y)": {
            "partition": {"name": "few-classes", "fewest_classes": classes, "most_classes": classes},
        },
        "P(y|x)": {"partition": iid, "shift": {"name": "unlike", "kinds": 4, "relabel": level / 10}},
        "P(x|y)": {
            "partition": iid,
            "shift": {
                "name": "unlike",
                "kinds": 4,
                "pictures": ["turn"],
                "strength": 0.75,
                "of_classes": level / 10,
            },
        },
    }


def last_accuracy(tables: Table) -> float:
    """Of the clients on their own test data after the last round, their mean."""
    config = resolve(tables)
    method, fleet = method_of(config), fleet_of(config)
    try:
        state = run(method, fleet, rounds=config.top.rounds)
        values = Measuring(**config["measure"])(method, state, fleet, True)
    finally:
        fleet.close()
    return next(
        one.value
        for one in values
        if (one.split, one.metric, one.client, one.group) == ("local-test", "accuracy-mean", -1, -1)
    )
