"""Links between pages work where the repository is looked at, too: each leads to a file or folder of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.test_files_named import PAGES, ROOT

LINK = re.compile(r"\]\((?!\w+:|#)([^)\s#]+)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_to_a_file_of_the_repository(page: Path) -> None:
    prose = re.sub(r"^```.*?^```|`[^`\n]*`", "", page.read_text(), flags=re.M | re.S)
    assert [name for name in LINK.findall(prose) if not (page.parent / name).exists()] == []
