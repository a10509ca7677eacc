"""Filling the tables of README and docs from stored results: `python -m experiments.tables FILE.md ...`.

A table stands between `<!-- table: PAPER/TABLE SCALE -->` and `<!-- end -->`, the overview of a paper's experiments
between `<!-- overview: PAPER -->` and `<!-- end -->`, a method beside the best of the others on every fleet between
`<!-- scoreboard: PAPER/TABLE SCALE METHOD BASELINE -->` and `<!-- end -->` or, of one column,
`<!-- best: PAPER/TABLE SCALE; METHOD; COLUMN -->` and `<!-- end -->`, and how many times a row's numbers the
other rows' are between `<!-- times: PAPER/TABLE SCALE; ROW; COLUMN; COLUMN -->` and `<!-- end -->`; one column with a
line for each fleet, and what cases called `FLEET, WHERE` differ in side by side, between
`<!-- across: PAPER/TABLE SCALE; COLUMN; ROW, COLUMN; ROW, COLUMN -->` and `<!-- end -->`; whether a method is shown to
be non-inferior to the others between `<!-- noninferior: PAPER/TABLE SCALE METHOD -->` and `<!-- end -->`;
whatever is there is replaced.
"""

from __future__ import annotations

import re
import statistics
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from covey.files import write_atomically
from covey.report.seeds import number_in_words, ratios, short
from experiments.noninferior import told
from experiments.result import read_stored, seeds_in_words, stored_place, table_cells, with_paper, words_of
from experiments.scoreboard import ACCURACY, SECONDS, TUNED, against_the_best, federated, scores
from experiments.spec import all_experiments, read_experiment
from experiments.stored_numbers import from_json

BLOCK = re.compile(r"(<!-- table: (\S+) (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
OVERVIEW = re.compile(r"(<!-- overview: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)

SCOREBOARD = re.compile(r"(<!-- scoreboard: (\S+) (\S+) (\S+) (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)

BEST = re.compile(r"(<!-- best: (\S+) (\S+); ([^\n;]+); ([^\n]+?) -->\n).*?(<!-- end -->)", re.DOTALL)

TIMES = re.compile(r"(<!-- times: (\S+) (\S+); ([^\n]+?) -->\n).*?(<!-- end -->)", re.DOTALL)

ACROSS = re.compile(r"(<!-- across: (\S+) (\S+); ([^\n]+?) -->\n).*?(<!-- end -->)", re.DOTALL)

NONINFERIOR = re.compile(r"(<!-- noninferior: (\S+) (\S+) (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(text: str) -> str:
    """The text with every table made anew."""
    text = BLOCK.sub(lambda match: match[1] + markdown(match[2], match[3]) + match[4], text)
    text = SCOREBOARD.sub(lambda match: match[1] + scoreboard(*match.groups()[1:5]) + match[6], text)
    text = BEST.sub(lambda match: match[1] + beside_the_best(*match.groups()[1:5]) + match[6], text)
    text = TIMES.sub(lambda match: match[1] + times(*match.groups()[1:4]) + match[5], text)
    text = ACROSS.sub(lambda match: match[1] + across(*match.groups()[1:4]) + match[5], text)
    text = NONINFERIOR.sub(lambda match: match[1] + told(*match.groups()[1:4]) + "\n" + match[5], text)
    return OVERVIEW.sub(lambda match: match[1] + overview(match[2]) + match[3], text)


def overview(paper: str) -> str:
    """One line per experiment of a paper: its number and ours, at what scale, over how many seeds, why they differ."""
    head = [
        "experiment",
        "number",
        "paper",
        "ours",
        "scale",
        "seeds",
        "why they differ, or what it would take",
    ]
    lines = [line_of(head), "|" + " --- |" * len(head)]
    lines += [line_of(overview_line(name)) for name in all_experiments() if name.startswith(f"{paper}/")]
    return "\n".join(lines) + "\n"


def overview_line(name: str) -> list[str]:
    scale = next((scale for scale in ("full", "small") if stored_place(name, scale).exists()), "")
    experiment = read_experiment(name, scale or "small")
    title = f"`{name}`: {experiment.title.partition(':')[0]}"
    if not scale:
        return [title, "-", "-", "not run", "-", "-", experiment.why]
    result = with_paper(read_stored(name, scale))
    case, row, column = experiment.headline or ("", "", "")
    cell = next(
        (c for c in result["cells"] if (c["case"], c["row"], c["column"]) == (case, row, column)), None
    )
    if cell is None:
        return [title, "-", "none", "see its table", scale, str(result["seeds"]), experiment.why]
    paper = short(cell["paper"]) if cell["paper"] is not None else "none"
    what = ", ".join(filter(None, (case, row, column)))
    return [title, what, paper, words_of(cell), scale, str(result["seeds"]), experiment.why]


def scoreboard(name: str, scale: str, method: str, baseline: str) -> str:
    """A method on every fleet beside the baseline and the best of the others, in accuracy and in time."""
    result = read_stored(name, scale)
    accuracy, tuned, seconds = (scores(result, column) for column in (ACCURACY, TUNED, SECONDS))
    first = against_the_best(accuracy, method, in_percent)
    alike = against_the_best(tuned, method, in_percent)
    times = against_the_best(seconds, method, in_seconds, higher_is_better=False)
    head = ["fleet", f"accuracy in %: {baseline}", "best other", method, f"{TUNED}: best other", method]
    head += ["seconds to 90 % of the best accuracy: fastest other", method]
    rows = [line_of(head), "|" + " --- |" * len(head)]
    for fleet, methods in accuracy.items():
        usual = in_percent(statistics.fmean(methods[baseline]))
        rows.append(line_of([fleet, usual, *first[fleet], *alike[fleet], *times[fleet]]))
    return "\n".join([*rows, "", made_by(name, scale, result)]) + "\n"


def beside_the_best(name: str, scale: str, method: str, column: str) -> str:
    """One column: on every fleet the best other method and this one."""
    result = read_stored(name, scale)
    found = against_the_best(federated(scores(result, column)), method, in_percent)
    rows = [line_of(["fleet", f"{column}, in %: best other", method]), "| --- | --- | --- |"]
    rows += [line_of([fleet, *pair]) for fleet, pair in found.items()]
    return "\n".join([*rows, "", made_by(name, scale, result), result["note"]]).rstrip() + "\n"


def times(name: str, scale: str, what: str) -> str:
    """Every other row's numbers divided by those of one row, seed by seed: what it saves."""
    result = read_stored(name, scale)
    base, *columns = what.split("; ")
    values = {
        (c["case"], c["row"], c["column"]): [from_json(v) for v in c["values"]] for c in result["cells"]
    }
    head = ["case", f"row, times {base}", *columns]
    rows = [line_of(head), "|" + " --- |" * len(head)]
    for case, row in dict.fromkeys((c["case"], c["row"]) for c in result["cells"]):
        if row != base:
            pairs = [(values[case, row, column], values[case, base, column]) for column in columns]
            rows.append(line_of([case, row, *(number_in_words(ratios(*pair), "ratio") for pair in pairs)]))
    return "\n".join([*rows, "", made_by(name, scale, result)]) + "\n"


def across(name: str, scale: str, what: str) -> str:
    """One column: for every fleet a line for each row, and for each of the comparisons; side by side what cases called
    `FLEET, WHERE` (or `WHERE` alone) differ in."""
    result = read_stored(name, scale)
    column, *compared = what.split("; ")
    cells = {(c["case"], c["row"], c["column"]): c for c in result["cells"]}
    parted = {case: case.rpartition(", ")[::2] for case, _, _ in cells}
    where = list(dict.fromkeys(place for _, place in parted.values()))
    lines = [(row, row, column) for row in dict.fromkeys(row for _, row, _ in cells)]
    lines += [(f"{row}: {better}", row, better) for row, better in (one.split(", ", 1) for one in compared)]
    fleets = dict.fromkeys(fleet for fleet, _ in parted.values())
    head = [*(["fleet"] if any(fleets) else []), column, *where]
    rows = [line_of(head), "|" + " --- |" * len(head)]
    for fleet in fleets:
        for title, row, asked in lines:
            found = [cells.get((f"{fleet}, {place}" if fleet else place, row, asked)) for place in where]
            begin = [fleet, title] if any(fleets) else [title]
            rows.append(line_of([*begin, *(words_of(cell) if cell else "" for cell in found)]))
    return "\n".join([*rows, "", made_by(name, scale, result), result["note"]]).rstrip() + "\n"


def in_percent(share: float) -> str:
    return f"{100 * share:.1f}"


def in_seconds(seconds: float) -> str:
    return f"{seconds:.0f}"


def made_by(name: str, scale: str, result: Mapping[str, Any]) -> str:
    """Where the numbers of a table came from."""
    made = result["made"]
    return (
        f"`python -m experiments reproduce {name} --scale {scale}`: "
        f"{seeds_in_words(result)}, {made['date']}, commit {made['commit']}, {made['machine']}."
    )


def line_of(cells: list[str]) -> str:
    """One line of a Markdown table; a bar inside a cell, as in P(X|y), would end it."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def markdown(name: str, scale: str) -> str:
    """A stored result as a Markdown table, with where it came from."""
    if not stored_place(name, scale).exists():
        return f"Not measured yet: `python -m experiments reproduce {name} --scale {scale}` makes it.\n"
    result = with_paper(read_stored(name, scale))
    head, lines = table_cells(result)
    rows = [line_of(head), "|" + " --- |" * len(head), *map(line_of, lines)]
    rows += ["", made_by(name, scale, result)]
    if result["note"]:
        rows.append(result["note"])
    return "\n".join(rows) + "\n"


def stored_tables(paper: str) -> str:
    """A page with every stored table of a paper."""
    found = [f"# Stored tables: {paper}"]
    for path in sorted((Path(__file__).parent / paper / "results").glob("*.json")):
        name, _, scale = path.stem.rpartition("-")
        title = read_experiment(f"{paper}/{name}", scale).title
        heading = f"## {name}, {scale} {{#{name}-{scale}}}"
        found += [heading, title, markdown(f"{paper}/{name}", scale)]
    return "\n\n".join(found)


def main() -> None:
    for name in sys.argv[1:]:
        path = Path(name)
        text = path.read_text(encoding="utf-8")
        if filled(text) != text:
            write_atomically(path, filled(text))
            print(f"{path}: tables made anew")


if __name__ == "__main__":
    main()
