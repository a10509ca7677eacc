"""Every file of this repository that a command in the README or in the documentation reads is there."""

import re
from pathlib import Path

import pytest

from covey.runs.config import resolve
from covey.settings.toml import read_tables

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]


def named(page: Path) -> set[str]:
    """The TOML files that commands on the page read."""
    commands = re.findall(r"^ *covey (?:run|compare|look) .*", page.read_text(), re.MULTILINE)
    words = {word for command in commands for word in command.partition("#")[0].split()}
    files = {word for word in words if word.endswith(".toml") and "=" not in word}
    if page.name == "README.md":
        return files
    return {name for name in files if name.startswith("examples/")}  # others are written on the page itself


@pytest.mark.parametrize("name", sorted(set().union(*map(named, PAGES))))
def test_a_file_that_a_command_reads_is_there_and_right(name: str) -> None:
    resolve(read_tables(ROOT / name))


def test_the_readme_names_its_fleets() -> None:
    assert named(ROOT / "README.md") == {"examples/my-fleet.toml", "examples/fleets/rotated.toml"}
