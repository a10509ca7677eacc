"""The tables in README and docs are those of the stored results."""

from pathlib import Path

import pytest

from covey.experiments.tables import filled

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda p: p.name
)
def test_tables_are_made_from_stored_results(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COVEY_EXPERIMENTS", str(ROOT / "experiments"))
    assert filled(page.read_text()) == page.read_text(), "run `make tables`"
