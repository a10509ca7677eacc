"""The page on data names everything there is, with the settings that the functions have, and its programs run."""

import re
from pathlib import Path

import pytest

from covey.data.federate import FEDERATED_BY
from covey.settings.catalogue import DATASETS, PARTITIONS, SHIFTS
from covey.settings.signatures import settings_of

PAGE = (Path(__file__).parents[2] / "docs" / "data.md").read_text()
ROWS = {row.split("|")[1].strip().strip("`"): row for row in PAGE.splitlines() if row.startswith("| `")}


@pytest.mark.parametrize("name", [*DATASETS, *PARTITIONS, *SHIFTS])
def test_every_data_set_partition_and_shift_has_a_row(name):
    assert name in ROWS


@pytest.mark.parametrize("name", [*PARTITIONS, *SHIFTS])
def test_a_row_names_the_settings_with_their_defaults(name):
    listed = ROWS[name].rstrip("| ").split("|")[-1].strip() if not ROWS[name].endswith("| |") else ""
    settings = settings_of({**PARTITIONS, **SHIFTS}[name], given=FEDERATED_BY)
    named = {part.split()[0]: part.split()[1:] for part in re.split(r", (?=[a-z_]+)", listed) if part}
    if name == "two-label-groups":
        assert listed == "pairs next, haccs, published"
        return
    assert set(named) == set(settings)
    for key, words in named.items():
        if words:
            assert " ".join(words) == str(settings[key].default).removesuffix(".0")


@pytest.mark.parametrize("program", re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
def test_the_programs_on_the_page_run(program):
    exec(compile(program, "docs/data.md", "exec"), {})
