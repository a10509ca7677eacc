"""Which clients joined, left or drifted during a run, in words, from its configuration."""

import tomllib
from collections.abc import Mapping
from typing import Any

from covey.folder.read import RunView
from covey.report.markup import Html, cells_table
from covey.report.notes import shown_note


def changes(run: RunView) -> Html | None:
    """A table of the planned joins, leaves and drifts; nothing where there were none."""
    devices = tomllib.loads(run.config).get("devices", {})
    rows = change_rows(devices)
    return (
        cells_table([["from round", "clients", "what"], *rows], "What changed while it ran") if rows else None
    )


def change_rows(devices: Mapping[str, Any]) -> list[list[str]]:
    """Round, clients and what happened, in the order of the rounds."""
    found = [
        (one, "join" + ("" if one.get("labels", True) else " without labels"))
        for one in devices.get("joins", [])
    ]
    found += [(one, "leave") for one in devices.get("leaves", [])]
    found += [(one, drift_words(one)) for one in devices.get("drifts", [])]
    return [
        [str(one["round"]), shown_note(one["clients"]), what]
        for one, what in sorted(found, key=lambda f: f[0]["round"])
    ]


def drift_words(drift: Mapping[str, Any]) -> str:
    """What changes, and how."""
    what = []
    if drift.get("rotations"):
        what.append(f"images rotated by {drift['rotations']} quarter turns")
    if drift.get("label_offset"):
        what.append(f"labels moved by {drift['label_offset']}")
    if drift.get("images"):
        what.append(f"{', '.join(drift['images'])} at strength {drift.get('strength', 1.0):g}")
    if drift.get("mix_of") is not None:
        what.append(f"the label mix of client {drift['mix_of']}")
    rounds = drift.get("rounds", 1)
    course = {
        "gradual": f"gradually over {rounds} rounds",
        "recurring": f"on and off for {rounds} rounds each",
    }.get(drift.get("course", "sudden"), "at once")
    later = f", each next client {drift['stagger']} rounds later" if drift.get("stagger") else ""
    return f"drift: {' and '.join(what)}, {course}{later}"
