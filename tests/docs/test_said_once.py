"""Nothing is explained twice: no two pages share a long run of words."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from tests.docs.test_files_named import PAGES, ROOT

LONGEST = 18  # words that two pages may have in common, one after the other
NOT_PROSE = (
    r"<!-- [a-z]+:.*?<!-- end -->",  # made from stored results
    r"^```.*?^```|^    .*?$",  # commands and programs: each page runs by itself
    r"\*[^*\n]+\*",  # titles of papers
)
ELSEWHERE_TOO = {  # pages that repeat others' words by their nature
    "README.md": "a forge shows it, the site shows index.md",
    "index.md": "see README.md",
    "elements.md": "the list of what the pages on papers found",
}


def words(page: Path) -> list[str]:
    text = page.read_text()
    for pattern in NOT_PROSE:
        text = re.sub(pattern, " ", text, flags=re.M | re.S)
    return re.findall(r"\w(?:[\w%'.,]*\w)?", text.lower())


def shared(pages: dict[str, list[str]]) -> list[str]:
    """Runs of more than `LONGEST` words that stand on two pages."""
    where: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for name, told in pages.items():
        for at in range(len(told) - LONGEST):
            where[tuple(told[at : at + LONGEST + 1])].add(name)
    return [f"{', '.join(sorted(on))}: {' '.join(run)}" for run, on in where.items() if len(on) > 1]


def test_no_two_pages_share_a_long_run_of_words() -> None:
    pages = {str(page.relative_to(ROOT)): words(page) for page in PAGES if page.name not in ELSEWHERE_TOO}
    assert shared(pages) == []


def test_a_sentence_that_stands_on_two_pages_is_found() -> None:
    told = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s"]
    assert shared({"one": ["x", *told], "two": [*told, "y"], "three": told[:-1]}) == [
        f"one, two: {' '.join(told)}"
    ]
