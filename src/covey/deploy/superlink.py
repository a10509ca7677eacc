"""Flower's SuperLink, which listens on loopback only: sites reach it through the door."""

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from covey.errors import RunError, UserError, importing
from covey.files import for_their_owner

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    # Pieces that a slow link brings in seconds, and of which only the broken one is sent again.
    "FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE": str(2**20),
}
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def need_flower() -> None:
    """Says in one sentence what to install."""
    os.environ.update(QUIET)
    with importing("this command needs the package flwr: install covey[flower]"):
        import flwr  # noqa: F401


@dataclass(frozen=True, kw_only=True)
class Link:
    """A running SuperLink: its address on loopback, and the CA that its certificate is checked with (none: plain)."""

    address: str
    ca: Path | None
    has_ended: Callable[[], bool] = lambda: False  # as far as is known

    @property
    def client_settings(self) -> dict[str, Any]:
        ca = self.ca.read_bytes() if self.ca else None
        return {"server_address": self.address, "insecure": ca is None, "root_certificates": ca}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def superlink(folder: Path, *, certs: Path | None) -> Iterator[Link]:
    """Starts a SuperLink on loopback with a database in the folder, which keeps the sites' numbers; ends it."""
    need_flower()
    keep_at_home()
    folder.mkdir(parents=True, exist_ok=True)
    inside = free_port()
    command = [
        str(Path(sys.executable).with_name("flower-superlink")),
        *("--host", "127.0.0.1", "--port", str(inside), "--isolation", "process"),
        *("--database", str(folder / "superlink.db"), "--disable-runtime-dependency-installation"),
    ]
    ca = None
    if certs is None:
        command.append("--insecure")
    else:
        ca = certs / "ca.crt"
        names = {"--ssl-certfile": "server.crt", "--ssl-keyfile": "server.key", "--ssl-ca-certfile": "ca.crt"}
        for option, name in names.items():
            if not (certs / name).exists():
                raise UserError(f"--certs {certs} has no {name}; make it with: covey certs make {certs}")
            command += [option, str(certs / name)]
        command.append("--enable-supernode-auth")
    for old in folder.glob("superlink.*"):  # from before they were for their owner only
        old.chmod(0o600)
    with for_their_owner(), open(folder / "superlink.log", "ab") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env=os.environ | QUIET, preexec_fn=_die_with_parent
        )
    link = Link(address=f"127.0.0.1:{inside}", ca=ca, has_ended=lambda: process.poll() is not None)
    try:
        _wait_for(process, inside, folder / "superlink.log")
        yield link
    finally:
        process.terminate()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()


def keep_at_home() -> None:
    """Requests on this machine go past the proxy that the environment may name for all others."""
    for name in ("NO_PROXY", "no_proxy"):
        known = [os.environ[name]] if os.environ.get(name) else []
        os.environ[name] = ",".join([*known, "127.0.0.1", "localhost", "::1"])


def _die_with_parent() -> None:
    """On Linux the kernel ends the SuperLink when this process is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def _wait_for(process: subprocess.Popen[bytes], port: int, log: Path, seconds: float = 600.0) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if process.poll() is not None:
            last = (log.read_text(errors="replace").strip().splitlines() or ["no message"])[-1]
            raise RunError(f"the SuperLink ended with code {process.returncode}: {last} (see {log})")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.2)
    raise RunError(f"the SuperLink did not start in {seconds:.0f} s (see {log})")
