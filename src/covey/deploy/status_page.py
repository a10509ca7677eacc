"""The status where administrators look: a file in the run folder, and on loopback a page and Prometheus' numbers."""

from __future__ import annotations

import contextlib
import html
import http.server
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from covey.deploy.status import Status, machine_numbers, metrics
from covey.errors import UserError
from covey.files import write_atomically
from covey.report.live.folder import locked_inodes

LOOPBACK = ("127.0.0.1", "localhost", "::1")
EVERY = 2.0  # seconds between two writings of the file
FILE = "status.json"

STYLE = """body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;
color:#222;background:#fff}
table{border-collapse:collapse;width:100%;margin:.5rem 0 2rem}th,td{text-align:left;padding:.3rem .8rem .3rem 0;
border-bottom:1px solid #ddd;vertical-align:top}td.n{text-align:right;font-variant-numeric:tabular-nums}
.ok{color:#176b2c}.bad{color:#a11}.dim{color:#777}@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}
th,td{border-color:#444}.ok{color:#7c7}.bad{color:#f88}}"""


@dataclass(frozen=True, kw_only=True)
class PagePlace:
    """Where the page is served, with which password, and with the certificate of which folder."""

    port: int
    host: str = LOOPBACK[0]
    key: str = ""
    certs: Path | None = None

    def __post_init__(self) -> None:
        if self.host not in LOOPBACK and not (self.key and self.certs):
            raise UserError(
                f"--status-host {self.host} can be reached by others: give --status-key FILE, and keys and TLS for the "
                "sites (no --insecure), or leave it out"
            )

    @property
    def option(self) -> str:
        return f"--status-port {self.port}"

    @property
    def tls(self) -> dict[str, str]:
        """The server's own certificate, where others can reach the page."""
        if self.host in LOOPBACK or self.certs is None:
            return {}
        return {
            "ssl_certfile": str(self.certs / "server.crt"),
            "ssl_keyfile": str(self.certs / "server.key"),
        }


def page(snapshot: Mapping[str, Any]) -> str:
    """The snapshot as a page that loads itself anew, where the live page's packages are not there."""
    return f"""<!doctype html><html lang=en><meta charset=utf-8><meta http-equiv=refresh content=2>
<title>covey: round {snapshot["now"]["round"]}</title><style>{STYLE}</style>{inside(snapshot)}</html>"""


def inside(snapshot: Mapping[str, Any]) -> str:
    """The snapshot as markup; nothing in it is anybody else's."""
    now = snapshot["now"]
    sites = "".join(_row(site, snapshot["time"]) for site in snapshot["sites"])
    refused = "".join(
        f"<tr><td>{_text(one['key'])}</td><td>{_text(one['why'])}</td><td class=n>{one['count']}</td>"
        f"<td>{ago(snapshot['time'], one['last_seen'])}</td></tr>"
        for one in snapshot["refused"]
    )
    waits = ", ".join(map(_text, now["waits_for"])) or "nobody"
    return f"""<section data-first><h2>Round {now["round"]}{f" of {now['rounds']}" if now["rounds"] else ""}</h2>
<p>{_text(now["doing"])}, for {ago(snapshot["time"], now["since"], since=True)}; waits for {waits}</p>
<h2>Sites</h2><table>
<tr><th>site<th>client<th>state<th>last seen<th>doing<th>received<th>sent<th>seconds<th>answers<th>lost
{sites}</table>
<h2>Refused requests</h2><table>
<tr><th>key<th>why<th>times<th>last{refused or "<tr><td class=dim>none"}</table></section>"""


def _row(site: Mapping[str, Any], now: float) -> str:
    good = site["state"] == "connected"
    state = f"<span class={'ok' if good else 'bad'}>{_text(site['state'])}</span>"
    why = f"<br><span class=dim>{_text(site['why'])}</span>" if site["why"] else ""
    doing = f"{_text(site['doing'])}, round {site['round']}" if site["doing"] else ""
    numbers = (size(site["bytes_in"]), size(site["bytes_out"]), f"{site['seconds']:.1f}")
    counts = (site["answers"], site["lost"])
    return (
        f"<tr><td>{_text(site['name'])}<td class=n>{site['client']}<td>{state}{why}"
        f"<td>{ago(now, site['last_seen'])}<td>{doing}"
        + "".join(f"<td class=n>{n}" for n in numbers + counts)
    )


def _text(value: Any) -> str:
    return html.escape(str(value))


def size(count: int) -> str:
    """Bytes in words."""
    return f"{count / 1e6:.1f} MB" if count >= 1e5 else f"{count / 1e3:.1f} kB"


def ago(now: float, then: float, *, since: bool = False) -> str:
    """How long ago, in words."""
    if not then:
        return "never"
    seconds = max(0.0, now - then)
    text = (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.0f} h"
    )
    return text if since else f"{text} ago"


@contextlib.contextmanager
def status_shown(status: Status, folder: Path, place: PagePlace | None) -> Iterator[None]:
    """Keeps the file in the folder up to date, and serves the page, for the time of the context."""
    over = threading.Event()
    writer = threading.Thread(target=_write, args=(status, folder, over), daemon=True)
    with nullcontext() if place is None else serving(status, folder, place):
        writer.start()
        try:
            yield
        finally:
            over.set()
            writer.join(timeout=10)


@contextlib.contextmanager
def serving(status: Status, folder: Path, place: PagePlace) -> Iterator[None]:
    """The live page of the run folder, with the sites; a plain page where its packages are not there."""
    try:
        from covey.report.live.app import HOSTS, make_app
        from covey.report.live.serve import in_background
    except ImportError as error:
        if place.key or place.host not in LOOPBACK:
            raise UserError(
                "--status-key and --status-host need packages: pip install 'covey[watch]'"
            ) from error
        with plainly(status, place, folder):
            yield
        return
    kinds = made_of(folder, place.certs)
    extra: dict[str, tuple[str, Callable[[], str]]] = {
        path: (kind, lambda made=made: made(status.snapshot()))  # type: ignore[misc]
        for path, (kind, made) in kinds.items()
        if path != "/"
    }
    hosts = HOSTS if place.host in LOOPBACK else ()
    app = make_app(folder, key=place.key, extra=extra, hosts=hosts, first=lambda: inside(status.snapshot()))
    with in_background(app, place.port, place.option, place.host, **place.tls):
        yield


@contextlib.contextmanager
def plainly(status: Status, place: PagePlace, folder: Path) -> Iterator[None]:
    """A page that needs nothing but Python."""
    try:
        server = http.server.ThreadingHTTPServer(
            (LOOPBACK[0], place.port), _handler(status, made_of(folder, place.certs))
        )
    except OSError as error:
        raise UserError(f"{place.option} cannot be used: {error.strerror}") from error
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


def _write(status: Status, folder: Path, over: threading.Event) -> None:
    while True:
        last = over.wait(EVERY)
        if folder.exists():
            with contextlib.suppress(OSError):
                write_atomically(folder / FILE, json.dumps({**status.snapshot(), "over": last}, indent=1))
        if last:
            return


Kinds = dict[str, tuple[str, Callable[[Mapping[str, Any]], str]]]


def made_of(folder: Path, certs: Path | None) -> Kinds:
    """What is served under which path, made of a snapshot."""
    return {
        "/": ("text/html; charset=utf-8", page),
        "/status.json": ("application/json", json.dumps),
        "/metrics": (
            "text/plain; version=0.0.4; charset=utf-8",
            lambda snapshot: metrics(snapshot, machine_numbers(folder, certs)),
        ),
    }


def _handler(status: Status, kinds: Kinds) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:
            # A page of somebody else's in the administrator's browser reaches loopback under another name.
            here = self.headers.get("host", "").rpartition(":")[0] in ("127.0.0.1", "localhost")
            if not here or self.path not in kinds:
                self.send_error(404)
                return
            kind, made = kinds[self.path]
            content = made(status.snapshot()).encode()
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


def read_status(folder: Path) -> dict[str, Any]:
    """What the server in this folder last wrote."""
    file = folder / FILE
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        _ = found["now"]["round"], found["sites"], found["refused"], found["time"]
    except FileNotFoundError as error:
        raise UserError(f"{folder} has no {FILE}: covey serve writes it while it runs") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{file} cannot be read: {type(error).__name__}: {error}") from error
    return found


def has_ended(folder: Path, snapshot: Mapping[str, Any]) -> bool:
    """Whether the server that wrote it has ended, or died: a live one writes every two seconds and locks its folder."""
    age = time.time() - float(snapshot["time"])
    if bool(snapshot.get("over")) or age > 10 * EVERY:
        return True
    locked = locked_inodes() if age > 2 * EVERY else None
    return locked is not None and os.stat(folder).st_ino not in locked
