"""The live page in a real browser."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.browser.accessibility import violations


def host_of(live: str) -> str:
    return live.split("/")[2]


def rows(seen: Any) -> list[str]:
    seen.page.wait_for_selector("#table tbody tr", timeout=300_000)
    return [row.split("\n")[0].strip() for row in seen.page.locator("#table tbody tr th").all_inner_texts()]


def wait_for_rows(seen: Any, count: int) -> None:
    from playwright.sync_api import expect

    expect(seen.page.locator("#table tbody tr")).to_have_count(count, timeout=300_000)


def test_all_runs_are_there_without_an_error_and_only_this_machine_is_asked(opened: Any, live: str) -> None:
    seen = opened(live)
    assert sorted(rows(seen)) == ["fast", "slow"]
    assert seen.page.locator("#facts").inner_text().startswith("0 running")
    seen.check(host_of(live))


def test_it_filters_by_any_setting_and_sorts_by_any_metric(opened: Any, live: str) -> None:
    seen = opened(live)
    rows(seen)
    seen.page.fill("#filter", "train.lr<0.05")
    wait_for_rows(seen, 1)
    assert rows(seen) == ["slow"]
    seen.page.fill("#filter", "")
    wait_for_rows(seen, 2)
    seen.page.locator("#table thead button", has_text="accuracy").click()
    assert rows(seen) == ["fast", "slow"]
    seen.page.locator("#table thead button", has_text="accuracy").click()
    assert rows(seen) == ["slow", "fast"]
    seen.check(host_of(live))


def test_a_thousand_runs_are_filtered_and_sorted_at_once(opened: Any, many: str) -> None:
    """By the time of the page's own thread, which other processes do not lengthen."""
    seen = opened(many, bypass_csp=True)
    seen.page.wait_for_function("document.querySelector('#count').textContent == '1,000 of 1,000 runs'")
    assert seen.page.locator("#table tbody tr").count() < 200  # the others when they come into view
    session = seen.page.context.new_cdp_session(seen.page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def busy() -> float:
        seen.page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        found = session.send("Performance.getMetrics")["metrics"]
        return next(one["value"] for one in found if one["name"] == "TaskDuration")

    before = busy()
    seen.page.fill("#filter", "train.lr<0.05")
    seen.page.wait_for_function("document.querySelector('#count').textContent == '500 of 1,000 runs'")
    filtered = busy()
    seen.page.locator("#table thead button", has_text="seed").click()
    assert seen.page.locator("#table tbody tr td.of-seed").first.inner_text() == "998"
    assert filtered - before < 0.3
    assert busy() - filtered < 0.3
    seen.page.evaluate("document.querySelector('.scroll:has(#table)').scrollTo(0, 1e6)")
    seen.page.wait_for_function("document.querySelectorAll('#table tbody tr').length > 100")
    seen.page.get_by_role("button", name="Show all 500").click()
    assert seen.page.locator("#table tbody tr").count() == 500
    seen.check(host_of(many))


def test_selected_runs_are_compared_in_one_report(opened: Any, live: str) -> None:
    seen = opened(live)
    rows(seen)
    for box in seen.page.locator("#table input[type=checkbox]").all():
        box.check()
    seen.page.get_by_role("button", name="Compare 2 selected").click()
    seen.page.wait_for_selector("#curve-chart svg", timeout=300_000)
    assert "2 runs compared" in seen.page.locator("h1").inner_text()
    seen.check(host_of(live))


def test_a_run_in_progress_appears_and_moves_without_loading_anew(opened: Any, live: str, runs: Path) -> None:
    seen = opened(live)
    rows(seen)
    folder = runs / "going"
    folder.mkdir()
    place = os.open(folder, os.O_RDONLY)
    fcntl.flock(place, fcntl.LOCK_EX)
    try:
        (folder / "metrics.jsonl").write_text("")
        (folder / "config.toml").write_text('name = "going"\nrounds = 9\n[method]\nname = "covey"\n')
        for number in (1, 2, 3):
            lines = [
                [number, 2.0, 50, -1, -1, "local-test", "accuracy-mean", 0.2 * number],
                [number, 2.0, 50, 4, number % 2, "groups", "group", number % 2],
                [number, 2.0, 50, 4, -1, "fleet", "busy", 1.0],
            ]
            with open(folder / "metrics.jsonl", "a") as file:
                file.write("".join(json.dumps(line) + "\n" for line in lines))
            seen.page.locator(".card", has_text=f"round {number} of 9").wait_for(timeout=300_000)
        card = seen.page.locator(".card").inner_text()
        assert "60.00%" in card
        assert "1 devices training" in card
        assert "1 cluster" in card
    finally:
        os.close(place)
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
    seen.check(host_of(live))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_accessible_in_light_and_dark(opened: Any, live: str, scheme: str) -> None:
    seen = opened(live, color_scheme=scheme)
    rows(seen)
    assert violations(seen.page) == []


def test_phone_keyboard_and_print(opened: Any, live: str) -> None:
    seen = opened(live, viewport={"width": 390, "height": 844})
    rows(seen)
    assert seen.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    seen.page.keyboard.press("Tab")
    assert seen.page.evaluate("document.activeElement.className") == "skip"
    seen.page.locator("#table thead button").first.focus()
    seen.page.keyboard.press("Enter")
    assert seen.page.locator("th[aria-sort]").count() == 1
    seen.page.emulate_media(media="print")
    assert seen.page.locator("#table").is_visible()
    assert not seen.page.locator("#filter").is_visible()
    seen.check(host_of(live))
