"""Plain technical English: one word for one thing (docs/glossary.md), "one per client", never "one a client"."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = [*sorted((ROOT / "src" / "covey").rglob("*.py")), *sorted((ROOT / "experiments").rglob("*.py"))]
TEXTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "experiments").rglob("*.toml")),
    *sorted((ROOT / "examples").rglob("*.toml")),
    *sorted((ROOT / "src" / "covey").rglob("*.toml")),
    *sorted((ROOT / "src" / "covey").rglob("*.js")),
    *sorted((ROOT / "src" / "covey").rglob("*.html")),
]
GLOSSARY = ROOT / "docs" / "glossary.md"
PER = re.compile(
    r"\b((one|row|model|line|message|bit|number|round|client)s? a "
    r"(client|worker|group|cluster|site|row|round|class|core|value)"
    r"|one (clock|step|decision|unknown|pass|download|class|batch|answer|copy) a "
    r"(client|worker|group|cluster|site|row|round|class|run|batch|sample|model|position))\b"
)


def unwanted() -> dict[str, str]:
    """What the glossary says is not used -> what is."""
    rows = [line.split("|")[1:-1] for line in GLOSSARY.read_text().splitlines() if line.startswith("| ")]
    return {word.strip(): row[0].strip() for row in rows[2:] for word in row[2].split(",") if word.strip()}


UNWANTED = unwanted()
# The system's own call is `flock`, in backquotes, and FLOCK in its table of locks.
PATTERN = re.compile(r"(?!FLOCK\b)(?<![\w.`])(?i:" + "|".join(map(re.escape, UNWANTED)) + r")(?![\w(])")


def strings_of(path: Path) -> Iterator[str]:
    """Every text of a source: docstrings, help, errors, reports; names in the code are not looked at."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def found_in(text: str) -> list[str]:
    found = PATTERN.findall(re.sub(r"\s+", " ", text))  # a line may end inside of a term
    return [f"{term}: say {UNWANTED[term.lower()]}" for term in found]


def test_the_glossary_has_words_to_avoid_and_they_are_seen() -> None:
    assert len(UNWANTED) > 15
    assert found_in("Newcomers join a flock.") == ["Newcomers: say unseen client", "flock: say cluster"]
    assert found_in("fleet\ntime") == ["fleet time: say simulated time"]
    assert found_in("unlike FedAvg, clusters are turned away; fcntl.flock(x)") == []


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_pages_and_files_use_the_glossarys_words(path: Path) -> None:
    if path != GLOSSARY:
        assert found_in(path.read_text()) == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_sources_use_the_glossarys_words_in_what_they_say(path: Path) -> None:
    assert [word for text in strings_of(path) for word in found_in(text)] == []


@pytest.mark.parametrize("path", [*TEXTS, *SOURCES], ids=lambda path: str(path.relative_to(ROOT)))
def test_rates_are_said_with_per(path: Path) -> None:
    assert [found.group(0) for found in PER.finditer(path.read_text())] == []
