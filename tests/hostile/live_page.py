"""The live page beside damaged run folders, and listeners that do not read."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import tempfile
import time
import urllib.request
from pathlib import Path

from tests.hostile.frame import Outcome, attempt, broke, held

GOOD = '[1, 1.0, 5, -1, -1, "local-test", "loss", 0.5]\n'


def prepare() -> None:
    """What all tries import, once."""
    import uvicorn

    import covey.report.live.app
    import covey.report.live.serve
    import tests.report.live.test_live

    assert all((uvicorn, covey.report.live.app, covey.report.live.serve, tests.report.live.test_live))


@attempt("27 damaged run folders beside a good one: lists, text, brackets, pipes where numbers should be")
def damaged_runs() -> Outcome:
    from covey.files import strict_json
    from covey.report.live.folder import RunsFolder
    from covey.report.live.table import live_table
    from tests.report.live.test_live import DAMAGES, damaged_beside

    folder = RunsFolder(damaged_beside(Path(tempfile.mkdtemp())))
    folder.refresh()
    rows = live_table(folder.runs.values())["runs"]
    strict_json(rows)
    bad = [row for row in rows if row["state"] == "damaged" and row["problem"]]
    good = [row for row in rows if row["state"] != "damaged"]
    said = f"{len(rows)} rows, {len(bad)} of them damaged with their reason; the good run has round {good[0]['round']}"
    return held(said) if (len(bad), len(good)) == (len(DAMAGES), 1) else broke(said)


@attempt("60 listeners that never read, and a run that changes 200 times")
def deaf_listeners() -> Outcome:
    from covey.deploy.superlink import free_port
    from covey.report.live import app
    from covey.report.live.serve import in_background

    root = Path(tempfile.mkdtemp())
    run = root / "run"
    run.mkdir()
    (run / "config.toml").write_text('rounds = 300\nname = "' + "x" * 900 + '"\n')
    (run / "metrics.jsonl").write_text(GOOD)
    app.EVERY = 0.01
    port = free_port()

    def round_shown() -> int:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/runs", timeout=60) as answer:
            rows = json.load(answer)["runs"]
        return int(rows[0]["round"]) if rows else 0

    with in_background(app.make_app(root), port, "the page"), contextlib.ExitStack() as stack:
        for _ in range(60):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.sendall(b"GET /api/events HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        until = time.monotonic() + 90
        for number in range(2, 202):
            with open(run / "metrics.jsonl", "a") as file:
                file.write(GOOD.replace("[1,", f"[{number},"))
            os.utime(run / "metrics.jsonl", (number, number))
            time.sleep(0.02)
        while round_shown() < 201 and time.monotonic() < until:
            time.sleep(0.1)
        shown = round_shown()
    said = f"round {shown} of 201 is shown to everybody else"
    return held(said) if shown == 201 else broke(said)
