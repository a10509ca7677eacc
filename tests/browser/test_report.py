"""The report in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.browser.accessibility import violations

PHONE = {"viewport": {"width": 390, "height": 844}}


def test_it_draws_everything_without_an_error_and_asks_nobody(opened: Any, report: Path) -> None:
    seen = opened(report.as_uri())
    assert seen.page.locator("#curve-chart svg path.line").count() == 3
    assert seen.page.locator("#spread-chart svg").count() == 1
    seen.check()


def test_the_metric_is_switched_and_stays_in_the_address(opened: Any, report: Path) -> None:
    seen = opened(report.as_uri())
    before = seen.page.locator("#curve-chart svg").get_attribute("aria-label")
    seen.page.select_option("#metric", "local-test/loss-mean")
    assert seen.page.locator("#curve-chart svg").get_attribute("aria-label") != before
    assert "metric=local-test" in seen.page.url
    seen.page.reload()
    assert seen.page.locator("#metric").input_value() == "local-test/loss-mean"
    seen.check()


def test_runs_and_their_clients_are_picked(opened: Any, report: Path) -> None:
    seen = opened(report.as_uri())
    seen.page.locator("#run-picker").get_by_role("button", name="covey").click()
    shown = seen.page.locator("article.run:not([hidden])")
    assert shown.count() == 1
    assert "covey" in shown.inner_text()
    seen.page.locator("#curve-legend").get_by_role("button", name="fedavg").click()
    assert seen.page.locator("#curve-chart svg path.line").count() == 2
    chart = seen.page.locator("#spread-chart svg")
    chart.scroll_into_view_if_needed()
    dot = chart.locator("circle").first
    dot.hover(force=True)
    assert seen.page.locator("#tip").inner_text()
    seen.check()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_accessible_in_light_and_dark(opened: Any, report: Path, scheme: str) -> None:
    seen = opened(report.as_uri(), color_scheme=scheme)
    assert violations(seen.page) == []
    seen.check()


def test_on_a_phone_nothing_is_wider_than_the_screen(opened: Any, report: Path) -> None:
    seen = opened(report.as_uri(), **PHONE)
    assert seen.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    seen.check()


def test_the_keyboard_reaches_the_chart_and_reads_it(opened: Any, report: Path) -> None:
    seen = opened(report.as_uri())
    seen.page.keyboard.press("Tab")
    assert seen.page.evaluate("document.activeElement.className") == "skip"
    seen.page.locator("#curve-chart svg").focus()
    seen.page.keyboard.press("ArrowLeft")
    assert "fedavg" in seen.page.locator("#tip").inner_text()
    seen.page.keyboard.press("Escape")
    seen.check()


def test_it_prints(opened: Any, report: Path) -> None:
    seen = opened(report.as_uri())
    pages = seen.page.pdf(format="A4")
    assert pages.startswith(b"%PDF")
    seen.page.emulate_media(media="print")
    assert not seen.page.locator("nav").is_visible()
    assert not seen.page.locator("#curve-controls").is_visible()
    assert seen.page.locator("#results").is_visible()
    seen.check()
