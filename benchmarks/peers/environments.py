"""An environment for each simulator, made with pip at the first run and kept beside the repository's own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TORCH = "torch==2.13.0"  # first and by its exact version: any other spec may pull the GPU build
WORKLOADS_NEED = ("numpy", "scipy", "psutil")


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A simulator: what pip calls it, and the module that runs a workload with it."""

    requirement: str
    module: str
    environment: Mapping[str, str]  # variables that it needs


PEERS = {
    "flower, 2 actors": Peer(
        requirement="flwr[simulation]==1.41.0",
        module="benchmarks.peers.flower_simulation",
        # Ray gives up on a busy machine after 60 s
        environment={"FLWR_TELEMETRY_ENABLED": "0", "RAY_raylet_start_wait_time_s": "300"},
    ),
    "pfl-research, 1 process": Peer(
        requirement="pfl==0.6.0", module="benchmarks.peers.pfl_research", environment={}
    ),
}


def folder(peer: Peer) -> Path:
    """COVEY_PEERS, else `.venv-peers` in the repository."""
    base = Path(os.environ.get("COVEY_PEERS") or ROOT / ".venv-peers")
    return base / peer.module.rpartition(".")[2]


def prepare(peer: Peer) -> str:
    """Makes the environment if it is not there yet; returns why it cannot be made, or an empty string."""
    target = folder(peer)
    ready = target / "ready"
    if ready.exists() and ready.read_text() == peer.requirement:
        return ""
    print(f"making {target} with {peer.requirement} (once, some minutes)", flush=True)
    pip = [str(target / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    for command in (
        [sys.executable, "-m", "venv", str(target)],
        [*pip, TORCH],
        [*pip, peer.requirement, *WORKLOADS_NEED],
    ):
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            return (errors or done.stderr.splitlines() or ["pip failed"])[-1]
    ready.write_text(peer.requirement)
    return ""


def command(peer: Peer, workload: str, rounds: int) -> list[str]:
    """How to start so many rounds of a workload in the peer's environment."""
    settings = [f"{name}={value}" for name, value in peer.environment.items()]
    paths = f"PYTHONPATH={ROOT / 'src'}{os.pathsep}{ROOT}"
    python = str(folder(peer) / "bin" / "python")
    return ["env", paths, "OMP_NUM_THREADS=1", *settings, python, "-m", peer.module, workload, str(rounds)]
