"""`covey topology`: what it prints, what it draws, and how it says no."""

from pathlib import Path

import pytest
import typer
from PIL import Image
from typer.testing import CliRunner

from covey.cli.command import add
from covey.cli.topology import topology
from covey.errors import UserError


@pytest.fixture
def command() -> typer.Typer:
    app = typer.Typer()
    add(app, topology)
    return app


def output(app: typer.Typer, *words: str) -> str:
    result = CliRunner().invoke(app, list(words))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def numbers_after(text: str, label: str) -> list[str]:
    line = next(line for line in text.splitlines() if label in line)
    return line.split(label)[1].split()


def test_the_example_of_the_documentation(command: typer.Typer) -> None:
    text = output(
        command, "--graph", "wheel", "--nodes", "50", "--clusters", "10", "--rounds", "100",
        "--cluster-every", "2", "--backbone-every", "2",
    )  # fmt: skip
    assert numbers_after(text, "messages in 100 rounds") == ["5,000", "7,000", "3,000"]
    assert numbers_after(text, "messages per round") == ["50", "70", "30"]


def test_figure_2_in_the_terminal(command: typer.Typer) -> None:
    text = output(command, "--graph", "ring", "--nodes", "6", "--rounds", "3", "--parameters", "1000")
    assert numbers_after(text, "data a round") == ["48", "kB"]
    assert numbers_after(text, "spectral gap per round") == ["0.3333"]
    assert [line.split()[1] for line in text.splitlines() if line.strip()[:1].isdigit()][-4:] == [
        "0.9129", "0.4082", "0.2606", "0.1717",
    ]  # fmt: skip


def test_the_picture_is_drawn_in_dots_and_in_a_file(command: typer.Typer, tmp_path: Path) -> None:
    picture = tmp_path / "ring.png"
    text = output(command, "--graph", "ring", "--nodes", "5", "--draw", str(picture))
    assert any("\u2800" < mark < "\u28ff" for mark in text)
    with Image.open(picture) as image:
        assert min(image.size) > 500


def test_links_from_a_file(command: typer.Typer, tmp_path: Path) -> None:
    links = tmp_path / "links.txt"
    links.write_text("# sender receiver\n0 1\n1, 2\n2 0\n")
    text = output(command, "--edges", str(links), "--nodes", "3", "--rounds", "10")
    assert numbers_after(text, "messages in 10 rounds") == ["30"]


def test_recommend_lists_the_best_first(command: typer.Typer) -> None:
    text = output(
        command, "--recommend", "--nodes", "20", "--clusters", "4", "--rounds", "20", "--budget", "700"
    )
    lines = [line.split() for line in text.splitlines() if line.strip()[:1].isdigit()]
    spreads = [float(line[5]) for line in lines[1:]]
    assert spreads == sorted(spreads)
    assert all(int(line[4].replace(",", "")) <= 700 for line in lines[1:])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--weights", "heavy"], "weights is 'heavy'; allowed: auto, equal, metropolis"),
        (["--nodes", "0"], "nodes is 0"),
        (["--clusters", "60"], "clusters is 60; allowed: at most the number of nodes, 50"),
        (["--rounds", "0"], "rounds is 0"),
        (["--backbone-every", "0"], "backbone_every is 0; allowed: a whole number, at least 1"),
        (["--nodes", "4", "--draw", "picture.txt"], "must end in .png"),
        (["--edges", "nowhere.txt"], "nowhere.txt': cannot be read"),
        (["--recommend", "--budget", "1"], "budget = 1: no combination sends so few messages"),
    ],
)
def test_a_mistake_is_one_sentence(command: typer.Typer, words: list[str], message: str) -> None:
    with pytest.raises(UserError) as caught:
        output(command, *words)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
