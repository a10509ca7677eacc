"""Notes that methods leave: the known ones are drawn, a text is a paragraph, the others a small table."""

from collections.abc import Mapping, Sequence
from typing import Any

from covey.report.thin import plain

# What a known note must hold to be drawn; a note may carry a suffix, as in "scatter-after".
DRAWN: Mapping[str, tuple[str, ...]] = {
    "silhouette": ("k", "score"),
    "scatter": ("x", "y"),
    "labels": ("shares",),
    "graph": ("nodes", "edges"),
    "spread": ("round", "value"),
}
MOST_ROWS = 40
# In which list a note counts its clients, and how many of them a picture can show.
CLIENTS_IN: Mapping[str, tuple[str, int]] = {"labels": ("shares", 400), "scatter": ("x", 2000)}
MOST_NODES = 400
MOST_EDGES = 1500
NoteCells = list[list[str]]


def note_kind(name: str, note: object) -> str | None:
    """Which picture the note asks for; None when it cannot be drawn."""
    kind = name.partition("-")[0]
    wanted = DRAWN.get(kind)
    if wanted is None or not isinstance(note, dict):
        return None
    if not all(isinstance(note.get(key), list) and note[key] for key in wanted):
        return None
    return kind if kind != "graph" or is_graph(note) else None


def is_graph(note: Mapping[str, Any]) -> bool:
    """Whether every node has an id and every link two ends."""
    nodes = all(isinstance(node, dict) and "id" in node for node in note["nodes"])
    return nodes and all(isinstance(edge, dict) and {"from", "to"} <= set(edge) for edge in note["edges"])


def drawn_notes(notes: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The notes to draw, made small enough: each with its name, kind and what was left out."""
    drawn = []
    for name, note in notes.items():
        if kind := note_kind(name, note):
            small, left_out = bounded(kind, note)
            drawn.append({"name": name, "kind": kind, "note": plain(small), "left_out": left_out})
    return drawn


def bounded(kind: str, note: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """A note with at most as many parts as a picture can show, and the words for what is missing."""
    counted, most = CLIENTS_IN.get(kind, ("", 0))
    if counted and (count := len(note[counted])) > most:
        step = -(-count // most)
        kept = {key: value[::step] for key, value in note.items() if isinstance(value, list)}
        return {**note, **kept}, f"1 of every {step} of {count:,} clients is drawn."
    if kind == "graph":
        return bounded_graph(note)
    return dict(note), ""


def bounded_graph(note: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """A graph's first nodes (representatives before others) and its busiest links."""
    nodes = sorted(note["nodes"], key=lambda node: not node.get("head", False))[:MOST_NODES]
    nodes = sorted(nodes, key=lambda node: (node.get("group", 0), node["id"]))
    here = {node["id"] for node in nodes}
    inside = [edge for edge in note["edges"] if edge["from"] in here and edge["to"] in here]
    edges = sorted(inside, key=lambda edge: -edge.get("load", 0))[:MOST_EDGES]
    words = []
    if len(nodes) < len(note["nodes"]):
        words.append(f"{len(nodes):,} of {len(note['nodes']):,} nodes are drawn.")
    if len(edges) < len(note["edges"]):
        words.append(f"The {len(edges):,} busiest of {len(note['edges']):,} links are drawn.")
    return {"nodes": nodes, "edges": edges}, " ".join(words)


def table_of_note(note: object) -> tuple[NoteCells, str]:
    """A note as rows of texts, the first row being the heads, and the words for what was left out."""
    if isinstance(note, dict) and note and all(isinstance(v, list) for v in note.values()):
        columns = {str(key): value for key, value in note.items()}
        longest = max(len(value) for value in columns.values())
        rows = [
            [shown_note(v[place]) if place < len(v) else "" for v in columns.values()]
            for place in range(longest)
        ]
        return limited([list(columns), *rows])
    if isinstance(note, dict):
        return limited([["", "value"], *([str(key), shown_note(value)] for key, value in note.items())])
    if isinstance(note, list) and note and all(isinstance(row, dict) for row in note):
        heads = list(dict.fromkeys(str(key) for row in note for key in row))
        return limited([heads, *([shown_note(row.get(head, "")) for head in heads] for row in note)])
    if isinstance(note, list):
        return limited([["value"], *([shown_note(value)] for value in note)])
    return [["value"], [shown_note(note)]], ""


def limited(rows: NoteCells) -> tuple[NoteCells, str]:
    """At most that many rows."""
    left = len(rows) - 1 - MOST_ROWS
    return (rows, "") if left <= 0 else (rows[: MOST_ROWS + 1], f"{left:,} more rows are in summary.json.")


def shown_note(value: object) -> str:
    """One cell: short numbers, long lists cut."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "–"}[value]
    if isinstance(value, float):
        return f"{value:.5g}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        shown = ", ".join(shown_note(inner) for inner in value[:8])
        return f"{shown}, … ({len(value)})" if len(value) > 8 else shown
    if isinstance(value, dict):
        return ", ".join(f"{key}: {shown_note(inner)}" for key, inner in list(value.items())[:8])
    return str(value)
