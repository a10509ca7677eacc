"""The list of the papers' elements: its counts are those of its rows."""

import re
from collections import Counter
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "papers" / "elements.md"
STATES = ("as printed", "otherwise", "partial", "not to be had", "not run")
PAPERS = dict(zip("CTEHF", ("CAFA", "Topologies", "Embedding clustering", "HACCS", "CFIC"), strict=True))


def test_the_counts_are_those_of_the_rows() -> None:
    text = PAGE.read_text()
    rows = re.findall(r"^\| ([CTEHF])(\d+) \| [^|]+ \| ([^|]+) \|", text, re.MULTILINE)
    assert len({(paper, number) for paper, number, _ in rows}) == len(rows)
    found = {name: Counter(state for paper, _, state in rows if paper == key) for key, name in PAPERS.items()}
    assert {state for _, _, state in rows} <= set(STATES)
    found["all"] = sum(found.values(), Counter())
    said = re.findall(r"^\| \[?(\w[\w ]*?)(?:\]\(\w+\.md\))? \|((?: \d+ \|){6})$", text, re.MULTILINE)
    assert {name: [int(number) for number in re.findall(r"\d+", numbers)] for name, numbers in said} == {
        name: [*(states[state] for state in STATES), states.total()] for name, states in found.items()
    }
    assert f"; {found['all'].total()} in all." in text
