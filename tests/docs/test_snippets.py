"""Every command and every snippet on a page runs: a page is a story, told in a folder of its own, from top to bottom.

Rounds, seeds and trials are cut to a few, because here it counts that they run. What stands on the pages about files of
a user's own (`patients.csv`, `pictures/`) is made up; commands that need other machines are named with the reason.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from covey.runs.config import resolve
from covey.settings.toml import read_tables
from tests.docs.test_files_named import PAGES, ROOT
from tests.forked import covey, python

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)
FILE = re.compile(r"`([\w-]+\.(?:toml|py))`[^`\n]*:\s*$")  # "write this into a file, `fleet.toml`:"
DEFINES = re.compile(r"^(?:def|class) ", re.M)
NOT_RUN = {  # begins of commands -> why not here
    "covey serve": "real sites: tests/deploy",
    "covey join": "real sites: tests/deploy",
    "covey audit state": "a site's state: tests/deploy",
    "covey certs": "it needs cryptography: tests/deploy",
    "covey model": "a site's state: tests/deploy",
    "covey predict bonn.safetensors": "of a site's state: tests/deploy",
    "covey watch": "it stays until it is stopped: tests/report/live",
    "covey convert": "files of other libraries: tests/data",
    "covey run --dataset clients": "what covey convert makes: tests/data",
    "covey report --to mlflow": "tests/runs/trackers",
}
FEWER = {"run": ("--rounds", "1"), "compare": ("--rounds", "1"), "sweep": ("--rounds", "1")}
FEWER["tune"] = ("--rounds", "1", "--trials", "2")
HOSPITALS = ("Berlin", "Bonn", "Kiel", "cleveland")
OWN = """
import torch
import covey

def network(*, input_shape, outputs):
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(torch.Size(input_shape).numel(), outputs))

"""
BEFORE = """
import numpy as np, pandas as pd, torch
import covey
whole, compared = covey.run, covey.compare
covey.run = lambda *given, **settings: whole(*given, **settings | {"rounds": 1, "progress": False})
covey.compare = lambda *given, **settings: compared(*given, **settings | {"rounds": 1, "progress": False})
frame = pd.read_csv("patients.csv")
x, y = np.random.default_rng(0).normal(size=(400, 2)).astype("float32"), np.arange(400) % 2
x1, y1, x2, y2 = x[:200], y[:200], x[200:], y[200:]
some_x, some_y = x[:9], ["no", "yes", "no"] * 3
torch_dataset = torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
fleet = covey.federate(covey.from_tensors(x, y), partition="iid", clients=4, seed=0)
"""


def commands(block: str) -> list[str]:
    """The commands of a block: lines that begin with covey, or with $ where their output stands below."""
    lines = block.replace("\\\n", " ").splitlines()
    shown = any(line.startswith("$ ") for line in lines)
    told = [line.removeprefix("$ ") for line in lines if line.startswith("$ ") or not shown]
    return [line for line in told if re.match(r"covey [a-z]+(?: |$)", line)]


def why_not(command: str) -> str:
    return next((why for begin, why in NOT_RUN.items() if command.startswith(begin)), "")


def shortened(command: str) -> list[str]:
    """The words of a command, with a few rounds, seeds and trials."""
    words = shlex.split(command, comments=True)[1:]
    if "..." in words:  # as in the command above it
        at = words.index("...")
        words[at : at + 1] = ["--label", "ill", "--client", "hospital"]
    words = ["2" if before == "--seeds" else word for before, word in zip(["", *words], words, strict=False)]
    return words if "--resume" in words else [*words, *FEWER.get(words[0], ())]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a user has: tables, pictures, the examples."""
    rng = np.random.default_rng(0)
    rows = [
        f"{i},{rng.normal(60, 9):.0f},{rng.normal(130, 15):.1f},{HOSPITALS[i % 4]},{rng.choice(['yes', 'no'])}"
        for i in range(160)
    ]
    head = "patient_id,age,pressure,hospital,ill"
    (tmp_path / "patients.csv").write_text("\n".join([head, *rows]) + "\n")
    (tmp_path / "new.csv").write_text("\n".join([head, *rows[:3]]) + "\n")
    for at, (client, label) in enumerate(
        (c, k) for c in ("a", "b") for k in ("cat", "dog") for _ in range(6)
    ):
        place = tmp_path / "pictures" / client / label
        place.mkdir(parents=True, exist_ok=True)
        picture = pytest.importorskip("PIL.Image").fromarray(
            rng.integers(0, 255, (64, 64, 3), dtype=np.uint8)
        )
        picture.save(place / f"{at}.png")
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    shutil.copy(ROOT / "examples" / "my-fleet.toml", tmp_path)
    return tmp_path


def tell(page: Path, folder: Path) -> None:
    """Runs the blocks of a page one after the other; a failure names the block."""
    text, program, whole = page.read_text(), BEFORE, BLOCK.findall(page.read_text())
    # what a page's Python defines is in the file that its settings name
    defined = [block for kind, block in whole if kind == "python" and DEFINES.search(block)]
    (folder / "mine.py").write_text(OWN + "\n".join(defined))
    for found in BLOCK.finditer(text):
        kind, block = found.groups()
        named = FILE.search(text[: found.start()].rstrip().rsplit("\n\n", 1)[-1])
        if kind == "toml":
            file = folder / (named[1] if named else "block.toml")
            file.write_text(block)
            if not block.startswith("title"):  # an experiment: tests/experiments
                resolve(read_tables(file))
        elif kind == "python":
            program += block
            check(block, python(program, cwd=folder))
        for command in commands(block) if not kind else ():
            if not why_not(command):
                check(command, covey(*shortened(command), cwd=folder))


def check(what: str, done: subprocess.CompletedProcess[str]) -> None:
    """It ran, or says that this machine does not have the data."""
    not_here = re.search(r"covey datasets get|covey: missing \S+ in ", done.stderr)
    assert done.returncode == 0 or not_here, f"{what}\n{done.stderr[-2000:]}"


STORIES = [page for page in PAGES if page.parent.name != "evidence" and BLOCK.search(page.read_text())]


@pytest.mark.parametrize("page", STORIES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_runs_from_top_to_bottom(page: Path, folder: Path) -> None:
    tell(page, folder)


def test_what_is_not_run_is_on_a_page() -> None:
    found = [
        line for page in PAGES for _, block in BLOCK.findall(page.read_text()) for line in commands(block)
    ]
    assert [begin for begin in NOT_RUN if not any(line.startswith(begin) for line in found)] == []
