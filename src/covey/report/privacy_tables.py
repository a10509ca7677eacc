"""The part of a run's page on privacy: what every client has lost by kind, and how many clients each model rests on."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from covey.folder.read import RunView
from covey.report.markup import Html, cells_table, markup, tag
from covey.report.notes import table_of_note

BEHIND = "clients behind each model"  # the note of private sums; it is shown here
NOTES = (BEHIND, "noise on sums", "secure sums", "small groups", "noise of the clients")
MOST_ROWS = 40  # clients that have a row of their own
WHOSE = {"sample": "one sample", "client": "the whole client"}


def privacy(run: RunView) -> Html | None:
    """Nothing where nobody told anything under noise, and no sum was made."""
    notes = [note_table(name, run.summary.notes[name]) for name in NOTES if name in run.summary.notes]
    told = run.summary.privacy.get("clients", {})
    if not told and not notes:
        return None
    return markup(losses(run) if told else None, *notes)


def losses(run: RunView) -> Html:
    """What every client has lost, or the quantiles where there are many; a loss without a bound is infinite."""
    told, delta = run.summary.privacy["clients"], float(run.summary.privacy["delta"])
    columns = [
        (whose, kind)
        for whose in WHOSE
        for kind in sorted(
            {kind for client in told.values() for kind in client.get(whose, {})},
            key=lambda k: (k == "all", k),
        )
    ]
    heads = ["client", *(f"{WHOSE[whose]}: {kind}" for whose, kind in columns)]
    values = {client: [loss(lost, *column) for column in columns] for client, lost in told.items()}
    if len(values) <= MOST_ROWS:
        rows = [
            [run.client_names.get(int(client), client), *map(shown_epsilon, lost)]
            for client, lost in values.items()
        ]
    else:
        heads[0] = f"of {len(values):,} clients"
        rows = quantiles(list(values.values()))
    hint = (
        "How far what was told can change what is known of one sample of a client, and of all that it holds; all: "
        "composed. Another sample makes another update, which moves a sum by up to twice what a missing client does. "
        "∞: there is no bound."
    )
    table = cells_table([heads, *rows], f"Privacy loss: ε at δ = {delta:g}")
    return markup(table, tag("p", hint, class_="hint"))


def loss(lost: Mapping[str, Mapping[str, Any]], whose: str, kind: str) -> float:
    """0 for what was not told; infinite where there is no bound."""
    value = lost.get(whose, {}).get(kind, 0.0)
    return float("inf") if value is None else float(value)


def shown_epsilon(value: float) -> str:
    return "∞" if np.isinf(value) else f"{value:.4g}"


def quantiles(values: Sequence[Sequence[float]]) -> list[list[str]]:
    """The smallest, the middle and the largest of every column."""
    ordered = np.sort(np.array(values), axis=0)
    places = {"smallest": 0, "median": len(ordered) // 2, "largest": len(ordered) - 1}
    return [[words, *map(shown_epsilon, ordered[place].tolist())] for words, place in places.items()]


def note_table(name: str, note: Any) -> Html:
    """A note that private sums left: a table, or words."""
    if isinstance(note, dict) and set(note) == {"text"}:
        return tag("div", tag("h3", name), tag("p", str(note["text"])), class_="note")
    rows, left_out = table_of_note(note)
    return markup(cells_table(rows, name), tag("p", left_out, class_="hint") if left_out else None)
