"""The status where administrators look: a file in the run folder, and on loopback a page and Prometheus' numbers."""

import contextlib
import html
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
from covey.deploy.superlink import LOOPBACK
from covey.errors import UserError
from covey.files import write_atomically
from covey.report.live.folder import locked_inodes

EVERY = 2.0  # seconds between two writings of the file
FILE = "status.json"


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
    unit, name = next(
        (u, n) for u, n in ((1, "s"), (60, "min"), (3600, "h")) if seconds < 120 * u or u == 3600
    )
    text = f"{seconds / unit:.0f} {name}"
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
    """The live page of the run folder, with the sites; its packages come with Flower."""
    from covey.report.live.app import HOSTS, make_app
    from covey.report.live.serve import in_background

    def prometheus_text() -> str:
        return metrics(status.snapshot(), machine_numbers(folder, place.certs))

    extra: dict[str, tuple[str, Callable[[], str]]] = {
        "/status.json": ("application/json", lambda: json.dumps(status.snapshot())),
        "/metrics": ("text/plain; version=0.0.4; charset=utf-8", prometheus_text),
    }
    hosts = HOSTS if place.host in LOOPBACK else ()
    app = make_app(folder, key=place.key, extra=extra, hosts=hosts, first=lambda: inside(status.snapshot()))
    with in_background(app, place.port, place.option, place.host, **place.tls):
        yield


def _write(status: Status, folder: Path, over: threading.Event) -> None:
    while True:
        last = over.wait(EVERY)
        if folder.exists():
            with contextlib.suppress(OSError):
                write_atomically(folder / FILE, json.dumps({**status.snapshot(), "over": last}, indent=1))
        if last:
            return


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
