"""A wheel works outside a checkout: it brings what it advises from, and no path of a checkout is assumed."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

pytest.importorskip("build")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of the tree, so that nothing is left in the checkout."""
    copy = tmp_path_factory.mktemp("sources") / "covey"
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True)
    if files.returncode:
        pytest.skip("not a git checkout: which files belong to the sources is not known")
    for name in filter(None, files.stdout.split("\0")):
        if (ROOT / name).exists() or (ROOT / name).is_symlink():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).is_symlink():
                (copy / name).symlink_to(os.readlink(ROOT / name))
            else:
                (copy / name).write_bytes((ROOT / name).read_bytes())
    out = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(copy)],
        check=True,
        capture_output=True,
    )
    return next(out.glob("*.whl"))


def bare() -> dict[str, str]:
    """An environment with nothing of this checkout in it."""
    keep = {key: os.environ[key] for key in ("PATH", "HOME", "XDG_CACHE_HOME") if key in os.environ}
    return {**keep, "OMP_NUM_THREADS": "1"}


def in_empty_folder(python: Path, folder: Path, *words: str) -> str:
    """What `python -m covey WORDS` prints in an empty folder."""
    done = subprocess.run(
        [str(python), "-m", "covey", *words],
        cwd=folder,
        env=bare(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def new_environment(folder: Path, *, with_pip: bool) -> Path:
    venv.create(folder, with_pip=with_pip, symlinks=True)
    return folder / "bin" / "python"


def check_it_works(python: Path, folder: Path) -> None:
    advised = in_empty_folder(python, folder, "advise")
    assert "How heterogeneous these clients are" in advised
    said = in_empty_folder(python, folder, "run", "--rounds", "1", "--out", "first")
    assert "report" in said
    assert (folder / "first" / "report.html").exists()
    where = subprocess.run(
        [str(python), "-c", "import covey; print(covey.__file__)"],
        cwd=folder,
        env=bare(),
        capture_output=True,
        text=True,
    )
    assert str(ROOT) not in where.stdout


def test_the_wheel_alone_runs_from_an_empty_folder(wheel: Path, tmp_path: Path) -> None:
    """Covey is only what the wheel holds; its dependencies are borrowed from this environment, which takes seconds."""
    python = new_environment(tmp_path / "env", with_pip=False)
    site = next((tmp_path / "env").glob("lib/python*/site-packages"))
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), str(wheel)],
        check=True,
        capture_output=True,
        env=bare(),
    )
    # A plain path: the .pth files in there, the editable install among them, are not read.
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib"))
    (tmp_path / "empty").mkdir()
    check_it_works(python, tmp_path / "empty")


@pytest.mark.slow
def test_the_wheel_runs_in_an_environment_where_nothing_was_installed(wheel: Path, tmp_path: Path) -> None:
    python = new_environment(tmp_path / "env", with_pip=True)
    # torch first and by its exact version: any other spec may pull the GPU build.
    for what in (["torch==2.13.0"], ["--constraint", str(ROOT / "constraints.txt"), str(wheel)]):
        subprocess.run(
            [str(python), "-m", "pip", "install", "--quiet", *what],
            check=True,
            capture_output=True,
            env=bare(),
        )
    (tmp_path / "empty").mkdir()
    check_it_works(python, tmp_path / "empty")
