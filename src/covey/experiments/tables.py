"""Filling the tables of README and docs from stored results: `python -m covey.experiments.tables FILE.md ...`.

A table stands between `<!-- table: PAPER/TABLE SCALE -->` and `<!-- end -->`, the overview of a paper's experiments
between `<!-- overview: PAPER -->` and `<!-- end -->`; whatever is there is replaced.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from covey.experiments.result import read_stored, stored_place, table_cells, with_paper, words_of
from covey.experiments.spec import all_experiments, read_experiment
from covey.seeds import short
from covey.writing import write_atomically

BLOCK = re.compile(r"(<!-- table: (\S+) (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
OVERVIEW = re.compile(r"(<!-- overview: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(text: str) -> str:
    """The text with every table made anew."""
    text = BLOCK.sub(lambda match: match[1] + markdown(match[2], match[3]) + match[4], text)
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


def line_of(cells: list[str]) -> str:
    """One line of a Markdown table; a bar inside a cell, as in P(X|y), would end it."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def markdown(name: str, scale: str) -> str:
    """A stored result as a Markdown table, with where it came from."""
    if not stored_place(name, scale).exists():
        return f"Not measured yet: `covey reproduce {name} --scale {scale}` makes it.\n"
    result = with_paper(read_stored(name, scale))
    head, lines = table_cells(result)
    made = result["made"]
    rows = [line_of(head), "|" + " --- |" * len(head), *map(line_of, lines)]
    seeds = f"{result['seeds']} seed{'s' if result['seeds'] > 1 else ''}"
    rows += [
        "",
        f"`covey reproduce {name} --scale {scale}`: {seeds}, {made['date']}, commit {made['commit']}, "
        f"{made['machine']}.",
    ]
    if result["note"]:
        rows.append(result["note"])
    return "\n".join(rows) + "\n"


def main() -> None:
    for name in sys.argv[1:]:
        path = Path(name)
        text = path.read_text()
        if filled(text) != text:
            write_atomically(path, filled(text))
            print(f"{path}: tables made anew")


if __name__ == "__main__":
    main()
