"""The documentation is a site that builds strictly, and names everything there is."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from covey.settings.catalogue import METHODS

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """Strict: a broken link, a page that no menu shows or a name that does not exist fails."""
    pytest.importorskip("mkdocs")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) >= len(PAGES)
    hosts = {
        host for page in pages for host in re.findall(r'(?:src|href)="https?://([^/"]+)', page.read_text())
    }
    loaded = {
        host
        for page in pages
        for host in re.findall(r'<script[^>]* src="https?://([^/"]+)', page.read_text())
    }
    assert not loaded, f"the site must work without a network, but loads scripts from {loaded}"
    assert "unpkg.com" not in hosts


@pytest.mark.parametrize("name", METHODS)
def test_every_method_is_on_a_methods_page(name: str) -> None:
    pages = [page.read_text() for page in PAGES if page.name != "index.md"]
    assert any(f"`{name}`" in page for page in pages), f"no page of docs/methods speaks of `{name}`"
    assert f"`{name}`" in (ROOT / "docs" / "methods" / "index.md").read_text()


def how_to_pages() -> list[str]:
    part = (ROOT / "mkdocs.yml").read_text().partition("  - How to:\n")[2].partition("  - Reference:\n")[0]
    return re.findall(r": (\S+\.md)", part)


@pytest.mark.parametrize("name", how_to_pages())
def test_a_how_to_page_is_one_task_in_fewer_than_600_words(name: str) -> None:
    assert len((ROOT / "docs" / name).read_text().split()) < 600
