"""Names of code on the pages: every file and every identifier in backticks is still there."""

import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.test_files_named import PAGES, ROOT

MADE_BY_COMMANDS = re.compile(r"<!-- (table|overview|scoreboard|hostile).*?<!-- end -->", re.S)
NOT_OURS = {  # of other programs, of papers, and of what users make
    "ExecStart",
    "WorkingDirectory",
    "activate_node",
    "basic_auth",
    "fmla",
    "huggingface",
    "fig5",
    "table4",
}
MADE_BY_USERS = re.compile(r"(PAPER|TABLE|NAME|mine)\b|^runs/")


@cache
def known() -> frozenset[str]:
    """All words of the code, its tests and its files of settings."""
    folders = ("src", "tests", "benchmarks", "examples", "experiments")
    here = Path(__file__)
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path != here]
    text = "\n".join(path.read_text() for path in files if path.suffix in (".py", ".toml"))
    return frozenset(re.findall(r"\w+", text)) | {path.stem for path in files}


def stale(page: Path) -> list[str]:
    """What the page names and nothing has."""
    text = MADE_BY_COMMANDS.sub("", page.read_text())
    found = []
    for code in re.findall(r"`([^`\n]+)`", text):
        paths = re.findall(r"[\w./-]+/[\w.-]+\.(?:py|toml|md|ipynb)\b", code)
        places = (ROOT, ROOT / "src", ROOT / "src/covey", page.parent)
        found += [
            path
            for path in paths
            if not MADE_BY_USERS.search(path) and not any((place / path).exists() for place in places)
        ]
        if re.fullmatch(r"[A-Za-z_][\w.=]*", code) and code not in NOT_OURS:
            found += [code for word in re.findall(r"\w{3,}", code) if word not in known()]
    return found


@pytest.mark.parametrize("page", sorted(PAGES), ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_names_is_there(page: Path) -> None:
    assert stale(page) == []
