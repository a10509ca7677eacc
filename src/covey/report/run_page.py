"""The part of the page that belongs to one run: places for its charts, its tables and its configuration."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from covey.fleet.heterogeneity.words import WORDS, level_of, meaning
from covey.folder.read import RunView
from covey.folder.summary import Losses
from covey.report.changes import changes
from covey.report.markup import Html, cells_table, markup, tag
from covey.report.notes import note_kind
from covey.report.privacy_tables import NOTES, note_table, privacy
from covey.report.table import TableColumn, cost_columns
from covey.report.wording import epsilon_words, show_count, show_epsilon, show_seconds


def run_details(run: RunView, label: str, place: int, runs: int) -> Html:
    """All sections of one run; only the first carries the anchors of the page's links."""
    parts = (
        section("Fleet", "", place, figure("fleet"), unlike(run), changes(run)),
        section("Devices", "devices", place, figure("timeline")),
        section("Cost", "cost", place, cost(run), missed(run), epsilon(run)),
        *([section("Privacy", "privacy", place, private)] if (private := privacy(run)) else []),
        section("Notes", "notes", place, notes(run)),
        section("Configuration", "configuration", place, configuration(run)),
    )
    name = tag("h2", label, class_="run-name") if runs > 1 else None
    return tag("article", name, *parts, class_="run", data_run=str(place))


def section(title: str, anchor: str, place: int, *parts: Html | None) -> Html:
    """A section of a run."""
    name = anchor if place == 0 and anchor else None
    return tag("section", tag("h2", title), *parts, id=name, data_part=title.lower())


def figure(chart: str) -> Html:
    """A place that the script draws into."""
    return tag("div", class_="place", data_chart=chart)


def columns_table(columns: Sequence[TableColumn], caption: str) -> Html:
    """Columns as an HTML table."""
    heads = [tag("th", c.head, scope="col", class_="num" if c.right else None) for c in columns]
    rows = [
        tag(
            "tr",
            *(tag("td", c.cells[row], class_="num" if c.right else None) for c in columns),
            class_="sum" if row in columns[0].best else None,
        )
        for row in range(len(columns[0].cells))
    ]
    table = tag("table", tag("caption", caption), tag("thead", tag("tr", *heads)), tag("tbody", *rows))
    return tag("div", table, class_="scroll")


def unlike(run: RunView) -> Html | None:
    """How heterogeneous the clients are, in numbers, with what each means."""
    found = {name: run.rows.overall(f"data/{name}").value for name in WORDS}
    rows = [
        [WORDS[name][0], f"{value[0]:.2f}", level_of(name, value[0]), meaning(name, value[0])]
        for name, value in found.items()
        if len(value)
    ]
    return (
        cells_table([["", "number", "level", "meaning"], *rows], "How heterogeneous the clients are")
        if rows
        else None
    )


def cost(run: RunView) -> Html:
    """Messages, bytes and seconds of each step kind; evaluation apart."""
    if not run.summary.cost.by_kind:
        return tag("p", "No step was booked.", class_="hint")
    return markup(
        columns_table(cost_columns(run), "What each kind of step cost"),
        tag(
            "p",
            "What only served to measure the run is booked apart and counts in no curve, target or total.",
            class_="hint",
        ),
    )


def missed(run: RunView) -> Html:
    """Replies that did not count, with some examples."""
    lost, refused = run.summary.lost, run.summary.refused
    if not lost.count and not refused.count:
        return tag("p", "Every reply arrived and was accepted.", class_="hint")
    heads = ["", "round", "client", "step", "reason"]
    examples = [
        row
        for what, losses in (("lost", lost), ("refused", refused))
        for row in example_rows(what, losses, run.client_names)
    ]
    words = f"{show_count(lost.count)} replies were lost and {show_count(refused.count)} refused."
    if not examples:
        return tag("p", words)
    shown = "" if len(examples) == lost.count + refused.count else f" {len(examples)} examples:"
    return cells_table([heads, *examples], words + shown)


def example_rows(what: str, losses: Losses, names: Mapping[int, str]) -> list[list[str]]:
    """One row per example."""
    return [
        [what, f"{e.round:,}", names.get(e.client, str(e.client)), e.kind, e.reason] for e in losses.examples
    ]


def epsilon(run: RunView) -> Html | None:
    """How much of its privacy budget each client has spent: equal values together."""
    if not run.summary.epsilon:
        return None
    spent = np.array(list(run.summary.epsilon.values()))
    heads = ["ε spent", "clients"]
    values = Counter(float(f"{value:.4g}") for value in spent)
    if len(values) <= 12:
        rows = [[show_epsilon(value), show_count(count)] for value, count in sorted(values.items())]
    else:
        heads = ["", "ε spent"]
        marks = {
            "smallest": 0.0,
            "a quarter below": 0.25,
            "median": 0.5,
            "a quarter above": 0.75,
            "largest": 1.0,
        }
        way: Literal["linear", "higher"] = (
            "linear" if np.isfinite(spent).all() else "higher"
        )  # nothing lies between a number and no bound
        rows = [
            [words, show_epsilon(float(np.quantile(spent, at, method=way)))] for words, at in marks.items()
        ]
    most = float(spent.max())
    meaning_of = tag("p", f"At most ε = {show_epsilon(most)}, {epsilon_words(most)}.", class_="hint")
    return markup(cells_table([heads, *rows], "Privacy budget spent by the clients"), meaning_of)


def notes(run: RunView) -> Html:
    """Pictures and tables of what the method left."""
    parts: list[Html] = []
    for name, note in run.summary.notes.items():
        if not note_kind(name, note) and name not in NOTES:
            parts.append(note_table(name, note))
    nothing = None if run.summary.notes else tag("p", "The method left no notes.", class_="hint")
    return markup(nothing, figure("notes"), *parts)


def configuration(run: RunView) -> Html:
    """The resolved configuration, the engine, and how long it took."""
    told = {key: value for key, value in run.summary.engine.items() if value != "" and key != "names"}
    facts = ", ".join(f"{key} {value}" for key, value in told.items())
    wall = run.summary.wall_seconds
    took = f" The run took {show_seconds(wall)} of wall time." if wall is not None else ""
    about = tag("p", f"Engine: {facts}.{took}", class_="hint") if facts else None
    code = tag("pre", tag("code", run.config), tabindex="0", aria_label="config.toml")
    return markup(about, code)
