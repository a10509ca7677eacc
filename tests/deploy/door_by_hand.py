"""A door with nothing but a small web server behind it, and a key that is on its list: for tries at the open port."""

from __future__ import annotations

import base64
import contextlib
import datetime
import http.server
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric import ec

from covey.deploy.door import Door, Visit
from covey.deploy.http_connection import Limits
from covey.deploy.superlink import Link, free_port

PATH = "/v1/fleet/push-object"


class Behind(http.server.BaseHTTPRequestHandler):
    """Says how long the body was."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        answer = f"got {len(body)}".encode()
        self.send_response(200)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: Any) -> None:
        pass


class Port:
    """The open port, and a site that may use it."""

    def __init__(self, port: int, ca: Path | None) -> None:
        self.port = port
        self.ca = ca
        self.seen: list[Visit] = []
        self.counts: list[int] = []  # connections of the site, whenever they changed
        self.secret = ec.generate_private_key(ec.SECP384R1())
        public = self.secret.public_key()
        self.keys: set[str] = set()  # that are on the list
        self.key = public.public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo).decode()
        self.keys.add(self.key)

    def signed(self, *, late: float = 0.0) -> dict[str, str]:
        """The head of a request as a site signs it, so many seconds ago."""
        at = (datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=late)).isoformat()
        signature = self.secret.sign(at.encode(), ec.ECDSA(hashes.SHA256()))
        return {
            "flwr-public-key": base64.b64encode(self.key.encode()).decode(),
            "flwr-timestamp": at,
            "flwr-signature": base64.b64encode(signature).decode(),
        }

    def head(self, size: int, *, signed: bool = True) -> bytes:
        """The first bytes of a request with a body of that size."""
        headers = {"host": "x", "content-length": str(size), **(self.signed() if signed else {})}
        lines = [f"POST {PATH} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        return "\r\n".join(lines).encode()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=300)

    def site(self, body: bytes = b"an answer") -> tuple[str, float]:
        """What an honest site is answered on a connection of its own, and after how many seconds."""
        import httpx

        began = time.monotonic()
        scheme, verify = ("https", str(self.ca)) if self.ca else ("http", True)
        url = f"{scheme}://127.0.0.1:{self.port}{PATH}"
        answer = httpx.post(url, content=body, headers=self.signed(), verify=verify, timeout=300)
        return f"{answer.status_code} {answer.text}".strip(), time.monotonic() - began


@contextlib.contextmanager
def open_port(
    *, certs: Path | None = None, behind: type[http.server.BaseHTTPRequestHandler] = Behind, **limits: Any
) -> Iterator[Port]:
    """A door on a free port of loopback, for the time of the context."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), behind)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    here = Port(free_port(), certs / "ca.crt" if certs else None)
    link = Link(address=f"127.0.0.1:{server.server_port}", ca=None)
    try:
        with Door(
            link,
            certs,
            objection=lambda key: "" if key in here.keys else "its key is not on the list",
            limits=Limits(**limits),
            seen=here.seen.append,
            connections=lambda _, count: here.counts.append(count),
        ).opened("127.0.0.1", here.port):
            yield here
    finally:
        server.shutdown()
        server.server_close()
