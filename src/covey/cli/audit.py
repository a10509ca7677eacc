"""`covey audit`: checks the audit trail of a site or of a server, and prints it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from covey.errors import RunError, UserError
from covey.settings.ranges import Natural
from covey.terminal import Console, say

HIDDEN = ("n", "time", "event", "before", "hash")


def audit(file: Path, *, contains: str | None = None, last: Natural | None = None) -> None:
    """Verify an audit trail (who asked what, what was told and what it cost) and print it.

    Args:
        file: the file audit.jsonl, or the folder it is in: a site's --state, or a run's folder.
        contains: a head of this trail that was noted elsewhere: the trail must still contain it.
        last: print only this many lines, the last ones.
    """
    from covey.deploy.audit import AUDIT_FILE, checked_lines

    path = file / AUDIT_FILE if file.is_dir() else file
    if not path.exists():
        raise UserError(
            f"{path} does not exist; covey join writes it into --state, covey serve into the run's folder"
        )
    lines = [line for line in checked_lines(path) if line.number]
    console = Console(soft_wrap=True)
    for line in lines[-last:] if last else lines if last is None else []:
        console.print(f"{line.number:>5} {line.facts['time']} {words(line.facts)}")
    if contains is not None and contains not in {line.hash for line in lines}:
        raise RunError(f"{path} does not contain {contains}: it is another trail, or lines were removed")
    if not lines:
        raise RunError(f"{path} has no line yet")
    if lines[-1].torn:
        say("the last line is cut off, as a kill or a power cut leaves it; the next line will say so")
    since, until = lines[0].facts["time"], lines[-1].facts["time"]
    say(f"the chain is whole: {len(lines):,} lines from {since} to {until}; its head is {lines[-1].hash}")


def words(facts: Mapping[str, Any]) -> str:
    """The event, and what is said of it, as names and values."""
    shown = (f"{name}={plain(value)}" for name, value in facts.items() if name not in HIDDEN)
    return " ".join((str(facts.get("event")), *shown))


def plain(value: Any) -> str:
    return value if isinstance(value, str) and " " not in value else json.dumps(value)
