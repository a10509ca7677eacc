"""The notebooks run from top to bottom, and show what their stored outputs show."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import covey

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_was_executed_and_shows_no_error(path: Path) -> None:
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    assert cells
    assert all(cell["execution_count"] for cell in cells)
    assert not [out for cell in cells for out in cell["outputs"] if out["output_type"] == "error"]
    assert not re.findall(r"(?<![\w:/.~])/\w+/[\w./-]+", "".join(texts_of(cells))), "a path of one machine"


def texts_of(cells: list[dict[str, Any]]) -> Iterator[str]:
    """What the cells say and what they printed, without pages and pictures."""
    for cell in cells:
        yield from cell["source"]
        for out in cell["outputs"]:
            yield from out.get("text", out.get("data", {}).get("text/plain", []))


@pytest.mark.parametrize("name", ["first-run", pytest.param("own-method", marks=pytest.mark.slow)])
def test_the_cells_of_a_notebook_run_one_after_another(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a kernel, and with two rounds and seeds in place of more: seconds instead of minutes."""
    monkeypatch.chdir(tmp_path)
    book = json.loads(next(path for path in NOTEBOOKS if path.stem == name).read_text())
    names: dict[str, object] = {"__name__": "__main__"}
    for cell in book["cells"]:
        if cell["cell_type"] == "code":
            code = re.sub(r"rounds=\d+", "rounds=2", "".join(cell["source"]))
            exec(compile(code.replace("range(3)", "range(2)"), name, "exec"), names)
    assert (tmp_path / "runs").exists()


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nbformat, nbclient = (pytest.importorskip(name) for name in ("nbformat", "nbclient"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(covey.__file__).parents[1])]))
    book = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(book, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert (tmp_path / "exported" / "model.safetensors").exists() or path.stem != "own-data"
