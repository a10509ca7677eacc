"""Plain technical English: "one per client", never "one a client"."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "src").rglob("*.py"))]
PER = re.compile(
    r"\b((one|row|model|line|message|bit|number|round|client)s? a "
    r"(client|worker|group|cluster|site|row|round|class|core|value)"
    r"|one (clock|step|decision|unknown|pass|download|class|batch|answer|copy) a "
    r"(client|worker|group|cluster|site|row|round|class|run|batch|sample|model|position))\b"
)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_rates_are_said_with_per(page: Path) -> None:
    assert [found.group(0) for found in PER.finditer(page.read_text())] == []
