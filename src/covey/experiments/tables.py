"""Filling the tables of README and docs from stored results: `python -m covey.experiments.tables FILE.md ...`.

A table stands between `<!-- table: PAPER/TABLE SCALE -->` and `<!-- end -->`; whatever is there is replaced.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from covey.experiments.result import read_stored, stored_place, table_cells, with_paper
from covey.writing import write_atomically

BLOCK = re.compile(r"(<!-- table: (\S+) (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(text: str) -> str:
    """The text with every table made anew."""
    return BLOCK.sub(lambda match: match[1] + markdown(match[2], match[3]) + match[4], text)


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
