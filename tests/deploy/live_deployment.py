"""A deployment on this machine: `covey serve` and `covey join` as processes of their own, with keys and TLS."""

import json
import multiprocessing
import os
import re
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from covey.core.round import State
from covey.deploy.certs import make_certs
from covey.folder.checkpoint import load_checkpoint
from covey.runs.config import resolve

# A site's own file: its share of the digits. While `hold-NAME` exists it stays in training, and `busy-NAME` says so.
SITE = """
import time
from pathlib import Path

from covey.runs.config import federation_of, resolve
from covey.settings.toml import read_tables
from covey.parts.steps import Train
from covey.methods.feddyn import DynTrain

HERE = Path(__file__).parent


def held(name, train):
    def call(self, client, task):
        while (HERE / f"hold-{name}").exists():
            (HERE / f"busy-{name}").touch()
            time.sleep(0.1)
        return train(self, client, task)

    return call


def load(name):
    for step in (Train, DynTrain):
        step.__call__ = held(name, step.__call__)
    share = federation_of(resolve(read_tables(HERE / "digits.toml"))).shares[int(name.removeprefix("site-"))]
    return share.train, share.test
"""

# Two pairs of sites whose pictures are rotated the same way, and all classes at every site.
DIGITS = """
rounds = 3
seed = 7
[data]
name = "digits"
clients = 4
[partition]
name = "iid"
[shift]
name = "rotation"
rotations = [0, 2]
[method]
name = "fedavg"
per_round = 4
[train]
lr = 0.1
batch = 16
[engine]
lanes = false
[devices]
deadline = 900
"""


# Processes are forked from one that has imported everything: seconds of CPU for each are saved.
paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
os.environ |= {"OMP_NUM_THREADS": "1", "COLUMNS": "500", "PYTHONPATH": os.pathsep.join(paths)}
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["live_preload"])


def run_covey(words: Sequence[str], log: str, folder: str) -> None:
    """`covey WORDS` in this process, which was forked for it."""
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    from covey.cli import main

    os.chdir(folder)
    os.environ["FLWR_HOME"] = f"{folder}/flwr"
    sys.argv = ["covey", *words]
    main()


class Program:
    """A covey command in a process of its own, and what it has said so far."""

    def __init__(self, words: Sequence[str], log: Path, folder: Path) -> None:
        self.log = log
        log.touch()
        self.since = log.stat().st_size
        self.process = FORKS.Process(target=run_covey, args=(list(words), str(log), str(folder)))
        self.process.start()

    def said(self) -> str:
        return re.sub(r"\s+", " ", self.log.read_bytes()[self.since :].decode(errors="replace"))

    def wait_for(self, text: str, seconds: float = 1200.0) -> None:
        until = time.monotonic() + seconds
        while not re.search(text, self.said()):
            ended = self.process.exitcode
            assert time.monotonic() < until, f"{self.log.name}: no {text!r} in {seconds:.0f} s: {self.said()}"
            assert ended is None, f"{self.log.name}: ended with {ended} before {text!r}: {self.said()}"
            time.sleep(0.2)

    def end(self, seconds: float = 1800.0) -> int | None:
        """Waits until it ends by itself."""
        self.process.join(seconds)
        return self.process.exitcode

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.join()


class Deployment:
    """A server and its sites in one folder; whatever still runs is killed in the end."""

    def __init__(self, folder: Path, *, sites: int = 4, tables: str = DIGITS) -> None:
        self.folder = folder
        self.programs: list[Program] = []
        self.sites: dict[int, Program] = {}
        (folder / "site.py").write_text(SITE)
        (folder / "digits.toml").write_text(tables)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        make_certs(folder / "certs", hosts=["127.0.0.1"], sites=[f"site-{i}" for i in range(sites)])

    def __enter__(self) -> "Deployment":
        return self

    def __exit__(self, *_: object) -> None:
        for program in self.programs:
            if program.process.is_alive():
                program.kill()

    def start(self, name: str, *words: str) -> Program:
        program = Program(words, self.folder / f"{name}.log", self.folder)
        self.programs.append(program)
        return program

    def simulate(self, name: str, *assignments: str, file: str = "digits.toml") -> State:
        """The same configuration on the local engine, in this process."""
        from covey.cli.command import FleetOptions
        from covey.cli.run import gathered_tables
        from covey.runs.run import run_config

        tables = gathered_tables(self.folder / file, FleetOptions(set_=list(assignments)))
        engine = {"lanes": False, "mode": "serial"}
        run_config(resolve({**tables, "engine": engine}), self.folder / name, say=lambda _: None)
        return self.state(name)

    def serve(self, name: str, *words: str, file: str = "digits.toml") -> Program:
        out = ["--out", name, file] if "--resume" not in words else []
        return self.start(name, "serve", *out, "--host", "127.0.0.1", "--port", str(self.port), *words)

    def site(self, number: int) -> Program:
        """A site that runs; it is started where it does not yet, or no more."""
        known = self.sites.get(number)
        if known is None or not known.process.is_alive():
            self.sites[number] = self.join(number)
        return self.sites[number]

    def join(self, number: int, *words: str) -> Program:
        where = [f"127.0.0.1:{self.port}", "--data", "site.py:load", "--state", f"state-{number}"]
        secrets = ["--key", f"certs/sites/site-{number}.key", "--ca", "certs/ca.crt"]
        return self.start(f"site-{number}", "join", *where, *secrets, *words)

    def hold(self, number: int) -> None:
        """Makes a site's next training last until `release`."""
        (self.folder / f"hold-site-{number}").touch()

    def wait_until_held(self, number: int, seconds: float = 1200.0) -> None:
        busy = self.folder / f"busy-site-{number}"
        (site,) = [p for p in self.programs if p.log.name == f"site-{number}.log"][-1:]
        until = time.monotonic() + seconds
        while not busy.exists():
            assert site.process.exitcode is None, f"site {number} has ended: {site.said()}"
            assert time.monotonic() < until, f"site {number} was not asked to train in {seconds:.0f} s"
            time.sleep(0.1)
        busy.unlink()

    def release(self, number: int) -> None:
        (self.folder / f"hold-site-{number}").unlink()

    def state(self, name: str) -> State:
        """Where a run stands by its last checkpoint."""
        kept = load_checkpoint(self.folder / name)
        assert kept is not None, f"{name} has no checkpoint"
        return kept.state

    def summary(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / name / "summary.json").read_text())
        return found
