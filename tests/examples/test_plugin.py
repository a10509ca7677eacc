"""An outsider's package: what it names as entry points works like anything built in, also after kill -9."""

from __future__ import annotations

import json
import shutil
import signal
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from covey.core.round import run_rounds
from covey.deploy.wire import step_from_plain, step_to_plain
from covey.errors import Refused
from covey.folder.checkpoint import load_checkpoint
from covey.parts.steps import Train
from covey.settings.catalogue import METHODS, METRICS, MODELS, STEPS
from covey.testing import check_method, small_fleet
from tests.forked import covey, signalled_after

PLUGIN = Path(__file__).parents[2] / "examples" / "plugin"
OWN = {"method": "scaffold-example", "data set": "wine", "model": "two-layers", "metric": "worst-recall"}


def install(place: Path) -> Path:
    """The package as pip leaves it in a site-packages folder."""
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text())["project"]
    shutil.copytree(PLUGIN / "src" / "covey_example", place / "covey_example")
    info = place / f"covey_example-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: covey-example\nVersion: {project['version']}\n"
    )
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {target}" for name, target in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return place


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = install(tmp_path / "site-packages")
    monkeypatch.syspath_prepend(str(place))
    return place


def test_everything_is_found_by_its_name(installed: Path) -> None:
    assert "scaffold-example" in list(METHODS)
    assert isinstance(MODELS["two-layers"]((13,), 3), nn.Module)
    assert METRICS["worst-recall"].name == "worst-recall"
    origin = METHODS.origin("scaffold-example")
    assert origin is not None
    assert origin.source == "covey-example 1.0"


def test_the_method_keeps_the_contract(installed: Path) -> None:
    check_method("scaffold-example", {"per_round": 4})


def test_controls_are_those_of_the_paper(installed: Path) -> None:
    """One round of one client by hand: c_1 = (x - y) / (K lr), and c = c_1 / N."""
    method = METHODS["scaffold-example"](Train(lr=0.1, batches=2, epochs=1, batch=16), per_round=1)
    fleet = small_fleet()
    start = fleet.start()
    state = run_rounds(method, fleet, rounds=1)
    (client,) = state.worked
    own = fleet.states[client]["control"]
    assert torch.allclose(own, (start - state.models[0]) / (2 * 0.1), atol=1e-5)
    assert torch.allclose(state.memory["scaffold.control"], own / 8)


def test_a_site_without_the_package_refuses_its_step_and_one_with_it_takes_it(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = METHODS["scaffold-example"](Train(lr=0.1)).local
    plain = step_to_plain(step)
    assert step_from_plain(plain) == step
    monkeypatch.setattr(STEPS, "installed", dict)
    with pytest.raises(Refused, match="the step 'ScaffoldTrain' is not known"):
        step_from_plain(plain)


def test_run_compare_kill_and_resume_give_the_same_bits(installed: Path, tmp_path: Path) -> None:
    file = str(PLUGIN / "wine.toml")
    quick = ["--set", "engine.mode=serial", "--set", "checkpoint_seconds=0"]
    folder = tmp_path / "killed"
    ended = signalled_after(folder, 2, signal.SIGKILL, ["run", file, *quick, "--out", str(folder)]).wait()
    assert ended.returncode == -signal.SIGKILL
    for words in (
        ["compare", "fedavg", "scaffold-example", file, *quick, "--out", str(tmp_path / "all")],
        ["run", "--resume", str(folder)],
    ):
        done = covey(*words)
        assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "killed" / "summary.json").read_text())
    assert {origin["kind"]: origin["name"] for origin in summary["own"]} == OWN
    assert "local-test/worst-recall-mean" in summary["last"]
    ends = [load_checkpoint(tmp_path / place) for place in ("killed", "all/scaffold-example")]
    assert all(end is not None for end in ends)
    assert torch.equal(ends[0].state.models, ends[1].state.models)  # type: ignore[union-attr]
    assert np.isfinite(summary["last"]["global-test/accuracy"])
