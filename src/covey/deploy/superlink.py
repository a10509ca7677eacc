"""Flower's SuperLink behind one exposed port that lets nothing through but what sites need."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from covey.errors import RunError, UserError

FLEET = "/v1/fleet/"  # all that a site may reach; the control and runtime interfaces stay on loopback
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
}
LOOPBACK = ("127.0.0.1", "localhost", "::1")
MOST_BYTES = 32 * 2**20  # of one request: Flower cuts arrays into pieces of 5 MB
MOST_CONNECTIONS = 1000


def need_flower() -> None:
    """Says in one sentence what to install."""
    os.environ.update(QUIET)
    try:
        import flwr  # noqa: F401
    except ImportError as error:
        raise UserError("this command needs the package flwr: install covey[flower]") from error


@dataclass(frozen=True, kw_only=True)
class Link:
    """A running SuperLink: its address on loopback, and the CA that its certificate is checked with (none: plain)."""

    address: str
    ca: Path | None

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
                raise UserError(f"--certs {certs} has no {name}; make it with: covey certs {certs}")
            command += [option, str(certs / name)]
        command.append("--enable-supernode-auth")
    with open(folder / "superlink.log", "ab") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env=os.environ | QUIET, preexec_fn=_die_with_parent
        )
    link = Link(address=f"127.0.0.1:{inside}", ca=ca)
    try:
        _wait_for(process, inside, folder / "superlink.log")
        yield link
    finally:
        process.terminate()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()


@contextlib.contextmanager
def existing(address: str, *, certs: Path | None) -> Iterator[Link]:
    """A SuperLink that somebody else started, checked with the CA of the folder."""
    need_flower()
    keep_at_home()
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except (OSError, ValueError) as error:
        raise UserError(f"--superlink is {address!r}, where no SuperLink answers: {error}") from error
    yield Link(address=address, ca=certs / "ca.crt" if certs else None)


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


@contextlib.contextmanager
def door(host: str, port: int, link: Link, certs: Path | None) -> Iterator[None]:
    """A proxy that passes the fleet interface on to the SuperLink and knows no other path."""
    import uvicorn

    if certs is None and host not in LOOPBACK:
        raise UserError(
            f"--insecure works only on loopback; --host is {host!r}, allowed: {', '.join(LOOPBACK)}"
        )

    secrets = (
        {}
        if certs is None
        else {
            "ssl_certfile": str(certs / "server.crt"),
            "ssl_keyfile": str(certs / "server.key"),
        }
    )
    settings = uvicorn.Config(
        door_app(link),
        host=host,
        port=port,
        log_level="error",
        lifespan="off",
        access_log=False,
        limit_concurrency=MOST_CONNECTIONS,
        **secrets,
    )
    server = uvicorn.Server(settings)
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise UserError(f"--host {host} --port {port} cannot be used: {error.strerror}") from error
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        if not thread.is_alive():
            raise RunError(f"the door at {host}:{port} could not be opened")
        time.sleep(0.05)
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(timeout=5)


def door_app(link: Link) -> Any:
    """The proxy as an ASGI application."""
    import httpx
    from starlette.requests import Request
    from starlette.responses import Response

    client = httpx.AsyncClient(
        base_url=f"{'https' if link.ca else 'http'}://{link.address}",
        verify=str(link.ca) if link.ca else True,
        timeout=120,
        trust_env=False,
    )

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        if not is_open(scope["path"], scope.get("raw_path", b"")):
            await Response(status_code=404)(scope, receive, send)
            return
        body = await body_of(request)
        if body is None:
            await Response(status_code=413)(scope, receive, send)
            return
        headers = [(k, v) for k, v in request.headers.items() if k not in HOP]
        try:
            answer = await client.request(request.method, scope["path"], content=body, headers=headers)
        except httpx.TransportError:
            await Response(status_code=503)(scope, receive, send)
            return
        kept = {k: v for k, v in answer.headers.items() if k not in HOP}
        await Response(answer.content, answer.status_code, kept)(scope, receive, send)

    return app


async def body_of(request: Any) -> bytes | None:
    """What a request carries; None as soon as it is too much, because whoever sends it has not shown a key yet."""
    pieces, size = [], 0
    async for piece in request.stream():
        size += len(piece)
        if size > MOST_BYTES:
            return None
        pieces.append(piece)
    return b"".join(pieces)


HOP: Sequence[str] = (
    "host",
    "connection",
    "content-length",
    "transfer-encoding",
    "content-encoding",
    "keep-alive",
)


def is_open(path: str, raw: bytes) -> bool:
    """Whether a path belongs to the fleet interface, spelt plainly: no dots, no escapes that could lead elsewhere."""
    plain = path.isascii() and all(c.isalnum() or c in "/-_" for c in path)
    return path.startswith(FLEET) and plain and b"%" not in raw
