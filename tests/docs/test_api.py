"""The page on the Python interface has every public name, and its examples run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import covey

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
PUBLIC = [name for name in covey.__all__ if not name.startswith("_")]
SECTIONS = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL))
EXAMPLES = {name: re.findall(r"```python\n(.*?)```", text, re.DOTALL) for name, text in SECTIONS.items()}
# Their examples need an extra or files, or stand in the section of another name.
WITHOUT = {"from_huggingface", "read_images", "Metric"}


def test_every_public_name_has_its_section_and_nothing_else_has() -> None:
    assert sorted(SECTIONS) == sorted(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_a_docstring(name: str) -> None:
    assert (getattr(covey, name).__doc__ or "").strip()


@pytest.mark.parametrize("name", sorted(set(PUBLIC) - WITHOUT))
def test_every_example_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert EXAMPLES[name], f"{name} has no example"
    monkeypatch.chdir(tmp_path)
    for example in EXAMPLES[name]:
        assert name in example
        exec(compile(example, f"docs/api.md, {name}", "exec"), {})
