"""The pages on data name everything there is, and their programs run."""

import re
from pathlib import Path

import pytest

from covey.settings.catalogue import DATASETS, PARTITIONS, SHIFTS

DOCS = Path(__file__).parents[2] / "docs"
PAGE = "\n".join((DOCS / name).read_text() for name in ("data.md", "partitions.md"))
ROWS = {row.split("|")[1].strip().strip("`"): row for row in PAGE.splitlines() if row.startswith("| `")}


@pytest.mark.parametrize("name", [*DATASETS, *PARTITIONS, *SHIFTS])
def test_every_data_set_partition_and_shift_has_a_row(name):
    assert name in ROWS


@pytest.mark.parametrize("program", re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
def test_the_programs_on_the_page_run(program):
    exec(compile(program, "docs", "exec"), {})
