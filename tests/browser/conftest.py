"""A real browser: Debian's Chromium, driven by Playwright; without them these tests are skipped, and say so."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from covey.folder.read import read_run
from covey.runs.config import resolve
from covey.runs.run import run_config
from tests.report.made_up_run import MadeUp, known_notes, write_run

MISSING = "make browser installs what these tests need"


def chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason=f"no Playwright: {MISSING}")
    place = chromium()
    if place is None:
        pytest.skip(f"no Chromium: {MISSING}")
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=place, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()


class Watched:
    """A page, with everything that went wrong on it and every host that it asked."""

    def __init__(self, page: Any) -> None:
        self.page = page
        page.set_default_timeout(300_000)  # milliseconds, for a busy machine
        self.errors: list[str] = []
        self.hosts: set[str] = set()
        page.on(
            "console", lambda message: self.errors.append(message.text) if message.type == "error" else None
        )
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self.hosts.add(request.url.split("/")[2]))

    def check(self, *allowed: str) -> None:
        """Nothing went wrong, and nobody else was asked."""
        assert not self.errors
        assert self.hosts <= {"", *allowed}


@pytest.fixture
def opened(browser: Any) -> Iterator[Any]:
    """Opens an address in a new window; options are those of a browser context: color_scheme, viewport."""
    contexts = []

    def open_page(address: str, **options: Any) -> Watched:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        watched = Watched(context.new_page())
        watched.page.goto(address)
        return watched

    yield open_page
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of three runs side by side."""
    from covey.report.page import write_report

    root = tmp_path_factory.mktemp("report")
    made = [
        MadeUp(method="fedavg"),
        MadeUp(method="covey", groups=4, top=0.95, notes=known_notes(40, 4)),
        MadeUp(method="local", top=0.85, finished=False),
    ]
    write_report([read_run(write_run(root / one.method, one)) for one in made], root / "report.html")
    return root / "report.html"


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two finished runs."""
    root = tmp_path_factory.mktemp("runs")
    for name, lr in (("slow", 0.01), ("fast", 0.1)):
        tables = {
            "name": name,
            "rounds": 3,
            "data": {"name": "digits", "clients": 4},
            "train": {"epochs": 1, "lr": lr},
        }
        run_config(resolve(tables), root / name, report=False)
    return root


@pytest.fixture(scope="session")
def live(runs: Path) -> Iterator[str]:
    """The live page of that folder."""
    yield from served(runs)


@pytest.fixture(scope="session")
def many(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The live page of a thousand runs with two learning rates: the numbers of one, told again."""
    root = tmp_path_factory.mktemp("many")
    for seed in range(1000):
        source = runs / ("slow", "fast")[seed % 2]
        (root / f"run-{seed}").mkdir()
        for name in ("summary.json", "metrics.parquet"):
            (root / f"run-{seed}" / name).hardlink_to(source / name)
        text = (source / "config.toml").read_text().replace("seed = 0", f"seed = {seed}", 1)
        (root / f"run-{seed}" / "config.toml").write_text(text)
    yield from served(root)


def served(root: Path) -> Iterator[str]:
    """The address of the folder's live page, for as long as it is served."""
    pytest.importorskip("uvicorn", reason="no uvicorn: pip install 'covey[watch]'")
    from covey.report.live.app import make_app
    from covey.report.live.serve import in_background

    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        port = place.getsockname()[1]
    with in_background(make_app(root), port, "the test's port"):
        yield f"http://127.0.0.1:{port}/"
