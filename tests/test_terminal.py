"""What is printed is printed as it is, whoever wrote it."""

import io

import pytest
from rich.table import Table

from covey.terminal import Console


def printed(what: object) -> str:
    screen = io.StringIO()
    Console(file=screen, width=60).print(what)
    return screen.getvalue()


@pytest.mark.parametrize("name", ["runs/[bold]", "runs/x[/b]", "a setting of [guard]", "mine.py:rocket:"])
def test_a_name_is_never_markup(name: str) -> None:
    assert name in printed(name)


def test_nor_is_a_cell_or_a_title_of_a_table() -> None:
    table = Table("client", title="[red]kinds")
    table.add_row("ward [/3]")
    assert "ward [/3]" in printed(table)
    assert "[red]kinds" in printed(table)


def test_an_escape_sequence_steers_nothing() -> None:
    assert "\x1b" not in printed("\x1b[2Jgone")
