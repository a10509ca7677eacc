"""The notebooks run from top to bottom, and show what their stored outputs show."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
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


def few(code: str) -> str:
    """The same with two rounds, and three seeds, as two are not tested: seconds instead of minutes."""
    return re.sub(r"seeds=\d+", "seeds=3", re.sub(r"rounds=\d+", "rounds=2", code))


def as_python(code: str) -> str:
    """A command of the shell in a cell ends the notebook where it fails, which in a kernel it does not by itself."""
    return re.sub(r"^!(.*)$", lambda line: f"run_command({line[1]!r})", code, flags=re.MULTILINE)


def run_command(command: str) -> None:
    subprocess.run(command, shell=True, check=True)


def run_cells(cells: list[dict[str, Any]], name: str) -> None:
    """The code cells one after another, without a kernel."""
    names: dict[str, object] = {"__name__": "__main__", "run_command": run_command}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec(compile(few(as_python("".join(cell["source"]))), name, "exec"), names)


@pytest.fixture
def this_covey(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command `covey` and the package are those of this tree, in other processes, too."""
    monkeypatch.setenv("PYTHONPATH", str(Path(covey.__file__).parents[1]))
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))


SLOW = (
    "own-method",
    "choosing",
    "own-data",
    "paper-cafa",
    "paper-cfic",
    "paper-embedding",
    "paper-haccs",
    "paper-topologies",
)


@pytest.mark.usefixtures("this_covey")
@pytest.mark.parametrize(
    "path",
    [pytest.param(p, marks=[pytest.mark.slow] if p.stem in SLOW else [], id=p.stem) for p in NOTEBOOKS],
)
def test_the_cells_of_a_notebook_run_one_after_another(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_cells(json.loads(path.read_text())["cells"], path.stem)
    assert (tmp_path / "runs").exists()


@pytest.mark.parametrize("code", ["!exit 3", "x = 1\n!false", "x = 1 / 0"])
def test_a_cell_that_fails_is_seen(code: str) -> None:
    with pytest.raises((ZeroDivisionError, subprocess.CalledProcessError)):
        run_cells([{"cell_type": "code", "source": [code]}], "failing")


@pytest.mark.slow
@pytest.mark.usefixtures("this_covey")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(path: Path, tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    in_a_kernel(nbformat.read(path, as_version=4), tmp_path)
    assert (tmp_path / "exported" / "model.safetensors").exists() or path.stem != "own-data"


@pytest.mark.slow
@pytest.mark.parametrize("code", ["!exit 3", "x = 1 / 0"])
def test_a_cell_that_fails_in_a_kernel_is_seen(code: str, tmp_path: Path) -> None:
    nbformat, nbclient = (pytest.importorskip(name) for name in ("nbformat", "nbclient"))
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    with pytest.raises(nbclient.exceptions.CellExecutionError):
        in_a_kernel(book, tmp_path)


def in_a_kernel(book: Any, folder: Path) -> None:
    """As a notebook's user runs it; a command of the shell that failed ends it as a failing line of Python does."""
    nbformat, nbclient = (pytest.importorskip(name) for name in ("nbformat", "nbclient"))
    check = "assert globals().get('_exit_code', 0) == 0, 'the command above failed'"
    book.cells = [part for cell in book.cells for part in (cell, nbformat.v4.new_code_cell(check))]
    nbclient.NotebookClient(book, resources={"metadata": {"path": str(folder)}}).execute()
