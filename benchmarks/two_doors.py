"""`python -m benchmarks.two_doors`: the same run over `covey join`, and as an app of Flower's own SuperNodes.

Both with TLS and a key per site, on one machine, FedAvg on the digits. `covey join` is one process for all that it is
asked; a SuperNode starts a process for each message. Needs Flower: run it in `.venv-engines`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from cryptography.hazmat.primitives import serialization as pem

from benchmarks.many_sites import TABLES
from covey.deploy.certs import make_certs
from tests.deploy.live_deployment import Deployment

APP = Path(__file__).parents[1] / "examples" / "flower" / "app"
PATIENCE = 900.0  # seconds for a run


def by_join(sites: int, rounds: int) -> dict[str, Any]:
    """The run over `covey serve` and `covey join`."""
    with tempfile.TemporaryDirectory() as folder:
        tables = TABLES.format(sites=sites, rounds=rounds, hidden=[64])
        with Deployment(Path(folder), sites=sites, tables=tables) as here:
            joined = [here.join(number) for number in range(sites)]
            server = here.serve("run")
            spent = watched([server.process.pid], [site.process.pid for site in joined], here.folder / "run")
            assert server.end() == 0, server.said()
            return row("covey join", sites, rounds, here.folder / "run", spent)


def by_app(sites: int, rounds: int) -> dict[str, Any]:
    """The run as a Flower app: SuperLink, SuperNodes and `flwr run` by their own commands."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as processes:
        folder = Path(name)
        make_certs(folder / "certs", hosts=["127.0.0.1"], sites=[f"site-{i}" for i in range(sites)])
        app = Path(shutil.copytree(APP, folder / "app"))
        tables = TABLES.format(sites=sites, rounds=rounds, hidden=[64])
        (app / "covey_digits" / "digits.toml").write_text(tables)
        link, *ports = free_ports(1 + sites)
        (folder / "flwr").mkdir()
        (folder / "flwr" / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{link}"\n'
            f'root-certificates = "{folder}/certs/ca.crt"\n'
        )
        certs = folder / "certs"
        secure = ["--ssl-certfile", certs / "server.crt", "--ssl-keyfile", certs / "server.key"]
        pids = [
            processes.enter_context(
                started(
                    folder,
                    "flower-superlink",
                    *("--port", link, *secure, "--ssl-ca-certfile", certs / "ca.crt"),
                    *("--enable-supernode-auth", "--disable-runtime-dependency-installation"),
                    *("--database", folder / "link.db"),
                )
            )
        ]
        wait_for_port(link)
        for number, port in enumerate(ports):
            key = certs / "sites" / f"site-{number}.key"
            public(key, folder / "site.pub")
            once(folder, "flwr", "supernode", "register", folder / "site.pub", "here")
            pids.append(
                processes.enter_context(
                    started(
                        folder,
                        "flower-supernode",
                        *("--superlink", f"127.0.0.1:{link}", "--root-certificates", certs / "ca.crt"),
                        *("--auth-supernode-private-key", key, "--port", port),
                        *("--node-config", f'name="site-{number}" state="{folder}/state-{number}"'),
                    )
                )
            )
        once(folder, "flwr", "run", app, "here")
        runs = folder / "runs"
        wait_until(lambda: any(runs.glob("*")), "the run's folder")
        (run,) = runs.glob("*")
        return row("Flower app", sites, rounds, run, watched(pids[:1], pids[1:], run))


def row(door: str, sites: int, rounds: int, run: Path, spent: Spent) -> dict[str, Any]:
    """What a run has cost: the seconds of a training exchange are those until the last site has answered."""
    summary = json.loads((run / "summary.json").read_text())
    assert not summary["lost"]["count"], summary["lost"]
    cost = summary["cost"]
    training = cost["by_kind"]["train.sgd"]["seconds"] / rounds
    told = cost["bytes_down"] + cost["bytes_up"] + cost["evaluation_bytes"]
    return {
        "door": door,
        "sites": sites,
        "s for all to train": round(training, 1),
        "seconds in all": round(spent.seconds),
        "messages per site": round(cost["messages"] / 2 / sites, 1),
        "CPU s of a site before": round(spent.before / sites, 1),
        "CPU s of a site": round(spent.sites / sites, 1),
        "CPU s of the server": round(spent.server, 1),
        "MB of a site, waiting": round(spent.waiting / sites),
        "MB of a site, most": round(spent.most / sites),
        "kB per site and round": round(told / sites / rounds / 1e3, 1),
        "load": round(psutil.getloadavg()[0], 1),
    }


@dataclass
class Spent:
    """Seconds by the clock, CPU seconds and megabytes of all sites, with all that they start; `before` the run."""

    before: float
    waiting: float
    server: float = 0.0
    sites: float = 0.0
    most: float = 0.0
    seconds: float = 0.0


def watched(server: Sequence[int], sites: Sequence[int], run: Path) -> Spent:
    """What the server's and the sites' processes take from now until the run has written its summary."""
    began, at_server = time.monotonic(), cpu(server)
    spent = Spent(before=cpu(sites), waiting=megabytes(sites))
    while not (run / "summary.json").exists():
        spent.server = max(spent.server, cpu(server) - at_server)
        spent.sites = max(spent.sites, cpu(sites) - spent.before)
        spent.most = max(spent.most, megabytes(sites))
        assert time.monotonic() < began + PATIENCE, f"no summary in {run}"
        time.sleep(1.0)
    spent.seconds = time.monotonic() - began
    return spent


def megabytes(pids: Sequence[int]) -> float:
    """Memory that these processes and their children have for themselves alone."""
    total = 0
    for pid in pids:
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            for one in (process, *process.children(recursive=True)):
                with suppress(psutil.Error):
                    total += one.memory_full_info().uss
    return total / 2**20


def cpu(pids: Sequence[int]) -> float:
    """CPU seconds so far, with those of children that have ended and of those that run."""
    total = 0.0
    for pid in pids:
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            total += sum(process.cpu_times()[:4])
            total += sum(sum(child.cpu_times()[:4]) for child in process.children(recursive=True))
    return total


def public(key: Path, target: Path) -> None:
    """The public half of a site's key, as `flwr supernode register` reads it."""
    private = pem.load_ssh_private_key(key.read_bytes(), password=None)
    target.write_bytes(
        private.public_key().public_bytes(pem.Encoding.OpenSSH, pem.PublicFormat.OpenSSH) + b"\n"
    )


def environment(folder: Path) -> dict[str, str]:
    return os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "FLWR_HOME": str(folder / "flwr"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "OMP_NUM_THREADS": "1",
    }


def command(words: Sequence[object]) -> list[str]:
    return [str(Path(sys.executable).with_name(str(words[0]))), *map(str, words[1:])]


def once(folder: Path, *words: object) -> None:
    subprocess.run(command(words), cwd=folder, env=environment(folder), check=True, capture_output=True)


@contextmanager
def started(folder: Path, *words: object) -> Iterator[int]:
    """A process that is ended with the benchmark; its number."""
    with open(folder / f"{words[0]}.log", "ab") as log:
        process = subprocess.Popen(
            command(words), cwd=folder, env=environment(folder), stdout=log, stderr=log
        )
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait(timeout=600)


def free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [int(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def wait_for_port(port: int) -> None:
    def answers() -> bool:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            return False
        return True

    wait_until(answers, f"port {port}")


def wait_until(there: Any, what: str) -> None:
    until = time.monotonic() + PATIENCE
    while not there():
        assert time.monotonic() < until, f"no {what}"
        time.sleep(0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sites", type=int, nargs="+", default=[4, 20, 50])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--door", choices=("both", "join", "app"), default="both")
    given = parser.parse_args()
    rows = []
    for sites in given.sites:
        for door in (
            (by_join, by_app) if given.door == "both" else (by_app if given.door == "app" else by_join,)
        ):
            rows.append(door(sites, given.rounds))
            print(rows[-1], flush=True)
    print("| " + " | ".join(rows[0]) + " |")
    print("|" + " --- |" * len(rows[0]))
    for one in rows:
        print("| " + " | ".join(str(value) for value in one.values()) + " |")


if __name__ == "__main__":
    main()
