"""Who is there: what the open port and the run see of every site, as one snapshot, and as lines of a log."""

import contextlib
import math
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from covey.core.round import RoundEnd
from covey.deploy.audit import Trail, finite_value
from covey.deploy.door import Visit
from covey.deploy.site_list import fingerprint
from covey.terminal import printable
from covey.version import __version__

MOST_REFUSED = 100  # strangers that are remembered, the latest
HOUR = 3600.0  # seconds in which at most as many strangers get a line in the log, which has to fit a disk
ALIVE = 60.0  # seconds since the last request after which a site counts as away
BETWEEN = 3.0  # seconds that a site may be without any connection: it closes one before it opens the next


@dataclass(kw_only=True)
class SiteStatus:
    """One site: what it last did, and what it took."""

    name: str
    client: int
    state: str = "never seen"
    why: str = ""  # it is left out, or was refused
    last_seen: float = 0.0  # seconds since 1970
    round: int = 0
    doing: str = ""
    bytes_in: int = 0  # requests and answers as the port received them
    bytes_out: int = 0
    seconds: float = 0.0  # that the server waited for its answers
    answers: int = 0
    lost: int = 0
    epsilon: float | str = 0.0  # privacy loss so far, as the ledger has it


@dataclass(kw_only=True)
class Stranger:
    """Requests that were refused, by key and reason."""

    key: str
    why: str
    count: int = 0
    last_seen: float = 0.0


@dataclass(kw_only=True)
class Now:
    """What the run does at the moment."""

    run: str = ""
    round: int = 0
    rounds: int = 0
    doing: str = "waiting for sites"
    waits_for: list[str] = field(default_factory=list)
    dataset: str = ""
    measured: dict[str, float] = field(default_factory=dict)  # the latest
    since: float = field(default_factory=time.time)


class Status:
    """What is known of all sites; the threads of the port and of the run write it, everybody else reads a snapshot."""

    def __init__(
        self,
        names: Callable[[], Mapping[str, tuple[str, int]]] = dict,
        log: Path | None = None,
        clock: Callable[[], float] = time.time,
        known: Callable[[], Mapping[str, tuple[str, int]]] = dict,
    ) -> None:
        self.names = names  # public key -> name and client number, as the list stands now
        self.known = known  # the same of keys that were revoked or have ended
        self.trail = None if log is None else Trail(log, clock)
        self.clock = clock
        self.now = Now(since=clock())
        self.sites: dict[int, SiteStatus] = {}
        self.alone: dict[str, float] = {}  # since when a key that was there has no connection
        self.strangers: dict[tuple[str, str], Stranger] = {}
        self.lines_of_strangers: deque[float] = deque(maxlen=MOST_REFUSED)  # when they were written
        self.unsaid: deque[str] = deque(maxlen=MOST_REFUSED)  # refusals that nobody was told of yet
        self.lock = threading.Lock()

    # ------------------------------------------------------------------------------------------ what is told

    def visit(self, visit: Visit) -> None:
        """A request at the open port."""
        with self.lock:
            listed = self.names()
            known = listed.get(visit.key)
            if known is not None:
                site = self._site(known[1], known[0])
                site.last_seen = self.clock()
                site.bytes_in += visit.received
                site.bytes_out += visit.sent
                if not visit.why and site.state in ("never seen", "away", "refused"):
                    site.state, site.why = "connected", ""
            if not visit.why or visit.status == 404:
                return
            once = known or self.known().get(visit.key)
            key = (f"{once[0]} " if once else "") + (fingerprint(visit.key) if visit.key else "no key")
            stranger = self.strangers.setdefault((key, visit.why), Stranger(key=key, why=visit.why))
            stranger.count += 1
            stranger.last_seen = self.clock()
            if once is not None and (known or once[1] not in {client for _, client in listed.values()}):
                site = self._site(once[1], once[0])
                site.state, site.why, site.doing, site.last_seen = "refused", visit.why, "", self.clock()
            for oldest in list(self.strangers)[:-MOST_REFUSED]:
                del self.strangers[oldest]
            if stranger.count == 1 and (once is not None or self._may_write_of_a_stranger()):
                self._note("refused", key=key, why=visit.why, path=visit.path)
                self.unsaid.append(f"refused: {key}: {visit.why}")

    def connections(self, key: str, count: int) -> None:
        """Notes how many connections a key has at the open port now."""
        with self.lock:
            if count:
                self.alone.pop(key, None)
            elif key in self.known() or key in self.names():
                self.alone[key] = self.clock()

    def cut_off(self) -> dict[int, float]:
        """For how many seconds each client has had no connection at the open port, of those who have none."""
        with self.lock:
            now, listed = self.clock(), self.names()
            since = {listed[key][1]: now - at for key, at in self.alone.items() if key in listed}
        return {client: seconds for client, seconds in since.items() if seconds > BETWEEN}

    def _may_write_of_a_stranger(self) -> bool:
        """Whether one more may have a line: a stranger with a new key for every request must not fill the disk."""
        lines, now = self.lines_of_strangers, self.clock()
        if len(lines) == MOST_REFUSED and now - lines[0] < HOUR:
            return False
        lines.append(now)
        if len(lines) == MOST_REFUSED and now - lines[0] < HOUR:
            self._note("refused", key="", why=f"{MOST_REFUSED} strangers in an hour; more get no line")
        return True

    def news(self) -> list[str]:
        """Whose requests were refused since this was last asked, for the terminal; the port waits for no terminal."""
        with self.lock:
            said = list(self.unsaid)
            self.unsaid.clear()
        return said

    def event(self, what: str, **facts: Any) -> None:
        """Something worth a line in the log."""
        with self.lock:
            self._note(what, **facts)

    def asking(self, round: int, kind: str, sites: Mapping[int, str]) -> None:
        """The run waits for these sites."""
        with self.lock:
            self.now.round, self.now.doing, self.now.since = round, kind, self.clock()
            self.now.waits_for = list(sites.values())
            for client, name in sites.items():
                site = self._site(client, name)
                site.round, site.doing = round, kind
            self._note("asked", round=round, kind=kind, sites=list(sites.values()))

    def answered(
        self,
        client: int,
        name: str,
        *,
        seconds: float,
        lost: str = "",
        refused: str = "",
        told: Mapping[str, Any] | None = None,
    ) -> None:
        """A site answered, or did not in time; `told` are the names and sizes of what it told."""
        with self.lock:
            site = self._site(client, name)
            site.seconds += seconds
            site.answers += not (lost or refused)
            site.lost += bool(lost or refused)
            kind, site.doing, site.why = site.doing, "", lost or refused
            site.last_seen = site.last_seen if lost else self.clock()
            if name in self.now.waits_for:
                self.now.waits_for.remove(name)
            asked = {"site": name, "round": site.round, "kind": kind}
            if lost or refused:
                self._note("lost" if lost else "refused", **asked, why=lost or refused)
            else:
                self._note("answered", **asked, seconds=round(seconds, 3), told=dict(told or {}))

    def round_ended(self, end: RoundEnd) -> None:
        """A watcher: what was measured in the round, and what each site has lost so far."""
        ledger = end.fleet.ledger
        with self.lock:
            for split, metric in (
                ("global-test", end.fleet.objective.main),
                ("local-test", f"{end.fleet.objective.main}-mean"),
            ):
                if (value := end.value(split, metric)) is not None:
                    self.now.measured[f"{split}/{metric}"] = value
            spent: dict[str, float | str] = {}
            for client, loss in ledger.epsilon.items():
                if client in self.sites:
                    self.sites[client].epsilon = finite_value(loss)
                    spent[self.sites[client].name] = finite_value(loss)
            trained = [self.sites[i].name for i in end.state.worked if i in self.sites]
            self._note(
                "round",
                round=end.state.round,
                trained=trained,
                epsilon=spent,
            )

    @contextlib.contextmanager
    def recorded(self, farewell: Callable[[str], None] = lambda _: None, **facts: Any) -> Iterator[None]:
        """Around a run: the trail says how it began and how it ended, and the sites are told the latter, too."""
        self.event("began", covey=__version__, **facts)
        how = "finished"
        try:
            yield
        except KeyboardInterrupt:
            how = "interrupted"
            raise
        except Exception as error:
            how = f"failed: {error}"
            raise
        finally:
            self.event("ended", how=how, round=self.now.round)
            farewell(how)

    def seated(self, client: int, name: str, why: str = "", **facts: Any) -> None:
        """A site was taken in, or is left out for a reason."""
        with self.lock:
            site = self._site(client, name)
            site.state, site.why = ("left out", why) if why else ("connected", "")
            site.last_seen = self.clock()
            reason = {"why": why} if why else {}
            self._note("left out" if why else "joined", site=name, client=client, **reason, **facts)

    def waiting(self, round: int, missing: Iterable[str]) -> None:
        """Too few sites are there."""
        with self.lock:
            missing = sorted(missing)
            if (self.now.doing, self.now.waits_for) != ("waiting for sites", missing):
                self.now.round, self.now.doing, self.now.since = round, "waiting for sites", self.clock()
                self.now.waits_for = missing
                self._note("waiting", round=round, missing=missing)

    # ------------------------------------------------------------------------------------------ what is known

    def snapshot(self) -> dict[str, Any]:
        """Everything as plain values; a site without a connection, or silent for a minute, is away."""
        alone = self.cut_off()
        with self.lock:
            now = self.clock()
            for name, client in self.names().values():
                self._site(client, name)
            sites = []
            for _, site in sorted(self.sites.items()):
                away = site.client in alone or now - site.last_seen > ALIVE
                state = "away" if site.state == "connected" and away else site.state
                sites.append({**asdict(site), "state": state})
            strangers = sorted(self.strangers.values(), key=lambda s: -s.last_seen)
            return {
                "time": now,
                "now": asdict(self.now),
                "sites": sites,
                "refused": [asdict(stranger) for stranger in strangers],
            }

    def _site(self, client: int, name: str) -> SiteStatus:
        return self.sites.setdefault(client, SiteStatus(name=printable(name), client=client))

    def _note(self, what: str, **facts: Any) -> None:
        """One line of the audit trail; one that cannot be written now is written with the next."""
        if self.trail is not None:
            with contextlib.suppress(OSError):
                self.trail.note(what, **facts)


def metrics(snapshot: Mapping[str, Any], machine: Mapping[str, float] | None = None) -> str:
    """The snapshot, and numbers of the server's machine, in Prometheus' text format."""
    now = snapshot["now"]
    lines = [
        "# TYPE covey_round gauge",
        f"covey_round {now['round']}",
        "# TYPE covey_waiting_for_sites gauge",
        f"covey_waiting_for_sites {len(now['waits_for'])}",
    ]
    tables: list[tuple[str, str, Callable[[Mapping[str, Any]], float]]] = [
        ("covey_site_connected", "gauge", lambda site: site["state"] == "connected"),
        ("covey_site_last_seen_seconds", "gauge", lambda site: site["last_seen"]),
        ("covey_site_received_bytes_total", "counter", lambda site: site["bytes_in"]),
        ("covey_site_sent_bytes_total", "counter", lambda site: site["bytes_out"]),
        ("covey_site_answer_seconds_total", "counter", lambda site: site["seconds"]),
        ("covey_site_answers_total", "counter", lambda site: site["answers"]),
        ("covey_site_lost_total", "counter", lambda site: site["lost"]),
        ("covey_site_epsilon", "gauge", lambda site: as_number(site.get("epsilon", 0.0))),
    ]
    for name, kind, value in tables:
        lines.append(f"# TYPE {name} {kind}")
        lines += [
            f'{name}{{site="{quoted(site["name"])}"}} {prometheus(value(site))}' for site in snapshot["sites"]
        ]
    lines.append("# TYPE covey_measured gauge")
    lines += [
        f'covey_measured{{what="{quoted(name)}"}} {value:.15g}'
        for name, value in now.get("measured", {}).items()
    ]
    for name, number in (machine or {}).items():
        lines += [f"# TYPE {name} gauge", f"{name} {number:.15g}"]
    lines.append("# TYPE covey_refused_requests_total counter")
    lines += [
        f'covey_refused_requests_total{{key="{quoted(one["key"])}",why="{quoted(one["why"])}"}} {one["count"]}'
        for one in snapshot["refused"]
    ]
    return "\n".join(lines) + "\n"


def as_number(loss: float | str) -> float:
    """A privacy loss; one that no noise bounds is infinite."""
    return math.inf if isinstance(loss, str) else loss


def prometheus(value: float) -> str:
    """A number as Prometheus spells it."""
    return "+Inf" if value == math.inf else f"{float(value):.15g}"


def machine_numbers(folder: Path, certs: Path | None) -> dict[str, float]:
    """What an administrator must not run out of: the disk of the run's folder, and the server's certificate."""
    from covey.deploy.certs import expiry

    place = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    found = {"covey_disk_free_bytes": float(shutil.disk_usage(place).free)}
    if certs is not None and (certs / "server.crt").exists():
        found["covey_certificate_end_seconds"] = expiry(certs).timestamp()
    return found


def quoted(text: str) -> str:
    """A label's value as Prometheus spells it."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
