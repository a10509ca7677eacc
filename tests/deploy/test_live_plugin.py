"""An outsider's package over real sites: server and a site end by kill -9, and the run continues, bit-identically."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

pytest.importorskip("flwr")
import covey
from covey.core.round import State
from covey.folder.checkpoint import load_checkpoint
from covey.folder.checksums import read_index
from tests.examples.test_plugin import PLUGIN, install

SECONDS = 900.0
ROUNDS = 4


def command(installed: Path, *words: str) -> subprocess.Popen[str]:
    """covey as a process of its own, which finds the plugin."""
    paths = [str(Path(covey.__file__).parents[1]), str(installed)]
    return subprocess.Popen(
        [sys.executable, "-m", "covey", *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def wait_until(reached: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + SECONDS
    while not reached():
        assert time.monotonic() < until, f"{what} not in {SECONDS:.0f} s"
        time.sleep(0.2)


class Wines:
    """`covey serve wine.toml` and three sites with the installed package, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.installed = install(folder / "site-packages")
        self.running: list[subprocess.Popen[str]] = []
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = str(probe.getsockname()[1])

    def start(self, *words: str) -> subprocess.Popen[str]:
        program = command(self.installed, *words)
        self.running.append(program)
        return program

    def serve(self, *words: str) -> subprocess.Popen[str]:
        return self.start("serve", *words, "--host", "127.0.0.1", "--port", self.port, "--insecure")

    def begin(self) -> subprocess.Popen[str]:
        wanted = [f"rounds={ROUNDS}", "engine.lanes=false", "devices.deadline=600"]
        chosen = [word for setting in wanted for word in ("--set", setting)]
        return self.serve(str(PLUGIN / "wine.toml"), "--out", str(self.folder / "run"), *chosen)

    def join(self, number: int) -> subprocess.Popen[str]:
        name, state = f"site-{number}", str(self.folder / f"state-{number}")
        data = f"{PLUGIN / 'site.py'}:wines"
        where = f"127.0.0.1:{self.port}"
        return self.start("join", where, "--data", data, "--state", state, "--insecure", "--name", name)

    def rounds_done(self) -> int:
        index = read_index(self.folder / "run") if (self.folder / "run").exists() else None
        return index.kept[0].round if index is not None and index.kept else 0

    def state(self) -> State:
        kept = load_checkpoint(self.folder / "run")
        assert kept is not None
        return kept.state


@contextmanager
def wines(folder: Path) -> Iterator[Wines]:
    here = Wines(folder)
    try:
        yield here
    finally:
        for program in here.running:
            program.kill()
            program.wait()


@pytest.mark.slow
def test_server_and_site_are_killed_and_the_run_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    with wines(tmp_path / "straight") as straight:
        for number in range(3):
            straight.join(number)
        server = straight.begin()
        assert server.wait(SECONDS) == 0, server.communicate()

    with wines(tmp_path / "killed") as killed:
        sites = [killed.join(number) for number in range(3)]
        server = killed.begin()
        wait_until(lambda: killed.rounds_done() >= 2, "two rounds")
        server.kill()  # kill -9, in the middle of some round
        server.wait()
        sites[1].kill()
        sites[1].wait()
        done = killed.rounds_done()
        killed.join(1)
        again = killed.serve("--resume", str(tmp_path / "killed" / "run"))
        assert again.wait(SECONDS) == 0, again.communicate()

    assert 2 <= done < ROUNDS
    assert straight.state().round == killed.state().round == ROUNDS
    assert torch.equal(straight.state().models, killed.state().models)
    control = straight.state().memory["scaffold.control"]
    assert torch.equal(control, killed.state().memory["scaffold.control"])
    assert float(control.abs().sum()) > 0
    summary = json.loads((tmp_path / "killed" / "run" / "summary.json").read_text())
    assert {origin["source"] for origin in summary["own"]} == {"covey-example 1.0"}
    assert "global-test/worst-recall" in summary["last"]
