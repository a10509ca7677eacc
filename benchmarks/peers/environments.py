"""An environment for each simulator, made with pip at the first run and kept beside the repository's own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TORCH = "torch==2.13.0"  # first and by its exact version: any other spec may pull the GPU build
# of every process that is measured, ours and theirs: a second one spins between batches
ONE_THREAD = "OMP_NUM_THREADS=1"
WORKLOADS_NEED = ("numpy", "scipy", "psutil", "platformdirs", "lazy_loader", "safetensors", "rich")


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A simulator: what pip calls it, and the module that runs a workload with it."""

    requirements: tuple[str, ...]
    module: str
    environment: Mapping[str, str] = field(default_factory=dict)  # variables that it needs
    checkout: str = ""  # the variable that says where its repository is, of one that is no package
    repository: str = ""  # which that is
    python: str = sys.executable  # what its environment is made with
    files: bool = False  # it reads its data from files that are written beforehand


PEERS = {
    "pfl-research, 1 process": Peer(
        requirements=("pfl==0.6.0",),
        module="benchmarks.peers.pfl_research",
    ),
    "fedjax, XLA on 2 cores": Peer(
        # the last JAX that this fedjax runs with as it is
        requirements=(
            "fedjax==0.0.17",
            "jax==0.4.30",
            "jaxlib==0.4.30",
            "dm-haiku==0.0.12",
            "optax==0.2.2",
            "numpy<2",
        ),
        module="benchmarks.peers.fedjax_cpu",
    ),
    "FedLab, 1 process": Peer(
        requirements=("fedlab==1.3.0",),
        module="benchmarks.peers.fedlab_serial",
    ),
    "BlazeFL, 1 process": Peer(
        requirements=("blazefl==2.0.3",),
        module="benchmarks.peers.blazefl_serial",
        python="python3.12",  # the first that it runs with
    ),
    "PFLlib, 1 process": Peer(
        requirements=("h5py", "scikit-learn", "matplotlib"),
        module="benchmarks.peers.pfllib",
        checkout="COVEY_PFLLIB",
        repository="TsingZ0/PFLlib",
        files=True,
    ),
    "FL-bench, 1 process": Peer(
        requirements=(
            "hydra-core==1.3.2",
            "ray==2.49.2",
            "rich==13.9.4",
            "torchvision==0.28.0",
            "pandas",
            "scikit-learn",
            "pynvml",
            "matplotlib",
        ),
        module="benchmarks.peers.fl_bench",
        checkout="COVEY_FL_BENCH",
        repository="KarhouTam/FL-bench",
    ),
    "flower, 2 actors": Peer(
        requirements=("flwr[simulation]==1.41.0",),
        module="benchmarks.peers.flower_simulation",
        # Ray gives up on a busy machine after 60 s
        environment={"FLWR_TELEMETRY_ENABLED": "0", "RAY_raylet_start_wait_time_s": "300"},
    ),
}


def folder(peer: Peer) -> Path:
    """COVEY_PEERS, else `.venv-peers` in the repository."""
    base = Path(os.environ.get("COVEY_PEERS") or ROOT / ".venv-peers")
    return base / peer.module.rpartition(".")[2]


def prepare(peer: Peer) -> str:
    """Makes the environment if it is not there yet; returns why it cannot be made, or an empty string."""
    if peer.checkout and not Path(os.environ.get(peer.checkout, "")).joinpath("README.md").is_file():
        return f"it is no package; {peer.checkout} must say where a checkout of {peer.repository} is"
    if shutil.which(peer.python) is None:
        return f"it needs {peer.python}, which is not on the path"
    target = folder(peer)
    ready = target / "ready"
    wanted = " ".join((*peer.requirements, *WORKLOADS_NEED))
    if ready.exists() and ready.read_text() == wanted:
        return ""
    print(f"making {target} with {wanted} (once, some minutes)", flush=True)
    pip = [str(target / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    for command in (
        [peer.python, "-m", "venv", str(target)],
        [*pip, TORCH],
        [*pip, *peer.requirements, *WORKLOADS_NEED],
    ):
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            return (errors or done.stderr.splitlines() or ["pip failed"])[-1]
    ready.write_text(wanted)
    return ""


def command(peer: Peer, workload: str, rounds: int, *more: str) -> list[str]:
    """How to start so many rounds of a workload in the peer's environment."""
    settings = [f"{name}={value}" for name, value in peer.environment.items()]
    paths = f"PYTHONPATH={ROOT / 'src'}{os.pathsep}{ROOT}"
    python = str(folder(peer) / "bin" / "python")
    started = [python, "-m", peer.module, workload, str(rounds), *more]
    return ["env", paths, ONE_THREAD, *settings, *started]
