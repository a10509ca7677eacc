"""The page on the Python interface has every public name, and the examples of their docstrings run."""

from __future__ import annotations

import doctest
import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest

import covey

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
PUBLIC = [name for name in dir(covey) if not name.startswith("_")]
MODULES = [name for name in PUBLIC if isinstance(getattr(covey, name), ModuleType)]
NAMES = sorted(set(PUBLIC) - set(MODULES))


def test_the_public_names_are_those_that_dir_shows() -> None:
    assert dir(covey) == sorted(covey.__all__)
    assert {"Method", "Dataset", "Federation", "Objective", "Config", "Run", "UserError", "resume"} <= set(
        PUBLIC
    )
    assert "simulate" not in PUBLIC


def test_every_public_name_has_its_section_and_nothing_else_has() -> None:
    assert sorted(re.findall(r"^### (\w+)$", PAGE, re.MULTILINE)) == sorted(PUBLIC)
    assert sorted(re.findall(r"^::: covey\.(\w+)$", PAGE, re.MULTILINE)) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_docstring_says_every_argument(name: str) -> None:
    thing = getattr(covey, name)
    text = inspect.getdoc(thing) or ""
    if name in ("Objective", "Step", "UserError", "RunError", "compare"):  # protocols, errors, "as in run"
        return
    said = set(re.findall(r"^    (\w+): ", text.partition("Args:\n")[2], re.MULTILINE))
    assert said >= set(inspect.signature(thing).parameters)
    if not inspect.isclass(thing):
        assert "\n\nReturns:\n" in text


@pytest.mark.parametrize("name", NAMES)
def test_the_example_of_the_docstring_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = doctest.DocTestFinder(recurse=False).find(getattr(covey, name), name, globs={"covey": covey})
    assert sum(len(test.examples) for test in found), f"{name} has no example"
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.IGNORE_EXCEPTION_DETAIL)
    for test in found:
        assert runner.run(test).failed == 0


@pytest.mark.parametrize("example", re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
def test_the_examples_of_the_page_run(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "docs/api.md", "exec"), {})
