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


def test_a_path_is_never_broken_and_a_sentence_is_between_words() -> None:
    screen, path = io.StringIO(), "/runs/" + "long-" * 20 + "name"
    Console(file=screen, width=20).print_words(f"wrote a file of answers {path}")
    assert screen.getvalue().splitlines() == ["wrote a file of", "answers", path]


def test_a_table_that_is_wider_than_the_terminal_is_printed_whole() -> None:
    screen, table = io.StringIO(), Table("client", "accuracy")
    table.add_row("a ward with a long name", "0.123456")
    Console(file=screen, width=20).print_whole(table)
    assert "a ward with a long name" in screen.getvalue()
    assert "0.123456" in screen.getvalue()
