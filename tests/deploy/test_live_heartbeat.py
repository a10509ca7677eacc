"""The sign of life that a server gives its SuperLink: it never interrupts the server, and ends before the run does."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("flwr")
from flwr.supercore import heartbeat
from flwr.supercore.retry import make_simple_http_retry_invoker
from flwr.supercore.runtime import RuntimeHttpClient

from covey.deploy.flower_transport import flower_run, patient
from covey.deploy.superlink import Link, superlink
from covey.errors import RunError

LATEST = 600.0  # seconds after which a wait counts as endless


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("heart")


@pytest.fixture(scope="module")
def link(folder: Path) -> Iterator[Link]:
    with superlink(folder, certs=None) as started:
        yield started


@pytest.fixture
def beats(monkeypatch: pytest.MonkeyPatch) -> threading.Semaphore:
    """One heartbeat after the other without a pause; released once for each that was answered."""
    count = threading.Semaphore(0)
    send = RuntimeHttpClient.SendTaskHeartbeat

    def counted(client: RuntimeHttpClient, request: Any) -> Any:
        try:
            return send(client, request)
        finally:
            count.release()

    monkeypatch.setattr(RuntimeHttpClient, "SendTaskHeartbeat", counted)
    monkeypatch.setattr(heartbeat, "HEARTBEAT_DEFAULT_INTERVAL", heartbeat.HEARTBEAT_CALL_TIMEOUT)
    return count


def hearts() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if "HeartbeatSender" in str(getattr(t, "_target", ""))]


def test_no_beat_is_due_once_the_run_is_reported_as_done(
    link: Link, beats: threading.Semaphore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A beat of a run that is over is answered like that of a run that was stopped."""
    push = RuntimeHttpClient.PushTaskOutput
    alive: list[int] = []

    def pushed(client: RuntimeHttpClient, request: Any) -> Any:
        done = push(client, request)
        alive.append(len(hearts()))
        if hearts():
            for _ in range(2):  # the second one surely began after the report
                assert beats.acquire(timeout=LATEST)
        return done

    monkeypatch.setattr(RuntimeHttpClient, "PushTaskOutput", pushed)
    with flower_run(link, dict):
        assert beats.acquire(timeout=LATEST)
    assert alive == [0]


def test_a_superlink_that_refuses_this_process_is_one_sentence_and_no_interrupt() -> None:
    url = httpx.Request("POST", "http://superlink")

    def refused() -> None:
        raise httpx.HTTPStatusError("401", request=url, response=httpx.Response(401, request=url))

    with pytest.raises(RunError, match="the SuperLink has stopped the run"):
        patient(make_simple_http_retry_invoker(), Link(address="", ca=None)).invoke(refused)


def test_a_run_that_the_superlink_has_given_up_is_one_sentence_and_no_interrupt(
    link: Link, folder: Path, beats: threading.Semaphore
) -> None:
    """As after a minute's sleep of the machine, when no beat came in time."""

    def sleep() -> None:
        with flower_run(link, dict) as transport:
            with closing(sqlite3.connect(folder / "superlink.db", timeout=60)) as database, database:
                database.execute("update task set active_until = '2000-01-01 00:00:00+00:00'")
            while beats.acquire(blocking=False):
                pass
            for _ in range(2):  # the second one surely began after that
                assert beats.acquire(timeout=LATEST)
            transport.nodes()

    with pytest.raises(RunError, match="the SuperLink has stopped the run; resume with covey serve --resume"):
        sleep()
    assert hearts() == []
