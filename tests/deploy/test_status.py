"""Who is there: what the status says of sites that work, die, lie or come from nowhere."""

import base64
import http.client
import json
import re
import ssl
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from covey.cli import app
from covey.core.round import Task
from covey.deploy.certs import make_certs
from covey.deploy.door import Visit
from covey.deploy.site_list import fingerprint
from covey.deploy.site_registry import ClientNumbers
from covey.deploy.status import ALIVE, BETWEEN, HOUR, MOST_REFUSED, Status, machine_numbers, metrics, quoted
from covey.deploy.status_page import FILE, PagePlace, inside, status_shown
from covey.deploy.superlink import free_port
from covey.errors import UserError
from covey.files import folder_lock
from covey.parts.steps import Evaluate
from tests.deploy.sites_by_hand import Hand, deployed, sites

LISTED = {"key-a": ("a", 0), "key-b": ("b", 1), "key-c": ("c", 2)}


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def visit(key: str, *, why: str = "", status: int = 200) -> Visit:
    return Visit(key=key, path="/v1/fleet/pull-messages", status=status, received=100, sent=20, why=why)


def states(status: Status) -> dict[str, str]:
    return {site["name"]: site["state"] for site in status.snapshot()["sites"]}


def test_a_site_is_connected_while_it_is_heard_of_and_away_a_minute_later() -> None:
    clock = Clock()
    status = Status(lambda: LISTED, clock=clock)
    assert states(status) == dict.fromkeys("abc", "never seen")
    for key in ("key-a", "key-b"):
        status.visit(visit(key))
    clock.now += ALIVE + 1
    status.visit(visit("key-a"))
    assert states(status) == {"a": "connected", "b": "away", "c": "never seen"}
    a = status.snapshot()["sites"][0]
    assert (a["bytes_in"], a["bytes_out"], a["last_seen"]) == (200, 40, clock.now)


def test_a_site_without_any_connection_is_away_at_once() -> None:
    """A killed site's connections end with it: nobody waits for a heartbeat that does not come."""
    clock = Clock()
    status = Status(lambda: LISTED, clock=clock)
    status.visit(visit("key-a"))
    status.connections("key-a", 2)
    status.connections("key-a", 1)
    clock.now += 30
    assert states(status)["a"] == "connected"
    status.connections("key-a", 0)
    assert states(status)["a"] == "connected"  # it may be between two connections
    clock.now += BETWEEN + 1
    assert states(status)["a"] == "away"
    assert status.snapshot()["sites"][0]["last_seen"] == clock.now - BETWEEN - 31
    status.connections("key-a", 1)
    assert states(status)["a"] == "connected"
    status.connections("stranger", 0)
    assert status.alone == {}


def test_who_was_refused_is_named_with_the_reason_and_counted(tmp_path: Path) -> None:
    status = Status(lambda: LISTED, tmp_path / "audit.jsonl")
    for _ in range(3):
        status.visit(visit("key-x", why="its key is not on the list", status=412))
    status.visit(visit("key-c", why="its clock is 400 s behind", status=401))
    status.visit(visit("", why="it is not signed", status=401))
    status.visit(visit("", why="it is no path of the fleet interface", status=404))  # noise of the internet
    found = {(one["key"], one["why"]): one["count"] for one in status.snapshot()["refused"]}
    assert found == {
        (fingerprint("key-x"), "its key is not on the list"): 3,
        (f"c {fingerprint('key-c')}", "its clock is 400 s behind"): 1,
        ("no key", "it is not signed"): 1,
    }
    assert states(status)["c"] == "refused"
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [line["event"] for line in lines] == ["refused"] * 3
    assert {line["key"] for line in lines} == {key for key, _ in found}


def test_a_revoked_key_is_shown_under_its_name_and_not_as_the_site_that_has_a_new_one() -> None:
    once = {**LISTED, "old-c": ("c", 2), "key-d": ("d", 3)}
    status = Status(lambda: LISTED, known=lambda: once)
    status.visit(visit("key-c"))
    for key in ("old-c", "key-d"):
        status.visit(visit(key, why="its key is revoked since 2026-11-16", status=401))
    assert {one["key"] for one in status.snapshot()["refused"]} == {
        f"c {fingerprint('old-c')}",
        f"d {fingerprint('key-d')}",
    }
    assert states(status) == {"a": "never seen", "b": "never seen", "c": "connected", "d": "refused"}


def test_many_strangers_take_no_memory() -> None:
    status = Status(dict)
    for number in range(1000):
        status.visit(visit(f"key-{number}", why="its key is not on the list", status=412))
    assert len(status.snapshot()["refused"]) == 100


def test_whoever_makes_up_a_key_for_every_request_does_not_fill_the_disk(tmp_path: Path) -> None:
    """A stranger's key costs nothing to make up, and each new one would be a line."""
    clock = Clock()
    status = Status(lambda: LISTED, tmp_path / "audit.jsonl", clock=clock)

    def refused(keys: range) -> int:
        for number in keys:
            status.visit(visit(f"key-{number}", why="its key is not on the list", status=412))
        return len((tmp_path / "audit.jsonl").read_text().splitlines())

    assert refused(range(1000)) == MOST_REFUSED + 1  # and one that says that more get none
    assert refused(range(1000, 2000)) == MOST_REFUSED + 1
    status.visit(visit("key-c", why="its clock is 400 s behind", status=401))  # a site is no stranger
    assert "key-c" not in (log := (tmp_path / "audit.jsonl").read_text())
    assert f"c {fingerprint('key-c')}" in log
    clock.now += HOUR
    assert refused(range(2000, 2001)) == MOST_REFUSED + 3


def test_refusals_are_news_once_and_few_at_a_time() -> None:
    """The terminal of `covey serve` is told; the port itself waits for no terminal."""
    status = Status(lambda: LISTED)
    for _ in range(3):
        status.visit(visit("key-c", why="its clock is 400 s behind", status=401))
    assert status.news() == [f"refused: c {fingerprint('key-c')}: its clock is 400 s behind"]
    for number in range(1000):
        status.visit(visit(f"key-{number}", why="its key is not on the list", status=412))
    assert len(status.news()) == MOST_REFUSED
    assert status.news() == []


def test_a_server_says_who_was_refused_while_it_waits_for_sites() -> None:
    said: list[str] = []
    fleet = deployed(Hand(sites()), say=said.append)
    fleet.status.visit(visit("key-x", why="its key is not on the list", status=412))
    fleet.begin(1)
    assert f"refused: {fingerprint('key-x')}: its key is not on the list" in said


class Listed(dict[str, int]):
    """A list of sites as the server has it: client numbers by key, and names."""

    def names(self) -> dict[str, str]:
        return {key: f"site-{number}" for key, number in self.items()}


def test_a_run_says_whom_it_waits_for_and_who_did_not_answer() -> None:
    keys = {100 + i: f"key-{i}" for i in range(4)}
    post = Hand({node: site for node, site in sites().items() if node != 103}, keys=keys)
    names = ClientNumbers(Listed({f"key-{i}": i for i in range(4)}))
    fleet = deployed(post, names=names, least=3)
    assert fleet.begin(1) == [0, 1, 2]
    post.away = {101}
    fleet.ask(Evaluate(), dict.fromkeys([0, 1, 2], Task(models=fleet.start()[None], slots=(0,))))
    snapshot = fleet.status.snapshot()
    assert snapshot["now"]["doing"] == "evaluate.local"
    assert snapshot["now"]["waits_for"] == []
    found = {site["name"]: (site["answers"], site["lost"], site["why"]) for site in snapshot["sites"]}
    assert found == {
        "site-0": (1, 0, ""),
        "site-1": (0, 1, "no reply in 0.5 s"),
        "site-2": (1, 0, ""),
    }


def test_too_few_sites_are_missed_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    from covey.errors import RunError

    said: list[str] = []
    post = Hand({100: sites()[100]}, keys={100: "key-0"})
    names = ClientNumbers(Listed({f"key-{i}": i for i in range(3)}))
    fleet = deployed(post, names=names, least=3, patience=0.1, say=said.append)
    with pytest.raises(RunError, match="1 of 3 sites came"):
        fleet.begin(1)
    assert "1 of 3 sites are here; missing: site-1, site-2" in said
    assert fleet.status.snapshot()["now"]["waits_for"] == ["site-1", "site-2"]


def test_a_site_that_is_left_out_is_shown_with_the_reason() -> None:
    from dataclasses import replace

    from tests.deploy.one_request import SPEC

    post = Hand(sites(), keys={100 + i: f"key-{i}" for i in range(4)})
    fleet = deployed(post, names=ClientNumbers(Listed({f"key-{i}": i for i in range(4)})), least=1)
    fleet.registry.spec = replace(SPEC, outputs=7)
    fleet.registry.reachable()
    (one, *_) = fleet.status.snapshot()["sites"]
    assert one["state"] == "left out"
    assert "10 classes, the model is for (1, 8, 8) and 7" in one["why"]


EVIL = '<script>alert("1")</script>'


def busy() -> Status:
    status = Status(lambda: {"key-a": (EVIL, 0), "key-b": ("b", 1)})
    status.now.rounds = 9
    status.visit(visit("key-a"))
    status.asking(2, "train.sgd", {0: EVIL, 1: "b"})
    status.answered(1, "b", seconds=3.5)
    status.visit(visit("key-x", why='its "key" is not on the list', status=412))
    return status


def test_the_page_shows_it_all_and_runs_nobodys_script() -> None:
    text = inside(busy().snapshot())
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "Round 2 of 9" in text
    assert "train.sgd" in text
    assert fingerprint("key-x") in text


def test_prometheus_can_read_the_numbers() -> None:
    text = metrics(busy().snapshot())
    line = re.compile(r'(# TYPE \w+ (gauge|counter)|\w+(\{(\w+="(\\.|[^"\\])*",?)+\})? [-+.e\d]+)')
    assert all(line.fullmatch(one) for one in text.splitlines()), text
    assert 'covey_site_answer_seconds_total{site="b"} 3.5' in text
    assert "covey_round 2" in text
    seen = re.search(r"covey_site_last_seen_seconds\{.*\} (\S+)", text)
    assert seen is not None
    assert float(seen[1]) == pytest.approx(
        busy().snapshot()["time"], abs=600
    )  # to the second, not to the hour
    assert 'why="its \\"key\\" is not on the list"} 1' in text


def test_prometheus_sees_accuracy_privacy_disk_and_the_certificates_end(tmp_path: Path) -> None:
    make_certs(tmp_path / "certs", hosts=["127.0.0.1"])
    status = busy()
    status.now.measured["local-test/accuracy-mean"] = 0.875
    first, second = list(status.sites.values())[:2]
    first.epsilon, second.epsilon = 1.5, "unbounded"
    text = metrics(status.snapshot(), machine_numbers(tmp_path / "run", tmp_path / "certs"))
    assert 'covey_measured{what="local-test/accuracy-mean"} 0.875' in text
    assert f'covey_site_epsilon{{site="{quoted(first.name)}"}} 1.5' in text
    assert f'covey_site_epsilon{{site="{quoted(second.name)}"}} +Inf' in text
    ends = re.search(r"^covey_certificate_end_seconds (\S+)$", text, re.M)
    free = re.search(r"^covey_disk_free_bytes (\S+)$", text, re.M)
    assert ends is not None
    assert free is not None
    assert float(ends[1]) > time.time() + 4 * 365 * 24 * 3600  # it holds for five years
    assert float(free[1]) > 0


def fetch(port: int, path: str, host: str = "127.0.0.1") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    connection.request("GET", path, headers={"host": f"{host}:{port}"})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def test_the_file_and_the_port_of_loopback(tmp_path: Path) -> None:
    port = free_port()
    with status_shown(busy(), tmp_path, PagePlace(port=port)):
        assert fetch(port, "/metrics")[1].startswith("# TYPE covey_round gauge")
        assert json.loads(fetch(port, "/status.json")[1])["now"]["round"] == 2
        assert "Round 2 of 9" in fetch(port, "/")[1]
        assert fetch(port, "/etc/passwd")[0] == 404
        assert fetch(port, "/", host="evil.example.org")[0] == 404  # another site's page in a browser here
    kept = json.loads((tmp_path / FILE).read_text())
    assert kept["over"]
    assert kept["now"]["waits_for"] == [EVIL]


def test_others_see_it_with_the_administrators_key_and_tls_only(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn", reason="no uvicorn: pip install 'covey[watch]'")
    for host, key, certs in (("0.0.0.0", "", tmp_path), ("0.0.0.0", "a long password", None)):
        with pytest.raises(UserError, match=r"--status-host 0\.0\.0\.0 can be reached by others"):
            PagePlace(port=1, host=host, key=key, certs=certs)
    make_certs(tmp_path / "certs", hosts=["127.0.0.2"])
    # Loopback too, but not under a name that only this machine has.
    place = PagePlace(port=free_port(), host="127.0.0.2", key="a long password", certs=tmp_path / "certs")
    trusted = ssl.create_default_context(cafile=str(tmp_path / "certs" / "ca.crt"))
    right = base64.b64encode(b"admin:a long password").decode()

    def asked(path: str, **headers: str) -> tuple[int, str]:
        connection = http.client.HTTPSConnection(place.host, place.port, timeout=300, context=trusted)
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()

    with status_shown(busy(), tmp_path, place):
        for path in ("/", "/metrics", "/status.json", "/api/runs"):
            assert asked(path) == (401, "")
            assert asked(path, authorization="Basic " + base64.b64encode(b"admin:").decode())[0] == 401
        assert "Round 2 of 9" in asked("/", authorization=f"Basic {right}")[1]
        assert asked("/metrics", authorization=f"Basic {right}")[1].startswith("# TYPE covey_round gauge")


def test_where_the_page_goes_is_checked_before_anything_runs(tmp_path: Path) -> None:
    def refused(*options: str) -> str:
        run = tmp_path / "run.toml"
        run.write_text('[data]\nname = "digits"\n')
        return str(CliRunner().invoke(app, ["serve", str(run), "--insecure", *options]).exception)

    pytest.importorskip("flwr", reason="no Flower: covey serve needs it")
    key = tmp_path / "key"
    key.write_text("a long password")
    key.chmod(0o600)
    assert "go with --status-port" in refused("--status-key", str(key))
    assert "can be reached by others" in refused("--status-port", "9441", "--status-host", "0.0.0.0")
    key.chmod(0o644)
    assert "can be read by others" in refused("--status-port", "9441", "--status-key", str(key))


def test_the_command(tmp_path: Path) -> None:
    def covey(folder: Path) -> Any:
        return CliRunner().invoke(app, ["status", str(folder)], env={"COLUMNS": "300"})

    assert "has no status.json" in str(covey(tmp_path).exception)
    snapshot = busy().snapshot()
    (tmp_path / FILE).write_text(json.dumps({**snapshot, "over": False}))
    said = covey(tmp_path).output
    assert "round 2 of 9: train.sgd for " in said
    assert fingerprint("key-x") in said
    assert "ended" not in said
    (tmp_path / FILE).write_text(json.dumps({**snapshot, "time": time.time() - 5}))
    with folder_lock(tmp_path):  # a live server's machine may be busy
        assert "train.sgd for" in covey(tmp_path).output
    for age in (5, 100):  # it was killed: its lock is gone with it
        (tmp_path / FILE).write_text(json.dumps({**snapshot, "time": time.time() - age}))
        said = covey(tmp_path).output
        last = re.search(
            r"the server has ended, in round 2 of 9; this is what it saw last, (\d+) s ago", said
        )
        assert last
        assert int(last[1]) >= age  # at least: reading it may take a busy machine a second
        assert "waits for" not in said
        assert said.count("not known") == 2
    (tmp_path / FILE).write_text("{}")
    assert "status.json cannot be read: KeyError" in str(covey(tmp_path).exception)


def test_no_name_and_no_key_is_cut_on_a_narrow_terminal(tmp_path: Path) -> None:
    names = {f"key-{i}": (f"hospital-of-saint-{i}", i) for i in range(3)}
    status = Status(lambda: names)
    status.visit(visit("key-1", why="its clock is 400 s behind; at most 305 s behind", status=401))
    (tmp_path / FILE).write_text(json.dumps(status.snapshot()))
    said = CliRunner().invoke(app, ["status", str(tmp_path)], env={"COLUMNS": "80"}).output
    assert all(name in said for name, _ in names.values())
    assert f"hospital-of-saint-1 {fingerprint('key-1')}" in said
    assert "hospital-of-saint-1 is refused: its clock is 400 s behind" in said


def test_the_live_table_names_the_data_and_waits_for_nobody_once_the_server_has_ended(tmp_path: Path) -> None:
    """The configuration of a run over sites may name no data at all, which then says digits."""
    from covey.report.live.folder import RunsFolder

    status = busy()
    status.now.dataset = "a hospital"
    (tmp_path / "config.toml").write_text('[data]\nname = "digits"\n[method]\nname = "fedavg"\n')
    (tmp_path / FILE).write_text(json.dumps(status.snapshot()))
    runs = RunsFolder(tmp_path)
    with folder_lock(tmp_path):
        ((run,), _) = runs.refresh()
        assert (run.state, run.about["dataset"], run.about["waits"]) == ("running", "a hospital", [EVIL])
    ((run,), _) = runs.refresh()
    assert (run.state, run.about["dataset"]) == ("stopped", "a hospital")
    assert "waits" not in run.about
