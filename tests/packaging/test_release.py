"""What a release says about itself agrees, and its changes are told in short lines."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import covey

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
KINDS = set(PROJECT["tool"]["towncrier"]["fragment"])


def test_the_citation_is_of_this_version_and_names_the_five_papers() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == covey.__version__
    assert len(citation["references"]) == 5
    assert all(paper["title"] and paper["authors"] for paper in citation["references"])


def test_the_changelog_has_a_dated_section_for_this_version_with_known_kinds() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    sections = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert all(re.fullmatch(r"\d+\.\d+\.\d+ \(\d{4}-\d\d-\d\d\)", section) for section in sections)
    assert sections[0].startswith(f"{covey.__version__} (")
    assert {kind.lower() for kind in re.findall(r"^### (.+)$", text, re.MULTILINE)} <= KINDS


def test_a_fragment_says_its_kind_and_is_one_short_line() -> None:
    for path in (ROOT / "changelog.d").glob("*"):
        if path.name != "README.md":
            assert re.fullmatch(r"[\w-]+\.(\w+)(\.\d+)?\.md", path.name), path.name
            assert path.name.split(".")[1] in KINDS, path.name
            assert len(path.read_text().strip().splitlines()) == 1, f"{path.name}: one line"
            assert len(path.read_text()) <= 500, f"{path.name}: at most 500 characters"


def test_the_matrix_tests_every_python_that_the_package_says_it_runs_on() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())
    named = [re.fullmatch(r".* :: (3\.\d+)", line) for line in PROJECT["project"]["classifiers"]]
    assert workflow["jobs"]["test"]["strategy"]["matrix"]["python"] == [one[1] for one in named if one]


def test_every_dependency_and_extra_is_on_its_page() -> None:
    page = (ROOT / "docs/dependencies.md").read_text()
    project = PROJECT["project"]
    missing = [name for name in project["optional-dependencies"] if not re.search(rf"\b{name}\b", page)]
    required = [re.split(r"[<>=]", one)[0] for one in project["dependencies"]]
    assert not missing + [name for name in required if name not in page]
