"""axe's verdict on a page."""

from typing import Any

import pytest


def violations(page: Any) -> list[str]:
    """What axe finds wrong, with the first element of each."""
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="no axe: make browser installs it"
    )
    found = axe.Axe().run(page).response["violations"]
    return [f"{one['id']} ({one['impact']}): {one['help']}: {one['nodes'][0]['html'][:120]}" for one in found]
