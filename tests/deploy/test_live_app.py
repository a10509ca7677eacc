"""The example app with Flower's own commands: SuperLink, SuperNodes, `flwr run`."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

pytest.importorskip("flwr")
from covey.folder.checkpoint import load_checkpoint
from covey.runs.config import resolve
from covey.runs.run import run_config
from covey.settings.toml import read_tables

pytestmark = pytest.mark.slow

APP = Path(__file__).parents[2] / "examples" / "flower" / "app"


def free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def test_flwr_run_gives_the_local_engines_rows(tmp_path: Path) -> None:
    link, *nodes = free_ports(3)
    home = tmp_path / "flwr"
    home.mkdir()
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{link}"\ninsecure = true\n'
    )
    settings = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",  # an activated environment
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "OMP_NUM_THREADS": "1",
    }
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *words: str) -> subprocess.Popen[bytes]:
        command = [str(Path(sys.executable).with_name(words[0])), *words[1:]]
        with open(tmp_path / f"{name}.log", "wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=tmp_path, env=settings)
        started.append(process)
        return process

    app = shutil.copytree(APP, tmp_path / "app")
    shorten(app / "covey_digits" / "digits.toml")
    try:
        start(
            "link",
            "flower-superlink",
            "--insecure",
            "--port",
            str(link),
            "--disable-runtime-dependency-installation",
        )
        for number, port in enumerate(nodes):
            where = ["--superlink", f"127.0.0.1:{link}", "--port", str(port)]
            start(
                f"node-{number}",
                "flower-supernode",
                "--insecure",
                *where,
                "--node-config",
                f'name="site-{number}"',
            )
        wait_for_port(link)
        assert start("run", "flwr", "run", str(app), "here").wait(timeout=600) == 0, (
            tmp_path / "run.log"
        ).read_text()
        folder = finished(tmp_path / "runs", tmp_path / "link.log")
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(timeout=600)
    run_config(
        resolve(read_tables(app / "covey_digits" / "digits.toml")), tmp_path / "local", say=lambda _: None
    )
    live, local = load_checkpoint(folder), load_checkpoint(tmp_path / "local")
    assert live is not None
    assert local is not None
    assert torch.equal(live.state.models, local.state.models)
    assert json.loads((folder / "summary.json").read_text())["lost"]["count"] == 0


def shorten(file: Path) -> None:
    """Fewer messages than the example's, because Flower starts a process for each, and time for busy machines."""
    changes = {
        'name = "cafa"': 'name = "fedavg"',
        "rounds = 3": "rounds = 1",
        "clients = 4": "clients = 2",
        "per_round = 4": "per_round = 2",
        "deadline = 120": "deadline = 900",
    }
    text = file.read_text()
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    file.write_text(text)


def wait_for_port(port: int, seconds: float = 300.0) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.2)
    raise AssertionError(f"nothing listens on {port} after {seconds:.0f} s")


def finished(runs: Path, log: Path, seconds: float = 2700.0) -> Path:
    """The run's folder, once it is complete."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        over = "Finished task" in log.read_text(errors="replace")
        for page in runs.glob("*/report.html"):
            return page.parent
        if over:
            break
        time.sleep(0.5)
    raise AssertionError(log.read_text(errors="replace")[-3000:])
